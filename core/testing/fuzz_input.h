// A fuzzer's bytes as choices: what a target with a structure makes its events of.
//
// Past the end everything is 0, so any bytes are an input, and a longer one begins like a shorter
// one. A target runs while more().
//
// Threads: a value. Lifetime: the bytes outlive it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "core/bytes.h"

namespace weft {

class FuzzInput {
 public:
  FuzzInput(const uint8_t* data, size_t size)
      : left_(reinterpret_cast<const std::byte*>(data), size) {}

  bool more() const { return !left_.empty(); }

  uint8_t U8() {
    if (left_.empty()) return 0;
    const auto value = static_cast<uint8_t>(left_[0]);
    left_ = left_.subspan(1);
    return value;
  }
  // The first bytes are the low ones: under every compiler, for a corpus is made by one, and read
  // by another.
  uint16_t U16() {
    const uint32_t low = U8();
    return static_cast<uint16_t>(low | uint32_t{U8()} << 8);
  }
  uint32_t U32() {
    const uint32_t low = U16();
    return low | uint32_t{U16()} << 16;
  }
  uint64_t U64() {
    const uint64_t low = U32();
    return low | uint64_t{U32()} << 32;
  }
  bool Bit() { return (U8() & 1) != 0; }
  // 0..bound-1. REQUIRES: 0 < bound <= 256.
  uint32_t Below(uint32_t bound) { return U8() % bound; }

  // The next bytes as they are; fewer where fewer are left.
  ByteSpan Bytes(size_t count) {
    const ByteSpan bytes = left_.first(std::min(count, left_.size()));
    left_ = left_.subspan(bytes.size());
    return bytes;
  }
  std::string Text(size_t count) { return std::string(AsStringView(Bytes(count))); }
  ByteSpan Rest() { return Bytes(left_.size()); }

  // A number of which the small ones and those at the ends of its range are likely: as lengths,
  // offsets and counters want to be tried.
  uint64_t Number() {
    const uint8_t how = U8();
    if (how < 192) return how;
    switch (how % 8) {
      case 0:
        return ~uint64_t{0} - U8();
      case 1:
        return (uint64_t{1} << (U8() % 64)) - 1;
      case 2:
        return uint64_t{1} << (U8() % 64);
      case 3:
        return uint64_t{0xFFFFFFFF} + U8();
      case 4:
        return U16();
      case 5:
        return U32();
      default:
        return U64();
    }
  }

 private:
  ByteSpan left_;
};

}  // namespace weft
