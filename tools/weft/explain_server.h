// Connects to a server as a client would, and finds out how: which paths were candidates, what
// became of each, and how long a round trip takes on the one that was chosen.
//
// Round trips are measured twice. An engine without traffic spins for EngineOptions::spin_ns and
// then sleeps; whoever asks it next also waits until the system has woken its thread. Probes that
// follow each other closely find the server's engine awake; probes with a pause before each find it
// asleep, unless the server has chosen to spin for longer than the pause.
//
// It introduces itself with the hello of an rpc client, and makes no call: servers of any service
// take it, and their programs see a client that comes and goes.
//
// Threads: the caller's; blocks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/histogram.h"
#include "transport/path.h"
#include "transport/security.h"
#include "transport/transport.h"

namespace weft::tools {

struct ExplainOptions {
  LinkOptions link;
  std::optional<SecurityOptions> security = {};  // as ChannelOptions::security
  uint32_t probes = 1000;  // round trips to measure, one after the other; 0: none at all
  // Round trips to measure besides, each after a pause of kPauseNs. A tenth of a second with these.
  uint32_t paused_probes = 100;
  // For all of them together. A path that answers in 10 ms each time needs this long for 1,000.
  uint64_t probe_timeout_ns = 10'000'000'000;
};

// Twenty times the default of EngineOptions::spin_ns: by then an engine sleeps.
inline constexpr uint64_t kPauseNs = 1'000'000;

struct Explanation {
  std::string address;
  absl::Status connected;  // OK: a path came up
  uint64_t connect_ns = 0;
  std::vector<PathCandidate> candidates;  // in the order tried; empty: the server was not reached
  PathInfo path;                          // if connected
  std::string server;     // what the server says it is: "serves weft.examples.kv.Kv"; may be empty
  absl::Status measured;  // why there are fewer round trips than wanted; OK: there are not
  LatencyHistogram round_trips;         // the server awake
  LatencyHistogram paused_round_trips;  // the server asleep, if it goes to sleep within kPauseNs
};

Explanation ExplainServer(const std::string& address, const ExplainOptions& options);

}  // namespace weft::tools
