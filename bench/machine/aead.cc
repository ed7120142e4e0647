#include "bench/machine/aead.h"

#include <openssl/evp.h>

namespace weft::bench {

Aead::Aead() : cipher_(EVP_CIPHER_CTX_new()) {
  constexpr unsigned char kKey[32] = {};
  constexpr unsigned char kIv[12] = {};
  if (cipher_ != nullptr) EVP_EncryptInit_ex(cipher_, EVP_aes_256_gcm(), nullptr, kKey, kIv);
}

Aead::~Aead() { EVP_CIPHER_CTX_free(cipher_); }

bool Aead::SealRecord() {
  int bytes = 0;
  return cipher_ != nullptr &&
         EVP_EncryptUpdate(cipher_, record_.data(), &bytes, record_.data(),
                           static_cast<int>(record_.size())) == 1 &&
         bytes == static_cast<int>(record_.size());
}

}  // namespace weft::bench
