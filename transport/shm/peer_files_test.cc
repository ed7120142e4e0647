// Mapping a peer's files. The peer is this process: what counts is what /proc says of it.

#include "transport/shm/peer_files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "transport/descriptor.h"
#include "transport/mapped_memory.h"

namespace weft {
namespace {

constexpr uint64_t kBytes = 64 << 10;

MappedMemory NewMemory(uint64_t bytes = kBytes) {
  MappedMemoryOptions options;
  options.source = MappedMemoryOptions::Source::kMemfd;
  auto memory = MappedMemory::Map(bytes, options);
  EXPECT_TRUE(memory.ok()) << memory.status();
  return *std::move(memory);
}

// A file that looks like one of ours, with the seals of choice.
struct ForgedFile {
  ForgedFile(uint64_t bytes, int seals, unsigned huge = 0) {
    const std::string link = MemoryFile::LinkOf(identity);
    const std::string name = link.substr(7, link.size() - 7 - 10);  // "/memfd:", " (deleted)"
    descriptor.Reset(memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING | huge));
    if (huge != 0 && !descriptor.valid()) return;  // a kernel without them
    EXPECT_EQ(ftruncate(descriptor.get(), static_cast<off_t>(bytes)), 0);
    EXPECT_EQ(fcntl(descriptor.get(), F_ADD_SEALS, seals), 0);
  }
  FilePlace place(uint64_t offset = 0) const { return {identity, offset, descriptor.get()}; }

  uint64_t identity = 0x0123456789abcdef;
  Descriptor descriptor;
};

constexpr unsigned kHuge = 4;  // MFD_HUGETLB
constexpr uint64_t kHugeBytes = uint64_t{2} << 20;

class PeerFilesTest : public testing::Test {
 protected:
  bool has_old_ = false;
  OldMappings old_{&has_old_, {}};
  PeerFiles files_{getpid(), &old_};
};

TEST_F(PeerFilesTest, TheSameMemoryIsSeenThroughTheMapping) {
  const MappedMemory memory = NewMemory();
  const FilePlace place = FindFile(memory.bytes().subspan(1000));
  std::byte* const there = files_.Find(place, 100);
  ASSERT_NE(there, nullptr);
  EXPECT_NE(there, memory.bytes().data() + 1000);
  memory.bytes()[1099] = std::byte{9};
  EXPECT_EQ(there[99], std::byte{9});
  there[0] = std::byte{8};
  EXPECT_EQ(memory.bytes()[1000], std::byte{8});
}

// A file of huge pages that the host did not have was mapped, and the first look into it ended the
// process: by SIGBUS, when a peer came whose table of regions lay there, or that lent such memory.
TEST_F(PeerFilesTest, HugePagesThatNobodyHasAreNotMapped) {
  const ForgedFile file(uint64_t{1} << 39, F_SEAL_SHRINK, kHuge);
  if (!file.descriptor.valid()) GTEST_SKIP() << "this kernel has no files of huge pages";
  EXPECT_EQ(files_.Find(file.place(), 1), nullptr);
  EXPECT_EQ(PeerFiles(getpid(), &old_, MemoryFile::Peers::kOnlyRead).Find(file.place(), 1),
            nullptr);
}

// Their owner can give them away at any time.
TEST_F(PeerFilesTest, HugePagesAreNotMappedForWhoOnlyReads) {
  const ForgedFile file(kHugeBytes, F_SEAL_SHRINK, kHuge);
  if (!file.descriptor.valid() || files_.Find(file.place(), 1) == nullptr) {
    GTEST_SKIP() << "this host has no free huge page";
  }
  EXPECT_EQ(PeerFiles(getpid(), &old_, MemoryFile::Peers::kOnlyRead).Find(file.place(), 1),
            nullptr);
}

TEST_F(PeerFilesTest, AFileIsMappedOnce) {
  const MappedMemory one = NewMemory();
  const MappedMemory other = NewMemory();
  std::byte* const first = files_.Find(FindFile(one.bytes()), kBytes);
  ASSERT_NE(first, nullptr);
  EXPECT_NE(files_.Find(FindFile(other.bytes()), kBytes), nullptr);
  EXPECT_EQ(files_.Find(FindFile(one.bytes().subspan(10)), 1), first + 10);
  EXPECT_EQ(files_.count(), 2u);
}

// "r--s" or "rw-s": of the mapping that begins at this page.
std::string AccessAt(const std::byte* begin) {
  std::ostringstream first;
  first << std::hex << reinterpret_cast<uintptr_t>(begin) << '-';
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.compare(0, first.str().size(), first.str()) == 0) {
      return line.substr(line.find(' ') + 1, 4);
    }
  }
  return "";
}

TEST_F(PeerFilesTest, AFileThatPeersMayOnlyReadIsMappedForReading) {
  MappedMemoryOptions options;
  options.source = MappedMemoryOptions::Source::kMemfd;
  options.peers_may_write = false;
  auto memory = MappedMemory::Map(kBytes, options);
  ASSERT_TRUE(memory.ok()) << memory.status();
  const FilePlace place = FindFile(memory->bytes());
  std::byte* const there = files_.Find(place, kBytes);
  ASSERT_NE(there, nullptr);
  EXPECT_EQ(AccessAt(there), "r--s");
  EXPECT_EQ(files_.Find(place, 1, /*for_writing=*/true), nullptr);
  memory->bytes()[5] = std::byte{9};
  EXPECT_EQ(there[5], std::byte{9}) << "its owner goes on writing";

  const MappedMemory writable = NewMemory();
  std::byte* const other = files_.Find(FindFile(writable.bytes()), kBytes, /*for_writing=*/true);
  ASSERT_NE(other, nullptr);
  EXPECT_EQ(AccessAt(other), "rw-s");
}

TEST_F(PeerFilesTest, WhoOnlyReadsMapsNothingForWriting) {
  PeerFiles files(getpid(), &old_, MemoryFile::Peers::kOnlyRead);
  const MappedMemory memory = NewMemory();
  std::byte* const there = files.Find(FindFile(memory.bytes()), kBytes);
  ASSERT_NE(there, nullptr);
  EXPECT_EQ(AccessAt(there), "r--s");
  EXPECT_EQ(files.Find(FindFile(memory.bytes()), 1, /*for_writing=*/true), nullptr);
}

TEST_F(PeerFilesTest, RangesOutsideOfTheFileAreRefused) {
  const MappedMemory memory = NewMemory();
  FilePlace place = FindFile(memory.bytes());
  EXPECT_EQ(files_.Find(place, kBytes + 1), nullptr);
  place.offset = kBytes;
  EXPECT_EQ(files_.Find(place, 1), nullptr);
  place.offset = ~uint64_t{0} - 7;
  EXPECT_EQ(files_.Find(place, 16), nullptr);
  EXPECT_EQ(files_.Find(place, ~uint64_t{0}), nullptr);
}

TEST_F(PeerFilesTest, ADescriptorThatIsAnotherFileByNowIsRefused) {
  FilePlace place;
  {
    const MappedMemory memory = NewMemory();
    place = FindFile(memory.bytes());
  }
  EXPECT_EQ(files_.Find(place, 1), nullptr) << "closed";
  const MappedMemory other = NewMemory();
  ASSERT_EQ(other.descriptor(), place.descriptor) << "the system did not use the number again";
  EXPECT_EQ(files_.Find(place, 1), nullptr) << "another file";
}

TEST_F(PeerFilesTest, AFileThatCouldBecomeShorterIsRefused) {
  const ForgedFile sealed(kBytes, F_SEAL_SHRINK);
  EXPECT_NE(files_.Find(sealed.place(), kBytes), nullptr);
  PeerFiles files(getpid(), &old_);
  const ForgedFile unsealed(kBytes, F_SEAL_GROW);
  EXPECT_EQ(files.Find(unsealed.place(), kBytes), nullptr);
}

TEST_F(PeerFilesTest, AFileOfImpossibleSizeIsRefused) {
  const ForgedFile huge(uint64_t{1} << 50, F_SEAL_SHRINK);
  EXPECT_EQ(files_.Find(huge.place(), 1), nullptr);
  PeerFiles files(getpid(), &old_);
  const ForgedFile odd(kBytes + 1, F_SEAL_SHRINK);
  EXPECT_EQ(files.Find(odd.place(), 1), nullptr);
}

TEST_F(PeerFilesTest, WhatIsNoFileInMemoryIsRefused) {
  const Descriptor null(open("/dev/null", O_RDWR | O_CLOEXEC));
  int pipe[2];
  ASSERT_EQ(pipe2(pipe, O_CLOEXEC), 0);
  const Descriptor reader(pipe[0]);
  const Descriptor writer(pipe[1]);
  uint64_t identity = 1;
  for (const int descriptor : {null.get(), reader.get(), -1, 1 << 20}) {
    EXPECT_EQ(files_.Find({identity++, 0, descriptor}, 1), nullptr) << descriptor;
  }
}

// Of a file without a name nothing but the owner's descriptor can be opened, and that by the same
// user only. The child tries it as itself first.
TEST_F(PeerFilesTest, AnotherUsersProcessOpensNoneOfThem) {
  constexpr uid_t kNobody = 65'534;
  const MappedMemory memory = NewMemory();
  std::memset(memory.bytes().data(), 'm', kBytes);
  const FilePlace place = FindFile(memory.bytes());
  const std::string path =
      "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(place.descriptor);
  const pid_t owner = getpid();
  enum Seen : int { kMapped = 1, kOpened = 2, kCopied = 4, kAsHimself = 8, kCannotBeHim = 16 };
  const auto look = [&] {
    int seen = 0;
    if (PeerFiles(owner, &old_).Find(place, kBytes) != nullptr) seen |= kMapped;
    if (Descriptor(open(path.c_str(), O_RDONLY | O_CLOEXEC)).valid()) seen |= kOpened;
    char byte = 0;
    const iovec to = {&byte, 1};
    const iovec from = {memory.bytes().data(), 1};
    if (process_vm_readv(owner, &to, 1, &from, 1, 0) == 1 && byte == 'm') seen |= kCopied;
    return seen;
  };
  int told[2];
  ASSERT_EQ(pipe2(told, O_CLOEXEC), 0);
  const Descriptor ends[] = {Descriptor(told[0]), Descriptor(told[1])};
  const pid_t stranger = fork();
  if (stranger == 0) {
    // What fork(2) has copied is his anyway: only what he opens counts.
    int seen = (look() & kOpened) != 0 ? kAsHimself : 0;
    const bool is_him =
        setresgid(kNobody, kNobody, kNobody) == 0 && setresuid(kNobody, kNobody, kNobody) == 0;
    seen |= is_him ? look() : kCannotBeHim;
    _exit(write(told[1], &seen, sizeof(seen)) == sizeof(seen) ? 0 : 1);
  }
  int seen = 0;
  ASSERT_EQ(read(told[0], &seen, sizeof(seen)), static_cast<ssize_t>(sizeof(seen)));
  waitpid(stranger, nullptr, 0);
  if ((seen & kCannotBeHim) != 0) GTEST_SKIP() << "this process cannot start one of another user";
  EXPECT_EQ(seen, kAsHimself);
}

TEST_F(PeerFilesTest, AProcessThatIsNotThereHasNoFiles) {
  PeerFiles files(0x3fffffff, &old_);
  const MappedMemory memory = NewMemory();
  EXPECT_EQ(files.Find(FindFile(memory.bytes()), 1), nullptr);
}

// A cached mapping keeps memory alive that its owner has given up.
TEST_F(PeerFilesTest, FilesThatTheirOwnerClosedGoWhenAnotherOneComes) {
  {
    const MappedMemory first = NewMemory();
    ASSERT_NE(files_.Find(FindFile(first.bytes()), 1), nullptr);
  }
  EXPECT_EQ(files_.count(), 1u);
  const MappedMemory second = NewMemory();
  ASSERT_NE(files_.Find(FindFile(second.bytes()), 1), nullptr);
  EXPECT_EQ(files_.count(), 1u);
}

TEST_F(PeerFilesTest, TheCountIsBoundedAndTheOneUnusedForLongestGoes) {
  std::vector<MappedMemory> memories;
  for (size_t i = 0; i <= PeerFiles::kMaxFiles; ++i) {
    memories.push_back(NewMemory(4096));
    memories.back().bytes()[0] = static_cast<std::byte>(i);
    ASSERT_NE(files_.Find(FindFile(memories[i].bytes()), 1), nullptr);
    ASSERT_NE(files_.Find(FindFile(memories[0].bytes()), 1), nullptr);
  }
  EXPECT_EQ(files_.count(), PeerFiles::kMaxFiles);
  for (size_t i = 0; i <= PeerFiles::kMaxFiles; ++i) {
    std::byte* const there = files_.Find(FindFile(memories[i].bytes()), 1);
    ASSERT_NE(there, nullptr);
    EXPECT_EQ(*there, static_cast<std::byte>(i));
  }
  EXPECT_EQ(files_.count(), PeerFiles::kMaxFiles);
}

}  // namespace
}  // namespace weft
