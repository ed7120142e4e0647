// Whether a server takes a call now: its limits (server_limits.h), and what counts towards them.
//
// A server without limits has none of this.
//
// What a call counts for is found without a look-up: its method's count is at its number, and its
// client's count is its connection's. Of a server with several engines each has one of these, and
// what is one number for all of them lies in their CommonLimits.
//
// Threads: the engine's, but for Check().
// Lifetime: a member of the ServerCore; goes after its connections, and before the CommonLimits.
// Errors: RESOURCE_EXHAUSTED, "not run", names the limit.
// Invariants: what Admit() has counted, Release() counts down once. A count's `running` is the
//   number of calls whose AdmittedCall refers to it, and at most its `most`.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "core/clock.h"
#include "rpc/server/adaptive_limit.h"
#include "rpc/server/common_limits.h"
#include "rpc/server/dispatch.h"
#include "rpc/server/server_limits.h"
#include "rpc/server/server_tallies.h"
#include "transport/path.h"
#include "weft/server.h"

namespace weft {

// Calls that run, of one client or one method.
struct RunningCount {
  uint32_t running = 0;
  uint32_t most = 0;  // with `common`: the places that this engine has now
  // Of all engines of the server; null: it has one, or nobody else counts towards this.
  CommonPlaces* common = nullptr;

  // Whether one more may run; of common places it may take some.
  bool HasPlace() {
    if (running < most) [[likely]]
      return true;
    if (common == nullptr) return false;
    most += common->Take();
    return running < most;
  }
  // After fewer run, or none of those for which there was a place: others may have the common ones.
  void GiveBack() {
    if (common != nullptr) most -= common->TakeBack(most - running);
  }
  // Who finds no place knows that as many calls run as the limit is, and not only nearly as many.
  bool exact() const { return common == nullptr || common->exact(); }
  // The limit.
  uint32_t limit() const { return common == nullptr ? most : common->most(); }
};

// What one call counts for. A member of its ServerCall.
struct AdmittedCall {
  RunningCount* client = nullptr;  // null: no limit
  RunningCount* method = nullptr;  // the same
  bool in_adaptive = false;        // it counts for that, and has the ticket
  AdaptiveLimit::Ticket ticket;
};

class Admission {
 public:
  enum class What : uint8_t { kCall = 1, kStream = 2 };

  // INVALID_ARGUMENT names the option. Of a server with so many engines.
  static absl::Status Check(const ServerLimits& limits, uint32_t engines = 1);
  // Null if `limits` has none. All outlive it. `common`: null for a server with one engine.
  static std::unique_ptr<Admission> Make(const ServerLimits& limits, const Clock& clock,
                                         ServerTallies& stats, CommonLimits* common = nullptr);

  Admission(const ServerLimits& limits, const Clock& clock, ServerTallies& stats,
            CommonLimits* common = nullptr);
  // REQUIRES: no call counts, and no client's count is kept.
  ~Admission();
  Admission(const Admission&) = delete;
  Admission& operator=(const Admission&) = delete;

  // The methods are known: before each time that the server begins to listen, or has a peer.
  // INVALID_ARGUMENT: a limit is for a method that there is not.
  absl::Status Bind(const DispatchTable& methods);
  // Of the client of a connection that opens, for as long as it is kept; null: it has no limit.
  std::shared_ptr<RunningCount> CountOf(const PathInfo& client);

  // Whether a call of the method of this number, which there is, may run: then it counts until
  // Release().
  absl::Status Admit(RunningCount* client, uint16_t method, What what, AdmittedCall* call);
  // Its handler has finished, or never began.
  void Release(const AdmittedCall& call, AdaptiveLimit::End end);

  // That have proved who they are.
  size_t clients() const { return clients_.size(); }

 private:
  absl::Status RefuseClient(const RunningCount& client);
  absl::Status RefuseMethod(const RunningCount& method, uint16_t number);
  absl::Status RefuseAdaptively();

  // Constant after construction.
  const ServerLimits& limits_;
  const Clock& clock_;
  ServerTallies& stats_;
  CommonLimits* const common_;  // null: the server has one engine

  // By Bind().
  const DispatchTable* methods_ = nullptr;
  size_t bound_ = 0;                           // so many entries
  std::vector<RunningCount> counts_;           // as limits_.per_method
  std::vector<RunningCount*> methods_counts_;  // by number; null: no limit
  std::optional<AdaptiveLimit> adaptive_;

  // Of clients that have proved who they are, and have a connection.
  std::unordered_map<std::string, std::weak_ptr<RunningCount>> clients_;
};

}  // namespace weft
