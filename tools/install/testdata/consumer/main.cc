// Serves a greeter and calls it, over whatever path the two find. Prints the reply.
#include <iostream>
#include <memory>

#include "greeter.weft.h"
#include "rpc/channel.h"
#include "rpc/server.h"

namespace {

class Greeter : public consumer::Greeter::Service {
 public:
  absl::Status Greet(weft::ServerContext&, const consumer::GreetRequest& request,
                     consumer::Greeting* reply) override {
    reply->set_text("hello, " + request.name());
    return absl::OkStatus();
  }
};

absl::Status Run() {
  Greeter greeter;
  auto server = weft::Server::Create();
  if (!server.ok()) return server.status();
  if (auto status = (*server)->AddService(&greeter); !status.ok()) return status;
  if (auto status = (*server)->Listen("127.0.0.1:0"); !status.ok()) return status;

  auto channel = weft::Channel::Open((*server)->address());
  if (!channel.ok()) return channel.status();
  consumer::Greeter::Stub stub(**channel);
  consumer::GreetRequest request;
  request.set_name("consumer");
  consumer::Greeting reply;
  if (auto status = stub.Greet(request, &reply, {.timeout_us = 10'000'000}); !status.ok()) {
    return status;
  }
  std::cout << reply.text() << "\n";
  return absl::OkStatus();
}

}  // namespace

int main() {
  const absl::Status status = Run();
  if (!status.ok()) std::cerr << status << "\n";
  return status.ok() ? 0 : 1;
}
