// Calls with bulk in the reply: the client lends memory for each, the server writes there before it
// replies.
//
// Threads: one, which drives the engine. Lifetime: the channel outlives it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bench/perf/cell/cell.h"
#include "bench/perf/cell/figures.h"
#include "bench/perf/cell/places.h"
#include "bench/perf/ends/perf.weft.h"
#include "rpc/client/bulk_call.h"
#include "rpc/client/channel.h"
#include "transport/buffer.h"

namespace weft::bench {

class BulkCalls {
 public:
  static absl::StatusOr<std::unique_ptr<BulkCalls>> Open(Channel& channel);

  // For cells of kBulk and kBulkChecked.
  absl::StatusOr<Figures> Run(const Cell& cell, double seconds);

 private:
  struct Lane {
    explicit Lane(Channel& channel) : bulk(channel) {}
    BulkCall bulk;
    FetchRequest request;
    FetchReply reply;
  };

  BulkCalls(Channel& channel, std::unique_ptr<Buffer> buffer)
      : channel_(channel),
        engine_(CoreOf(channel.engine())),
        stub_(channel),
        buffer_(std::move(buffer)) {}

  void Prepare(const Cell& cell);
  absl::StatusOr<Figures> OneByOne(double seconds);
  absl::StatusOr<double> Rate(double seconds);
  // Lends the lane's memory of the next call.
  void Lend(Lane& lane);
  absl::Status Check(Lane& lane);
  void Start(Lane& lane);
  void Ended(Lane& lane, absl::Status status);

  Channel& channel_;
  EngineCore& engine_;
  const Perf::Stub stub_;
  const std::unique_ptr<Buffer> buffer_;

  Cell cell_;                                 // of the present run
  std::vector<std::unique_ptr<Lane>> lanes_;  // as many as it has outstanding
  Places places_;
  uint64_t ended_ = 0;
  uint32_t outstanding_ = 0;
  bool running_ = false;
  absl::Status status_;  // the first failure
};

}  // namespace weft::bench
