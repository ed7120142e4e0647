// A client of a simulated fleet, which calls at random times, whatever has become of its earlier
// calls.
//
// Threads: one, which drives the engine too. Lifetime: Close() before the engine goes, after which
//   no call is under way.
// Errors: those of opening a channel.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "bench/fleet/fleet.weft.h"
#include "core/histogram.h"
#include "core/random.h"
#include "core/timer_wheel.h"
#include "rpc/client/balancing.h"
#include "rpc/client/channel.h"
#include "transport/engine.h"

namespace weft::bench {

// A fleet's channels: without much memory for each, and each call is tried three times.
// `outstanding`: ChannelOptions::max_outstanding_calls.
ChannelOptions FleetChannelOptions(uint32_t outstanding);

class FleetClient final : private Timer {
 public:
  // `timeout_us`: of a call.
  FleetClient(EngineCore& engine, double calls_per_s, uint32_t timeout_us, uint64_t seed);

  // One of these, once. A channel over many servers:
  absl::Status Open(const std::string& target, const ChannelOptions& options,
                    const BalancingOptions& balancing);
  // A channel to each of these; a call goes to one at random, whatever it has to do.
  absl::Status OpenEach(const std::vector<std::string>& addresses, ChannelOptions options);
  // Each call is about one of these at random, CallOptions::server_key. They outlive the client.
  void UseKeys(const std::vector<uint64_t>& keys);
  // Each call has a key of its own.
  void UseNewKeys() { new_keys_ = true; }
  // Calls that end well are recorded there, with their time from the start on; null: no more.
  void RecordIn(LatencyHistogram* latency) { latency_ = latency; }

  void Begin();
  void Pause() { engine_.timers().Cancel(this); }
  // From now on.
  void SetRate(double calls_per_s);
  void Close();
  Channel& channel() { return *channels_.front(); }

  uint64_t failed() const { return failed_; }  // after all attempts
  // With UseKeys(): calls that another server has answered than the last one with that key.
  uint64_t moved() const { return moved_; }

 private:
  static constexpr uint64_t kNone = ~uint64_t{0};
  struct UnderWay;

  void DrawNext();
  void OnTimer() override;
  void StartCall();
  void OnEnd(const UnderWay& call, const absl::Status& end);

  EngineCore& engine_;
  const uint32_t timeout_us_;
  double gap_ns_;         // between two calls, in the mean
  uint64_t next_ns_ = 0;  // the next call. Timers are rounded up, and what has come due is one turn
  const std::vector<uint64_t>* keys_ = nullptr;
  std::vector<uint64_t> servers_of_keys_;  // which has answered last; kNone: none
  bool new_keys_ = false;
  LatencyHistogram* latency_ = nullptr;
  Random random_;
  fleet::Task task_;
  uint64_t failed_ = 0;
  uint64_t moved_ = 0;
  std::vector<std::unique_ptr<Channel>> channels_;
  std::vector<fleet::Work::Stub> stubs_;  // one for each
};

}  // namespace weft::bench
