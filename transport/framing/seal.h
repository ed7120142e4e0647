// AES-256-GCM for one direction of a connection: records that only who has the secret can have
// made, each once and in its place. That is the other side alone where the secret is the link's
// own; without security it is also who has read the handshake (ConnectionSeal).
//
// Records are numbered 0, 1, 2, ... by both sides, each for itself. A record's nonce is its number
// XOR the key's initialization vector, as in TLS 1.3: one that comes again, too early, too late, or
// changed in any bit, does not open. After every `records_per_key` records both sides go on to the
// next key, which is derived from the last one and does not tell it. docs/wire_format.md has the
// derivation.
//
// Threads: one engine's. Lifetime: a member of its connection; keys are wiped.
// Errors: a record that does not open is false; nothing may be believed of it, and no later one
//   opens either. The connection is to end.
// Invariants: no nonce is used twice under one key.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <variant>

#include "core/bytes.h"
#include "core/secret.h"
#include "transport/link.h"
#include "transport/path.h"
#include "transport/record_cipher.h"
#include "transport/transport.h"

namespace weft {

class Seal {
 public:
  static constexpr size_t kTagBytes = RecordCipher::kTagBytes;
  static constexpr size_t kKeyBytes = 32;
  // RFC 8446, 5.5: 2^24.5 records of 2^10 blocks (16 bytes each) under one key leave an attacker a
  // chance of 2^-57. This is less than that, and a power of two.
  static constexpr uint64_t kMaxBlocksPerKey = uint64_t{1} << 34;
  // So many records of `bytes` at most.
  static constexpr uint64_t RecordsPerKey(uint64_t bytes) { return kMaxBlocksPerKey * 16 / bytes; }

  using Role = RecordCipher::Role;

  // `secret`: uniformly random. `label`: tells what else it is used for from this.
  // REQUIRES: records_per_key >= 1.
  Seal(Role role, ByteSpan secret, std::string_view label, uint64_t records_per_key);
  Seal(const Seal&) = delete;
  Seal& operator=(const Seal&) = delete;

  // The next record: `plain` to `to`, and its tag to `tag`. `header` is not hidden, and cannot be
  // changed. `to` is `plain.data()`, or they do not overlap; nor does `tag`.
  // REQUIRES: kEncrypts; at most kMaxMessageBytes of each.
  void Encrypt(ByteSpan header, ByteSpan plain, std::byte* to, std::byte* tag);

  // The other way, of the next record. False: it is not that; what stands at `to` is worthless.
  // REQUIRES: kDecrypts; tag.size() == kTagBytes; as Encrypt().
  [[nodiscard]] bool Decrypt(ByteSpan header, ByteSpan sealed, ByteSpan tag, std::byte* to);

  // Both in pieces: BeginRecord(), AddToRecord() for each in order, and an end, which counts the
  // record; no other one in between. What was opened is worthless until EndRecord() is true.
  void BeginRecord(ByteSpan header) { cipher_.Begin(records_, header); }
  void AddToRecord(ByteSpan from, std::byte* to) { cipher_.Add(from, to); }
  void EndRecord(std::byte* tag);
  [[nodiscard]] bool EndRecord(ByteSpan tag);

  // Whether this is the record that stands `distance` behind the next one (before it: less than 0),
  // and was sealed under the key in use. It does not count, and what stands at `to` is worthless.
  // It takes as long whatever the distance is.
  [[nodiscard]] bool IsRecordAt(int64_t distance, ByteSpan header, ByteSpan sealed, ByteSpan tag,
                                std::byte* to);

  uint64_t records() const { return records_; }

 private:
  void UseSecret();
  void CountRecord();
  bool Open(uint64_t number, ByteSpan header, ByteSpan sealed, ByteSpan tag, std::byte* to);

  const uint64_t records_per_key_;
  uint64_t records_ = 0;           // that went well
  SecretBytes<kKeyBytes> secret_;  // the key's, and the next secret's
  RecordCipher cipher_;
};

// What stands behind the frames of each batch that goes one way: nothing, the tag of a seal, or a
// proof (batch.h). Either is Seal::kTagBytes long.
using BatchTag = std::variant<std::monostate, Seal*, Nonce128>;

// All that a connection seals. `secret` may be one that others know too: then nothing is hidden
// from them, and accidents still show.
struct ConnectionSeal {
  // `dialled`: this side is the client. `only_large`: batches are not sealed.
  ConnectionSeal(const LinkSecret& secret, bool dialled, bool only_large = false);

  std::optional<Seal> batches_out;  // these two: none if only_large
  std::optional<Seal> batches_in;
  Seal large_out;  // large messages and payloads, numbered as their offers
  Seal large_in;
};

// Whether framing seals what goes over such a path: it leaves the host, and nothing below seals it.
// tcp has its own TLS, and shared memory stays on the host. (The simulated network is not asked
// for: its links have a secret where a test wants that.)
constexpr bool IsSealedByFraming(PathKind kind) {
  return kind == PathKind::kVerbs || kind == PathKind::kOfiTcp || kind == PathKind::kSim;
}

}  // namespace weft
