// One-sided reads and writes as applications make them: through rpc/memory/remote_memory.h, on
// memory that the server has exported.
//
// Threads: one, which drives the engine. Lifetime: the channel outlives it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bench/perf/cell/cell.h"
#include "bench/perf/cell/figures.h"
#include "bench/perf/cell/places.h"
#include "rpc/client/channel.h"
#include "rpc/memory/remote_memory.h"
#include "transport/buffer.h"
#include "weft/memory.pb.h"

namespace weft::bench {

class OneSided {
 public:
  static absl::StatusOr<std::unique_ptr<OneSided>> Open(Channel& channel,
                                                        const RemoteRegion& remote);

  // All for cells of kRead and kWrite.

  // One after the other, blocking.
  absl::StatusOr<Figures> OneByOne(const Cell& cell, double seconds);

  // As many outstanding as the cell says. Returns how many end in a second.
  absl::StatusOr<double> Rate(const Cell& cell, double seconds);

  // The same, until all have ended. Returns their number. The reply to a call that is made then
  // proves that writes have arrived.
  absl::StatusOr<uint64_t> RunFor(const Cell& cell, double seconds);

 private:
  OneSided(Channel& channel, std::unique_ptr<RemoteMemory> memory, std::unique_ptr<Buffer> buffer);

  Slice Here(size_t offset) const;
  absl::Status Transfer();
  void Begin(const Cell& cell);
  // Starts as many as the cell says, less those that are outstanding. Each of these starts the next
  // one when it ends, while running_.
  void TopUp();
  void Start();
  void Ended(const absl::Status& status);
  absl::Status AwaitAll();

  EngineCore& engine_;
  const std::unique_ptr<Buffer> buffer_;
  const std::unique_ptr<RemoteMemory> memory_;

  Cell cell_;  // of the present run
  Places places_;
  uint64_t ended_ = 0;
  uint32_t outstanding_ = 0;
  bool running_ = false;
  absl::Status status_;  // the first failure
};

}  // namespace weft::bench
