// A thousand calls under way from one thread, and an engine with a thread of its own.
#include <iostream>
#include <latch>
#include <sstream>
#include <string>
#include <vector>

#include "examples/guide/guide.weft.h"
#include "weft/channel.h"
#include "weft/engine.h"
#include "weft/server.h"

class Notes final : public guide::Notes::Service {
  absl::Status CountWords(weft::ServerContext&, const guide::CountRequest& request,
                          guide::CountReply* reply) override {
    std::istringstream text(request.text());
    for (std::string word; text >> word;) reply->set_words(reply->words() + 1);
    return absl::OkStatus();
  }
};

constexpr int kCalls = 1'000;

absl::Status CountAll(weft::Channel& channel) {
  guide::Notes::Stub stub(channel);
  guide::CountRequest request;
  request.set_text("one two three");
  std::vector<guide::CountReply> replies(kCalls);
  std::vector<absl::Status> ends(kCalls);
  std::latch all(kCalls);
  for (int i = 0; i < kCalls; ++i) {
    stub.CountWords(request, &replies[i], {.timeout_us = 10'000'000}, [&, i](absl::Status end) {
      ends[i] = end;  // on the engine's thread
      all.count_down();
    });
  }
  all.wait();
  uint64_t words = 0;
  for (int i = 0; i < kCalls; ++i) {
    if (!ends[i].ok()) return ends[i];
    words += replies[i].words();
  }
  std::cout << words << " words in " << kCalls << " calls" << std::endl;
  return absl::OkStatus();
}

absl::Status Run() {
  Notes service;
  auto server = weft::Server::Create();
  if (!server.ok()) return server.status();
  if (auto added = (*server)->AddService(&service); !added.ok()) return added;
  if (auto listening = (*server)->Listen("127.0.0.1:0"); !listening.ok()) return listening;

  auto engine = weft::OpenNetworkEngine({});  // has a thread of its own
  if (!engine.ok()) return engine.status();
  auto channel = weft::Channel::Open(**engine, (*server)->address());
  if (!channel.ok()) return channel.status();
  return CountAll(**channel);
}

int main() {
  absl::Status status = Run();
  if (!status.ok()) std::cerr << status << std::endl;
  return status.ok() ? 0 : 1;
}
