// Views of raw bytes, and little-endian fields in them.
//
// All of Weft's wire formats are little-endian, at any alignment. `Load` and `Store` are for places
// whose size has been checked already (a fixed header); `ByteReader` checks every step and is the
// tool for bytes that a peer has sent.
//
// Threads:   none of these objects may be used by two threads at once.
// Lifetime:  views and reader borrow the bytes; nothing is copied or owned.
// Errors:    the reader returns false, and leaves cursor and result as they were.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>

#include "core/check.h"

namespace weft {

using ByteSpan = std::span<const std::byte>;
using MutableByteSpan = std::span<std::byte>;

inline ByteSpan AsBytes(std::string_view text) {
  return ByteSpan(reinterpret_cast<const std::byte*>(text.data()), text.size());
}

inline std::string_view AsStringView(ByteSpan bytes) {
  return std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

// `n` rounded up to a multiple of `power_of_two`.
// REQUIRES: `power_of_two` is one, and the result fits into T.
template <class T>
constexpr T AlignUp(T n, std::type_identity_t<T> power_of_two) {
  static_assert(std::is_unsigned_v<T>);
  WEFT_DCHECK(std::has_single_bit(power_of_two));  // Ours: a constant, or the size of a page
  return static_cast<T>((n + (power_of_two - 1)) & ~(power_of_two - 1));
}

namespace internal {

// Its own inverse: host to little-endian and back. Nothing to do on little-endian hosts.
template <class T>
constexpr T SwapUnlessLittleEndian(T value) {
  static_assert(std::is_unsigned_v<T>);
  if constexpr (std::endian::native == std::endian::little || sizeof(T) == 1) return value;
  if constexpr (sizeof(T) == 2) return __builtin_bswap16(value);
  if constexpr (sizeof(T) == 4) return __builtin_bswap32(value);
  if constexpr (sizeof(T) == 8) return __builtin_bswap64(value);
}

template <class T>
T LoadLe(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(value));
  return SwapUnlessLittleEndian(value);
}

template <class T>
void StoreLe(std::byte* to, T value) {
  value = SwapUnlessLittleEndian(value);
  std::memcpy(to, &value, sizeof(value));
}

}  // namespace internal

// REQUIRES: 2, 4 or 8 readable bytes at `from`; no alignment is needed.
inline uint16_t LoadLe16(const std::byte* from) { return internal::LoadLe<uint16_t>(from); }
inline uint32_t LoadLe32(const std::byte* from) { return internal::LoadLe<uint32_t>(from); }
inline uint64_t LoadLe64(const std::byte* from) { return internal::LoadLe<uint64_t>(from); }

// REQUIRES: 2, 4 or 8 writable bytes at `to`; no alignment is needed.
inline void StoreLe16(std::byte* to, uint16_t value) { internal::StoreLe(to, value); }
inline void StoreLe32(std::byte* to, uint32_t value) { internal::StoreLe(to, value); }
inline void StoreLe64(std::byte* to, uint64_t value) { internal::StoreLe(to, value); }

// Reads fields one after the other and never past the end. After a false, both the cursor and
// the result are unchanged.
class ByteReader {
 public:
  explicit ByteReader(ByteSpan bytes) : bytes_(bytes) {}

  [[nodiscard]] bool ReadU8(uint8_t* value) { return Read(value); }
  [[nodiscard]] bool ReadLe16(uint16_t* value) { return Read(value); }
  [[nodiscard]] bool ReadLe32(uint32_t* value) { return Read(value); }
  [[nodiscard]] bool ReadLe64(uint64_t* value) { return Read(value); }

  // A view of the next `n` bytes, not a copy.
  [[nodiscard]] bool ReadBytes(std::size_t n, ByteSpan* view) {
    if (n > remaining()) return false;
    *view = bytes_.subspan(position_, n);
    position_ += n;
    return true;
  }

  [[nodiscard]] bool Skip(std::size_t n) {
    ByteSpan skipped;
    return ReadBytes(n, &skipped);
  }

  std::size_t position() const { return position_; }
  std::size_t remaining() const { return bytes_.size() - position_; }
  ByteSpan rest() const { return bytes_.subspan(position_); }

 private:
  template <class T>
  bool Read(T* value) {
    if (sizeof(T) > remaining()) return false;
    *value = internal::LoadLe<T>(bytes_.data() + position_);
    position_ += sizeof(T);
    return true;
  }

  ByteSpan bytes_;
  std::size_t position_ = 0;  // <= bytes_.size()
};

}  // namespace weft
