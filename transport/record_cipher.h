// AES-GCM (NIST SP 800-38D) for the records of one direction: a key that is scheduled once, and a
// nonce for each record, which is the record's number XOR the key's initialization vector, as in
// TLS 1.3 (RFC 8446, 5.3).
//
//   each record: Begin(), Add() for each part of it in order, then MakeTag() or CheckTag()
//
// Threads: one engine's. Lifetime: a member of who numbers the records; the key is wiped.
// Errors: a record that does not open is false. Want of memory, or an OpenSSL without AES-GCM, ends
//   the process: nothing safe can follow.
// Invariants: none about numbers. Who uses this may use no number twice under one key.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/bytes.h"
#include "core/secret.h"

struct evp_cipher_ctx_st;  // OpenSSL's EVP_CIPHER_CTX

namespace weft {

class RecordCipher {
 public:
  static constexpr size_t kTagBytes = 16;
  static constexpr size_t kIvBytes = 12;

  enum class Role : uint8_t { kEncrypts = 1, kDecrypts = 2 };

  explicit RecordCipher(Role role);
  ~RecordCipher();
  RecordCipher(const RecordCipher&) = delete;
  RecordCipher& operator=(const RecordCipher&) = delete;

  // From the next record on. `key`: 16 bytes for AES-128, 32 for AES-256. `iv`: kIvBytes.
  void UseKey(ByteSpan key, ByteSpan iv);

  // A record: `header` is not hidden, and cannot be changed. REQUIRES: it has a key.
  void Begin(uint64_t number, ByteSpan header);
  // Encrypts or decrypts its next bytes. `to` is `from.data()`, or they do not overlap. What was
  // decrypted is worth nothing before CheckTag(). REQUIRES: at most INT_MAX bytes.
  void Add(ByteSpan from, std::byte* to);
  // The record is over: writes kTagBytes. REQUIRES: kEncrypts.
  void MakeTag(std::byte* tag);
  // The record is over; false: it is not what was sealed. REQUIRES: kDecrypts; kTagBytes.
  [[nodiscard]] bool CheckTag(ByteSpan tag);

 private:
  const Role role_;
  SecretBytes<kIvBytes> iv_;
  evp_cipher_ctx_st* const cipher_;
};

}  // namespace weft
