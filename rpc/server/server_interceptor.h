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

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "rpc/server/server_context.h"

namespace weft {

// A call or stream, as an interceptor of its server sees it.
class IncomingCall {
 public:
  std::string_view service() const { return service_; }  // "weft.examples.kv.Kv"
  std::string_view method() const { return context_.method().name; }
  // With the metadata of both directions, the peer and the deadline.
  ServerContext& context() const { return context_; }
  // An attempt whose handler does not run, because that of an earlier one does, or has.
  bool is_repeated() const { return is_repeated_; }
  // In OnEnd(): since OnStart().
  uint64_t elapsed_ns() const { return elapsed_ns_; }

  // This interceptor's own, from OnStart() to OnEnd(); null at first.
  void*& data() { return *data_; }

 private:
  friend class ServerExtras;

  IncomingCall(std::string_view service, ServerContext& context, bool is_repeated)
      : service_(service), context_(context), is_repeated_(is_repeated) {}

  const std::string_view service_;
  ServerContext& context_;
  const bool is_repeated_;
  uint64_t elapsed_ns_ = 0;
  void** data_ = nullptr;
};

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
