// The code that makes a RegionHandle impossible to invent: HMAC-SHA-256 over what it says, cut to
// 128 bits, under a key that only its owner has.
//
// A cut of 128 bits is what RFC 2104 allows (half of the hash) and what a peer would have to guess
// at once: of 8 guesses on a session (kMaxBadHandles), each is right with a chance of 2^-128.
//
// Threads: any; nothing changes after construction.
// Errors: none. A handle is good or not; why not is nobody's business.
#pragma once

#include <array>
#include <cstddef>

#include "core/bytes.h"
#include "core/secret.h"
#include "transport/region_handle.h"

namespace weft {

class HandleCode {
 public:
  static constexpr size_t kKeyBytes = 32;  // the hash's own size: more would not be stronger
  using Key = SecretBytes<kKeyBytes>;

  // A key of the kernel's, never shown.
  HandleCode();
  explicit HandleCode(const Key& key) : key_(key) {}
  HandleCode(const HandleCode&) = delete;
  HandleCode& operator=(const HandleCode&) = delete;

  RegionHandle Mint(const RegionHandle::Claim& claim) const;

  // Whether this code's owner has minted it, all of it. Takes the same time for every wrong code.
  [[nodiscard]] bool Verify(const RegionHandle& handle) const;

 private:
  using Code = std::array<std::byte, RegionHandle::kCodeBytes>;

  Code Compute(ByteSpan signed_part) const;

  Key key_;
};

}  // namespace weft
