// Memory that tests lend to peers: of the heap, or in a file that peers on this host map, which is
// another way to the same bytes (transport/mapped_memory.h).
//
// Threads: the test's.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "core/bytes.h"
#include "transport/mapped_memory.h"

namespace weft {

class TestMemory {
 public:
  // What memory is made from now on.
  static void UseFiles(bool files) { in_files_ = files; }

  explicit TestMemory(std::vector<std::byte> bytes) : heap_(std::move(bytes)), bytes_(heap_) {
    if (!in_files_) return;
    MappedMemoryOptions options;
    options.source = MappedMemoryOptions::Source::kMemfd;
    auto mapped = MappedMemory::Map(heap_.size(), options);
    EXPECT_TRUE(mapped.ok()) << mapped.status();
    if (!mapped.ok()) return;
    file_ = std::make_unique<MappedMemory>(*std::move(mapped));
    bytes_ = file_->bytes().first(heap_.size());
    std::copy(heap_.begin(), heap_.end(), bytes_.begin());
  }
  TestMemory(size_t bytes, std::byte value) : TestMemory(std::vector<std::byte>(bytes, value)) {}
  TestMemory(const TestMemory&) = delete;
  TestMemory& operator=(const TestMemory&) = delete;

  MutableByteSpan bytes() const { return bytes_; }
  std::byte* data() const { return bytes_.data(); }
  size_t size() const { return bytes_.size(); }
  auto begin() const { return bytes_.begin(); }
  auto end() const { return bytes_.end(); }
  std::byte& operator[](size_t i) const { return bytes_[i]; }
  std::vector<std::byte> Copy() const { return {begin(), end()}; }
  friend bool operator==(const TestMemory& memory, const std::vector<std::byte>& bytes) {
    return std::equal(memory.begin(), memory.end(), bytes.begin(), bytes.end());
  }

 private:
  static inline bool in_files_ = false;

  std::vector<std::byte> heap_;
  std::unique_ptr<MappedMemory> file_;
  MutableByteSpan bytes_;
};

}  // namespace weft
