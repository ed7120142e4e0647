// What runs around every handler of a server: log, metrics, traces, permission.
//
//   class OnlyAnna final : public weft::ServerInterceptor {
//     absl::Status OnStart(weft::IncomingCall& call) override {
//       const std::string* user = call.context().metadata().Find("user");
//       if (user != nullptr && *user == "anna") return absl::OkStatus();
//       return absl::PermissionDeniedError("who are you?");
//     }
//   };
//   options.interceptors = {&only_anna};   // ServerOptions
//
// Interceptors start in the order of the list, and end in the opposite one. A server without them
// pays nothing. Calls that the server refuses before their handler (its limits, requests that
// cannot be decoded, deadlines that have passed) do not come here: ServerStats counts them.
//
// A call that runs exactly once (RetryOptions::exactly_once) may come in several attempts. Each
// passes here, also one that is answered with what an earlier one has ended with, and whose handler
// does not run: what is refused here is not given away. The client is told then that this attempt
// was not run, and that an earlier one may have.
//
// Threads: OnStart() where the handler runs, the engine's thread or its executor's; OnEnd() on the
//   engine's, when the call is finished and before it is answered. Several at once.
// Lifetime: outlives its servers. An IncomingCall is valid inside the function only.
// Errors: that of an OnStart() is the call's, as of one that was not run: neither its handler nor
//   later interceptors start, and if the call runs exactly once, no record of this attempt is left.
//   OnEnd() has the status that the handler has finished with: that its reply cannot be sent, or
//   that its stream has failed, comes after it.
// Invariants: for each OnStart() that returned OK there is one OnEnd().
#pragma once

#include "absl/status/status.h"
#include "rpc/server/incoming_call.h"

namespace weft {

class ServerInterceptor {
 public:
  virtual absl::Status OnStart(IncomingCall& call) {
    (void)call;
    return absl::OkStatus();
  }
  virtual void OnEnd(IncomingCall& call, const absl::Status& status) { (void)call, (void)status; }

 protected:
  ~ServerInterceptor() = default;
};

}  // namespace weft
