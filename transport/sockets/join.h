// How a socket that belongs to a handshake introduces itself to the listener that has accepted it.
//
//   join, 24 bytes, little-endian, in the place of a control connection's preamble:
//     0  8  magic    kJoinMagic: no preamble begins like this
//     8 16  nonce    high and low, as the handshake told it
//
// Threads: plain functions and values.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "core/bytes.h"
#include "transport/link.h"

namespace weft {

inline constexpr uint64_t kJoinMagic = 0x00010A4A46455789;  // 89 'W' 'E' 'F' 'J' 0A 01 00
inline constexpr size_t kJoinBytes = 24;

inline std::array<std::byte, kJoinBytes> EncodeJoin(const Nonce128& nonce) {
  std::array<std::byte, kJoinBytes> join;
  StoreLe64(join.data(), kJoinMagic);
  StoreLe64(join.data() + 8, nonce.high);
  StoreLe64(join.data() + 16, nonce.low);
  return join;
}

// Whether these first bytes of a socket, 1 or more, can begin a join.
inline bool CanBeJoin(ByteSpan first_bytes) {
  std::array<std::byte, sizeof(kJoinMagic)> magic;
  StoreLe64(magic.data(), kJoinMagic);
  return std::memcmp(first_bytes.data(), magic.data(),
                     std::min(first_bytes.size(), magic.size())) == 0;
}

// REQUIRES: kJoinBytes at `join`, of which CanBeJoin().
inline Nonce128 DecodeJoin(const std::byte* join) {
  return {LoadLe64(join + 8), LoadLe64(join + 16)};
}

}  // namespace weft
