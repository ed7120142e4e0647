// Stream sockets as the control connection wants them: non-blocking, closed on exec, without
// Nagle's delay, and noticing a host that vanished.
//
// Threads: pure functions over descriptors.
// Errors: from the system's errno, with the address in the text.
#pragma once

#include <sys/socket.h>

#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transport/descriptor.h"
#include "transport/identity.h"
#include "transport/sockets/address.h"

namespace weft {

// How long a peer's host may be silent before the kernel ends the connection, until SetSilence()
// says otherwise: of probes on a quiet connection, and of data that is not acknowledged. Longer
// than any handshake may take.
inline constexpr uint64_t kDefaultSilenceNs = 10'000'000'000;
// The shortest silence that the kernel can tell: it probes once in a second at most.
inline constexpr uint64_t kMinSilenceNs = 2'000'000'000;

// Connections that the kernel holds until the engine takes them; more clients at once than this
// wait for TCP's retransmission. Bounded by net.core.somaxconn.
inline constexpr int kListenBacklog = 1024;

// A socket of the address's family, neither bound nor connected. A Unix socket, and those that are
// accepted from it, takes no descriptors: a message that brings some is refused to its sender. (By
// Linux 6.16 or later. Before, they are closed as the message is received, and a sender can make
// that wait: descriptor_message.h. Who may connect is for the permissions of the socket's folder.)
absl::StatusOr<Descriptor> OpenStream(const KernelAddress& address);

// Listens at an internet address. With port 0 the kernel chooses: ask LocalAddress().
absl::StatusOr<Descriptor> ListenInternet(const KernelAddress& address);

// A second descriptor of a stream socket that listens already. INVALID_ARGUMENT: it does not.
absl::StatusOr<Descriptor> DuplicateListener(int fd);

// Who is at the other end of a Unix socket, by the kernel. None: errno says why.
std::optional<ucred> PeerCredentials(int fd);

// Starts to connect; the socket is writable when it is decided, and FinishDial() says how.
// RESOURCE_EXHAUSTED for a Unix socket whose queue of waiting clients is full: try again soon.
absl::StatusOr<Descriptor> StartDial(const KernelAddress& address);

// OK when the dial has succeeded. `address` is for the error's text.
absl::Status FinishDial(int fd, const KernelAddress& address);

// From now on the kernel ends the connection when the peer's host has been silent for `silence_ns`
// (rounded up to seconds, and to kMinSilenceNs). A Unix socket has no such host: nothing is done.
void SetSilence(int fd, uint64_t silence_ns);

// Takes one waiting client. An invalid Descriptor: nobody waits (any more).
// RESOURCE_EXHAUSTED: this process or the system has no descriptor left.
absl::StatusOr<Descriptor> AcceptClient(int listening_fd);
// The peer of a stream socket has hung up, and there is nothing of it left to be read. One system
// call; nothing is read.
bool HasLeft(int fd);
// Its close() will be a reset: one segment, and nothing of the connection is left in either kernel.
// What was sent and has not arrived is lost: for who was told nothing. (A Unix socket has none.)
// Whoever calls it has seen that the peer is gone: the listener by HasLeft(), others by reading, as
// they do anyway. To look here once more would cost those a system call who are to cost the least.
void ResetOnClose(int fd);

absl::StatusOr<KernelAddress> LocalAddress(int fd);
// A number for the host that the peer is at: its IPv4 address, or the first half of its IPv6
// address, for a host has all of the second. All of 127.0.0.1 is one host, for the kernel does not
// tell whose a connection is. Behind a Unix socket it does: each other user counts as a host, and
// so does each process of this process's own user. 0: the peer is gone already.
uint64_t PeerHost(int fd);
// Fills in what the kernel says of the process at the other end of a Unix socket: of the one that
// has connected, or that listens. False: it says nothing, as of a peer over a network.
bool AddKernelCredentials(int fd, PeerIdentity* identity);
// The peer's address by the kernel's word. Of a client behind a Unix socket: the process and the
// user that connected, whatever it has called its end. Empty text when the peer is gone already.
std::string PeerAddressText(int fd);

}  // namespace weft
