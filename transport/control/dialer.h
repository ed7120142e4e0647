// Connects a socket to the first of a server's addresses that answers.
//
//   state        set by                                      left for
//   kNext        construction; an address has failed         kConnecting, kBusy, the end
//   kConnecting  connect(2) is under way                     kNext, the end (connected)
//   kBusy        a Unix socket's queue of waiting clients    kNext, kBusyRetryNs later
//                is full
//
// All addresses together have the connect timeout; each has an equal share of it with those that
// are still to come.
//
// Threads: one engine's. Lifetime: the poller outlives it. Errors: of the last address; UNAVAILABLE
//   at the connect timeout.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/function.h"
#include "transport/descriptor.h"
#include "transport/poller.h"
#include "transport/sockets/address.h"

namespace weft {

class Dialer final : private PollHandler {
 public:
  // A Unix socket whose queue is full does not say when it has room again.
  static constexpr uint64_t kBusyRetryNs = 5'000'000;

  // `on_ready`: Advance() has something to do. It is called from Poller::Poll().
  // REQUIRES: at least one address.
  Dialer(const ServerAddress& server, std::vector<KernelAddress> addresses, Poller* poller,
         uint64_t now_ns, uint64_t timeout_ns, Function<void()> on_ready);
  ~Dialer() { Drop(); }
  Dialer(const Dialer&) = delete;
  Dialer& operator=(const Dialer&) = delete;

  // Takes the next step. The result ends it: a connected socket, or why there is none. Nothing:
  // call it again after `on_ready`, or at due_ns().
  std::optional<absl::StatusOr<Descriptor>> Advance(uint64_t now_ns);
  uint64_t due_ns() const;

 private:
  enum class State : uint8_t { kNext = 1, kConnecting = 2, kBusy = 3 };

  void OnReady(uint32_t events) override;
  void DialNext(uint64_t now_ns);
  void GiveUpAddress();
  void Drop();

  // Constant after construction.
  const std::string server_;  // for texts
  const bool is_unix_;
  const std::vector<KernelAddress> addresses_;
  Poller* const poller_;
  const uint64_t timeout_ns_;
  const uint64_t deadline_ns_;
  Function<void()> on_ready_;

  State state_ = State::kNext;
  size_t next_ = 0;  // of addresses_
  Descriptor socket_;
  bool decided_ = false;      // the kernel has connected socket_, or failed to
  uint64_t step_end_ns_ = 0;  // of kConnecting and kBusy
  absl::Status error_;        // of the last address that failed
};

// "connect to ADDRESS: no success within 5000 ms, waiting for WHAT (DETAIL) (DETAIL)"; empty
// details are left out.
absl::Status ConnectTimeout(const std::string& server, uint64_t timeout_ns, const char* what,
                            std::string_view detail);

}  // namespace weft
