#include "transport/framing/seal.h"

#include <string>

#include "core/strings.h"
#include "transport/hmac.h"

namespace weft {
namespace {

// Batches are at most 1 MiB long, large messages kMaxMessageBytes.
constexpr uint64_t kBatchesPerKey = Seal::RecordsPerKey(uint64_t{1} << 20);
constexpr uint64_t kLargePerKey = Seal::RecordsPerKey(kMaxMessageBytes);
static_assert(kBatchesPerKey == uint64_t{1} << 18 && kLargePerKey == uint64_t{1} << 12);

// HKDF-Expand of RFC 5869 with SHA-256, of one hash or less.
SecretBytes<kSha256Bytes> Expand(ByteSpan secret, std::string_view info) {
  const std::string text = StrCat(info, "\x01");
  return HmacSha256(secret, AsBytes(text));
}

std::string Label(bool of_client, std::string_view what) {
  return StrCat("weft 1 ", of_client ? "client " : "server ", what);
}

}  // namespace

Seal::Seal(Role role, ByteSpan secret, std::string_view label, uint64_t records_per_key)
    : records_per_key_(records_per_key), secret_(Expand(secret, label)), cipher_(role) {
  UseSecret();
}

void Seal::UseSecret() {
  const auto key = Expand(secret_, "key");
  const auto iv = Expand(secret_, "iv");
  cipher_.UseKey(key, ByteSpan(iv).first(RecordCipher::kIvBytes));
}

void Seal::CountRecord() {
  if (++records_ % records_per_key_ != 0) [[likely]]
    return;
  secret_ = Expand(secret_, "next");
  UseSecret();
}

void Seal::Encrypt(ByteSpan header, ByteSpan plain, std::byte* to, std::byte* tag) {
  BeginRecord(header);
  AddToRecord(plain, to);
  EndRecord(tag);
}

void Seal::EndRecord(std::byte* tag) {
  cipher_.MakeTag(tag);
  CountRecord();
}

bool Seal::EndRecord(ByteSpan tag) {
  if (!cipher_.CheckTag(tag)) return false;
  CountRecord();
  return true;
}

bool Seal::Open(uint64_t number, ByteSpan header, ByteSpan sealed, ByteSpan tag, std::byte* to) {
  cipher_.Begin(number, header);
  cipher_.Add(sealed, to);
  return cipher_.CheckTag(tag);
}

bool Seal::Decrypt(ByteSpan header, ByteSpan sealed, ByteSpan tag, std::byte* to) {
  BeginRecord(header);
  AddToRecord(sealed, to);
  return EndRecord(tag);
}

bool Seal::IsRecordAt(int64_t distance, ByteSpan header, ByteSpan sealed, ByteSpan tag,
                      std::byte* to) {
  const uint64_t number = records_ + static_cast<uint64_t>(distance);
  const bool opens = Open(number, header, sealed, tag, to);
  return opens && number / records_per_key_ == records_ / records_per_key_;
}

ConnectionSeal::ConnectionSeal(const LinkSecret& secret, bool dialled, bool only_large)
    : large_out(Seal::Role::kEncrypts, secret, Label(dialled, "large"), kLargePerKey),
      large_in(Seal::Role::kDecrypts, secret, Label(!dialled, "large"), kLargePerKey) {
  if (only_large) return;
  batches_out.emplace(Seal::Role::kEncrypts, secret, Label(dialled, "batches"), kBatchesPerKey);
  batches_in.emplace(Seal::Role::kDecrypts, secret, Label(!dialled, "batches"), kBatchesPerKey);
}

}  // namespace weft
