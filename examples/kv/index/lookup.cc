#include "examples/kv/index/lookup.h"

#include <cstring>

#include "core/crc32c.h"

namespace kv::index {

Found LookUp(const BucketLayout& bucket, uint64_t hash, SlotLayout* slot) {
  for (const SlotLayout& candidate : bucket.slots) {
    if (candidate.version == 0 || candidate.fingerprint != hash) continue;
    *slot = candidate;
    return Found::kRecord;
  }
  return (bucket.flags & kAsk) != 0 ? Found::kAsk : Found::kAbsent;
}

bool InHeap(const SlotLayout& slot, uint64_t heap_bytes) {
  const uint64_t offset = uint64_t{slot.where} * kExtentUnitBytes;
  return slot.length >= sizeof(ExtentHead) && slot.length <= kMaxExtentBytes &&
         offset <= heap_bytes && slot.length <= heap_bytes - offset;
}

Found OpenExtent(weft::ByteSpan extent, const SlotLayout& slot, std::string_view key,
                 std::string_view* block, SelfCheck check) {
  ExtentHead head;
  if (extent.size() != slot.length || extent.size() < sizeof(head)) return Found::kStale;
  std::memcpy(&head, extent.data(), sizeof(head));
  if (check == SelfCheck::kOn &&
      (head.version != slot.version || weft::Crc32c(extent) != slot.crc32c)) {
    return Found::kStale;
  }
  const std::string_view rest = weft::AsStringView(extent.subspan(sizeof(head)));
  if (uint64_t{head.key_bytes} + head.record_bytes != rest.size()) return Found::kStale;
  if (rest.substr(0, head.key_bytes) != key) return Found::kAsk;
  *block = rest.substr(head.key_bytes);
  return Found::kRecord;
}

}  // namespace kv::index
