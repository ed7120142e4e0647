// Which parts of a region are in use: extents of many sizes, in bounded memory.
//
// The region is cut into slabs of 256 KiB. A slab holds extents of one size class, 64 bytes to 64
// KiB, four classes to each doubling: at most a fifth of an extent is lost to rounding. A slab
// whose last extent is freed can serve another class.
//
// Threads:     one.
// Errors:      none free is not one: Allocate() says so.
// Invariants:  no two extents overlap; used_bytes() is the sum of their classes' sizes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "examples/kv/index/layout.h"

namespace kv::index {

class ExtentHeap {
 public:
  static constexpr uint32_t kSlabBytes = 256 << 10;

  // Of a region so long; what does not fill a slab is not used.
  explicit ExtentHeap(uint64_t bytes);

  // The place of an extent of at least `bytes`, in units of kExtentUnitBytes. Nothing: there is no
  // room, or it would be larger than kMaxExtentBytes.
  std::optional<uint32_t> Allocate(size_t bytes);

  // REQUIRES: from Allocate(), once.
  void Free(uint32_t where);

  uint64_t used_bytes() const { return used_bytes_; }

  // Aborts unless the invariants hold. Linear.
  void CheckInvariants() const;

 private:
  struct Slab {
    uint32_t class_bytes = 0;    // 0: serves none yet
    uint32_t carved = 0;         // extents that were ever in use since it serves this class
    std::vector<uint16_t> free;  // of those, the free ones
    uint32_t Capacity() const { return kSlabBytes / class_bytes; }
    uint32_t InUse() const { return carved - static_cast<uint32_t>(free.size()); }
    bool Full() const { return free.empty() && carved == Capacity(); }
  };

  // The slabs of a class that have room: the first ones are filled first, the last ones fall empty.
  using WithRoom = std::set<uint32_t>;

  WithRoom& RoomOf(uint32_t class_bytes);
  uint32_t SlabFor(uint32_t class_bytes);

  std::vector<Slab> slabs_;
  std::vector<uint32_t> unused_;  // slabs that serve no class
  std::vector<WithRoom> with_room_;
  uint64_t used_bytes_ = 0;
};

}  // namespace kv::index
