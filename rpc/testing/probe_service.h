// The test service, as its tests want it.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <utility>

#include "rpc/testing/test_service.weft.h"

namespace weft::test {

inline Data MakeData(uint64_t number, size_t bytes) {
  Data data;
  data.set_number(number);
  data.set_payload(std::string(bytes, static_cast<char>('a' + number % 26)));
  return data;
}

class ProbeService : public Probe::Service {
 public:
  using HeldCall = UnaryCall<Data, Data>;

  absl::Status Echo(ServerContext& context, const Data& request, Data* reply) override {
    ++echoes;
    last_remaining_us = context.remaining_us();
    if (look) look(context);
    *reply = request;
    return absl::OkStatus();
  }
  absl::Status Fail(ServerContext& context, const Failure& request, Data*) override {
    if (look) look(context);
    return absl::Status(static_cast<absl::StatusCode>(request.code()), request.text());
  }
  void StartHold(HeldCall call) override {
    if (look) look(call.context());
    held.push_back(std::move(call));
  }
  absl::Status DropHeld(ServerContext&, const Data&, Data*) override {
    held.clear();
    return absl::OkStatus();
  }
  absl::Status Make(ServerContext&, const Size& request, Data* reply) override {
    reply->mutable_payload()->assign(request.bytes(), 'm');
    return absl::OkStatus();
  }
  absl::Status Strict(ServerContext&, const Required& request, Required* reply) override {
    if (!request.forget()) reply->set_id(request.id());
    return absl::OkStatus();
  }

  // Ends the oldest held call by echoing.
  void Release(absl::Status status = absl::OkStatus()) {
    HeldCall call = std::move(held.front());
    held.pop_front();
    *call.reply() = call.request();
    call.Finish(std::move(status));
  }

  Function<void(ServerContext&)> look;  // of Echo, Fail and Hold, first
  int echoes = 0;
  uint64_t last_remaining_us = 0;
  std::deque<HeldCall> held;
};

}  // namespace weft::test
