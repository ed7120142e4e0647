// Stream sockets as the control connection wants them: non-blocking, closed on exec, without
// Nagle's delay, and noticing a host that vanished.
//
// Threads: pure functions over descriptors.
// Errors: from the system's errno, with the address in the text.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transport/control/address.h"
#include "transport/control/descriptor.h"

namespace weft {

// How long a peer's host may be silent, in seconds, before the kernel ends the connection: a first
// probe after kKeepaliveIdleSec, then one each second, and the same bound for data that is not
// acknowledged. Lower would end connections in ordinary network hiccups (a switch that relearns its
// ports takes a few seconds); higher keeps calls waiting for a dead host.
inline constexpr int kKeepaliveIdleSec = 5;
inline constexpr int kKeepaliveProbes = 5;
inline constexpr int kUserTimeoutMs = 10'000;

// Connections that the kernel holds until the engine takes them; more clients at once than this
// wait for TCP's retransmission. Bounded by net.core.somaxconn.
inline constexpr int kListenBacklog = 1024;

// Listens at an internet address. With port 0 the kernel chooses: ask LocalAddress().
absl::StatusOr<Descriptor> ListenInternet(const KernelAddress& address);

// Starts to connect; the socket is writable when it is decided, and FinishDial() says how.
// RESOURCE_EXHAUSTED for a Unix socket whose queue of waiting clients is full: try again soon.
absl::StatusOr<Descriptor> StartDial(const KernelAddress& address);

// OK when the dial has succeeded. `address` is for the error's text.
absl::Status FinishDial(int fd, const KernelAddress& address);

// Takes one waiting client. An invalid Descriptor: nobody waits (any more).
// RESOURCE_EXHAUSTED: this process or the system has no descriptor left.
absl::StatusOr<Descriptor> AcceptClient(int listening_fd);

absl::StatusOr<KernelAddress> LocalAddress(int fd);
// Empty text in the result's place when the peer is gone already.
std::string PeerAddressText(int fd);

}  // namespace weft
