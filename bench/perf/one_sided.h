// One-sided reads of 64 bytes and writes of 1 MiB, as applications make them: through
// rpc/remote_memory.h, on memory that the server has exported.
//
// Threads: one, which drives the engine. Lifetime: the channel outlives it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bench/perf/measurement.h"
#include "bench/perf/run_clock.h"
#include "core/histogram.h"
#include "rpc/channel.h"
#include "rpc/remote_memory.h"
#include "transport/buffer_pool.h"
#include "weft/memory.pb.h"

namespace weft::bench {

class OneSided {
 public:
  static absl::StatusOr<std::unique_ptr<OneSided>> Open(Channel& channel,
                                                        const RemoteRegion& remote);

  // Reads, one after the other, blocking. How long each took, in ns.
  absl::StatusOr<LatencyHistogram> ReadOneByOne(double seconds);

  // Reads, kOutstanding at once. Returns how many end in a second.
  absl::StatusOr<double> ReadRate(double seconds);

  // Writes, kBulkOutstanding at once, until all have ended. Returns their number. The reply to a
  // call that is made then proves that they have arrived.
  absl::StatusOr<uint64_t> WriteFor(double seconds);

 private:
  OneSided(Channel& channel, std::unique_ptr<RemoteMemory> memory, std::unique_ptr<Buffer> buffer);

  size_t NextOffset(size_t bytes) { return started_++ * bytes % kBulkRegionBytes; }
  MemorySlice Here(size_t offset, size_t bytes) const;
  // Starts the next one whenever one ends, while running_.
  void KeepReading();
  void KeepWriting();
  void Ended(const absl::Status& status);
  absl::Status AwaitAll();

  Engine& engine_;
  const std::unique_ptr<Buffer> buffer_;
  const std::unique_ptr<RemoteMemory> memory_;

  uint64_t started_ = 0;
  uint32_t outstanding_ = 0;
  bool running_ = false;
  RateCounter* rate_ = nullptr;  // of ReadRate()
  absl::Status status_;          // the first failure
};

}  // namespace weft::bench
