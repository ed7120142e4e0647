// An engine in the application's own event loop: Weft starts no thread for this client.
#include <poll.h>

#include <algorithm>
#include <iostream>
#include <thread>

#include "examples/guide/guide.weft.h"
#include "weft/channel.h"
#include "weft/engine.h"
#include "weft/server.h"

class Notes final : public guide::Notes::Service {
  absl::Status CountWords(weft::ServerContext&, const guide::CountRequest& request,
                          guide::CountReply* reply) override {
    reply->set_words(1 + std::count(request.text().begin(), request.text().end(), ' '));
    return absl::OkStatus();
  }
};

// How long the loop may sleep: until the engine's next timer, in milliseconds.
int MillisecondsUntilTimer(weft::Engine& engine) {
  const uint64_t now_ns = engine.clock().NowNs();
  const uint64_t timer_ns = engine.NextTimerNs();
  if (timer_ns <= now_ns) return 0;
  return static_cast<int>(std::min<uint64_t>((timer_ns - now_ns) / 1'000'000 + 1, 1'000));
}

void RunLoop(weft::Engine& engine, const bool& stop) {
  while (!stop) {
    const bool may_sleep = engine.Poll() == 0 && engine.Arm();  // callbacks run inside of Poll()
    pollfd descriptors[] = {{engine.fd(), POLLIN, 0}};          // and the application's own
    // Also after a turn with work: else the application's own wait while traffic is steady.
    poll(descriptors, 1, may_sleep ? MillisecondsUntilTimer(engine) : 0);
  }
}

absl::Status Run() {
  Notes service;
  auto server = weft::Server::Create();
  if (!server.ok()) return server.status();
  if (auto added = (*server)->AddService(&service); !added.ok()) return added;
  if (auto listening = (*server)->Listen("127.0.0.1:0"); !listening.ok()) return listening;

  weft::EngineOptions options;
  options.drive = weft::EngineOptions::Drive::kExternal;
  auto engine = weft::OpenNetworkEngine(options);
  if (!engine.ok()) return engine.status();
  auto channel = weft::Channel::Open(**engine, (*server)->address());
  if (!channel.ok()) return channel.status();

  guide::Notes::Stub stub(**channel);
  guide::CountRequest request;
  guide::CountReply reply;
  request.set_text("four words are here");
  absl::Status end;
  bool ended = false;
  stub.CountWords(request, &reply, {.timeout_us = 5'000'000}, [&](absl::Status status) {
    end = status;
    ended = true;
  });
  RunLoop(**engine, ended);
  if (!end.ok()) return end;
  std::cout << reply.words() << " words, and ";

  // Another thread may block in a call: it sleeps while the loop does the work.
  ended = false;
  std::thread other([&] {
    request.set_text("three words more");
    end = stub.CountWords(request, &reply, {.timeout_us = 5'000'000});
    while (!(*engine)->Post([&] { ended = true; })) std::this_thread::yield();
  });
  RunLoop(**engine, ended);
  other.join();
  if (end.ok()) std::cout << reply.words() << " for another thread" << std::endl;
  return end;
}

int main() {
  absl::Status status = Run();
  if (!status.ok()) std::cerr << status << std::endl;
  return status.ok() ? 0 : 1;
}
