// A heartbeat that does not wait for a backup.
#include <iostream>
#include <utility>
#include <vector>

#include "examples/guide/guide.weft.h"
#include "weft/channel.h"
#include "weft/server.h"
#include "weft/service.h"

// Keeps what can wait until somebody asks for something else than a heartbeat.
class Store final : public guide::Notes::Service {
  using Call = weft::UnaryCall<guide::CountRequest, guide::CountReply>;

  void StartCountWords(Call call) override {
    if (call.context().priority() == weft::Priority::kBackground && !may_go_on_) {
      return kept_.push_back(std::move(call));
    }
    if (call.context().priority() == weft::Priority::kNormal) GoOn();
    call.Finish(absl::OkStatus());
  }
  void GoOn() {
    may_go_on_ = true;
    for (Call& call : kept_) call.Finish(absl::OkStatus());
    kept_.clear();
  }

  bool may_go_on_ = false;
  std::vector<Call> kept_;
};

absl::Status Run() {
  Store store;
  auto server = weft::Server::Create();
  if (!server.ok()) return server.status();
  if (auto added = (*server)->AddService(&store); !added.ok()) return added;
  if (auto listening = (*server)->Listen("127.0.0.1:0"); !listening.ok()) return listening;
  weft::ChannelOptions options;
  options.max_outstanding_calls = 16;
  auto channel = weft::Channel::Open((*server)->address(), options);
  if (!channel.ok()) return channel.status();

  guide::Notes::Stub notes(**channel);
  constexpr int kParts = 100;
  std::vector<guide::CountReply> replies(kParts);
  int ended = 0;
  for (guide::CountReply& reply : replies) {
    notes.CountWords({}, &reply, {.priority = weft::Priority::kBackground},
                     [&ended](absl::Status) { ++ended; });
  }

  guide::CountReply reply;
  absl::Status alive =
      notes.CountWords({}, &reply, {.timeout_us = 1'000'000, .priority = weft::Priority::kControl});
  if (!alive.ok()) return alive;
  std::cout << "the server lives; " << ended << " parts of the backup are done" << std::endl;

  // A call of normal priority finds a place as well. Here it ends the wait of the others.
  absl::Status counted = notes.CountWords({}, &reply);
  if (!counted.ok()) return counted;
  while (ended < kParts) {
    absl::Status again = notes.CountWords({}, &reply);
    if (!again.ok()) return again;
  }
  std::cout << ended << " parts of the backup are done" << std::endl;
  return absl::OkStatus();
}

int main() {
  absl::Status status = Run();
  if (!status.ok()) std::cerr << status << std::endl;
  return status.ok() ? 0 : 1;
}
