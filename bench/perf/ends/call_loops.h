// Calls that keep a number of them outstanding: each starts the next when it has ended, until one
// fails.
//
// Threads: the engine's. Lifetime: outlives its calls: Stop(), then poll until idle().
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "bench/perf/ends/perf.pb.h"
#include "bench/perf/ends/perf.weft.h"

namespace weft::bench {

class CallLoops {
 public:
  CallLoops(const Perf::Stub* stub, uint32_t outstanding, uint32_t payload_bytes)
      : stub_(stub), calls_(outstanding) {
    for (Call& call : calls_) call.request.set_payload(std::string(payload_bytes, 'x'));
  }

  void Start() {
    running_ = true;
    for (Call& call : calls_) Next(call);
  }
  void Stop() { running_ = false; }
  bool idle() const { return outstanding_ == 0; }
  uint64_t finished() const { return finished_; }
  const absl::Status& status() const { return status_; }  // of the first call that failed

 private:
  struct Call {
    EchoMessage request;
    EchoMessage reply;
  };

  void Next(Call& call) {
    ++outstanding_;
    stub_->Echo(call.request, &call.reply, {},
                [this, &call](const absl::Status& status) { Ended(call, status); });
  }
  void Ended(Call& call, const absl::Status& status) {
    --outstanding_;
    ++finished_;
    if (!status.ok()) {
      status_.Update(status);
      running_ = false;
    }
    if (running_) Next(call);
  }

  const Perf::Stub* const stub_;
  std::vector<Call> calls_;
  bool running_ = false;
  uint32_t outstanding_ = 0;
  uint64_t finished_ = 0;
  absl::Status status_;
};

}  // namespace weft::bench
