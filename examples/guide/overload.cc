// A server with limits: what is more than it takes is refused at once, and says so.
#include <array>
#include <iostream>
#include <latch>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "examples/guide/guide.weft.h"
#include "weft/channel.h"
#include "weft/engine.h"
#include "weft/server.h"
#include "weft/status.h"

namespace {

constexpr int kCalls = 5;
constexpr int kAdmitted = 2;

// Answers when it is told to.
class SlowNotes final : public guide::Notes::Service {
 public:
  using Call = weft::UnaryCall<guide::CountRequest, guide::CountReply>;

  void AnswerAll() {
    std::vector<Call> calls;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      calls.swap(calls_);
    }
    for (Call& call : calls) {
      call.reply()->set_words(3);
      call.Finish(absl::OkStatus());
    }
  }

 private:
  void StartCountWords(Call call) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    calls_.push_back(std::move(call));
  }

  std::mutex mutex_;
  std::vector<Call> calls_;
};

absl::StatusOr<std::unique_ptr<weft::Server>> Start(SlowNotes& service) {
  weft::ServerOptions options;
  options.limits.adaptive = true;  // as much as the server can do, found out
  options.limits.per_client = 64;  // and of that, what one client may have
  options.limits.per_method = {{"guide.Notes/CountWords", kAdmitted}};
  auto server = weft::Server::Create(options);
  if (!server.ok()) return server.status();
  if (auto added = (*server)->AddService(&service); !added.ok()) return added;
  if (auto listening = (*server)->Listen("127.0.0.1:0"); !listening.ok()) return listening;
  return server;
}

absl::Status Run() {
  SlowNotes service;
  auto server = Start(service);
  if (!server.ok()) return server.status();
  auto engine = weft::OpenNetworkEngine({});
  if (!engine.ok()) return engine.status();
  auto channel = weft::Channel::Open(**engine, (*server)->address());
  if (!channel.ok()) return channel.status();
  guide::Notes::Stub stub(**channel);

  guide::CountRequest request;
  request.set_text("these are words");
  std::array<guide::CountReply, kCalls> replies;
  int answered = 0;  // the engine's thread counts
  int refused = 0;
  std::latch all_refused(kCalls - kAdmitted);
  std::latch all(kCalls);
  for (guide::CountReply& reply : replies) {
    stub.CountWords(request, &reply, {.timeout_us = 10'000'000}, [&](const absl::Status& end) {
      if (end.ok()) ++answered;
      if (absl::IsResourceExhausted(end) && weft::DeliveryOf(end) == weft::Delivery::kNotSent) {
        // Here it can only be the server: a full queue of the channel, or a request that is too
        // large, would look the same. Another server may have room; or this one, after a pause.
        ++refused;
        all_refused.count_down();
      }
      all.count_down();
    });
  }
  all_refused.wait();
  service.AnswerAll();
  all.wait();
  std::cout << answered << " answered, " << refused << " refused at once" << std::endl;
  std::cout << "by the method's limit: " << (*server)->stats().refused_by_method_limit << std::endl;
  return absl::OkStatus();
}

}  // namespace

int main() {
  absl::Status status = Run();
  if (!status.ok()) std::cerr << status << std::endl;
  return status.ok() ? 0 : 1;
}
