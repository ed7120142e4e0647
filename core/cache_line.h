// The distance that keeps two threads' data apart.
#pragma once

#include <cstddef>

namespace weft {

// Bytes of one cache line on x86-64 and on most of AArch64. Not
// std::hardware_destructive_interference_size: that one changes with -mtune, so an application and
// this library could disagree about the layout of a class.
inline constexpr std::size_t kCacheLineBytes = 64;

}  // namespace weft
