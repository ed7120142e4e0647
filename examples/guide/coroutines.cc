// Coroutines at both ends: calls one after the other and together, a stream, handlers that wait.
#include <iostream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "examples/guide/guide.weft.h"
#include "weft/channel.h"
#include "weft/coroutine.h"
#include "weft/server.h"

guide::CountReply Count(const guide::CountRequest& request) {
  guide::CountReply reply;
  std::istringstream text(request.text());
  for (std::string word; text >> word;) reply.set_words(reply.words() + 1);
  return reply;
}

class Notes final : public guide::Notes::CoService {
  absl::Status CountWords(weft::ServerContext&, const guide::CountRequest& request,
                          guide::CountReply* reply) override {
    *reply = Count(request);
    return absl::OkStatus();
  }
  weft::Task<absl::Status> CoChat(
      weft::ServerContext&,
      weft::ServerReaderWriter<guide::CountReply, guide::CountRequest>& stream) override {
    guide::CountRequest request;
    while (co_await stream.CoRead(&request)) {
      if (!co_await stream.CoWrite(Count(request))) co_return absl::AbortedError("nobody reads");
    }
    co_return absl::OkStatus();
  }
};

weft::Task<absl::StatusOr<uint64_t>> Words(const guide::Notes::Stub& stub, std::string text) {
  guide::CountRequest request;
  request.set_text(std::move(text));
  guide::CountReply reply;
  absl::Status status = co_await stub.CoCountWords(request, &reply, {.timeout_us = 10'000'000});
  if (!status.ok()) co_return status;
  co_return reply.words();
}

weft::Task<absl::Status> CountTogether(const guide::Notes::Stub& stub) {
  std::vector<weft::Task<absl::StatusOr<uint64_t>>> tasks;
  for (const char* text : {"one", "one two", "one two three"}) tasks.push_back(Words(stub, text));
  uint64_t words = 0;
  for (const auto& counted : co_await weft::WhenAll(std::move(tasks))) {
    if (!counted.ok()) co_return counted.status();
    words += *counted;
  }
  std::cout << words << " words in 3 calls" << std::endl;
  co_return absl::OkStatus();
}

weft::Task<absl::Status> Chat(weft::Engine& engine, const guide::Notes::Stub& stub) {
  auto chat = stub.Chat();
  guide::CountRequest request;
  guide::CountReply reply;
  for (const char* text : {"one", "one two", "one two three"}) {
    request.set_text(text);
    if (!co_await chat.CoWrite(request) || !co_await chat.CoRead(&reply)) break;
    std::cout << reply.words() << std::endl;
    co_await weft::Sleep(engine, /*delay_us=*/1000);
  }
  chat.WritesDone();
  co_return co_await chat.CoFinish();
}

weft::Task<absl::Status> Both(weft::Engine& engine, const guide::Notes::Stub& stub) {
  absl::Status status = co_await CountTogether(stub);
  if (!status.ok()) co_return status;
  co_return co_await Chat(engine, stub);
}

absl::Status Run() {
  Notes service;
  auto server = weft::Server::Create();
  if (!server.ok()) return server.status();
  if (auto added = (*server)->AddService(&service); !added.ok()) return added;
  if (auto listening = (*server)->Listen("127.0.0.1:0"); !listening.ok()) return listening;

  auto channel = weft::Channel::Open((*server)->address());
  if (!channel.ok()) return channel.status();
  guide::Notes::Stub stub(**channel);
  weft::Engine& engine = (*channel)->engine();
  return weft::Wait(engine, Both(engine, stub));
}

int main() {
  absl::Status status = Run();
  if (!status.ok()) std::cerr << status << std::endl;
  return status.ok() ? 0 : 1;
}
