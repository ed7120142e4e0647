// Calls of 64 bytes, one after the other, each timed.
//
// Threads: one. Errors: those of the calls.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/histogram.h"
#include "rpc/client/channel.h"
#include "transport/engine.h"
#include "transport/path.h"

namespace weft::bench {

// Some channels to one server, on one engine.
class Clients {
 public:
  static absl::StatusOr<Clients> Open(const EngineOptions& engine, PathKind path);

  absl::Status Connect(const std::string& address, uint32_t connections);
  Channel& channel(size_t index) { return *channels_[index]; }
  Engine& engine() { return *engine_; }

  // For about `seconds`, after a warm-up; over each channel in turn. `pause_us` between two calls.
  absl::StatusOr<LatencyHistogram> RoundTrips(double seconds, uint32_t pause_us = 0);
  // Over the last channel alone, while the others are idle.
  absl::StatusOr<LatencyHistogram> RoundTripsOverOne(double seconds);

  // Answers what the server asks of idle clients.
  void LookAfter();

 private:
  absl::StatusOr<LatencyHistogram> RoundTripsOver(
      absl::Span<const std::unique_ptr<Channel>> channels, double seconds, uint32_t pause_us);

  PathKind path_ = PathKind::kShm;
  std::unique_ptr<Engine> engine_;
  std::vector<std::unique_ptr<Channel>> channels_;  // go before the engine
};

}  // namespace weft::bench
