#include "transport/record_cipher.h"

#include <openssl/evp.h>

#include <algorithm>
#include <array>

#include "core/check.h"

namespace weft {
namespace {

const unsigned char* In(ByteSpan bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}
unsigned char* Out(std::byte* bytes) { return reinterpret_cast<unsigned char*>(bytes); }

}  // namespace

RecordCipher::RecordCipher(Role role) : role_(role), cipher_(EVP_CIPHER_CTX_new()) {
  WEFT_CHECK(cipher_ != nullptr);  // System: memory for a cipher
}

RecordCipher::~RecordCipher() {
  EVP_CIPHER_CTX_free(cipher_);  // wipes its key
}

void RecordCipher::UseKey(ByteSpan key, ByteSpan iv) {
  WEFT_CHECK((key.size() == 16 || key.size() == 32) && iv.size() == kIvBytes);  // Ours: two suites
  std::copy(iv.begin(), iv.end(), iv_.begin());
  const EVP_CIPHER* const kind = key.size() == 16 ? EVP_aes_128_gcm() : EVP_aes_256_gcm();
  const int done =
      EVP_CipherInit_ex(cipher_, kind, nullptr, In(key), nullptr, role_ == Role::kEncrypts ? 1 : 0);
  WEFT_CHECK(done == 1);  // System: an OpenSSL without AES-GCM
}

void RecordCipher::Begin(uint64_t number, ByteSpan header) {
  SecretBytes<kIvBytes> nonce = iv_;
  for (size_t i = 0; i < sizeof(number); ++i) {
    nonce[nonce.size() - 1 - i] ^= static_cast<std::byte>(number >> (8 * i));
  }
  int bytes = 0;
  int done = EVP_CipherInit_ex(cipher_, nullptr, nullptr, nullptr, In(nonce), -1);
  if (!header.empty()) {
    done &= EVP_CipherUpdate(cipher_, nullptr, &bytes, In(header), static_cast<int>(header.size()));
  }
  WEFT_CHECK(done == 1);  // Ours: a cipher that has its key
}

void RecordCipher::Add(ByteSpan from, std::byte* to) {
  if (from.empty()) return;
  int bytes = 0;
  const int done =
      EVP_CipherUpdate(cipher_, Out(to), &bytes, In(from), static_cast<int>(from.size()));
  WEFT_CHECK(done == 1);  // Ours: it does not fail for records of less than 64 GiB
}

void RecordCipher::MakeTag(std::byte* tag) {
  WEFT_DCHECK(role_ == Role::kEncrypts);  // Ours: a direction has one role
  int bytes = 0;
  int done = EVP_EncryptFinal_ex(cipher_, Out(tag), &bytes);
  done &= EVP_CIPHER_CTX_ctrl(cipher_, EVP_CTRL_AEAD_GET_TAG, kTagBytes, tag);
  WEFT_CHECK(done == 1);  // Ours: it does not fail for any input
}

bool RecordCipher::CheckTag(ByteSpan tag) {
  WEFT_DCHECK(role_ == Role::kDecrypts && tag.size() == kTagBytes);  // Ours: a direction has one
  int bytes = 0;
  std::array<std::byte, kTagBytes> last;                     // nothing is written there
  const auto expected = const_cast<std::byte*>(tag.data());  // which OpenSSL only reads
  return EVP_CIPHER_CTX_ctrl(cipher_, EVP_CTRL_AEAD_SET_TAG, kTagBytes, expected) == 1 &&
         EVP_DecryptFinal_ex(cipher_, Out(last.data()), &bytes) == 1;
}

}  // namespace weft
