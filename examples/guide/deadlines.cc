// Deadlines, and what a program does about errors.
#include <iostream>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "examples/guide/guide.weft.h"
#include "weft/channel.h"
#include "weft/server.h"
#include "weft/service.h"
#include "weft/status.h"

// A server that is too slow for its callers: it keeps every call until it is told to answer.
class SlowNotes final : public guide::Notes::Service {
 public:
  void AnswerAll() {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (auto& call : calls_) call.Finish(absl::OkStatus());
    calls_.clear();
  }

 private:
  using Call = weft::UnaryCall<guide::CountRequest, guide::CountReply>;
  void StartCountWords(Call call) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    calls_.push_back(std::move(call));
  }

  std::mutex mutex_;
  std::vector<Call> calls_;
};

const char* WhatNext(const absl::Status& status) {
  if (!absl::IsUnavailable(status) && !absl::IsDeadlineExceeded(status)) return "see its code";
  return weft::DeliveryOf(status) == weft::Delivery::kNotSent
             ? "send it again"
             : "send it again only if running twice does no harm";
}

absl::Status Run() {
  SlowNotes service;
  auto server = weft::Server::Create();
  if (!server.ok()) return server.status();
  if (auto added = (*server)->AddService(&service); !added.ok()) return added;
  if (auto listening = (*server)->Listen("127.0.0.1:0"); !listening.ok()) return listening;
  auto channel = weft::Channel::Open((*server)->address());
  if (!channel.ok()) return channel.status();

  guide::Notes::Stub stub(**channel);
  guide::CountRequest request;
  guide::CountReply reply;
  absl::Status late = stub.CountWords(request, &reply, {.timeout_us = 20'000});
  std::cout << absl::StatusCodeToString(late.code()) << ": " << WhatNext(late) << std::endl;

  service.AnswerAll();

  auto nobody = weft::Channel::Open("127.0.0.1:1", {.connect_at_once = false});
  if (!nobody.ok()) return nobody.status();
  absl::Status gone = guide::Notes::Stub(**nobody).CountWords(request, &reply);
  std::cout << absl::StatusCodeToString(gone.code()) << ": " << WhatNext(gone) << std::endl;
  return absl::OkStatus();
}

int main() {
  absl::Status status = Run();
  if (!status.ok()) std::cerr << status << std::endl;
  return status.ok() ? 0 : 1;
}
