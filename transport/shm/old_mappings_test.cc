// What is not used any more is unmapped, in pieces, and its file ends where nobody waits for it.
#include "transport/shm/old_mappings.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <thread>

#include "core/clock.h"

namespace weft {
namespace {

constexpr size_t kPieceBytes = OldMappings::kPieceBytes;
// By it each piece takes so long that memory was touched.
const FakeClock slow_clock(kNsPerSec, /*step_ns=*/OldMappings::kFastNs);
constexpr char kName[] = "weft-old-mappings-test";

// Shared, and of a file that lives only by this.
MutableByteSpan Map(size_t bytes) {
  const int file = memfd_create(kName, MFD_CLOEXEC);
  EXPECT_EQ(ftruncate(file, static_cast<off_t>(bytes)), 0);
  void* const place = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  EXPECT_NE(place, MAP_FAILED);
  std::memset(place, 7, bytes);
  return {static_cast<std::byte*>(place), bytes};
}

bool IsMapped(const std::byte* place) {
  return msync(const_cast<std::byte*>(place), 1, MS_ASYNC) == 0;
}

size_t MappingsOfFiles() {
  std::ifstream maps("/proc/self/maps");
  size_t count = 0;
  for (std::string line; std::getline(maps, line);) count += line.find(kName) != line.npos;
  return count;
}

// Their ends are another thread's.
void AwaitNoMapping() {
  while (MappingsOfFiles() > 0) std::this_thread::yield();
}

TEST(OldMappings, AMappingGoesInPieces) {
  bool has_some = false;
  OldMappings old(&has_some, {/*may_start_threads=*/true, &slow_clock});
  const MutableByteSpan mapping = Map(2 * kPieceBytes + 4096);
  EXPECT_TRUE(old.empty() && !has_some);
  old.Add(mapping);
  EXPECT_TRUE(has_some && !old.empty());
  EXPECT_TRUE(IsMapped(mapping.data()));
  old.UnmapPiece();
  EXPECT_FALSE(IsMapped(mapping.data() + kPieceBytes - 1));
  EXPECT_TRUE(IsMapped(mapping.data() + kPieceBytes));
  old.UnmapPiece();
  EXPECT_FALSE(IsMapped(mapping.data() + 2 * kPieceBytes - 1));
  EXPECT_TRUE(IsMapped(mapping.data() + 2 * kPieceBytes));
  EXPECT_FALSE(old.empty());
  old.UnmapPiece();
  EXPECT_FALSE(IsMapped(&mapping.back()));
  EXPECT_TRUE(old.empty());
  AwaitNoMapping();
}

TEST(OldMappings, TheyGoOneAfterTheOther) {
  bool has_some = false;
  OldMappings old(&has_some, {/*may_start_threads=*/true, &slow_clock});
  const MutableByteSpan first = Map(4096), second = Map(4096);
  old.Add(first);
  old.Add(second);
  old.UnmapPiece();
  EXPECT_FALSE(IsMapped(first.data()));
  EXPECT_TRUE(IsMapped(second.data()));
  old.UnmapPiece();
  EXPECT_FALSE(IsMapped(second.data()));
  AwaitNoMapping();
}

// A peer's empty files kept their places, and one that was touched was unmapped at once: 25 ms.
TEST(OldMappings, WhereTheLineIsFullTheLargestGoesAtOnce) {
  bool has_some = false;
  OldMappings old(&has_some, {/*may_start_threads=*/true, &slow_clock});
  for (size_t i = 0; i < OldMappings::kMost; ++i) old.Add(Map(4096));
  const MutableByteSpan largest = Map(2 * 4096);
  old.Add(largest);
  EXPECT_FALSE(IsMapped(largest.data()));
  size_t pieces = 0;
  for (; !old.empty(); ++pieces) old.UnmapPiece();
  EXPECT_EQ(pieces, OldMappings::kMost);
  AwaitNoMapping();
}

// Files of a terabyte that nobody has touched were 131,072 pieces each, and took their addresses
// from all that the process maps.
TEST(OldMappings, MappingsOfNothingGoInFewPiecesAndHaveABound) {
  constexpr uint64_t kEmptyBytes = uint64_t{64} << 30;
  const auto map = [](uint64_t bytes) {
    void* const place = mmap(nullptr, bytes, PROT_NONE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE,
                             /*fd=*/-1, /*offset=*/0);
    EXPECT_NE(place, MAP_FAILED);
    return MutableByteSpan(static_cast<std::byte*>(place), bytes);
  };
  const FakeClock fast_clock;
  bool has_some = false;
  OldMappings old(&has_some, {/*may_start_threads=*/false, &fast_clock});
  const MutableByteSpan empty = map(kEmptyBytes);
  old.Add(empty);
  size_t pieces = 0;
  for (; !old.empty(); ++pieces) old.UnmapPiece();
  EXPECT_LE(pieces, kEmptyBytes / OldMappings::kMostPieceBytes + 8);
  EXPECT_FALSE(IsMapped(empty.data()) || IsMapped(&empty.back()));

  const MutableByteSpan small = map(kPieceBytes), large = map(OldMappings::kMostBytes);
  old.Add(small);
  old.Add(large);
  EXPECT_FALSE(IsMapped(large.data()));
  EXPECT_TRUE(IsMapped(small.data()));
}

TEST(OldMappings, TheEndUnmapsAll) {
  bool has_some = false;
  auto old = std::make_unique<OldMappings>(&has_some, OldMappings::Options());
  old->Add(Map(kPieceBytes + 4096));
  old->Add(Map(4096));
  old.reset();
  AwaitNoMapping();
}

// A host with one thread has no other while its engine unmaps.
TEST(OldMappings, WhereNoThreadMayBeStartedAllIsUnmappedByTheEngine) {
  AwaitNoMapping();
  bool has_some = false;
  OldMappings old(&has_some, {/*may_start_threads=*/false, &slow_clock});
  old.Add(Map(kPieceBytes + 4096));
  old.UnmapPiece();
  old.UnmapPiece();
  EXPECT_EQ(MappingsOfFiles(), 0u);
}

// Huge pages cannot be mapped once more, nor may a piece be smaller than one.
TEST(OldMappings, FilesOfHugePagesGoToo) {
  const int file = memfd_create(kName, MFD_CLOEXEC | MFD_HUGETLB);
  constexpr size_t kHugeBytes = 2 << 20;
  void* place = MAP_FAILED;
  if (file >= 0 && ftruncate(file, kHugeBytes) == 0) {
    place = mmap(nullptr, kHugeBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  }
  close(file);
  if (place == MAP_FAILED) GTEST_SKIP() << "this machine has no huge pages to give";
  bool has_some = false;
  OldMappings old(&has_some, {/*may_start_threads=*/true, &slow_clock});
  old.Add({static_cast<std::byte*>(place), kHugeBytes});
  old.UnmapPiece();
  EXPECT_FALSE(IsMapped(static_cast<std::byte*>(place)));
  AwaitNoMapping();
}

}  // namespace
}  // namespace weft
