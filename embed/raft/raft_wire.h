// libraft's messages as protobuf's, and back.
//
// Small fields are fields of a Message. The bytes of entries, and of a snapshot, are its payload:
// one behind the other. The sender hands them over where they lie (GatherPayload()), or copies them
// (CopyPayload()); the receiver copies them once, into memory of libraft's own, unless they lie in
// a ring (raft_ring.h).
//
// Threads: functions that stand alone. Lifetime: ReceivedMessage owns what it was made of until
//   Release(), which hands all of it to libraft. Errors: INVALID_ARGUMENT for a message that no
//   member sends (unknown kind, lengths that do not add up, more than the bounds below);
//   RESOURCE_EXHAUSTED where libraft's allocator has nothing. Nothing here trusts a peer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "embed/raft/libraft.h"
#include "embed/raft/raft_wire.pb.h"

namespace weft::embed {

// What one message may have. A leader that is far ahead sends all that a follower lacks at a time;
// libraft has no bound of its own. 2^20 entries of nothing are 32 MiB of libraft's structures.
inline constexpr size_t kMaxEntries = size_t{1} << 20;
// Of a message that says where a record lies, encoded, in bytes. A larger one could be overtaken by
// those behind it: it would not fit into a batch, which has 8 KiB as a rule. 800 entries and more.
inline constexpr size_t kMaxPlacedBytes = 4 << 10;
inline constexpr size_t kMaxServers = 256;           // of a group's configuration
inline constexpr size_t kMaxRaftAddressBytes = 256;  // of one of them

// Everything of `message` but its payload. `from_address` is the sender's.
absl::Status EncodeRaftMessage(const raft_message& message, raft_id from,
                               std::string_view from_address, wire::Message* encoded);

// How many bytes of payload `message` has, or tells of.
uint64_t PayloadBytes(const raft_message& message);
absl::StatusOr<uint64_t> PayloadBytes(const wire::Message& encoded);

// The payload where it lies. REQUIRES: it stays, unchanged, as long as a copy of the Cord.
absl::Cord GatherPayload(const raft_message& message);
// The same, copied to `to`, which has PayloadBytes().
void CopyPayload(const raft_message& message, char* to);

// In which the sender says that it leads; 0: it does not say so.
raft_term TermOfLeader(const raft_message& message);

// The members that an entry of RAFT_CHANGE has, into *to, which is empty. False: these bytes are no
// configuration, or one with more than the bounds above; *to has some of it then. `behind`: how
// many bytes follow: libraft leaves as many as make them a multiple of 8.
bool DecodeConfiguration(const raft_buffer& bytes, raft_configuration* to,
                         size_t* behind = nullptr);
// Of a message whose payload is there: INVALID_ARGUMENT where an entry of RAFT_CHANGE has no
// configuration. libraft 0.15 decodes it without a look at where its bytes end.
absl::Status CheckChanges(const raft_message& message);

// Frees what a message points to that libraft would have taken.
void DiscardReceived(raft_message* message);

// A message in memory of libraft's.
class ReceivedMessage {
 public:
  ReceivedMessage() = default;
  ~ReceivedMessage();
  ReceivedMessage(const ReceivedMessage&) = delete;
  ReceivedMessage& operator=(const ReceivedMessage&) = delete;

  // Checks `encoded`, and makes room for its payload: payload(). Once. With `in_place` its entries
  // lie there already, one behind the other: libraft 0.15 copies each of them inside of raft_io's
  // receive callback, and then frees their batch, which is one byte of its allocator here.
  // REQUIRES: where in_place is not null, all of PayloadBytes(encoded) lie there until the callback
  // has returned.
  absl::Status Decode(const wire::Message& encoded, char* in_place = nullptr);

  // To be filled, if it is not in place; nullptr where payload_bytes() is 0.
  char* payload() { return payload_; }
  size_t payload_bytes() const { return payload_bytes_; }

  const raft_message& message() const { return message_; }
  // For raft_io's receive callback, which takes what the message points to. The sender's address
  // is the encoded message's, which has to stay during that call. REQUIRES: the payload is there.
  raft_message* Release();

 private:
  absl::Status DecodeEntries(const wire::AppendEntries& from, char* in_place);
  absl::Status DecodeSnapshot(const wire::InstallSnapshot& from);

  raft_message message_ = {};
  char* payload_ = nullptr;  // raft_malloc()
  size_t payload_bytes_ = 0;
  bool owns_ = false;  // what message_ points to
};

}  // namespace weft::embed
