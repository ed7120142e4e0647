#include "examples/kv/index/index.h"

#include <atomic>
#include <cstring>
#include <utility>

#include "core/check.h"
#include "core/crc32c.h"
#include "examples/kv/index/key_hash.h"
#include "examples/kv/index/lookup.h"
#include "weft/remote_array.h"

namespace kv::index {

Index::Index(weft::MutableByteSpan table, weft::MutableByteSpan heap, uint64_t hash_seed)
    : table_(table),
      heap_(heap),
      hash_seed_(hash_seed),
      extents_(heap.size()),
      missing_(table.size() / kBucketBytes) {
  WEFT_CHECK(table.size() >= kBucketBytes && table.size() % kBucketBytes == 0);
  WEFT_CHECK(table.size() / kBucketBytes <= ~uint32_t{0});
  WEFT_CHECK(reinterpret_cast<uintptr_t>(table.data()) % kExtentUnitBytes == 0);
}

BucketLayout& Index::BucketAt(uint32_t number) const {
  return *reinterpret_cast<BucketLayout*>(table_.data() + size_t{number} * kBucketBytes);
}

weft::MutableByteSpan Index::ExtentAt(const SlotLayout& slot) const {
  return heap_.subspan(size_t{slot.where} * kExtentUnitBytes, slot.length);
}

Index::Place Index::Find(std::string_view key) const {
  const uint64_t hash = HashKey(key, hash_seed_);
  const uint32_t number = BucketOf(hash, buckets());
  const BucketLayout& bucket = BucketAt(number);
  for (uint32_t i = 0; i < kSlots; ++i) {
    const SlotLayout& slot = bucket.slots[i];
    if (slot.version == 0 || slot.fingerprint != hash) continue;
    std::string_view block;
    // Another key's with the same hash: rare, and no matter.
    if (OpenExtent(ExtentAt(slot), slot, key, &block, SelfCheck::kOff) == Found::kRecord) {
      return {number, static_cast<int>(i), hash};
    }
  }
  return {number, -1, hash};
}

int Index::FreeSlot(uint32_t bucket) const {
  for (uint32_t i = 0; i < kSlots; ++i) {
    if (BucketAt(bucket).slots[i].version == 0) return static_cast<int>(i);
  }
  return -1;
}

// Readers do not know of it before a slot names it.
std::optional<SlotLayout> Index::WriteExtent(std::string_view key, const Record& record,
                                             uint64_t hash) {
  const std::string_view block = record.block();
  const size_t length = sizeof(ExtentHead) + key.size() + block.size();
  const std::optional<uint32_t> where = extents_.Allocate(length);
  if (!where.has_value()) return std::nullopt;
  SlotLayout slot = {hash, ++last_version_, *where, static_cast<uint32_t>(length), 0, 0};
  const ExtentHead head = {slot.version, static_cast<uint32_t>(key.size()),
                           static_cast<uint32_t>(block.size())};
  const weft::MutableByteSpan extent = ExtentAt(slot);
  std::memcpy(extent.data(), &head, sizeof(head));
  std::memcpy(extent.data() + sizeof(head), key.data(), key.size());
  std::memcpy(extent.data() + sizeof(head) + key.size(), block.data(), block.size());
  slot.crc32c = weft::Crc32c(extent);
  return slot;
}

// From then on whoever reads it sees that it is out of date, also who remembers where it was.
void Index::EndExtent(const SlotLayout& slot) {
  auto* const version = reinterpret_cast<uint64_t*>(ExtentAt(slot).data());
  std::atomic_ref<uint64_t>(*version).store(0, std::memory_order_release);
}

void Index::SetSlot(uint32_t number, int slot, const SlotLayout& to) {
  SlotLayout old;
  {
    weft::RecordWriter<BucketLayout> bucket(BucketAt(number));
    // Before the bucket says so: nobody finds the old record after another has found the new one.
    if (slot >= 0 && bucket->slots[static_cast<size_t>(slot)].version != 0) {
      EndExtent(bucket->slots[static_cast<size_t>(slot)]);
    }
    if (slot >= 0) old = std::exchange(bucket->slots[static_cast<size_t>(slot)], to);
    bucket->flags = missing_[number] > 0 ? kAsk : 0;
  }
  records_ += (to.version != 0 ? 1 : 0) - (old.version != 0 ? 1 : 0);
  // Nothing leads to it any more; who is on the way there will see that it is another one.
  if (old.version != 0) extents_.Free(old.where);
}

void Index::AddMissing(uint32_t bucket, int records) {
  missing_[bucket] += static_cast<uint32_t>(records);
  missing_total_ += static_cast<uint64_t>(records);
}

void Index::Put(std::string_view key, const Record& record, bool existed) {
  const Place place = Find(key);
  const int slot = place.slot < 0 ? FreeSlot(place.bucket) : place.slot;
  const std::optional<SlotLayout> fresh =
      slot < 0 ? std::nullopt : WriteExtent(key, record, place.hash);
  if (existed && place.slot < 0) AddMissing(place.bucket, -1);
  if (!fresh.has_value()) AddMissing(place.bucket, 1);
  SetSlot(place.bucket, slot, fresh.value_or(SlotLayout{}));
}

void Index::Remove(std::string_view key) {
  const Place place = Find(key);
  if (place.slot < 0) AddMissing(place.bucket, -1);
  SetSlot(place.bucket, place.slot, SlotLayout{});
}

void Index::CheckInvariants() const {
  uint64_t records = 0;
  uint64_t missing = 0;
  for (uint32_t number = 0; number < buckets(); ++number) {
    const BucketLayout& bucket = BucketAt(number);
    WEFT_CHECK(weft::IsWholeRecord(reinterpret_cast<const std::byte*>(&bucket), sizeof(bucket)));
    WEFT_CHECK(((bucket.flags & kAsk) != 0) == (missing_[number] > 0));
    missing += missing_[number];
    for (const SlotLayout& slot : bucket.slots) {
      if (slot.version == 0) continue;
      ++records;
      WEFT_CHECK(BucketOf(slot.fingerprint, buckets()) == number);
      WEFT_CHECK(InHeap(slot, heap_.size()));
      WEFT_CHECK(weft::Crc32c(ExtentAt(slot)) == slot.crc32c);
    }
  }
  WEFT_CHECK(records == records_ && missing == missing_total_);
  extents_.CheckInvariants();
}

}  // namespace kv::index
