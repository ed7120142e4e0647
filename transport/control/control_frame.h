// What travels on the control connection: a preamble, then frames. Pure functions over bytes;
// sockets are elsewhere (control_socket.h), the meaning of the frames too (hello.h).
//
//   preamble, 8 bytes, once in each direction:
//     0  6  magic    89 'W' 'E' 'F' 'T' 0A: no text protocol begins like this
//     6  1  version  kPreambleVersion: of the preamble and the frame header
//     7  1  security kPlain; room for others
//   or, in its place, a join (sockets/join.h): the socket becomes a link's
//   frame, 8 bytes of header, all fields little-endian:
//     0  4  length   of the body, 0..MaxBodyBytes(type)
//     4  2  type     ControlType
//     6  2  flags    bit 0 (kIgnorable): who does not know the type skips the frame
//     8     body
//
// Threads: as plain values. Errors: a peer that breaks these rules gets DATA_LOSS (a frame) or
// FAILED_PRECONDITION (another protocol or version), and its text says what came.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "core/bytes.h"
#include "transport/link.h"

namespace weft {

// The numbers stand on the wire: never reuse one. Reserved for what is to come: 18..31 for
// liveness and draining.
enum class ControlType : uint16_t {
  kClientHello = 1,
  kServerHello = 2,
  kRefusal = 3,
  kPathTry = 4,
  kPathReady = 5,
  kPathUp = 6,
  kPathFailed = 7,
  kOpen = 8,
  kBye = 9,
  kHeartbeat = 16,  // ignorable
  kGrant = 17,      // transport/leases/grant_message.h; where both sides know leases
};

// "ClientHello"; "message type 77" for unknown ones.
std::string ControlTypeName(ControlType type);
bool IsKnownControlType(uint16_t type);

inline constexpr uint16_t kIgnorable = 1;

inline constexpr size_t kPreambleBytes = 8;
inline constexpr uint8_t kPreambleVersion = 1;
inline constexpr uint8_t kPlain = 0;  // of the preamble's security byte
inline constexpr size_t kControlHeaderBytes = 8;

// A hello carries the application's own of up to kMaxHelloBytes, and beside it at most 16 offers,
// 40 candidates and 64 features with their texts (hello.h), 40 KiB; every other message is a few
// numbers and one line of text.
inline constexpr size_t kMaxHelloBodyBytes = (size_t{256} << 10) + (size_t{48} << 10);
inline constexpr size_t kMaxOtherBodyBytes = size_t{4} << 10;
inline constexpr size_t kMaxGrantBodyBytes = 160;

// The largest body that a frame of this type may have.
size_t MaxBodyBytes(uint16_t type);

std::array<std::byte, kPreambleBytes> EncodePreamble();

// Whether the first bytes are those of a text protocol that answers in HTTP.
bool LooksLikeHttp(ByteSpan first_bytes);
// Whether they are those of TLS: a handshake record.
bool LooksLikeTls(ByteSpan first_bytes);

// Whether the first bytes from a peer, 1..kPreambleBytes of them, can begin its preamble. Names the
// protocol where it is a known one (HTTP, TLS).
absl::Status CheckPreamble(ByteSpan first_bytes);

// Appends one frame. REQUIRES: body.size() <= MaxBodyBytes(type).
void AppendControlFrame(ControlType type, uint16_t flags, ByteSpan body,
                        std::vector<std::byte>* out);

// One whole frame. `body` is valid until the reader's next call.
struct ControlFrame {
  ControlType type = ControlType::kBye;
  uint16_t flags = 0;
  ByteSpan body;
};

// Cuts a byte stream into preamble and frames, however the bytes arrive. Memory follows the bytes
// that have arrived, not the lengths that a peer announces; those are checked first.
// Invariants: buffered() <= kControlHeaderBytes + the largest body + one read.
class ControlFrameReader {
 public:
  // Takes what was read from the socket.
  void Append(ByteSpan bytes);

  enum class Result : uint8_t { kFrame = 1, kNeedMore = 2, kError = 3 };

  // The next frame that the receiver knows; frames that may be ignored are. After kError every
  // call returns kError, and error() says why.
  Result Next(ControlFrame* frame);

  const absl::Status& error() const { return error_; }
  // Frames that Next() has ignored.
  uint64_t skipped_frames() const { return skipped_frames_; }
  // What the peer's first bytes were.
  enum class Greeting : uint8_t {
    kNone = 1,          // not all of them have arrived
    kWeft = 2,          // this protocol in this version
    kOtherVersion = 3,  // this protocol, but not so that both sides understand it
    kHttp = 4,          // a web client, or gRPC
    kJoin = 6,          // a socket for a handshake (sockets/join.h): join() says which
    kLongJoin = 7,      // a join and more: no honest peer's
    kTls = 8,           // TLS, where none is spoken
    kForeign = 5,       // something else
  };
  Greeting greeting() const { return greeting_; }
  // Of kJoin.
  const Nonce128& join() const { return join_; }
  // Bytes held.
  size_t buffered() const { return bytes_.size() - begin_; }
  // Everything that arrived has been given out: an end of the stream here cuts nothing in two.
  bool at_boundary() const { return buffered() == 0; }

 private:
  Result Fail(absl::Status why);
  Result ReadPreamble();
  Result ReadJoin();
  void DropConsumed();

  std::vector<std::byte> bytes_;  // begin_ of them are consumed
  size_t begin_ = 0;
  uint64_t skipped_frames_ = 0;
  Greeting greeting_ = Greeting::kNone;
  Nonce128 join_;
  absl::Status error_;
};

}  // namespace weft
