// How fast one processor seals: AES-256-GCM of 16 KiB in place, again and again, as
// `openssl speed -evp aes-256-gcm` does it. It is the most that TLS could carry if all else were
// free.
//
// Threads: one. Lifetime: a plain value that owns a cipher.
#pragma once

#include <cstddef>
#include <vector>

struct evp_cipher_ctx_st;  // OpenSSL's EVP_CIPHER_CTX

namespace weft::bench {

class Aead {
 public:
  static constexpr size_t kRecordBytes = size_t{16} << 10;

  Aead();
  ~Aead();
  Aead(const Aead&) = delete;
  Aead& operator=(const Aead&) = delete;

  // Seals kRecordBytes. False: OpenSSL does not.
  bool SealRecord();

 private:
  std::vector<unsigned char> record_ = std::vector<unsigned char>(kRecordBytes);
  evp_cipher_ctx_st* const cipher_;
};

}  // namespace weft::bench
