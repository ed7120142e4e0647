// Whether memory that a program gives back still has something in it: secrets ought not.
//
// It replaces operator new and delete of the program, and looks at each block before it goes. What
// is allocated otherwise (by OpenSSL, by the C library) is not seen.
//
// Threads: any may free memory; one makes these objects, one at a time.
#pragma once

#include <cstddef>
#include <string_view>

namespace weft {

class FreedMemory {
 public:
  // From now on; `wanted` outlives it.
  explicit FreedMemory(std::string_view wanted);
  ~FreedMemory();
  FreedMemory(const FreedMemory&) = delete;
  FreedMemory& operator=(const FreedMemory&) = delete;

  // The blocks that had it in them when they were freed.
  size_t blocks_with_it() const;
};

}  // namespace weft
