// TLS 1.3's records of one connection behind its handshake (RFC 8446: 5.1 to 5.5, 7.2, 7.3), for
// the suites TLS_AES_256_GCM_SHA384 and TLS_AES_128_GCM_SHA256. OpenSSL carries out the handshake,
// and tells the secrets; its own SSL_read() and SSL_write() take 1.5 us for each record, these 0.4
// (docs/performance_log.md, 2026-11-25).
//
//    0  5  header: 23, 3, 3, the bytes that follow (big-endian); authenticated
//    5  n  sealed: the content, its type (1 byte), zeros
//       16  the tag
//
// Each direction numbers its records from 0 under each of its keys. A key update (4.6.3) is a
// record that says that the next one has the next key. This side says so before it has made
// kRecordsPerKey with a key, asks its peer for one when it has read as many, and answers the peer's
// wish for one.
//
//   content       what it does
//   data          is the caller's; may be empty
//   alert         close_notify ends the peer's direction; user_canceled is ignored; any other one
//                 says why the peer has given up
//   handshake     key updates; for a client also tickets, which are ignored. A message lies whole
//                 in one record, and a key update ends it
//   anything else, or all zeros: the peer breaks the rules
//
// Threads: one engine's. Lifetime: a member of its stream; secrets and keys are wiped.
// Errors: fault() says what is wrong with a record, and which alert tells the peer. Nothing may be
//   read of it, and nothing behind it.
// Invariants: no number is used twice under a key. What does not open changes nothing.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "core/bytes.h"
#include "core/secret.h"
#include "transport/record_cipher.h"
#include "transport/tls/tls_credentials.h"

struct evp_md_st;  // OpenSSL's EVP_MD

namespace weft {

// How far one has come in the memory of a readv(2) or a writev(2).
class IovecCursor {
 public:
  IovecCursor(const iovec* iovecs, int count) : iovecs_(iovecs), count_(count) {
    for (int i = 0; i < count; ++i) left_ += iovecs[i].iov_len;
    SkipUsedUp();
  }
  size_t left() const { return left_; }
  // The next bytes in one piece: empty at the end only.
  MutableByteSpan piece() const {
    if (left_ == 0) return {};
    return {static_cast<std::byte*>(iovecs_->iov_base) + used_, iovecs_->iov_len - used_};
  }
  // REQUIRES: bytes <= piece().size().
  void Advance(size_t bytes) {
    used_ += bytes;
    left_ -= bytes;
    SkipUsedUp();
  }

 private:
  void SkipUsedUp() {
    for (; count_ > 0 && used_ == iovecs_->iov_len; ++iovecs_, --count_) used_ = 0;
  }

  const iovec* iovecs_;
  int count_;
  size_t used_ = 0;  // of the first
  size_t left_ = 0;
};

// The secrets of both directions, as OpenSSL's key log tells them: a line for each.
class TlsTrafficSecrets {
 public:
  TlsTrafficSecrets() = default;
  TlsTrafficSecrets(const TlsTrafficSecrets&) = delete;
  TlsTrafficSecrets& operator=(const TlsTrafficSecrets&) = delete;

  // Lines about other secrets, and what is no such line, change nothing.
  void Note(std::string_view line);
  // Empty: not told yet.
  ByteSpan of(TlsRole sender) const {
    const Slot& told = sender == TlsRole::kClient ? client_ : server_;
    return ByteSpan(told.bytes).first(told.size);
  }

 private:
  static constexpr size_t kMostBytes = 48;  // SHA-384's
  struct Slot {
    SecretBytes<kMostBytes> bytes;
    size_t size = 0;
  };
  Slot client_;
  Slot server_;
};

// The key of one direction, for somebody else to make or open its records (tls_kernel_stream.h),
// from the record of `number` on.
struct TlsRecordKey {
  static constexpr size_t kMostBytes = 32;

  ByteSpan used() const { return ByteSpan(key).first(bytes); }

  SecretBytes<kMostBytes> key;
  size_t bytes = 0;  // of it, by the suite
  SecretBytes<RecordCipher::kIvBytes> iv;
  uint64_t number = 0;
};

class TlsRecords {
 public:
  static constexpr size_t kHeaderBytes = 5;
  static constexpr size_t kMostPlainBytes = size_t{16} << 10;
  // What a record adds to its content: header, content type, tag.
  static constexpr size_t kAddedBytes = kHeaderBytes + 1 + RecordCipher::kTagBytes;
  // RFC 8446, 5.2 allows 239 bytes more for other suites; with AES-GCM a record that is longer than
  // this has more than 2^14 + 1 bytes in it, which 5.4 forbids.
  static constexpr size_t kMostBytes = kMostPlainBytes + kAddedBytes;
  static constexpr size_t kKeyUpdateMessageBytes = 5;
  static constexpr size_t kAlertMessageBytes = 2;
  static constexpr size_t kKeyUpdateBytes = kKeyUpdateMessageBytes + kAddedBytes;
  static constexpr size_t kAlertBytes = kAlertMessageBytes + kAddedBytes;
  // RFC 8446, 5.5 allows 2^24.5 full records. This is less, and a power of two: an update, which
  // takes 10 us, for each 256 GiB.
  static constexpr uint64_t kRecordsPerKey = uint64_t{1} << 24;

  enum class Kind : uint8_t { kWrong = 1, kAlert = 21, kHandshake = 22, kData = 23 };
  // RFC 8446, 6.
  enum class Alert : uint8_t {
    kCloseNotify = 0,
    kUnexpectedMessage = 10,
    kBadRecordMac = 20,
    kRecordOverflow = 22,
    kIllegalParameter = 47,
    kDecodeError = 50,
    kUserCanceled = 90,
  };
  struct Fault {
    Alert alert = Alert::kUnexpectedMessage;
    const char* what = nullptr;  // in words
  };
  struct Opened {
    Kind kind = Kind::kWrong;
    size_t bytes = 0;  // of content
  };
  // What a record that is no data says.
  enum class Message : uint8_t {
    kIgnored = 1,             // nothing is to be done about it
    kEnd = 2,                 // the peer sends nothing more
    kFatalAlert = 3,          // the peer has given up: fatal_alert()
    kKeyUpdateRequested = 4,  // this side is to answer by a SealKeyUpdate(false)
    kWrong = 5,               // fault()
  };

  // `suite`: as RFC 8446, B.4 numbers it; `role`: this side's. Null: another suite, or `secrets`
  // are not those of its hash. REQUIRES: nothing has been sent or received under the secrets;
  // records_per_key >= 2.
  static std::unique_ptr<TlsRecords> Create(uint16_t suite, TlsRole role,
                                            const TlsTrafficSecrets& secrets,
                                            uint64_t records_per_key = kRecordsPerKey);
  TlsRecords(const TlsRecords&) = delete;
  TlsRecords& operator=(const TlsRecords&) = delete;

  // --- out --------------------------------------------------------------------------------------
  // Makes a record of `bytes` of the cursor's, and returns its bytes at `to`. Where the key is used
  // up, a key update comes before it. REQUIRES: bytes <= kMostPlainBytes, and <= from->left(); room
  // of bytes + kAddedBytes + kKeyUpdateBytes at `to`, which does not overlap the cursor's.
  size_t Seal(Kind kind, IovecCursor* from, size_t bytes, std::byte* to);
  // kAlertBytes + kKeyUpdateBytes of room at `to`, at most.
  size_t SealAlert(Alert alert, std::byte* to);
  // Goes on to the next key, behind this record. `requests_update`: for the peer's as well.
  // kKeyUpdateBytes.
  size_t SealKeyUpdate(bool requests_update, std::byte* to);

  // --- in ---------------------------------------------------------------------------------------
  // The bytes of the record that `input` begins with, <= kMostBytes; 0: its header is not there
  // yet. False: fault().
  [[nodiscard]] bool Measure(ByteSpan input, size_t* bytes);
  // Opens a whole record. `to` is where its sealed bytes are, record.data() + kHeaderBytes, or
  // other memory, of room for SealedBytes(). kWrong: fault(); what stands at `to` is worthless.
  // REQUIRES: Measure() has accepted it.
  Opened Open(ByteSpan record, std::byte* to);
  // What Open() writes of a record, content and the rest.
  static size_t SealedBytes(size_t record) {
    return record - kHeaderBytes - RecordCipher::kTagBytes;
  }
  // The content of a record that is no data.
  Message Take(Kind kind, ByteSpan content);
  // So many have been read with a key that this side is to ask for the next, once, by a
  // SealKeyUpdate(true).
  bool IsTimeToAsk() const;

  // --- where somebody else makes and opens the records -------------------------------------------
  // This has the secrets, and Take(); the rest of what is above is not called.
  static std::array<std::byte, kAlertMessageBytes> AlertMessage(Alert alert);
  static std::array<std::byte, kKeyUpdateMessageBytes> KeyUpdateMessage(bool requests_update);
  TlsRecordKey out_key() const { return KeyOf(out_); }
  TlsRecordKey in_key() const { return KeyOf(in_); }
  // REQUIRES: a KeyUpdate of this side has been sent.
  void UseNextOutKey() { UseNextSecret(&out_); }
  // How often the peer has: as often as Take() has gone on to another in_key().
  uint64_t peer_updates() const { return peer_updates_; }
  uint64_t records_per_key() const { return records_per_key_; }

  const Fault& fault() const { return fault_; }
  // The number of the alert (RFC 8446, 6).
  uint8_t fatal_alert() const { return fatal_alert_; }

 private:
  static constexpr size_t kMostHashBytes = 48;

  struct Direction {
    explicit Direction(RecordCipher::Role role) : cipher(role) {}
    RecordCipher cipher;
    SecretBytes<kMostHashBytes> secret;
    uint64_t number = 0;  // of the next record
  };

  TlsRecords(const evp_md_st* hash, size_t key_bytes, bool is_client, uint64_t records_per_key);

  ByteSpan SecretOf(const Direction& direction) const {
    return ByteSpan(direction.secret).first(hash_bytes_);
  }
  TlsRecordKey KeyOf(const Direction& direction) const;
  void Begin(Direction* direction, ByteSpan secret);
  void UseSecret(Direction* direction);
  void UseNextSecret(Direction* direction);
  size_t MakeRecord(Kind kind, IovecCursor* from, size_t bytes, std::byte* to);
  Message TakeAlert(ByteSpan content);
  Message TakeHandshake(ByteSpan content);
  Message Refuse(Alert alert, const char* what);

  // Constant after construction.
  const evp_md_st* const hash_;
  const size_t hash_bytes_;
  const size_t key_bytes_;
  const bool is_client_;
  const uint64_t records_per_key_;

  Direction out_;
  Direction in_;
  bool asked_ = false;  // for the peer's next key
  uint64_t peer_updates_ = 0;
  Fault fault_;
  uint8_t fatal_alert_ = 0;
};

}  // namespace weft
