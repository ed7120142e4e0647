#include "transport/framing/seal.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <algorithm>
#include <string>

#include "core/check.h"
#include "core/strings.h"
#include "transport/hmac.h"

namespace weft {
namespace {

// Batches are at most 1 MiB long, large messages kMaxMessageBytes.
constexpr uint64_t kBatchesPerKey = Seal::RecordsPerKey(uint64_t{1} << 20);
constexpr uint64_t kLargePerKey = Seal::RecordsPerKey(kMaxMessageBytes);
static_assert(kBatchesPerKey == uint64_t{1} << 18 && kLargePerKey == uint64_t{1} << 12);

const unsigned char* In(ByteSpan bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}
unsigned char* Out(std::byte* bytes) { return reinterpret_cast<unsigned char*>(bytes); }

// HKDF-Expand of RFC 5869 with SHA-256, of one hash or less.
std::array<std::byte, kSha256Bytes> Expand(ByteSpan secret, std::string_view info) {
  const std::string text = StrCat(info, "\x01");
  return HmacSha256(secret, AsBytes(text));
}

std::string Label(bool of_client, std::string_view what) {
  return StrCat("weft 1 ", of_client ? "client " : "server ", what);
}

}  // namespace

Seal::Seal(Role role, ByteSpan secret, std::string_view label, uint64_t records_per_key)
    : role_(role),
      records_per_key_(records_per_key),
      secret_(Expand(secret, label)),
      cipher_(EVP_CIPHER_CTX_new()) {
  WEFT_CHECK(cipher_ != nullptr);  // System: memory for a cipher
  UseSecret();
}

Seal::~Seal() {
  EVP_CIPHER_CTX_free(cipher_);  // wipes its key
  OPENSSL_cleanse(secret_.data(), secret_.size());
  OPENSSL_cleanse(iv_.data(), iv_.size());
}

void Seal::UseSecret() {
  auto key = Expand(secret_, "key");
  const auto iv = Expand(secret_, "iv");
  std::copy_n(iv.begin(), iv_.size(), iv_.begin());
  const int done = EVP_CipherInit_ex(cipher_, EVP_aes_256_gcm(), nullptr, In(key), nullptr,
                                     role_ == Role::kEncrypts ? 1 : 0);
  OPENSSL_cleanse(key.data(), key.size());
  WEFT_CHECK(done == 1);  // System: an OpenSSL without AES-256-GCM
}

void Seal::CountRecord() {
  if (++records_ % records_per_key_ != 0) [[likely]]
    return;
  secret_ = Expand(secret_, "next");
  UseSecret();
}

void Seal::Begin(uint64_t number, ByteSpan header) {
  std::array<std::byte, 12> nonce = iv_;
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

void Seal::Encrypt(ByteSpan header, ByteSpan plain, std::byte* to, std::byte* tag) {
  WEFT_DCHECK(role_ == Role::kEncrypts);  // Ours: a direction has one role
  Begin(records_, header);
  int bytes = 0;
  int done = 1;
  if (!plain.empty()) {
    done = EVP_EncryptUpdate(cipher_, Out(to), &bytes, In(plain), static_cast<int>(plain.size()));
  }
  done &= EVP_EncryptFinal_ex(cipher_, Out(tag), &bytes);
  done &= EVP_CIPHER_CTX_ctrl(cipher_, EVP_CTRL_AEAD_GET_TAG, kTagBytes, tag);
  WEFT_CHECK(done == 1);  // Ours: it does not fail for any input
  CountRecord();
}

bool Seal::Finish(uint64_t number, ByteSpan header, ByteSpan sealed, ByteSpan tag, std::byte* to) {
  WEFT_DCHECK(role_ == Role::kDecrypts && tag.size() == kTagBytes);  // Ours: a direction has one
  Begin(number, header);
  int bytes = 0;
  std::array<std::byte, kTagBytes> last;                     // nothing is written there
  const auto expected = const_cast<std::byte*>(tag.data());  // which OpenSSL only reads
  if (!sealed.empty() && EVP_DecryptUpdate(cipher_, Out(to), &bytes, In(sealed),
                                           static_cast<int>(sealed.size())) != 1) {
    return false;
  }
  return EVP_CIPHER_CTX_ctrl(cipher_, EVP_CTRL_AEAD_SET_TAG, kTagBytes, expected) == 1 &&
         EVP_DecryptFinal_ex(cipher_, Out(last.data()), &bytes) == 1;
}

bool Seal::Decrypt(ByteSpan header, ByteSpan sealed, ByteSpan tag, std::byte* to) {
  if (!Finish(records_, header, sealed, tag, to)) return false;
  CountRecord();
  return true;
}

bool Seal::IsRecordAt(int64_t distance, ByteSpan header, ByteSpan sealed, ByteSpan tag,
                      std::byte* to) {
  const uint64_t number = records_ + static_cast<uint64_t>(distance);
  if (number / records_per_key_ != records_ / records_per_key_) return false;
  return Finish(number, header, sealed, tag, to);
}

ConnectionSeal::ConnectionSeal(const LinkSecret& secret, bool dialled)
    : batches_out(Seal::Role::kEncrypts, secret, Label(dialled, "batches"), kBatchesPerKey),
      batches_in(Seal::Role::kDecrypts, secret, Label(!dialled, "batches"), kBatchesPerKey),
      large_out(Seal::Role::kEncrypts, secret, Label(dialled, "large"), kLargePerKey),
      large_in(Seal::Role::kDecrypts, secret, Label(!dialled, "large"), kLargePerKey) {}

}  // namespace weft
