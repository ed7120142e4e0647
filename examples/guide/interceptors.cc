// What runs around calls: credentials and a log at the client, permission at the server; and a
// trace that a handler's own call carries on.
#include <iostream>
#include <string>
#include <utility>

#include "examples/guide/guide.weft.h"
#include "weft/channel.h"
#include "weft/client_context.h"
#include "weft/coroutine.h"
#include "weft/engine.h"
#include "weft/interceptor.h"
#include "weft/server.h"

// Says who is asking.
class Credentials final : public weft::ClientInterceptor {
 public:
  explicit Credentials(std::string user) : user_(std::move(user)) {}
  absl::Status OnStart(weft::OutgoingCall& call) override {
    return call.AddMetadata("user", user_);
  }

 private:
  const std::string user_;
};

class CallLog final : public weft::ClientInterceptor {
 public:
  void OnEnd(weft::OutgoingCall& call, const absl::Status& status) override {
    std::cout << call.service() << "/" << call.method() << ": "
              << absl::StatusCodeToString(status.code()) << std::endl;
  }
};

class OnlyAnna final : public weft::ServerInterceptor {
 public:
  absl::Status OnStart(weft::IncomingCall& call) override {
    const std::string* const user = call.context().metadata().Find("user");
    if (user != nullptr && *user == "anna") return absl::OkStatus();
    return absl::PermissionDeniedError("this server is Anna's");
  }
};

// Counts, for those who ask it.
class Counter final : public guide::Notes::Service {
  absl::Status CountWords(weft::ServerContext& context, const guide::CountRequest& request,
                          guide::CountReply* reply) override {
    const std::string* const trace = context.metadata().Find("traceparent");
    std::cout << "trace " << (trace == nullptr ? "none" : *trace) << std::endl;
    reply->set_words(request.text().empty() ? 0 : 1);
    return absl::OkStatus();
  }
};

// Asks a Counter, on behalf of its own callers.
class Front final : public guide::Notes::CoService {
 public:
  explicit Front(const guide::Notes::Stub& counter) : counter_(counter) {}

 private:
  weft::Task<absl::Status> CoCountWords(weft::ServerContext& context,
                                        const guide::CountRequest& request,
                                        guide::CountReply* reply) override {
    const auto own = weft::ClientContext::FromServerContext(context);
    co_return co_await counter_.CoCountWords(request, reply, {.context = own.get()});
  }

  const guide::Notes::Stub& counter_;
};

absl::Status Run() {
  Counter counter;
  auto back = weft::Server::Create();
  if (!back.ok()) return back.status();
  if (auto added = (*back)->AddService(&counter); !added.ok()) return added;
  if (auto listening = (*back)->Listen("127.0.0.1:0"); !listening.ok()) return listening;

  auto engine = weft::OpenNetworkEngine({});  // of the front server, and of its channel
  if (!engine.ok()) return engine.status();
  auto to_back = weft::Channel::Open(**engine, (*back)->address());
  if (!to_back.ok()) return to_back.status();
  const guide::Notes::Stub asks_back(**to_back);
  Front front(asks_back);
  OnlyAnna only_anna;
  weft::ServerOptions server_options;
  server_options.interceptors = {&only_anna};
  auto server = weft::Server::Create(**engine, server_options);
  if (!server.ok()) return server.status();
  if (auto added = (*server)->AddService(&front); !added.ok()) return added;
  if (auto listening = (*server)->Listen("127.0.0.1:0"); !listening.ok()) return listening;

  CallLog log;
  for (const char* user : {"bert", "anna"}) {
    Credentials credentials(user);
    weft::ChannelOptions options;
    options.interceptors = {&credentials, &log};
    auto channel = weft::Channel::Open((*server)->address(), options);
    if (!channel.ok()) return channel.status();
    weft::ClientContext context;
    absl::Status added = context.AddMetadata(
        "traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
    if (!added.ok()) return added;
    guide::CountRequest request;
    request.set_text("word");
    guide::CountReply reply;
    absl::Status status =
        guide::Notes::Stub(**channel).CountWords(request, &reply, {.context = &context});
    if (!status.ok()) std::cout << status.message() << std::endl;
  }
  return absl::OkStatus();
}

int main() {
  absl::Status status = Run();
  if (!status.ok()) std::cerr << status << std::endl;
  return status.ok() ? 0 : 1;
}
