#include "transport/memory_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <memory>
#include <optional>
#include <string>

namespace weft {
namespace {

constexpr uint64_t kPage = 4096;

std::shared_ptr<MemoryFile> File(uint64_t pages) {
  auto file = MemoryFile::Create(pages * kPage, /*reserved_huge_pages=*/false);
  EXPECT_TRUE(file.ok()) << file.status();
  return *std::move(file);
}

// All of the file, mapped.
class Mapped {
 public:
  explicit Mapped(const MemoryFile& file)
      : bytes_(static_cast<std::byte*>(mmap(nullptr, file.bytes(), PROT_READ | PROT_WRITE,
                                            MAP_SHARED, file.descriptor(), 0)),
               file.bytes()) {}
  ~Mapped() { munmap(bytes_.data(), bytes_.size()); }

  std::byte& operator[](size_t i) { return bytes_[i]; }
  MutableByteSpan bytes() const { return bytes_; }

 private:
  const MutableByteSpan bytes_;
};

TEST(MemoryFileTest, RangesAreTakenFromTheFrontAndDoNotOverlap) {
  const auto file = File(8);
  EXPECT_EQ(file->Take(2 * kPage, kPage), 0u);
  EXPECT_EQ(file->Take(kPage, kPage), 2 * kPage);
  EXPECT_EQ(file->Take(6 * kPage, kPage), std::nullopt);
  EXPECT_EQ(file->Take(5 * kPage, kPage), 3 * kPage);
  EXPECT_EQ(file->Take(kPage, kPage), std::nullopt);
}

TEST(MemoryFileTest, RangesThatCameBackGrowTogether) {
  const auto file = File(8);
  for (uint64_t i = 0; i < 8; ++i) ASSERT_EQ(file->Take(kPage, kPage), i * kPage);
  for (const uint64_t i : {1u, 5u, 3u, 2u, 4u}) file->Give(i * kPage, kPage);
  EXPECT_EQ(file->Take(6 * kPage, kPage), std::nullopt);
  EXPECT_EQ(file->Take(5 * kPage, kPage), kPage);
}

TEST(MemoryFileTest, AlignmentSkipsAndWhatIsSkippedCanBeTaken) {
  const auto file = File(8);
  EXPECT_EQ(file->Take(kPage, kPage), 0u);
  EXPECT_EQ(file->Take(4 * kPage, 4 * kPage), 4 * kPage);
  EXPECT_EQ(file->Take(4 * kPage, 4 * kPage), std::nullopt);
  EXPECT_EQ(file->Take(3 * kPage, kPage), kPage);
}

// A peer that keeps the file mapped does not keep the memory of ranges that were given back.
TEST(MemoryFileTest, ARangeThatCameBackIsZerosForWhoeverHasTheFileMapped) {
  const auto file = File(4);
  Mapped other(*file);
  ASSERT_EQ(file->Take(2 * kPage, kPage), 0u);
  other[0] = other[kPage] = other[2 * kPage] = std::byte{7};
  file->Give(0, 2 * kPage);
  EXPECT_EQ(other[0], std::byte{0});
  EXPECT_EQ(other[kPage], std::byte{0});
  EXPECT_EQ(other[2 * kPage], std::byte{7});
}

TEST(MemoryFileTest, TheFileCannotChangeItsSizeAndItsNameIsItsIdentity) {
  const auto file = File(4);
  EXPECT_NE(ftruncate(file->descriptor(), 0), 0);
  EXPECT_NE(ftruncate(file->descriptor(), 8 * kPage), 0);
  char link[100] = {};
  const std::string path = "/proc/self/fd/" + std::to_string(file->descriptor());
  ASSERT_GT(readlink(path.c_str(), link, sizeof(link) - 1), 0);
  EXPECT_EQ(MemoryFile::LinkOf(file->identity()), link);
  EXPECT_NE(file->identity(), File(1)->identity());
}

TEST(MemoryFileTest, MemoryIsFoundInItsFileWithAllItsBytesOrNotAtAll) {
  const auto file = File(4);
  Mapped mapped(*file);
  const ByteSpan middle = mapped.bytes().subspan(kPage, 2 * kPage);
  EXPECT_EQ(FindFile(middle).identity, 0u);
  TellFileMapping(middle, *file, kPage);
  const FilePlace place = FindFile(middle.subspan(10, 100));
  EXPECT_EQ(place.identity, file->identity());
  EXPECT_EQ(place.offset, kPage + 10);
  EXPECT_EQ(place.descriptor, file->descriptor());
  EXPECT_EQ(FindFile(middle).identity, file->identity());
  EXPECT_EQ(FindFile(mapped.bytes().subspan(kPage - 1, 10)).identity, 0u);
  EXPECT_EQ(FindFile(mapped.bytes().subspan(3 * kPage - 1, 2)).identity, 0u);
  EXPECT_EQ(FindFile(mapped.bytes().subspan(3 * kPage, 1)).identity, 0u);
  ForgetFileMapping(middle);
  EXPECT_EQ(FindFile(middle).identity, 0u);
}

}  // namespace
}  // namespace weft
