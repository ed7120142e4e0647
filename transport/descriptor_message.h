// Messages over Unix sockets that carry descriptors, and what is to be done with descriptors that
// others have sent.
//
// Whoever can connect to a Unix socket can send descriptors there, also with messages for which
// none are meant. To close one may take as long as its sender likes: a file of a file system that
// is served by a process (FUSE) asks that process first, and a TCP socket may linger over bytes
// that nobody takes. The same holds for those that the kernel closes, because nobody has taken
// them: with the message, or with the socket in which they wait. So
//   - every message is received here, with room for all descriptors that one can have;
//   - what its receiver does not want (most want memory of the kind that peers hand over, and
//     nothing else) is closed by another thread (core/side_thread.h);
//   - so is, by HangUp(), a socket in which there is still a message.
// Honest peers cause neither. Who lets peers in stops when it falls behind
// (ForeignDescriptorsPileUp()).
//
// Threads: any. Errors: UNAVAILABLE: nothing has arrived yet, or the peer does not take it.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/bytes.h"
#include "transport/descriptor.h"

namespace weft {

// Memory that is handed over: a domain's of 264 KiB is the largest. To close that takes no time.
inline constexpr size_t kMaxHandedBytes = size_t{1} << 20;

// It is sealed memory (SealedFileBytes()) of at most kMaxHandedBytes.
bool IsHandedMemory(const Descriptor& descriptor);

struct DescriptorMessage {
  size_t bytes = 0;  // 0: the peer has left
  // What came with it, in order; those that were not wanted are not valid: they are closed, or will
  // be.
  std::vector<Descriptor> descriptors;
  bool lost_descriptors = false;  // more came than this process may have
};

// Sends one message. Never waits, and raises no signal.
absl::Status SendDescriptors(int socket, ByteSpan bytes, std::span<const int> descriptors);

// Receives one message. Never waits, whatever the socket's flags are. DATA_LOSS: it is longer than
// `bytes`. `wants` is asked about each descriptor, also of a message that is too long.
absl::StatusOr<DescriptorMessage> ReceiveDescriptors(
    int socket, MutableByteSpan bytes, bool (*wants)(const Descriptor&) = IsHandedMemory);

// Ends a connection of a Unix socket, and closes it with what the peer has sent. Never waits.
void HangUp(Descriptor socket);

// So many wait to be closed that no more should be let in.
bool ForeignDescriptorsPileUp();

}  // namespace weft
