// What runs around every call and stream of a channel: log, metrics, traces, credentials.
//
//   class Token final : public weft::ClientInterceptor {
//     absl::Status OnStart(weft::OutgoingCall& call) override {
//       return call.AddMetadata("authorization", token_);
//     }
//     ...
//   };
//   options.interceptors = {&token};   // ChannelOptions
//
// Interceptors start in the order of the list, and end in the opposite one. A channel without them
// pays nothing; with them each call takes the way of one with a ClientContext.
//
// Threads: OnStart() on the thread that starts the call; OnEnd() on the engine's, before the caller
//   hears of the end, or on the first if the call was not started after all. Several at once.
// REQUIRES: OnEnd() neither starts, cancels nor drops calls of its channel.
// Lifetime: outlives its channels. An OutgoingCall is valid inside the function only.
// Errors: that of an OnStart() is the call's; it is not sent, and later interceptors do not start.
//   OnEnd() has the status as the server or the channel has ended the call: that a stream's one
//   reply, which is read last, cannot be decoded comes after it.
// Invariants: for each OnStart() that returned OK there is one OnEnd().
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "rpc/wire/metadata.h"

namespace weft {

// A call or stream, as an interceptor of its channel sees it.
class OutgoingCall {
 public:
  std::string_view service() const { return service_; }  // "weft.examples.kv.Kv"
  std::string_view method() const { return method_; }    // "Get"
  const std::string& address() const { return address_; }

  // What goes to the server: the caller's, and what interceptors have added.
  const Metadata& metadata() const { return metadata_; }
  // In OnStart(). Errors: Metadata::Add()'s.
  absl::Status AddMetadata(std::string_view key, std::string_view value) {
    return metadata_.Add(key, value);
  }
  // In OnEnd(): what the server has sent.
  const Metadata& reply_metadata() const { return reply_metadata_; }
  // In OnEnd(): since OnStart().
  uint64_t elapsed_ns() const { return elapsed_ns_; }

  // This interceptor's own, from OnStart() to OnEnd(); null at first.
  void*& data() { return *data_; }

 private:
  friend class CallContext;

  OutgoingCall(std::string_view service, std::string_view method, const std::string& address,
               Metadata& metadata, const Metadata& reply_metadata)
      : service_(service),
        method_(method),
        address_(address),
        metadata_(metadata),
        reply_metadata_(reply_metadata) {}

  const std::string_view service_;
  const std::string_view method_;
  const std::string& address_;
  Metadata& metadata_;
  const Metadata& reply_metadata_;
  uint64_t elapsed_ns_ = 0;
  void** data_ = nullptr;
};

class ClientInterceptor {
 public:
  virtual absl::Status OnStart(OutgoingCall& call) {
    (void)call;
    return absl::OkStatus();
  }
  virtual void OnEnd(OutgoingCall& call, const absl::Status& status) { (void)call, (void)status; }

 protected:
  ~ClientInterceptor() = default;
};

}  // namespace weft
