// Three servers of one service and a channel over all of them: one server ends under load, another
// one comes, and no call fails.
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "examples/guide/guide.weft.h"
#include "weft/balancing.h"
#include "weft/channel.h"
#include "weft/server.h"

namespace {

class Counter final : public guide::Notes::Service {
  absl::Status CountWords(weft::ServerContext&, const guide::CountRequest& request,
                          guide::CountReply* reply) override {
    for (const char c : request.text()) reply->set_words(reply->words() + (c == ' '));
    reply->set_words(reply->words() + 1);
    return absl::OkStatus();
  }
};

absl::StatusOr<std::unique_ptr<weft::Server>> Start(Counter& service) {
  auto server = weft::Server::Create();
  if (!server.ok()) return server.status();
  if (auto added = (*server)->AddService(&service); !added.ok()) return added;
  if (auto listening = (*server)->Listen("127.0.0.1:0"); !listening.ok()) return listening;
  return server;
}

absl::Status Run() {
  Counter service;
  std::vector<std::unique_ptr<weft::Server>> servers;
  std::string target = "list:";
  for (int i = 0; i < 3; ++i) {
    auto server = Start(service);
    if (!server.ok()) return server.status();
    target += (i == 0 ? "" : ",") + (*server)->address();
    servers.push_back(*std::move(server));
  }

  weft::ChannelOptions options;
  options.retry.max_attempts = 4;
  weft::BalancingOptions balancing;
  balancing.policy = weft::BalancingPolicy::kRoundRobin;
  auto channel = weft::OpenBalanced(target, options, balancing);
  if (!channel.ok()) return channel.status();
  guide::Notes::Stub stub(**channel);

  guide::CountRequest request;
  request.set_text("these are words");
  const auto call = [&](int times) -> absl::Status {
    for (int i = 0; i < times; ++i) {
      guide::CountReply reply;
      absl::Status status = stub.CountWords(request, &reply, {.timeout_us = 10'000'000});
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  };

  if (auto called = call(300); !called.ok()) return called;
  servers[0].reset();  // at once, with whatever it has under way
  if (auto called = call(300); !called.ok()) return called;

  // Another one takes its place: a registry of the program's own says so.
  auto another = Start(service);
  if (!another.ok()) return another.status();
  std::vector<weft::ListedServer> now = {{(*another)->address()}};
  for (int i = 1; i < 3; ++i) now.push_back({servers[i]->address()});
  if (auto set = weft::SetServers(**channel, now); !set.ok()) return set;
  // Calls go on to the others until there is a connection to it.
  const auto answers_of_new = [&]() -> uint64_t {
    for (const weft::ServerFacts& facts : weft::ServersOf(**channel)) {
      if (facts.server == now[0]) return facts.answers_ok;
    }
    return 0;
  };
  while (answers_of_new() == 0) {
    if (auto called = call(1); !called.ok()) return called;
  }
  std::cout << (*channel)->stats().calls_failed << " calls failed, and the new server answers"
            << std::endl;
  return absl::OkStatus();
}

}  // namespace

int main() {
  absl::Status status = Run();
  if (!status.ok()) std::cerr << status << std::endl;
  return status.ok() ? 0 : 1;
}
