#include "transport/mapped_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>

#include "transport/huge_mapping.h"

namespace weft {
namespace {

using HugePages = MappedMemoryOptions::HugePages;
using Source = MappedMemoryOptions::Source;

bool IsZero(MutableByteSpan memory) {
  return std::all_of(memory.begin(), memory.end(), [](std::byte b) { return b == std::byte{}; });
}

MappedMemoryOptions With(HugePages huge_pages, Source source = Source::kAnonymous) {
  MappedMemoryOptions options;
  options.huge_pages = huge_pages;
  options.source = source;
  return options;
}

TEST(MappedMemoryTest, IsZeroAndAtLeastAsLargeAsAskedFor) {
  for (const HugePages huge_pages : {HugePages::kTry, HugePages::kNever}) {
    for (const size_t bytes : {size_t{1}, size_t{5000}, kHugePageBytes, kHugePageBytes + 1}) {
      const auto memory = MappedMemory::Map(bytes, With(huge_pages));
      ASSERT_TRUE(memory.ok()) << memory.status();
      EXPECT_GE(memory->bytes().size(), bytes);
      EXPECT_TRUE(IsZero(memory->bytes()));
      EXPECT_EQ(memory->descriptor(), -1);
    }
  }
}

TEST(MappedMemoryTest, TakesWhatItSaysWhicheverPagesItGets) {
  for (const size_t bytes : {size_t{1}, size_t{4097}, kHugePageBytes / 2, kHugePageBytes / 2 + 1,
                             kHugePageBytes, kHugePageBytes + 1}) {
    for (const Source source : {Source::kAnonymous, Source::kMemfd}) {
      const auto memory = MappedMemory::Map(bytes, With(HugePages::kTry, source));
      ASSERT_TRUE(memory.ok()) << memory.status();
      EXPECT_EQ(memory->bytes().size(), MappedMemory::TakenBy(bytes)) << bytes;
    }
  }
}

TEST(MappedMemoryTest, SaysWhichPagesItGot) {
  const auto small = MappedMemory::Map(kHugePageBytes, With(HugePages::kNever));
  ASSERT_TRUE(small.ok()) << small.status();
  EXPECT_EQ(small->pages(), MappedMemory::Pages::kSmall);
  const auto tried = MappedMemory::Map(kHugePageBytes, With(HugePages::kTry));
  ASSERT_TRUE(tried.ok()) << tried.status();
  if (tried->pages() != MappedMemory::Pages::kSmall) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(tried->bytes().data()) % kHugePageBytes, 0u);
  }
  // A few bytes are not worth a huge page.
  EXPECT_EQ(MappedMemory::Map(100)->pages(), MappedMemory::Pages::kSmall);
}

// In kB, of the mapping that begins there: as /proc/self/smaps names it.
uint64_t Smaps(const std::byte* begin, const std::string& field) {
  std::ifstream smaps("/proc/self/smaps");
  std::ostringstream first;
  first << std::hex << reinterpret_cast<uintptr_t>(begin) << '-';
  bool found = false;
  for (std::string line; std::getline(smaps, line);) {
    if (line.compare(0, first.str().size(), first.str()) == 0) found = true;
    if (found && line.compare(0, field.size(), field) == 0) {
      return std::stoull(line.substr(field.size() + 1));
    }
  }
  return 0;
}

// Files in memory have small pages on most systems: their switch for transparent huge pages is off.
// That cost bulk over tcp a tenth.
TEST(MappedMemoryTest, AMemfdHasHugePagesWhereItSaysSo) {
  const auto memory = MappedMemory::Map(4 * kHugePageBytes, With(HugePages::kTry, Source::kMemfd));
  ASSERT_TRUE(memory.ok()) << memory.status();
  if (memory->pages() != MappedMemory::Pages::kTransparentHuge) {
    GTEST_SKIP() << "the kernel gives files in memory no huge pages";
  }
  memset(memory->bytes().data(), 1, memory->bytes().size());
  const size_t bytes = memory->bytes().size();
  EXPECT_EQ(Smaps(memory->bytes().data(), "ShmemPmdMapped:"), bytes >> 10);

  // And so at whoever maps the file.
  std::byte* const other = MapForHugePages(bytes, MAP_SHARED, memory->descriptor(), 0);
  ASSERT_NE(other, nullptr);
  EXPECT_EQ(other[bytes - 1], std::byte{1});
  EXPECT_EQ(Smaps(other, "ShmemPmdMapped:"), kHugePageBytes >> 10);
  munmap(other, bytes);
}

TEST(MappedMemoryTest, WhatMayBeMeantToBeSparseIsNotMadeHuge) {
  const size_t bytes = MappedMemory::kMostMadeHugeBytes + kHugePageBytes;
  const auto memory = MappedMemory::Map(bytes, With(HugePages::kTry, Source::kMemfd));
  ASSERT_TRUE(memory.ok()) << memory.status();
  EXPECT_EQ(Smaps(memory->bytes().data(), "Rss:"), 0u);
}

TEST(MappedMemoryTest, RequiredHugePagesAreThoseThatAreReservedOrAnError) {
  const auto memory = MappedMemory::Map(1, With(HugePages::kRequire));
  if (memory.ok()) {
    EXPECT_EQ(memory->pages(), MappedMemory::Pages::kHuge);
    EXPECT_EQ(memory->bytes().size(), kHugePageBytes);
  } else {
    EXPECT_TRUE(absl::IsResourceExhausted(memory.status())) << memory.status();
    EXPECT_NE(memory.status().message().find("vm.nr_hugepages"), std::string::npos);
  }
}

TEST(MappedMemoryTest, AMemfdIsTheSameMemoryForWhoeverMapsIt) {
  const auto memory = MappedMemory::Map(10'000, With(HugePages::kNever, Source::kMemfd));
  ASSERT_TRUE(memory.ok()) << memory.status();
  const size_t bytes = memory->bytes().size();
  void* const other = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, memory->descriptor(), 0);
  ASSERT_NE(other, MAP_FAILED);
  memory->bytes()[9'999] = std::byte{42};
  EXPECT_EQ(static_cast<const std::byte*>(other)[9'999], std::byte{42});
  munmap(other, bytes);
}

// Who touches a mapping behind the end of its file is killed.
TEST(MappedMemoryTest, AMemfdCannotBeMadeSmallerUnderItsMapping) {
  const auto memory = MappedMemory::Map(10'000, With(HugePages::kNever, Source::kMemfd));
  ASSERT_TRUE(memory.ok()) << memory.status();
  EXPECT_NE(ftruncate(memory->descriptor(), 0), 0);
}

TEST(MappedMemoryTest, AMemfdThatPeersMayOnlyReadCannotBeMappedForWriting) {
  for (const HugePages huge_pages : {HugePages::kNever, HugePages::kTry}) {
    MappedMemoryOptions options = With(huge_pages, Source::kMemfd);
    options.peers_may_write = false;
    const auto memory = MappedMemory::Map(kHugePageBytes, options);
    ASSERT_TRUE(memory.ok()) << memory.status();
    const int file = memory->descriptor();
    const size_t bytes = memory->bytes().size();
    EXPECT_EQ(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0), MAP_FAILED);
    EXPECT_EQ(pwrite(file, "x", 1, 0), -1);
    void* const other = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file, 0);
    ASSERT_NE(other, MAP_FAILED);
    EXPECT_NE(mprotect(other, bytes, PROT_READ | PROT_WRITE), 0);
    memory->bytes()[7] = std::byte{42};
    EXPECT_EQ(static_cast<const std::byte*>(other)[7], std::byte{42}) << "its owner writes";
    munmap(other, bytes);
  }
}

TEST(MappedMemoryTest, PeersFindAMemfdsMemoryAsLongAsItIsMapped) {
  auto memory = MappedMemory::Map(10'000, With(HugePages::kNever, Source::kMemfd));
  ASSERT_TRUE(memory.ok()) << memory.status();
  const MutableByteSpan bytes = memory->bytes();
  EXPECT_EQ(FindFile(bytes).descriptor, memory->descriptor());
  EXPECT_EQ(FindFile(bytes.subspan(5000)).offset, 5000u);
  {
    const MappedMemory moved = *std::move(memory);
    EXPECT_EQ(FindFile(bytes).descriptor, moved.descriptor());
  }
  EXPECT_EQ(FindFile(bytes).identity, 0u);
}

TEST(MemoryArenaTest, MappingsShareOneFileAndDoNotOverlap) {
  MemoryArena arena(With(HugePages::kNever, Source::kMemfd), 4 * kHugePageBytes);
  const auto first = arena.Map(kHugePageBytes);
  const auto second = arena.Map(2 * kHugePageBytes);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(first->descriptor(), second->descriptor());
  EXPECT_EQ(FindFile(second->bytes()).offset, kHugePageBytes);
  first->bytes()[kHugePageBytes - 1] = std::byte{1};
  EXPECT_TRUE(IsZero(second->bytes()));
}

TEST(MemoryArenaTest, WhatHasNoRoomThereGetsAFileOfItsOwn) {
  MemoryArena arena(With(HugePages::kNever, Source::kMemfd), kHugePageBytes);
  const auto first = arena.Map(kHugePageBytes);
  const auto second = arena.Map(100);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_NE(first->descriptor(), second->descriptor());
  EXPECT_NE(second->descriptor(), -1);
}

// A slab that is mapped anew must not show what stood there before.
TEST(MemoryArenaTest, MemoryThatIsMappedAgainIsZeroAndMayOutliveTheArena) {
  auto arena = std::make_unique<MemoryArena>(With(HugePages::kTry, Source::kMemfd), kHugePageBytes);
  auto memory = arena->Map(kHugePageBytes);
  ASSERT_TRUE(memory.ok()) << memory.status();
  const int descriptor = memory->descriptor();
  memory->bytes()[77] = std::byte{1};
  memory = absl::CancelledError("unmapped");
  memory = arena->Map(kHugePageBytes);
  ASSERT_TRUE(memory.ok()) << memory.status();
  EXPECT_EQ(memory->descriptor(), descriptor);
  EXPECT_TRUE(IsZero(memory->bytes()));
  arena.reset();
  memory->bytes()[77] = std::byte{1};
}

TEST(MemoryArenaTest, AnonymousMemoryHasNoFile) {
  MemoryArena arena(With(HugePages::kTry, Source::kAnonymous), kHugePageBytes);
  const auto memory = arena.Map(kHugePageBytes);
  ASSERT_TRUE(memory.ok()) << memory.status();
  EXPECT_EQ(memory->descriptor(), -1);
  EXPECT_EQ(FindFile(memory->bytes()).identity, 0u);
}

TEST(MappedMemoryTest, AnyNodeWillDoWhereThePreferredOneDoesNotExist) {
  MappedMemoryOptions options;
  for (const int node : {0, 63, 1000}) {
    options.numa_node = node;
    const auto memory = MappedMemory::Map(kHugePageBytes, options);
    ASSERT_TRUE(memory.ok()) << memory.status();
    memory->bytes()[0] = std::byte{1};
  }
}

TEST(MappedMemoryTest, MovedMemoryIsUnmappedOnce) {
  auto first = MappedMemory::Map(5000);
  ASSERT_TRUE(first.ok());
  std::byte* const at = first->bytes().data();
  MappedMemory second = *std::move(first);
  EXPECT_EQ(second.bytes().data(), at);
  second = *MappedMemory::Map(5000);
  second.bytes()[0] = std::byte{1};
}

TEST(MappedMemoryTest, NoBytesAreAnError) {
  EXPECT_TRUE(absl::IsInvalidArgument(MappedMemory::Map(0).status()));
  EXPECT_TRUE(absl::IsResourceExhausted(MappedMemory::Map(~size_t{0}).status()));
}

}  // namespace
}  // namespace weft
