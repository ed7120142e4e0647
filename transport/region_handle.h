// A RegionHandle is a capability: the right to part of another process's memory, as bytes that can
// travel in any message (in a .proto: weft.RemoteRegion) and be kept anywhere.
//
// It says which export, which range, which rights, for whom and until when; a code over all of that
// (HMAC-SHA-256, cut to 128 bits, under a key that never leaves the owner's process) makes it
// impossible to invent or to change one. It holds no address and no provider's key: what a network
// card needs is given for it to an authenticated connection, over the control connection, as a
// lease (lease.h). Only the owner can tell a good one from a bad one (exports.h).
//
//   offset bytes
//        0     1  version, 1
//        1     1  rights
//        2     2  0
//        4     4  slot of the export
//        8     4  generation of that slot: a handle of an export that is gone is stale for ever
//       12     4  tenant: whose connections may use it
//       16     8  offset in the export, bytes
//       24     8  length, bytes
//       32     8  expiry, ns on the owner's clock; ~0: with the export
//       40    16  the code
//
// All integers are little-endian.
//
// Threads: a value.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "core/bytes.h"

namespace weft {

// What a holder may do: a sum of these.
using Rights = uint8_t;
inline constexpr Rights kMayRead = 1;
inline constexpr Rights kMayWrite = 2;
inline constexpr Rights kMayUseAtomics = 4;  // only together with both others
inline constexpr Rights kAllRights = kMayRead | kMayWrite | kMayUseAtomics;

// At least one right, none that is unknown, and atomics only with both others.
constexpr bool AreRights(Rights rights) {
  return rights != 0 && rights <= kAllRights &&
         ((rights & kMayUseAtomics) == 0 || rights == kAllRights);
}

// Which connections may use a handle: those whose tenant (RemoteAccess::tenant()) is the same.
inline constexpr uint32_t kDefaultTenant = 0;

class RegionHandle {
 public:
  static constexpr size_t kBytes = 56;
  static constexpr size_t kSignedBytes = 40;  // what the code covers
  static constexpr size_t kCodeBytes = kBytes - kSignedBytes;
  static constexpr uint8_t kVersion = 1;
  static constexpr uint64_t kNoExpiry = ~uint64_t{0};

  // What a handle says, true or not.
  struct Claim {
    Rights rights = 0;
    uint32_t slot = 0;
    uint32_t generation = 0;
    uint32_t tenant = kDefaultTenant;
    uint64_t offset = 0;
    uint64_t length = 0;
    uint64_t expires_ns = kNoExpiry;
  };

  // All zeros: never a good one.
  RegionHandle() = default;

  // Takes any bytes of the right number; false: another number.
  [[nodiscard]] static bool FromBytes(std::string_view bytes, RegionHandle* region) {
    if (bytes.size() != kBytes) return false;
    std::memcpy(region->bytes_.data(), bytes.data(), kBytes);
    return true;
  }
  std::string ToBytes() const {
    return std::string(reinterpret_cast<const char*>(bytes_.data()), kBytes);
  }
  const std::array<std::byte, kBytes>& bytes() const { return bytes_; }

  // For the curious; the owner's word alone counts.
  Claim claim() const {
    const std::byte* at = bytes_.data();
    return {static_cast<Rights>(at[1]), LoadLe32(at + 4),  LoadLe32(at + 8), LoadLe32(at + 12),
            LoadLe64(at + 16),          LoadLe64(at + 24), LoadLe64(at + 32)};
  }
  uint64_t length() const { return claim().length; }
  Rights rights() const { return claim().rights; }

  friend bool operator==(const RegionHandle&, const RegionHandle&) = default;

 private:
  std::array<std::byte, kBytes> bytes_ = {};
};

}  // namespace weft
