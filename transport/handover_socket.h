// The Unix socket over which a process of the same user hands its listening sockets, and clients
// that it has accepted, to the one that takes its place (rpc/server/handover.h).
//
// It is a SOCK_SEQPACKET socket: a message is a short line of text with at most one descriptor, and
// arrives whole. Both ends look at the other's user (SO_PEERCRED): who has another effective user
// is refused, root too. So a message's sender is one who could do to this process whatever he
// likes; but what he sends by mistake must be survived.
//
// Threads: any; nothing here is shared. All that waits can be ended: by a time, by the peer's end.
// Errors: INVALID_ARGUMENT: a path that is none. PERMISSION_DENIED: another user's process.
//   UNAVAILABLE: the peer is gone. DEADLINE_EXCEEDED. DATA_LOSS: not a message of this kind.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transport/descriptor.h"

namespace weft {

// The text of a message, in bytes: a word and an address, whose longest, a host name of 253 bytes
// with its port, or a path of 107, fit.
inline constexpr size_t kMaxHandoverText = 512;

struct HandoverMessage {
  std::string text;
  Descriptor descriptor;  // invalid: none came with it
};

// A socket that listens for a successor, and which file is its.
struct HandoverListener {
  Descriptor socket;
  std::string path;
  std::string made;  // where its file is until TakePath(); empty: it is at `path`
  dev_t device = 0;
  ino_t inode = 0;
};

// Listens beside `path`, at `path`.PROCESS with the permissions 0600: what can fail, before another
// process gives up its place. INVALID_ARGUMENT: there is no room for that. ALREADY_EXISTS: at
// `path` there is a file that is no socket.
absl::StatusOr<HandoverListener> PrepareForSuccessor(const std::string& path);
// Renamed into the place of whatever socket is at its path, so that there is a listener at every
// moment.
absl::Status TakePath(HandoverListener* listener);
// Both.
absl::StatusOr<HandoverListener> ListenForSuccessor(const std::string& path);

// Removes its file, unless another one is in its place by now.
void RemoveHandoverFile(const HandoverListener& listener);

// The process that listens at `path`. Invalid: there is none, or one has left its file behind.
absl::StatusOr<Descriptor> ConnectToPredecessor(const std::string& path);

// One who waits at a socket of ListenForSuccessor(). Invalid: nobody does. An error: he was sent
// away, as one of another user.
absl::StatusOr<Descriptor> AcceptSuccessor(int listening);

// The process at the other end, for texts.
pid_t PeerProcessId(int socket);

// `descriptor`: -1 for none. Waits for room for a second at most.
absl::Status SendHandover(int socket, std::string_view text, int descriptor = -1);

// The next message, for which it waits until `timeout_ms` have passed; -1: for ever. More than one
// descriptor, or a text that is too long: DATA_LOSS, and all are closed.
absl::StatusOr<HandoverMessage> ReceiveHandover(int socket, int timeout_ms);

}  // namespace weft
