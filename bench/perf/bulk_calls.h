// Calls with 1 MiB of bulk in the reply, a few outstanding: the client lends memory for each, the
// server writes there before it replies.
//
// Threads: one, which drives the engine. Lifetime: the channel outlives it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bench/perf/measurement.h"
#include "bench/perf/perf.weft.h"
#include "bench/perf/run_clock.h"
#include "rpc/bulk_call.h"
#include "rpc/channel.h"
#include "transport/buffer_pool.h"

namespace weft::bench {

class BulkCalls {
 public:
  static absl::StatusOr<std::unique_ptr<BulkCalls>> Open(Channel& channel);

  // Returns how many calls end in a second.
  absl::StatusOr<double> Rate(bool with_crc32c, double seconds);

 private:
  struct Lane {
    explicit Lane(Channel& channel) : bulk(channel) {}
    BulkCall bulk;
    FetchRequest request;
    FetchReply reply;
  };

  BulkCalls(Channel& channel, std::unique_ptr<Buffer> buffer);

  void Start(Lane& lane);
  void Ended(Lane& lane, absl::Status status);

  Engine& engine_;
  const Perf::Stub stub_;
  const std::unique_ptr<Buffer> buffer_;
  std::unique_ptr<Lane> lanes_[kBulkOutstanding];

  uint64_t started_ = 0;
  uint32_t outstanding_ = 0;
  bool running_ = false;
  RateCounter* rate_ = nullptr;
  absl::Status status_;  // the first failure
};

}  // namespace weft::bench
