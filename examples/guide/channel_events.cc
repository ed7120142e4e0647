// A channel tells of its state, and when it has room for another call.
#include <cstdint>
#include <iostream>
#include <latch>
#include <string>
#include <utility>
#include <vector>

#include "examples/guide/guide.weft.h"
#include "weft/channel.h"
#include "weft/engine.h"
#include "weft/metrics.h"
#include "weft/server.h"

class Notes final : public guide::Notes::Service {
  absl::Status CountWords(weft::ServerContext&, const guide::CountRequest&,
                          guide::CountReply* reply) override {
    reply->set_words(3);
    return absl::OkStatus();
  }
};

constexpr int kCalls = 1'000;

// Starts each call when it will be sent at once, so that none is queued or refused.
class Feeder {
 public:
  explicit Feeder(weft::Channel& channel) : channel_(channel), stub_(channel), replies_(kCalls) {}

  // Returns when all have ended.
  absl::Status Run() {
    FeedOne();
    all_.wait();
    return end_;
  }

 private:
  void FeedOne() {
    channel_.WhenWritable([this](absl::Status status) {
      if (!status.ok()) return GiveUp(status);
      guide::CountReply& reply = replies_[started_++];
      stub_.CountWords(request_, &reply, {}, [this](absl::Status end) { OnEnd(end); });
      if (started_ < kCalls) FeedOne();
    });
  }
  void OnEnd(const absl::Status& end) {
    if (!end.ok()) end_ = end;
    all_.count_down();
  }
  void GiveUp(const absl::Status& why) {
    end_ = why;
    all_.count_down(kCalls - started_);
  }

  weft::Channel& channel_;
  const guide::Notes::Stub stub_;
  const guide::CountRequest request_;
  std::vector<guide::CountReply> replies_;
  int started_ = 0;
  absl::Status end_;
  std::latch all_{kCalls};
};

absl::Status Run() {
  Notes service;
  auto server = weft::Server::Create();
  if (!server.ok()) return server.status();
  if (auto added = (*server)->AddService(&service); !added.ok()) return added;
  if (auto listening = (*server)->Listen("127.0.0.1:0"); !listening.ok()) return listening;

  auto engine = weft::OpenNetworkEngine({});  // has a thread of its own
  if (!engine.ok()) return engine.status();
  weft::ChannelOptions options;
  options.max_outstanding_calls = 16;
  options.max_queued_calls = 0;
  auto channel = weft::Channel::Open(**engine, (*server)->address(), options);
  if (!channel.ok()) return channel.status();

  std::latch lost(1);
  bool was_ready = false;
  auto watch = (*channel)->WatchState([&](weft::Channel::State state) {
    std::cout << weft::ChannelStateName(state) << std::endl;
    if (was_ready && state != weft::Channel::State::kReady) lost.count_down();
    was_ready = state == weft::Channel::State::kReady;
  });
  if (!watch.ok()) return watch.status();

  if (auto fed = Feeder(**channel).Run(); !fed.ok()) return fed;
  std::cout << kCalls << " calls" << std::endl;

  server->reset();
  lost.wait();
  *watch = weft::ChannelWatch();  // it is told no more
  return absl::OkStatus();
}

int main() {
  absl::Status status = Run();
  if (!status.ok()) std::cerr << status << std::endl;
  return status.ok() ? 0 : 1;
}
