// The service of one-way messages, as its tests want it.
#pragma once

#include <google/protobuf/empty.pb.h>

#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "rpc/testing/probe_service.h"
#include "rpc/testing/signal_service.weft.h"

namespace weft::test {

class SignalService : public Signals::Service {
 public:
  using HeldSignal = UnaryCall<Data, google::protobuf::Empty>;

  absl::Status Notify(ServerContext& context, const Data& request) override {
    if (look) look(context);
    numbers.push_back(request.number());
    return end;
  }
  void StartHold(HeldSignal signal) override {
    if (look) look(signal.context());
    held.push_back(std::move(signal));
  }
  absl::Status Mark(ServerContext&, const Beacon& request) override {
    numbers.push_back(request.number());
    return end;
  }
  absl::Status Ask(ServerContext&, const Data& request, Data* reply) override {
    *reply = request;
    return absl::OkStatus();
  }

  // Ends the oldest that is held.
  void Release(absl::Status status = absl::OkStatus()) {
    HeldSignal signal = std::move(held.front());
    held.pop_front();
    signal.Finish(std::move(status));
  }

  Function<void(ServerContext&)> look;  // of Notify and Hold, first
  absl::Status end;                     // of Notify and Mark
  std::vector<uint64_t> numbers;        // that Notify and Mark have seen
  std::deque<HeldSignal> held;
};

}  // namespace weft::test
