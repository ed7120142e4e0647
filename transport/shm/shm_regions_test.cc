// One-sided access through a table of regions: mapped memory, memory reached by system calls, and
// what a region's end, a reused slab and a killed owner mean for both.

#include "transport/shm/shm_regions.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/check.h"
#include "core/clock.h"
#include "transport/mapped_memory.h"
#include "transport/shm/old_mappings.h"

namespace weft {
namespace {

constexpr size_t kBytes = 64 << 10;

MappedMemory Map(MappedMemoryOptions::Source source) {
  MappedMemoryOptions options;
  options.source = source;
  auto memory = MappedMemory::Map(kBytes, options);
  EXPECT_TRUE(memory.ok()) << memory.status();
  return *std::move(memory);
}

bool has_old_mappings = false;
OldMappings old_mappings(&has_old_mappings, {});  // of all peers

// Where a table and its pins lie: zeros that children of this process share.
class SharedZeros {
 public:
  SharedZeros()
      : begin_(static_cast<std::byte*>(
            mmap(nullptr, kAll, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {}
  ~SharedZeros() { munmap(begin_, kAll); }
  std::byte* table() const { return begin_; }
  SharedRegionPins* pins() const {
    return reinterpret_cast<SharedRegionPins*>(begin_ + RegionTable::kBytes);
  }
  void FillTable(std::byte value) const { std::fill_n(begin_, RegionTable::kBytes, value); }
  void FillPins(std::byte value) const {
    std::fill_n(begin_ + RegionTable::kBytes, sizeof(SharedRegionPins), value);
  }
  // Of nobody's.
  std::byte* last() const { return begin_ + kAll - 1; }

 private:
  static constexpr size_t kAll = RegionTable::kBytes + sizeof(SharedRegionPins);
  std::byte* const begin_;
};

struct Way {
  const char* name;
  MappedMemoryOptions::Source source;
  CopyWays ways;
};

class ShmRegionsTest : public testing::TestWithParam<Way> {
 protected:
  ShmRegionsTest() : table_(zeros_.table(), zeros_.pins()), memory_(Map(GetParam().source)) {
    std::fill(memory_.bytes().begin(), memory_.bytes().end(), std::byte{1});
    peer_ =
        *PeerRegions::Open(zeros_.table(), zeros_.pins(), getpid(), GetParam().ways, &old_mappings);
  }

  uint64_t Publish(MutableByteSpan memory, Access access) {
    const uint64_t key = *table_.NewKey();
    table_.Publish(key, memory, access);
    return key;
  }
  absl::Status Read(uint64_t key, uint64_t offset, uint64_t bytes) {
    return peer_->Transfer(/*is_read=*/true, here_.data(), bytes, key, offset);
  }
  absl::Status Write(uint64_t key, uint64_t offset, uint64_t bytes) {
    return peer_->Transfer(/*is_read=*/false, here_.data(), bytes, key, offset);
  }

  SharedZeros zeros_;
  RegionTable table_;
  MappedMemory memory_;
  std::vector<std::byte> here_ = std::vector<std::byte>(kBytes, std::byte{2});
  std::unique_ptr<PeerRegions> peer_;
};

TEST_P(ShmRegionsTest, ReadsAndWritesMoveWhatWasAskedForAndNoMore) {
  const uint64_t key = Publish(memory_.bytes().subspan(100, 1000), Access::kRemoteReadWrite);
  ASSERT_TRUE(Write(key, 10, 64).ok());
  for (size_t i = 0; i < kBytes; ++i) {
    ASSERT_EQ(memory_.bytes()[i], (std::byte{i >= 110 && i < 174 ? uint8_t{2} : uint8_t{1}})) << i;
  }
  ASSERT_TRUE(Read(key, 0, 1000).ok());
  EXPECT_TRUE(std::equal(here_.begin(), here_.begin() + 1000, memory_.bytes().begin() + 100));
  EXPECT_EQ(here_[1000], std::byte{2});
}

TEST_P(ShmRegionsTest, RightsAndBoundsHold) {
  const std::vector<std::byte> before = here_;
  const uint64_t readable = Publish(memory_.bytes().first(1000), Access::kRemoteRead);
  const uint64_t writable = Publish(memory_.bytes().subspan(4096), Access::kRemoteWrite);
  for (const absl::Status& status :
       {Write(readable, 0, 8), Read(writable, 0, 8), Read(readable, 993, 8),
        Read(readable, 1001, 0), Read(readable, ~uint64_t{0} - 3, 8),
        Write(writable, kBytes - 4096, 1), Read(0, 0, 8), Read(readable + kMaxShmRegions, 0, 8)}) {
    EXPECT_TRUE(absl::IsPermissionDenied(status)) << status;
  }
  EXPECT_EQ(here_, before);
  EXPECT_EQ(std::count(memory_.bytes().begin(), memory_.bytes().end(), std::byte{1}), kBytes);
}

TEST_P(ShmRegionsTest, WhatIsWithdrawnIsOutOfReachThoughItIsStillMapped) {
  const uint64_t key = Publish(memory_.bytes(), Access::kRemoteReadWrite);
  ASSERT_TRUE(Read(key, 0, kBytes).ok());
  ASSERT_TRUE(table_.Withdraw(key));
  std::fill(here_.begin(), here_.end(), std::byte{2});
  EXPECT_TRUE(absl::IsPermissionDenied(Write(key, 0, 8)));
  EXPECT_TRUE(absl::IsPermissionDenied(Read(key, 0, 8)));
  EXPECT_EQ(memory_.bytes()[0], std::byte{1});
  EXPECT_EQ(here_[0], std::byte{2});
}

// The way of small operations: one call, no record of it.
TEST_P(ShmRegionsTest, MappedMemoryIsMovedByOneCallUnderTheSameChecks) {
  const uint64_t key = Publish(memory_.bytes().first(1000), Access::kRemoteRead);
  const bool mapped = std::string_view(GetParam().name) == "mapped";
  const auto move = [&](bool is_read, const RemoteSpan& remote) {
    return peer_->Move(is_read, MutableByteSpan(here_).first(remote.length), remote);
  };
  EXPECT_EQ(move(true, {key, 992, 8}), mapped);
  EXPECT_EQ(here_[7], mapped ? std::byte{1} : std::byte{2});
  EXPECT_EQ(here_[8], std::byte{2});
  EXPECT_FALSE(move(false, {key, 0, 8}));
  EXPECT_FALSE(move(true, {key, 993, 8}));
  EXPECT_FALSE(move(true, {key, ~uint64_t{0} - 3, 8}));
  EXPECT_FALSE(move(true, {0, 0, 8}));
  EXPECT_FALSE(move(true, {key + kMaxShmRegions, 0, 8}));
  ASSERT_TRUE(table_.Withdraw(key)) << "each look let go of its pin";
  EXPECT_FALSE(move(true, {key, 0, 8}));
  EXPECT_EQ(memory_.bytes()[0], std::byte{1});
}

// Before Linux 5.1 a peer could map the table for writing. An owner that believed what stands there
// would end, or write where it should not.
TEST_P(ShmRegionsTest, AnOwnerDoesNotBelieveItsOwnTable) {
  const uint64_t key = Publish(memory_.bytes(), Access::kRemoteRead);
  zeros_.FillTable(std::byte{0xee});
  zeros_.FillPins(std::byte{0xee});
  EXPECT_EQ(table_.Find(/*is_read=*/true, key, 0, 8), memory_.bytes().data());
  EXPECT_EQ(table_.Find(/*is_read=*/false, key, 0, 8), nullptr);
  zeros_.FillPins(std::byte{0});
  EXPECT_TRUE(table_.Withdraw(key));
  EXPECT_EQ(table_.Find(/*is_read=*/true, key, 0, 8), nullptr);
}

TEST_P(ShmRegionsTest, ASlabThatWasFreedAndMappedAgainIsAnotherRegion) {
  MappedMemoryOptions options;
  options.source = GetParam().source;
  MemoryArena arena(options, kBytes);
  auto slab = arena.Map(kBytes);
  ASSERT_TRUE(slab.ok());
  slab->bytes()[7] = std::byte{71};
  const uint64_t old_key = Publish(slab->bytes(), Access::kRemoteRead);
  ASSERT_TRUE(Read(old_key, 7, 1).ok());
  EXPECT_EQ(here_[0], std::byte{71});
  ASSERT_TRUE(table_.Withdraw(old_key));
  slab = absl::CancelledError("freed");
  slab = arena.Map(kBytes);
  ASSERT_TRUE(slab.ok());
  EXPECT_TRUE(absl::IsPermissionDenied(Read(old_key, 7, 1)));
  const uint64_t new_key = Publish(slab->bytes(), Access::kRemoteRead);
  ASSERT_TRUE(Read(new_key, 7, 1).ok());
  EXPECT_EQ(here_[0], std::byte{0}) << "fresh memory";
  slab->bytes()[7] = std::byte{72};
  ASSERT_TRUE(Read(new_key, 7, 1).ok());
  EXPECT_EQ(here_[0], std::byte{72});
}

// A peer that set all pins made the owner stand still for 100 ms at the end of each region, and
// took the table's places away one after the other. Of regions that peers may write.
TEST(RegionTable, PinsOfALiarCostLittleTimeAndNoPlaces) {
  const SharedZeros zeros;
  const FakeClock clock(kNsPerSec, /*step_ns=*/kNsPerMs);
  RegionTable table(zeros.table(), zeros.pins(), &clock);
  const uint64_t any = *table.NewKey();
  zeros.FillPins(std::byte{0xee});
  std::byte memory[64];
  constexpr uint64_t kRegions = 2 * kMaxShmRegions;
  for (uint64_t i = 0; i < kRegions; ++i) {
    const absl::StatusOr<uint64_t> key = table.NewKey();
    ASSERT_TRUE(key.ok()) << i << ": " << key.status();
    table.Publish(*key, MutableByteSpan(memory), Access::kRemoteReadWrite);
    ASSERT_FALSE(table.Withdraw(*key));
  }
  // Looks, a millisecond each: one for each region, and one more at most where patience is left.
  EXPECT_LT((clock.NowNs() - kNsPerSec) / kNsPerMs, 2 * kRegions + 200);

  zeros.FillPins(std::byte{0});
  table.Publish(any, MutableByteSpan(memory), Access::kRemoteRead);
  EXPECT_TRUE(table.Withdraw(any));
  for (uint32_t i = 0; i < kMaxShmRegions; ++i) ASSERT_TRUE(table.NewKey().ok()) << i;
  EXPECT_TRUE(absl::IsResourceExhausted(table.NewKey().status())) << "each place once";
}

// A client that was killed while it read a large reply left its pin, and its server stood still for
// 100 ms: for nothing, since a reader can do no harm.
TEST(RegionTable, NobodyWaitsForWhoMayOnlyRead) {
  const SharedZeros zeros;
  const FakeClock clock(kNsPerSec, /*step_ns=*/kNsPerMs);
  RegionTable table(zeros.table(), zeros.pins(), &clock);
  std::byte memory[64];
  zeros.FillPins(std::byte{1});
  const uint64_t before_ns = clock.NowNs();
  for (uint32_t i = 0; i < 2 * kMaxShmRegions; ++i) {
    const uint64_t key = *table.NewKey();
    table.Publish(key, MutableByteSpan(memory), Access::kRemoteRead);
    ASSERT_TRUE(table.Withdraw(key));
  }
  EXPECT_EQ(clock.NowNs(), before_ns + kNsPerMs) << "not one look";
}

// What an owner does while a peer is stopped in the middle of a copy: here, at the copy's first
// look at a page that it may not read.
struct Stopped {
  RegionTable* table = nullptr;
  uint64_t key = 0;
  void* page = nullptr;
  size_t page_bytes = 0;
  bool withdrawn = false;

  static inline Stopped* now = nullptr;
  static void OnFault(int) {
    now->withdrawn = now->table->Withdraw(now->key);
    WEFT_CHECK(mprotect(now->page, now->page_bytes, PROT_READ | PROT_WRITE) == 0);
  }
};

// The owner goes on without it: what comes later, though it comes, must not count as written. And a
// reader that was stopped for as long was told OK, with what the owner had put into its memory
// since.
TEST(RegionTable, ACopyThatEndsBehindTheEndOfItsRegionHasFailed) {
  const SharedZeros zeros;
  const FakeClock clock(kNsPerSec, /*step_ns=*/kNsPerMs);
  RegionTable table(zeros.table(), zeros.pins(), &clock);
  const MappedMemory memory = Map(MappedMemoryOptions::Source::kMemfd);
  const auto peer = *PeerRegions::Open(zeros.table(), zeros.pins(), getpid(), CopyWays{true, false},
                                       &old_mappings);
  const auto page_bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void* const page = mmap(nullptr, page_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                          /*fd=*/-1, /*offset=*/0);
  ASSERT_NE(page, MAP_FAILED);
  const MutableByteSpan here(static_cast<std::byte*>(page), 64);
  struct sigaction before = {};
  struct sigaction stop = {};
  stop.sa_handler = Stopped::OnFault;
  ASSERT_EQ(sigaction(SIGSEGV, &stop, &before), 0);
  for (const auto& [is_read, at_once] : {std::pair(false, false), std::pair(false, true),
                                         std::pair(true, false), std::pair(true, true)}) {
    Stopped stopped = {&table, *table.NewKey(), page, page_bytes};
    Stopped::now = &stopped;
    table.Publish(stopped.key, memory.bytes(), Access::kRemoteReadWrite);
    std::fill(here.begin(), here.end(), std::byte{7});
    ASSERT_EQ(mprotect(page, page_bytes, PROT_NONE), 0);
    if (at_once) {
      EXPECT_FALSE(peer->Move(is_read, here, {stopped.key, 100, here.size()}));
    } else {
      EXPECT_TRUE(absl::IsPermissionDenied(
          peer->Transfer(is_read, here.data(), here.size(), stopped.key, 0)));
    }
    EXPECT_FALSE(stopped.withdrawn) << "there was a pin";
    if (is_read) continue;
    EXPECT_EQ(memory.bytes()[at_once ? 100 : 0], std::byte{7}) << "it came nevertheless";
  }
  sigaction(SIGSEGV, &before, nullptr);
  munmap(page, page_bytes);
}

// A mapping outlives the process. Reads from it would go on for ever, and tell nobody.
TEST_P(ShmRegionsTest, AKilledOwnersMemoryIsUnavailable) {
  const uint64_t key = Publish(memory_.bytes(), Access::kRemoteReadWrite);
  SharedZeros zeros;
  std::byte* const ready = zeros.last();
  const pid_t child = fork();
  if (child == 0) {
    RegionTable table(zeros.table(), zeros.pins());
    MappedMemory own = Map(GetParam().source);
    own.bytes()[5] = std::byte{55};
    table.Publish(key, own.bytes(), Access::kRemoteRead);
    std::atomic_ref<uint8_t>(*reinterpret_cast<uint8_t*>(ready)).store(1);
    for (;;) pause();
  }
  while (std::atomic_ref<uint8_t>(*reinterpret_cast<uint8_t*>(ready)).load() == 0) usleep(100);
  auto opened =
      PeerRegions::Open(zeros.table(), zeros.pins(), child, GetParam().ways, &old_mappings);
  ASSERT_TRUE(opened.ok()) << opened.status();
  peer_ = *std::move(opened);
  ASSERT_TRUE(Read(key, 5, 1).ok());
  EXPECT_EQ(here_[0], std::byte{55});
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  const uint64_t give_up_ns = Clock::Real().NowNs() + 10 * kNsPerSec;
  absl::Status status;
  while (status.ok() && Clock::Real().NowNs() < give_up_ns) status = Read(key, 5, 1);
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  const MutableByteSpan local = MutableByteSpan(here_).first(1);
  while (peer_->Move(/*is_read=*/true, local, {key, 5, 1})) {
    ASSERT_LT(Clock::Real().NowNs(), give_up_ns);
  }
  EXPECT_FALSE(peer_->Move(/*is_read=*/true, local, {key, 5, 1}));
}

INSTANTIATE_TEST_SUITE_P(
    Ways, ShmRegionsTest,
    testing::Values(Way{"mapped", MappedMemoryOptions::Source::kMemfd, {true, false}},
                    Way{"calls", MappedMemoryOptions::Source::kAnonymous, {true, true}},
                    Way{"callsOnly", MappedMemoryOptions::Source::kMemfd, {false, true}}),
    [](const auto& info) { return std::string(info.param.name); });

// An owner that grants what its file does not let its peers do harms nobody: no mapping is written
// to that cannot be.
TEST(CopyWaysTest, AFileThatPeersMayOnlyReadIsWrittenAnotherWay) {
  const SharedZeros zeros;
  RegionTable table(zeros.table(), zeros.pins());
  MappedMemoryOptions options;
  options.source = MappedMemoryOptions::Source::kMemfd;
  options.peers_may_write = false;
  const MappedMemory memory = *MappedMemory::Map(kBytes, options);
  const uint64_t key = *table.NewKey();
  table.Publish(key, memory.bytes(), Access::kRemoteReadWrite);
  std::byte here[8] = {std::byte{1}};
  const auto mapping = *PeerRegions::Open(zeros.table(), zeros.pins(), getpid(),
                                          CopyWays{true, false}, &old_mappings);
  EXPECT_TRUE(absl::IsUnimplemented(mapping->Transfer(/*is_read=*/false, here, 8, key, 0)));
  const auto both = *PeerRegions::Open(zeros.table(), zeros.pins(), getpid(), CopyWays{true, true},
                                       &old_mappings);
  EXPECT_TRUE(both->Transfer(/*is_read=*/false, here, 8, key, 0).ok());
  EXPECT_EQ(memory.bytes()[0], std::byte{1});
  EXPECT_TRUE(mapping->Transfer(/*is_read=*/true, here, 8, key, 8).ok());
  EXPECT_EQ(here[0], std::byte{0});
}

class LocalRegion final : public Region {
 public:
  explicit LocalRegion(MutableByteSpan memory) : Region(memory, RemoteSpan()) {}
};

// The kernel copies up to the first page that it cannot reach, and says how much that was: an owner
// can unmap what it has lent.
TEST(CopyWaysTest, WhatTheKernelCopiesInPartIsNoSuccess) {
  const SharedZeros zeros;
  RegionTable table(zeros.table(), zeros.pins());
  const auto peer = *PeerRegions::Open(zeros.table(), zeros.pins(), getpid(),
                                       {/*mappings=*/false, /*system_calls=*/true}, &old_mappings);
  const MappedMemory memory = Map(MappedMemoryOptions::Source::kAnonymous);
  const uint64_t key = *table.NewKey();
  table.Publish(key, memory.bytes(), Access::kRemoteReadWrite);
  constexpr size_t kHalf = kBytes / 2;
  std::vector<std::byte> here(kBytes);
  const LocalRegion local{MutableByteSpan(here)};
  const auto at_once = [&](bool is_read, size_t bytes, size_t pieces) {
    const Transfer transfers[] = {{&local, 0, {key, 0, kHalf}}, {&local, 0, {key, 0, bytes}}};
    return peer->TransferAtOnce(is_read, absl::MakeConstSpan(transfers).last(pieces));
  };
  std::byte* const second_half = memory.bytes().data() + kHalf;
  for (const bool is_read : {true, false}) {
    ASSERT_TRUE(peer->Transfer(is_read, here.data(), kBytes, key, 0).ok());
    ASSERT_TRUE(at_once(is_read, kBytes, 1) && at_once(is_read, kBytes, 2));
    ASSERT_EQ(mprotect(second_half, kHalf, PROT_NONE), 0);
    EXPECT_TRUE(peer->Transfer(is_read, here.data(), kHalf, key, 0).ok());
    const absl::Status status = peer->Transfer(is_read, here.data(), kBytes, key, 0);
    EXPECT_FALSE(status.ok());
    EXPECT_NE(status.message().find("copying between processes"), absl::string_view::npos)
        << status;
    EXPECT_TRUE(at_once(is_read, kHalf, 1));
    EXPECT_FALSE(at_once(is_read, kBytes, 1));
    EXPECT_FALSE(at_once(is_read, kBytes, 2));
    ASSERT_EQ(mprotect(second_half, kHalf, PROT_READ | PROT_WRITE), 0);
  }
  EXPECT_TRUE(table.Withdraw(key)) << "nothing stays pinned";
}

TEST(CopyWaysTest, MemoryThatCannotBeReachedIsLeftToItsOwner) {
  const SharedZeros zeros;
  RegionTable table(zeros.table(), zeros.pins());
  const MappedMemory memory = Map(MappedMemoryOptions::Source::kAnonymous);
  const uint64_t key = *table.NewKey();
  table.Publish(key, memory.bytes(), Access::kRemoteRead);
  const auto peer = *PeerRegions::Open(zeros.table(), zeros.pins(), getpid(), CopyWays{true, false},
                                       &old_mappings);
  std::byte here[8];
  EXPECT_TRUE(absl::IsUnimplemented(peer->Transfer(/*is_read=*/true, here, 8, key, 0)));
  EXPECT_TRUE(absl::IsPermissionDenied(peer->Transfer(/*is_read=*/false, here, 8, key, 0)));
}

}  // namespace
}  // namespace weft
