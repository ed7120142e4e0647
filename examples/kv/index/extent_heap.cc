#include "examples/kv/index/extent_heap.h"

#include <algorithm>
#include <bit>

#include "core/bytes.h"
#include "core/check.h"

namespace kv::index {
namespace {

constexpr uint32_t kNoSlab = ~uint32_t{0};
constexpr uint32_t kUnitsInSlab = ExtentHeap::kSlabBytes / kExtentUnitBytes;

// 64, 128, ... 512 by units of 64; from there four steps to each doubling.
uint32_t ClassBytes(uint32_t bytes) {
  const uint32_t doubling = std::bit_ceil(std::max(bytes, uint32_t{1}));
  return weft::AlignUp(std::max(bytes, uint32_t{1}), std::max(doubling / 8, kExtentUnitBytes));
}

// A number for each class, without gaps that matter.
constexpr uint32_t kClasses = kMaxExtentBytes / kExtentUnitBytes + 1;
uint32_t ClassNumber(uint32_t class_bytes) { return class_bytes / kExtentUnitBytes; }

}  // namespace

ExtentHeap::ExtentHeap(uint64_t bytes) : slabs_(bytes / kSlabBytes), with_room_(kClasses) {
  WEFT_CHECK(slabs_.size() * kUnitsInSlab <= kNoSlab);
  for (auto slab = static_cast<uint32_t>(slabs_.size()); slab > 0; --slab) {
    unused_.push_back(slab - 1);
  }
}

ExtentHeap::WithRoom& ExtentHeap::RoomOf(uint32_t class_bytes) {
  return with_room_[ClassNumber(class_bytes)];
}

uint32_t ExtentHeap::SlabFor(uint32_t class_bytes) {
  WithRoom& room = RoomOf(class_bytes);
  if (!room.empty()) return *room.begin();
  if (unused_.empty()) return kNoSlab;
  const uint32_t slab = unused_.back();
  unused_.pop_back();
  slabs_[slab].class_bytes = class_bytes;
  room.insert(slab);
  return slab;
}

std::optional<uint32_t> ExtentHeap::Allocate(size_t bytes) {
  if (bytes > kMaxExtentBytes) return std::nullopt;
  const uint32_t class_bytes = ClassBytes(static_cast<uint32_t>(bytes));
  const uint32_t number = SlabFor(class_bytes);
  if (number == kNoSlab) return std::nullopt;
  Slab& slab = slabs_[number];
  uint32_t extent = slab.carved;
  if (slab.free.empty()) {
    ++slab.carved;
  } else {
    extent = slab.free.back();
    slab.free.pop_back();
  }
  if (slab.Full()) RoomOf(class_bytes).erase(number);
  used_bytes_ += class_bytes;
  return number * kUnitsInSlab + extent * (class_bytes / kExtentUnitBytes);
}

void ExtentHeap::Free(uint32_t where) {
  const uint32_t number = where / kUnitsInSlab;
  Slab& slab = slabs_[number];
  WEFT_CHECK(slab.class_bytes != 0);
  const uint32_t extent = where % kUnitsInSlab / (slab.class_bytes / kExtentUnitBytes);
  WEFT_DCHECK(std::find(slab.free.begin(), slab.free.end(), extent) == slab.free.end());
  if (slab.Full()) RoomOf(slab.class_bytes).insert(number);
  slab.free.push_back(static_cast<uint16_t>(extent));
  used_bytes_ -= slab.class_bytes;
  if (slab.InUse() > 0) return;
  RoomOf(slab.class_bytes).erase(number);
  slab = Slab();
  unused_.push_back(number);
}

void ExtentHeap::CheckInvariants() const {
  uint64_t used = 0;
  for (uint32_t number = 0; number < slabs_.size(); ++number) {
    const Slab& slab = slabs_[number];
    if (slab.class_bytes == 0) continue;
    used += uint64_t{slab.InUse()} * slab.class_bytes;
    WEFT_CHECK(slab.carved <= slab.Capacity());
    WEFT_CHECK(slab.InUse() > 0);
    WEFT_CHECK(with_room_[ClassNumber(slab.class_bytes)].count(number) == (slab.Full() ? 0 : 1));
  }
  WEFT_CHECK(used == used_bytes_);
}

}  // namespace kv::index
