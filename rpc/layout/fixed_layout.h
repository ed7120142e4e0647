// How a message with `option (weft.fixed_layout) = true` becomes a struct (weft/options.proto):
//
//   message Bucket {                                  struct BucketLayout {
//     option (weft.fixed_layout) = true;
//     fixed64 version = 1 [(weft.sequence) = true];     uint64_t version = 0;
//     repeated fixed64 keys = 2 [(weft.count) = 4];     std::array<uint64_t, 4> keys = {};
//     bytes tag = 3 [(weft.bytes) = 5];                 std::array<std::byte, 5> tag = {};
//     bool used = 4;                                    FixedBool used = {};
//                                                       std::array<std::byte, 2> padding_0_ = {};
//                                                       uint64_t checksum_ = 0;
//   }                                                 };
//
//   [s]fixed32, [u]int32, sint32   int32_t or uint32_t: 4 bytes, whatever the encoding in messages
//   [s]fixed64, [u]int64, sint64   int64_t or uint64_t
//   float, double                  themselves, IEEE 754
//   bool                           FixedBool, one byte
//   an enum                        protoc's own, 4 bytes; any number may come
//   bytes with (weft.bytes) = N    std::array<std::byte, N>
//   a message of fixed layout      its struct
//   repeated, (weft.count) = N     std::array of the above
//
// Members stand in the order of the fields' declarations, each at the next multiple of its own
// alignment; what is skipped is a member too, of zeros, so that no byte of a record is undefined.
// All of it is little-endian: a host of another order does not compile this, rather than misread.
//
// Such a struct can be memory that peers read and write in place (remote_array.h), and the request
// or reply of a call (method_layouts.h).
//
// Besides, the struct has
//   kLayoutName   "kv.Bucket", the message's full name
//   kLayoutHash   64 bits over names, types, sizes and offsets of all members: two sides whose
//                 hashes differ get an error when they meet. Any change changes it, also one of a
//                 nested message; values of enums don't count. (FNV-1a over a canonical
//                 text.)
//   kChecked      whether it has a sequence word and a checksum (rpc/layout/record.h)
//   Message       the class of protobuf that it is the layout of
//   CopyTo()      fills a message with what the struct holds. A number that a closed enum (proto2)
//                 does not name becomes that field's default
//   CopyFrom()    the other way. Bytes and repeated fields that are shorter than here are filled up
//                 with zeros, so an empty message gives a struct of zeros. INVALID_ARGUMENT, naming
//                 the field: one is longer. A checksum is made new
//
// Threads: values.
#pragma once

#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

namespace weft {

static_assert(std::endian::native == std::endian::little,
              "records of fixed layout are little-endian, and are used in place");
static_assert(sizeof(float) == 4 && sizeof(double) == 8);

// A bool that may hold any byte: a peer's record is memory that others write, and a bool of 2 would
// be undefined behaviour.
class FixedBool {
 public:
  constexpr FixedBool() = default;
  constexpr FixedBool(bool value) : byte_(value) {}  // NOLINT: implicit, like the bool that it is
  constexpr operator bool() const { return byte_ != 0; }  // NOLINT

 private:
  uint8_t byte_ = 0;
};
static_assert(sizeof(FixedBool) == 1);

// The largest struct of fixed layout, in bytes.
inline constexpr size_t kMaxFixedLayoutBytes = size_t{1} << 20;

// A struct that protoc-gen-weft has written.
template <class T>
concept FixedLayout = std::is_trivially_copyable_v<T> && std::is_standard_layout_v<T> &&
                      sizeof(T) <= kMaxFixedLayoutBytes&& requires {
  { T::kLayoutName } -> std::convertible_to<std::string_view>;
  { T::kLayoutHash } -> std::convertible_to<uint64_t>;
  { T::kChecked } -> std::convertible_to<bool>;
};

}  // namespace weft
