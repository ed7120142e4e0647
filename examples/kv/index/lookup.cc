#include "examples/kv/index/lookup.h"

#include <cstring>

#include "core/crc32c.h"

namespace kv::index {

uint32_t CheckOf(const Bucket& bucket, uint32_t number) {
  constexpr uint32_t kZero = 0;
  const weft::ByteSpan bytes(reinterpret_cast<const std::byte*>(&bucket), sizeof(bucket));
  constexpr size_t kAt = offsetof(Bucket, crc32c);
  uint32_t crc = weft::Crc32c(bytes.first(kAt), number);
  crc = weft::Crc32c({reinterpret_cast<const std::byte*>(&kZero), sizeof(kZero)}, crc);
  return weft::Crc32c(bytes.subspan(kAt + sizeof(kZero)), crc);
}

Found LookUp(const Bucket& bucket, uint32_t number, uint64_t hash, Slot* slot, SelfCheck check) {
  if (check == SelfCheck::kOn &&
      (bucket.sequence % 2 != 0 || bucket.crc32c != CheckOf(bucket, number))) {
    return Found::kTorn;
  }
  for (const Slot& candidate : bucket.slots) {
    if (candidate.version == 0 || candidate.fingerprint != hash) continue;
    *slot = candidate;
    return Found::kRecord;
  }
  return (bucket.flags & kAsk) != 0 ? Found::kAsk : Found::kAbsent;
}

bool InHeap(const Slot& slot, uint64_t heap_bytes) {
  const uint64_t offset = uint64_t{slot.where} * kExtentUnitBytes;
  return slot.length >= sizeof(ExtentHead) && slot.length <= kMaxExtentBytes &&
         offset <= heap_bytes && slot.length <= heap_bytes - offset;
}

Found OpenExtent(weft::ByteSpan extent, const Slot& slot, std::string_view key,
                 std::string_view* block, SelfCheck check) {
  ExtentHead head;
  if (extent.size() != slot.length || extent.size() < sizeof(head)) return Found::kTorn;
  std::memcpy(&head, extent.data(), sizeof(head));
  if (check == SelfCheck::kOn &&
      (head.version != slot.version || weft::Crc32c(extent) != slot.crc32c)) {
    return Found::kTorn;
  }
  const std::string_view rest = weft::AsStringView(extent.subspan(sizeof(head)));
  if (uint64_t{head.key_bytes} + head.record_bytes != rest.size()) return Found::kTorn;
  if (rest.substr(0, head.key_bytes) != key) return Found::kAsk;
  *block = rest.substr(head.key_bytes);
  return Found::kRecord;
}

}  // namespace kv::index
