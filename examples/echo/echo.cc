// The smallest Weft program: `echo` serves and prints its address, `echo ADDRESS TEXT` calls it.
#include <iostream>

#include "examples/echo/echo.weft.h"
#include "weft/channel.h"
#include "weft/server.h"

class EchoService final : public echo::Echo::Service {
  absl::Status Say(weft::ServerContext&, const echo::SayRequest& request,
                   echo::SayReply* reply) override {
    reply->set_text(request.text());
    return absl::OkStatus();
  }
};

absl::Status Serve() {
  EchoService service;
  auto server = weft::Server::Create();
  if (!server.ok()) return server.status();
  if (auto added = (*server)->AddService(&service); !added.ok()) return added;
  if (auto listening = (*server)->Listen("127.0.0.1:0"); !listening.ok()) return listening;
  std::cout << (*server)->address() << std::endl;
  (*server)->Wait();
  return absl::OkStatus();
}

absl::Status Call(const std::string& address, const std::string& text) {
  auto channel = weft::Channel::Open(address);
  if (!channel.ok()) return channel.status();
  echo::Echo::Stub stub(**channel);
  echo::SayRequest request;
  echo::SayReply reply;
  request.set_text(text);
  absl::Status status = stub.Say(request, &reply, {.timeout_us = 5'000'000});
  if (status.ok()) std::cout << reply.text() << std::endl;
  return status;
}

int main(int argc, char** argv) {
  absl::Status status = argc == 3 ? Call(argv[1], argv[2]) : Serve();
  if (!status.ok()) std::cerr << status << std::endl;
  return status.ok() ? 0 : 1;
}
