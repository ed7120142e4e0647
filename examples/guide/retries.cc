// A call that fails, is sent again, is slow, and gets a second attempt beside it: the program sees
// one call that ends well.
#include <iostream>
#include <optional>
#include <string>
#include <utility>

#include "examples/guide/guide.weft.h"
#include "weft/channel.h"
#include "weft/client_context.h"
#include "weft/server.h"

// Is away at first, then does not answer, and then does.
class Moody final : public guide::Notes::Service {
  using Call = weft::UnaryCall<guide::CountRequest, guide::CountReply>;

  void StartCountWords(Call call) override {
    const std::string* const before = call.context().metadata().Find("grpc-previous-rpc-attempts");
    std::cout << "attempts before: " << (before == nullptr ? "none" : *before) << std::endl;
    switch (++calls_) {
      case 1:
        return call.Finish(absl::UnavailableError("not now"));
      case 2:
        slow_ = std::move(call);
        slow_->context().OnCancel([this] {
          slow_->Finish(absl::CancelledError("another attempt was faster"));
          slow_.reset();
        });
        return;
      default:
        call.reply()->set_words(3);
        return call.Finish(absl::OkStatus());
    }
  }

  int calls_ = 0;
  std::optional<Call> slow_;
};

absl::Status Run() {
  Moody service;
  auto server = weft::Server::Create();
  if (!server.ok()) return server.status();
  if (auto added = (*server)->AddService(&service); !added.ok()) return added;
  if (auto listening = (*server)->Listen("127.0.0.1:0"); !listening.ok()) return listening;

  weft::ChannelOptions options;
  options.retry.max_attempts = 4;
  options.retry.hedge_after_us = 20'000;
  auto channel = weft::Channel::Open((*server)->address(), options);
  if (!channel.ok()) return channel.status();
  guide::Notes::Stub stub(**channel);
  guide::CountRequest request;
  request.set_text("these are words");
  guide::CountReply reply;
  if (auto called = stub.CountWords(request, &reply, {.timeout_us = 10'000'000}); !called.ok()) {
    return called;
  }
  const weft::ChannelStats stats = (*channel)->stats();
  std::cout << reply.words() << " words in " << stats.calls_started << " call, with "
            << stats.retries << " retry and " << stats.hedges << " hedge" << std::endl;
  return absl::OkStatus();
}

int main() {
  absl::Status status = Run();
  if (!status.ok()) std::cerr << status << std::endl;
  return status.ok() ? 0 : 1;
}
