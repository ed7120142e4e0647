// Links over shared memory beyond what all links promise: hostile peers, very many links, sleepers.

#include "transport/shm/shm_domain.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/strings.h"
#include "core/test_seed.h"
#include "gtest/gtest.h"
#include "transport/descriptor.h"
#include "transport/mapped_memory.h"
#include "transport/shm/domain_memory.h"
#include "transport/shm/sealed_memory.h"
#include "transport/shm/shm.h"
#include "transport/shm/testing/shm_pair.h"
#include "transport/testing/post.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

namespace weft {
namespace {

// --- hostile peers -------------------------------------------------------------------------------

TEST_F(ShmDomainTest, AScribbledRingEndsItsLinkOnly) {
  End a1, b1, a2, b2;
  const LinkMemory scribbled = Open(a1, b1);
  const LinkMemory other = Open(a2, b2);
  ASSERT_TRUE(Delivers(a1, "behind this"));
  for (size_t i = 0; i < kRingBytes; ++i) scribbled->to_passive[i] = std::byte{0xee};
  ASSERT_TRUE(Run([&] { return b1.downs == 1; }));
  EXPECT_EQ(b1.status.code(), absl::StatusCode::kDataLoss) << b1.status;
  EXPECT_TRUE(Delivers(a2, "the other link goes on"));
  EXPECT_EQ(b2.downs, 0);
}

TEST_F(ShmDomainTest, AnImpossibleCountEndsItsLinkOnly) {
  End a1, b1, a2, b2;
  const LinkMemory scribbled = Open(a1, b1);
  const LinkMemory other = Open(a2, b2);
  scribbled->to_passive_words.consumed.store(~uint64_t{0} / 2);
  const std::string text(1000, 't');
  for (int i = 0; i < 100 && a1.link->HasRoom(); ++i) a_.Send(a1, text).IgnoreError();
  ASSERT_TRUE(Run([&] { return a1.downs == 1; }));
  EXPECT_EQ(a1.status.code(), absl::StatusCode::kDataLoss) << a1.status;
  EXPECT_TRUE(Delivers(a2, "the other link goes on"));
  a1.link.reset();
  EXPECT_EQ(a_.domain->stats().send_slots_in_use, 0u);
}

TEST_F(ShmDomainTest, AnImpossibleFlagIndexIsNoLink) {
  const Descriptor memory(b_.domain->NewLinkMemory().value());
  LinkPeer peer;
  peer.memory_descriptor = memory.get();
  peer.host_descriptor = a_.domain->host_descriptor();
  End b;
  b.link = b_.domain->Accept(peer, &b).value();
  const LinkMemory view = LinkMemory::Open(memory.get()).value();
  view->active.flag_index.store(kMaxShmLinks);
  view->active.state.store(SideState::kHere);
  ASSERT_TRUE(Run([&] { return b.downs == 1; }));
  EXPECT_EQ(b.ups, 0);
  EXPECT_EQ(b.status.code(), absl::StatusCode::kDataLoss);
}

TEST_F(ShmDomainTest, RandomScribblesNeverDoMoreThanEndTheLink) {
  const uint64_t seed = TestSeed();
  SCOPED_TRACE(SeedTrace(seed));
  std::mt19937_64 random(seed);
  for (int round = 0; round < 50; ++round) {
    End a, b;
    const LinkMemory view = Open(a, b);
    auto* const words = reinterpret_cast<uint64_t*>(&*view.operator->());
    for (int i = 0; i < 300; ++i) {
      words[random() % (sizeof(SharedLinkMemory) / 8)] = random() % 3 == 0 ? 0 : random();
      if (a.link->HasRoom()) a_.Send(a, "from a").IgnoreError();
      if (b.link->HasRoom()) b_.Send(b, "from b").IgnoreError();
      a_.domain->Poll(64);
      b_.domain->Poll(64);
    }
  }
  EXPECT_EQ(a_.domain->stats().links_open, 0u);
  EXPECT_EQ(a_.domain->stats().send_slots_in_use, 0u);
  End a, b;
  const LinkMemory view = Open(a, b);
  EXPECT_TRUE(Delivers(a, "still here"));
}

// Writes what may pass for something into shared memory, all the time, on a thread of its own.
class Scribbler {
 public:
  explicit Scribbler(uint64_t seed) : random_(seed), thread_([this] { Run(); }) {}
  ~Scribbler() {
    stop_.store(true);
    thread_.join();
  }
  // Memory of at least kBytes, from now on.
  static constexpr size_t kBytes = sizeof(SharedLinkMemory) - sizeof(uint64_t);
  void Aim(std::byte* memory) { aim_.store(memory); }

 private:
  uint64_t Word() {
    switch (random_() % 4) {
      case 0:
        return random_();
      case 1:
        return random_() % 2;
      case 2:
        return random_() % (4 * kRingBytes);  // a count
      default:                                // a record's header
        return random_() % 256 | (1 + random_() % 5) << 16 | (random_() % 64) << 24;
    }
  }
  void Run() {
    while (!stop_.load(std::memory_order_relaxed)) {
      // Acquired, for the memory was mapped before Aim().
      auto* const words = reinterpret_cast<uint64_t*>(aim_.load(std::memory_order_acquire));
      if (words == nullptr) continue;
      // Mostly at the beginnings, where headers, counts and states stand.
      const size_t range = random_() % 2 == 0 ? kBytes / 8 : 1024;
      std::atomic_ref<uint64_t>(words[random_() % range]).store(Word(), std::memory_order_relaxed);
    }
  }

  std::mt19937_64 random_;
  std::atomic<std::byte*> aim_{nullptr};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

// Whatever is read of shared memory is read once, and checked where nobody can change it.
TEST_F(ShmDomainTest, APeerThatRewritesAllWhileItIsReadHarmsItsOwnLinkAtMost) {
  const uint64_t seed = TestSeed();
  SCOPED_TRACE(SeedTrace(seed));
  std::mt19937_64 random(seed);
  std::vector<LinkMemory> views;  // they outlive the scribbler
  SealedMemory domain =
      SealedMemory::Open(b_.domain->host_descriptor(), sizeof(SharedDomainMemory)).value();
  Scribbler scribbler(seed + 1);
  End honest_a, honest_b;
  Open(honest_a, honest_b);
  std::vector<std::byte> memory(4096);
  for (int round = 0; round < 60; ++round) {
    End a, b;
    views.push_back(Open(a, b));
    std::byte* const link = reinterpret_cast<std::byte*>(views.back().operator->());
    for (int turn = 0; turn < 100; ++turn) {
      // The link's memory, then the domain's ready flags, then the pins of its regions.
      scribbler.Aim(turn < 60   ? link + sizeof(uint64_t)
                    : turn < 80 ? domain.data() + offsetof(SharedDomainMemory, ready_flags)
                                : domain.data() + offsetof(SharedDomainMemory, pins));
      if (a.link->HasRoom()) a_.Send(a, "from a").IgnoreError();
      if (b.link->HasRoom()) b_.Send(b, "from b").IgnoreError();
      const auto region = b_.domain->Register(MutableByteSpan(memory), Access::kRemoteRead);
      ASSERT_TRUE(region.ok()) << region.status();
      a_.domain->Poll(64);
      b_.domain->Poll(64);
    }
    const std::string text = StrCat("honest ", round, " ", random());
    ASSERT_TRUE(a_.Send(honest_a, text).ok());
    ASSERT_TRUE(Run([&] {
      const bool found =
          std::find(b_.received.begin(), b_.received.end(), text) != b_.received.end();
      b_.received.clear();
      return found;
    }));
    a_.received.clear();
    EXPECT_EQ(honest_a.downs + honest_b.downs, 0) << honest_a.status << honest_b.status;
    scribbler.Aim(nullptr);
  }
}

// A process that was handed another's domain could hand it over as its own: it passed for that one
// from then on, or had that one's reads go to its own memory.
TEST_F(ShmDomainTest, ADomainIsOneProcessesAlone) {
  bool has_old = false;
  PeerDomains peers{CopyWays{}, &has_old};
  const int file = a_.domain->host_descriptor();
  const auto first = peers.Open(file, getpid(), 7).value();
  EXPECT_EQ(peers.Open(file, getpid(), 7).value(), first);
  EXPECT_NE(peers.Open(file, getppid(), 7).value(), first) << "another process";
  EXPECT_NE(peers.Open(file, getpid(), 8).value(), first) << "another, later, of that number";
  EXPECT_NE(peers.Open(b_.domain->host_descriptor(), getpid(), 7).value(), first);
  EXPECT_FALSE(peers.Open(a_.bell->event_fd(), getpid(), 7).ok());
}

// A client had written over the first bytes of the server's domain: until the server was started
// again, each further client found memory "of another layout", and got no shared memory.
TEST_F(ShmDomainTest, WhoWritesOverADomainKeepsNobodyElseOut) {
  const SealedMemory scribbled =
      SealedMemory::Open(b_.domain->host_descriptor(), sizeof(SharedDomainMemory)).value();
  std::memset(scribbled.data(), 0xa5, sizeof(SharedDomainMemory));
  bool has_old = false;
  PeerDomains peers{CopyWays{}, &has_old};
  const auto peer = peers.Open(b_.domain->host_descriptor(), getpid(), 7);
  ASSERT_TRUE(peer.ok()) << peer.status();
  EXPECT_TRUE((*peer)->regions_status().ok()) << (*peer)->regions_status();
  End a, b;
  Open(a, b);
  EXPECT_TRUE(Delivers(a, "still here?"));
}

// What a reads and writes in memory of b's, over a link that nobody attacks.
class RegionsOfBTest : public ShmDomainTest {
 protected:
  static constexpr size_t kBytes = 4096;
  using Source = MappedMemoryOptions::Source;

  void SetUp() override { Open(end_a_, end_b_); }

  // Memory that b registers: of a file that a may map, or of none.
  struct Lent {
    MappedMemory memory;
    std::unique_ptr<Region> region;
  };
  Lent Lend(Source source) {
    MappedMemoryOptions options;
    options.source = source;
    MappedMemory memory = MappedMemory::Map(kBytes, options).value();
    auto region = b_.domain->Register(memory.bytes(), Access::kRemoteReadWrite).value();
    return {std::move(memory), std::move(region)};
  }
  absl::Status Move(TransferKind kind, const RemoteSpan& remote) {
    struct Result final : Operation {
      void OnComplete(const absl::Status& result) override {
        status = result;
        ++completions;
      }
      absl::Status status;
      int completions = 0;
    } result;
    const Transfer transfer = {local_.get(), /*local_offset=*/0, remote};
    const absl::StatusOr<Posted> posted = end_a_.link->Post(kind, {&transfer, 1}, &result);
    if (!posted.ok()) return posted.status();
    done_at_once_ = *posted == Posted::kDone;
    if (done_at_once_) return absl::OkStatus();
    EXPECT_TRUE(Run([&] { return result.completions == 1; }));
    return result.status;
  }
  // All of it, there and back.
  void ExpectMoves(const Lent& lent) {
    const MutableByteSpan there = lent.memory.bytes();
    const auto is = [](MutableByteSpan bytes, std::byte value) {
      return std::all_of(bytes.begin(), bytes.end(), [&](std::byte b) { return b == value; });
    };
    const auto next = [&] { return static_cast<std::byte>(++value_); };
    const std::byte written = next();
    std::fill(here_.begin(), here_.end(), written);
    EXPECT_EQ(Move(TransferKind::kWrite, lent.region->remote()), absl::OkStatus());
    EXPECT_TRUE(is(there, written));
    const std::byte read = next();
    std::fill(there.begin(), there.end(), read);
    EXPECT_EQ(Move(TransferKind::kRead, lent.region->remote()), absl::OkStatus());
    EXPECT_TRUE(is(MutableByteSpan(here_), read));
  }

  std::vector<std::byte> here_ = std::vector<std::byte>(kBytes);
  std::unique_ptr<Region> local_ =
      a_.domain->Register(MutableByteSpan(here_), Access::kLocalOnly).value();
  End end_a_, end_b_;
  bool done_at_once_ = false;  // the last operation
  uint8_t value_ = 0;
};

// A client had written over all that it shared with the server, the table of the server's regions
// among it. Transfers of other clients found no region then, and their connections were lost; or
// they went to another place in the server, where the base of a region had been changed.
TEST_F(RegionsOfBTest, WhoWritesOverADomainSpoilsNobodyElsesTransfers) {
  const SealedMemory scribbled =
      SealedMemory::Open(b_.domain->host_descriptor(), sizeof(SharedDomainMemory)).value();
  const Lent first[] = {Lend(Source::kMemfd), Lend(Source::kAnonymous)};
  for (const Lent& lent : first) ExpectMoves(lent);
  for (const int byte : {0xa5, 0xff, 0x00, 0x01}) {
    std::memset(scribbled.data(), byte, sizeof(SharedDomainMemory));
    for (const Lent& lent : first) ExpectMoves(lent);
    for (const Source source : {Source::kMemfd, Source::kAnonymous}) {
      std::memset(scribbled.data(), byte, sizeof(SharedDomainMemory));
      ExpectMoves(Lend(source));
    }
  }
  EXPECT_EQ(end_a_.downs + end_b_.downs, 0) << end_a_.status << end_b_.status;
}

// It was put right for each newcomer, who might find it written over again by the time he looked.
TEST_F(RegionsOfBTest, WhoComesWhileADomainIsWrittenOverFindsItsRegions) {
  const int descriptor = b_.domain->host_descriptor();
  const SealedMemory scribbled = SealedMemory::Open(descriptor, sizeof(SharedDomainMemory)).value();
  std::memset(scribbled.data(), 0xa5, sizeof(SharedDomainMemory));
  bool has_old = false;
  PeerDomains peers{CopyWays{}, &has_old};
  const auto peer = peers.Open(descriptor, getpid(), 7);
  ASSERT_TRUE(peer.ok()) << peer.status();
  ASSERT_NE((*peer)->regions(), nullptr) << (*peer)->regions_status();
  const Lent lent = Lend(Source::kMemfd);
  EXPECT_TRUE(
      (*peer)->regions()->Move(/*is_read=*/true, MutableByteSpan(here_), lent.region->remote()));
}

// A peer may open what this process has open. The table, too; but the kernel lets nobody write
// there.
TEST_F(RegionsOfBTest, TheTableOfRegionsCannotBeMappedForWriting) {
  const int owners = TableOf(b_.domain->host_descriptor()).descriptor;
  const Descriptor table(open(StrCat("/proc/self/fd/", owners).c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_TRUE(table.valid());
  if ((fcntl(table.get(), F_GET_SEALS) & F_SEAL_FUTURE_WRITE) == 0) {
    GTEST_SKIP() << "the kernel knows no F_SEAL_FUTURE_WRITE";
  }
  const auto map = [&](int rights) {
    return mmap(nullptr, RegionTable::kBytes, rights, MAP_SHARED, table.get(), /*offset=*/0);
  };
  EXPECT_EQ(map(PROT_READ | PROT_WRITE), MAP_FAILED);
  EXPECT_EQ(errno, EPERM);
  const char byte = 1;
  EXPECT_EQ(pwrite(table.get(), &byte, 1, /*offset=*/0), -1);
  EXPECT_NE(ftruncate(table.get(), 0), 0);
  void* const mapped = map(PROT_READ);
  ASSERT_NE(mapped, MAP_FAILED);
  EXPECT_NE(mprotect(mapped, RegionTable::kBytes, PROT_READ | PROT_WRITE), 0);
  munmap(mapped, RegionTable::kBytes);
}

// As where one process may not open what another has open: a container, say.
class HiddenTableTest : public RegionsOfBTest {
 protected:
  void SetUp() override {
    const Descriptor null(open("/dev/null", O_RDWR | O_CLOEXEC));
    const int table = TableOf(b_.domain->host_descriptor()).descriptor;
    ASSERT_EQ(dup2(null.get(), table), table);
    RegionsOfBTest::SetUp();
  }
};

TEST_F(HiddenTableTest, TheOwnerIsAskedForCopies) {
  const Lent lent = Lend(Source::kMemfd);
  ExpectMoves(lent);
  EXPECT_FALSE(done_at_once_);
  RemoteSpan outside = lent.region->remote();
  outside.offset = kBytes;
  EXPECT_TRUE(absl::IsPermissionDenied(Move(TransferKind::kRead, outside)));
  EXPECT_TRUE(Delivers(end_a_, "the link goes on"));
}

// The table of a peer's regions was mapped from a file of huge pages too, which the host need not
// have: whoever named such a file ended this process when it came.
TEST(PeerDomainsTest, ATableOfHugePagesIsNone) {
  const Descriptor table(memfd_create("weft-0123456789abcdef", MFD_CLOEXEC | MFD_ALLOW_SEALING |
                                                                   /*MFD_HUGETLB*/ 4));
  if (!table.valid()) GTEST_SKIP() << "this kernel has no files of huge pages";
  ASSERT_EQ(ftruncate(table.get(), off_t{2} << 20), 0);
  ASSERT_EQ(fcntl(table.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
  const std::string name = StrCat("weft-domain-0123456789abcdef-", table.get());
  const auto memory = SealedMemory::Create(name.c_str(), sizeof(SharedDomainMemory));
  ASSERT_TRUE(memory.ok()) << memory.status();
  ASSERT_EQ(TableOf(memory->descriptor()).descriptor, table.get());
  bool has_old = false;
  PeerDomains domains({}, &has_old);
  const auto peer = domains.Open(memory->descriptor(), getpid(), /*process_start=*/1);
  ASSERT_TRUE(peer.ok()) << peer.status();
  EXPECT_EQ((*peer)->regions(), nullptr);  // and it is asked for all copies
}

TEST_F(ShmDomainTest, MemoryThatCouldShrinkOrIsSomethingElseIsRefused) {
  const Descriptor unsealed(memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(unsealed.get(), sizeof(SharedLinkMemory)), 0);
  const Descriptor short_one(SealedMemory::Create("short", 4096)->ReleaseDescriptor());
  const Descriptor no_magic(
      SealedMemory::Create("no magic", sizeof(SharedLinkMemory))->ReleaseDescriptor());
  const Descriptor good(b_.domain->NewLinkMemory().value());
  for (const int bad : {unsealed.get(), short_one.get(), no_magic.get(), a_.bell->event_fd(), -1}) {
    End end;
    LinkPeer peer;
    peer.memory_descriptor = bad;
    peer.host_descriptor = a_.domain->host_descriptor();
    EXPECT_FALSE(b_.domain->Accept(peer, &end).ok());
    peer.memory_descriptor = good.get();
    peer.host_descriptor = bad;
    EXPECT_FALSE(b_.domain->Accept(peer, &end).ok());
  }
  EXPECT_EQ(b_.domain->stats().links_open, 0u);
}

TEST_F(ShmDomainTest, WhatWasHandedOverCannotBeMadeShorter) {
  const Descriptor memory(b_.domain->NewLinkMemory().value());
  EXPECT_NE(ftruncate(memory.get(), 0), 0);
  EXPECT_NE(ftruncate(a_.domain->host_descriptor(), 0), 0);
}

// --- very many links -----------------------------------------------------------------------------

TEST_F(ShmDomainTest, AConnectionCostsAtMost64KiB) {
  EXPECT_LE(sizeof(SharedLinkMemory) + kMaxShmSlotBytes, size_t{64} << 10);
}

TEST_F(ShmDomainTest, QuietLinksGoColdAndAreFoundAgain) {
  constexpr size_t kLinks = 300;
  std::vector<End> as(kLinks), bs(kLinks);
  for (size_t i = 0; i < kLinks; ++i) Open(as[i], bs[i]);
  ASSERT_TRUE(Run([&] { return a_.shm().hot_links() <= 8 && b_.shm().hot_links() <= 8; }));
  for (size_t i = 0; i < kLinks; ++i) {
    ASSERT_TRUE(Delivers(as[(i * 7) % kLinks], "link " + std::to_string(i)));
  }
  for (size_t i = 0; i < kLinks; i += 2) as[i].link.reset();
  ASSERT_TRUE(Run([&] {
    for (size_t i = 0; i < kLinks; i += 2) {
      if (bs[i].downs != 1) return false;
    }
    return true;
  }));
  EXPECT_EQ(bs[1].downs, 0);
  EXPECT_TRUE(Delivers(as[1], "the others stay"));
}

// Somebody who maps the ready flags clears them all the time: nothing is lost.
TEST_F(ShmDomainTest, ClearedReadyFlagsOnlyDelay) {
  constexpr size_t kLinks = 50;
  std::vector<End> as(kLinks), bs(kLinks);
  for (size_t i = 0; i < kLinks; ++i) Open(as[i], bs[i]);
  ASSERT_TRUE(Run([&] { return b_.shm().hot_links() <= 8; }));
  SealedMemory view =
      SealedMemory::Open(b_.domain->host_descriptor(), sizeof(SharedDomainMemory)).value();
  auto* const bytes = &reinterpret_cast<SharedDomainMemory*>(view.data())->ready_flags;
  std::atomic<bool> stop{false};
  std::thread hostile([&] {
    while (!stop.load()) {
      for (size_t i = 0; i < kLinks; ++i) bytes->of[i].store(0);
    }
  });
  for (size_t i = 0; i < 3 * kLinks; ++i) {
    EXPECT_TRUE(Delivers(as[(i * 7) % kLinks], "call " + std::to_string(i)));
  }
  stop.store(true);
  hostile.join();
}

// A call and its reply, round all of many links: each link's rings began again with each call, or
// they would walk through 48 KiB of memory each.
TEST_F(ShmDomainTest, LoneCallsTouchFewLinesOfTheirRings) {
  constexpr size_t kLinks = 20;
  constexpr size_t kTouched = 3 * kCacheLineBytes;
  std::vector<End> as(kLinks), bs(kLinks);
  std::vector<LinkMemory> views;
  for (size_t i = 0; i < kLinks; ++i) views.push_back(Open(as[i], bs[i]));
  for (int round = 0; round < 300; ++round) {
    for (size_t i = 0; i < kLinks; ++i) {
      ASSERT_TRUE(Delivers(as[i], std::string(100, 'c')));
      ASSERT_TRUE(b_.Send(bs[i], std::string(100, 'r')).ok());
      ASSERT_TRUE(Run([&] { return !std::exchange(a_.received, {}).empty(); }));
    }
  }
  for (const LinkMemory& view : views) {
    for (const std::byte* ring : {view->to_passive, view->to_active}) {
      EXPECT_TRUE(std::all_of(ring + kTouched, ring + kRingBytes,
                              [](std::byte byte) { return byte == std::byte{0}; }));
    }
  }
}

// Who sends awaits an answer: it is found without the ready flag.
TEST_F(ShmDomainTest, ALinkThatSendsIsPolled) {
  constexpr size_t kLinks = 50;
  std::vector<End> as(kLinks), bs(kLinks);
  for (size_t i = 0; i < kLinks; ++i) Open(as[i], bs[i]);
  ASSERT_TRUE(Run([&] { return a_.shm().hot_links() <= 8; }));
  const size_t hot = a_.shm().hot_links();
  // At least one of these is cold.
  for (size_t i = 0; i < hot + 1; ++i) ASSERT_TRUE(a_.Send(as[i], "text").ok());
  EXPECT_GT(a_.shm().hot_links(), hot);
}

// A handler may take its time: the link that was woken for a call stays hot for its answer.
TEST_F(ShmDomainTest, TheAnswerOfTheLastLinkThatWasWokenIsAwaitedForLong) {
  constexpr size_t kLinks = 50;
  std::vector<End> as(kLinks), bs(kLinks);
  for (size_t i = 0; i < kLinks; ++i) Open(as[i], bs[i]);
  ASSERT_TRUE(Run([&] { return a_.shm().hot_links() == 0; }));
  ASSERT_TRUE(a_.Send(as[0], "a call").ok());
  for (int turn = 0; turn < 200; ++turn) a_.domain->Poll(64);
  EXPECT_EQ(a_.shm().hot_links(), 1u);
  // Others that call meanwhile are heard.
  ASSERT_TRUE(b_.Send(bs[9], "another's").ok());
  for (int turn = 0; turn < 8; ++turn) a_.domain->Poll(64);
  EXPECT_EQ(a_.received, (std::vector<std::string>{"another's"}));
  // It is not awaited for ever.
  EXPECT_TRUE(Run([&] { return a_.shm().hot_links() == 0; }));
}

// --- flags ahead of their records ----------------------------------------------------------------

class FlagAheadTest : public ShmDomainTest {
 protected:
  static constexpr size_t kLinks = 20;

  // Links that are all cold, at both sides.
  void SetUp() override {
    for (size_t i = 0; i < kLinks; ++i) Open(as_[i], bs_[i]);
    ASSERT_TRUE(Run([&] { return AllCold(a_) && AllCold(b_); }));
  }
  static bool AllCold(Host& host) { return host.shm().hot_links() == 0; }
  static PrefetchList& PrefetchOf(const End& end) { return end.link->prefetch(); }

  End as_[kLinks], bs_[kLinks];
};

TEST_F(FlagAheadTest, ALinkWhoseFlagIsSetIsPolledBeforeItsRecord) {
  PrefetchList& lines = PrefetchOf(as_[7]);
  ASSERT_TRUE(lines.wanted());
  lines.Run();
  EXPECT_EQ(b_.domain->Poll(64), 0);
  EXPECT_EQ(b_.shm().hot_links(), 1u);
  EXPECT_FALSE(PrefetchOf(bs_[7]).wanted()) << "what it touches has been prefetched";
  EXPECT_TRUE(Delivers(as_[7], "the record"));
}

// The domain has seen the flag, and has given up: the record sets it once more.
TEST_F(FlagAheadTest, ARecordThatComesLongAfterItsFlagIsFound) {
  for (int round = 0; round < 3; ++round) {
    PrefetchOf(as_[3]).Run();
    b_.domain->Poll(64);
    EXPECT_EQ(b_.shm().hot_links(), 1u);
    ASSERT_TRUE(Run([&] { return AllCold(b_); }));
    EXPECT_TRUE(Delivers(as_[3], "late"));
    ASSERT_TRUE(Run([&] { return AllCold(a_) && AllCold(b_); }));
  }
}

TEST_F(FlagAheadTest, OnlyLinksThatAreColdWantIt) {
  ASSERT_TRUE(Delivers(as_[5], "text"));
  EXPECT_FALSE(PrefetchOf(as_[5]).wanted());
  EXPECT_TRUE(PrefetchOf(as_[6]).wanted());
  ASSERT_TRUE(Run([&] { return AllCold(a_); }));
  EXPECT_TRUE(PrefetchOf(as_[5]).wanted());
}

// Who keeps the pointer sets no flag, whose memory may be unmapped.
TEST_F(FlagAheadTest, ALinkThatIsGoneWantsNothing) {
  PrefetchList& of_closed = PrefetchOf(as_[1]);
  PrefetchList& of_abandoned = PrefetchOf(as_[2]);
  as_[2].link->Abandon();
  EXPECT_FALSE(of_abandoned.wanted());
  as_[1].link.reset();
  as_[2].link.reset();
  EXPECT_FALSE(of_closed.wanted());
  EXPECT_FALSE(of_abandoned.wanted());
}

// The list has what is above the link, too.
TEST_F(FlagAheadTest, WhoIsAboveTheLinkRegistersItsLines) {
  struct Above {
    alignas(kCacheLineBytes) char own[kCacheLineBytes] = {};
  };
  const auto above = std::make_unique<Above>();  // sanitizers align less on the stack
  PrefetchOf(as_[4]).Register(above->own, 1);
  ASSERT_TRUE(Delivers(as_[4], "text"));
  ASSERT_TRUE(Run([&] { return AllCold(a_); }));
  ASSERT_TRUE(PrefetchOf(as_[4]).wanted());
  std::vector<const void*> lines;
  PrefetchOf(as_[4]).ForEachLine([&](const void* line, bool) { lines.push_back(line); });
  const auto has = [&](const void* line) {
    return std::find(lines.begin(), lines.end(), line) != lines.end();
  };
  EXPECT_TRUE(has(above->own));
  EXPECT_TRUE(has(as_[4].link.get()));
}

// A peer that calls all the time and sends nothing: others are served, and it goes cold again.
TEST_F(FlagAheadTest, CallsForNothingCostLooksOnly) {
  SealedMemory view =
      SealedMemory::Open(b_.domain->host_descriptor(), sizeof(SharedDomainMemory)).value();
  auto* const bytes = &reinterpret_cast<SharedDomainMemory*>(view.data())->ready_flags;
  std::atomic<bool> stop{false};
  std::thread hostile([&] {
    while (!stop.load()) {
      for (size_t i = 0; i < kLinks; i += 2) bytes->of[i].store(1);
    }
  });
  for (size_t i = 0; i < 10 * kLinks; ++i) {
    EXPECT_TRUE(Delivers(as_[i % kLinks], "call " + std::to_string(i)));
  }
  stop.store(true);
  hostile.join();
  EXPECT_TRUE(Run([&] { return AllCold(b_); }));
}

// --- room ----------------------------------------------------------------------------------------

TEST_F(ShmDomainTest, AFullLinkHasNoRoomAndIsToldWhenItHas) {
  End a, b;
  Open(a, b);
  const std::string text(1024, 'r');
  int sent = 0;
  for (; a.link->HasRoom(); ++sent) ASSERT_TRUE(a_.Send(a, text).ok());
  EXPECT_EQ(sent, static_cast<int>((kRingBytes - kCacheLineBytes) / RecordBytes(1024)));
  EXPECT_EQ(a_.domain->stats().send_slots_in_use, 0u) << "nothing waits in a slot";
  a_.domain->Poll(64);
  EXPECT_EQ(a.slots_free, 0);
  ASSERT_TRUE(Run([&] { return a.slots_free == 1; }));
  EXPECT_EQ(b_.received.size(), static_cast<size_t>(sent));
}

// What a turn's records bring about besides is told in the next turn: nobody sleeps before it.
TEST_F(ShmDomainTest, WhatATurnLeavesToTheNextKeepsTheDomainAwake) {
  End a, b;
  Open(a, b);
  a_.domain->Poll(64);
  a.link.reset();
  b_.domain->Poll(64);  // takes the last record
  while (b.downs == 0 && !b_.domain->Arm()) b_.domain->Poll(64);
  EXPECT_EQ(b.downs, 1) << "it would have slept without a word of the link's end";
  EXPECT_TRUE(b_.domain->Arm());
}

struct CountedRead final : Operation {
  void OnComplete(const absl::Status& result) override {
    EXPECT_TRUE(result.ok()) << result;
    ++completions;
  }
  int completions = 0;
};

// A small read has ended when it is posted, a large one goes on in further turns, and no doorbell
// rings for either. Nor does it matter that the ring is full: they need no room in it.
TEST_F(ShmDomainTest, NobodySleepsOverAnOperationOfHisOwn) {
  End a, b;
  Open(a, b);
  while (b.link->HasRoom()) ASSERT_TRUE(b_.Send(b, std::string(1024, 'f')).ok());
  for (const size_t bytes : {size_t{8}, size_t{4} << 20}) {
    std::vector<std::byte> there(bytes, std::byte{7}), here(bytes);
    const auto remote = a_.domain->Register(MutableByteSpan(there), Access::kRemoteRead).value();
    const auto local = b_.domain->Register(MutableByteSpan(here), Access::kLocalOnly).value();
    CountedRead read;
    ASSERT_TRUE(Read(*b.link, *local, 0, remote->remote(), &read).ok());
    while (read.completions == 0) {
      ASSERT_FALSE(b_.domain->Arm()) << bytes;
      b_.domain->Poll(64);
    }
    EXPECT_EQ(read.completions, 1);
    EXPECT_TRUE(here == there);
    EXPECT_TRUE(b_.domain->Arm());
  }
}

// Mapped memory: the operation has ended when it is posted, and nobody is told later. It needs no
// room in the ring and no turn.
TEST_F(ShmDomainTest, AnOperationOnMappedMemoryIsDoneInsideThePost) {
  End a, b;
  Open(a, b);
  MappedMemoryOptions options;
  options.source = MappedMemoryOptions::Source::kMemfd;
  const MappedMemory there = MappedMemory::Map(4096, options).value();
  std::vector<std::byte> here(4096, std::byte{5});
  auto region = a_.domain->Register(there.bytes(), Access::kRemoteReadWrite).value();
  const RemoteSpan remote = region->remote();
  const auto local = b_.domain->Register(MutableByteSpan(here), Access::kLocalOnly).value();
  const auto post = [&](TransferKind kind, uint64_t offset, uint64_t bytes, Operation* op) {
    const Transfer transfer = {local.get(), 0, {remote.key, offset, bytes}};
    return b.link->Post(kind, {&transfer, 1}, op);
  };
  while (b.link->HasRoom()) ASSERT_TRUE(b_.Send(b, std::string(1024, 'f')).ok());
  CountedRead op;
  EXPECT_EQ(post(TransferKind::kWrite, 100, 64, &op).value(), Posted::kDone);
  EXPECT_EQ(there.bytes()[163], std::byte{5});
  EXPECT_EQ(there.bytes()[164], std::byte{0});
  EXPECT_EQ(post(TransferKind::kRead, 0, 64, &op).value(), Posted::kDone);
  EXPECT_EQ(here[63], std::byte{0});
  for (int turn = 0; turn < 10; ++turn) b_.domain->Poll(64);
  EXPECT_EQ(op.completions, 0);
  // A closed region is out of reach for the next one, and that is told as ever.
  struct Refused final : Operation {
    void OnComplete(const absl::Status& result) override { status = result; }
    absl::Status status;
  } refused;
  region.reset();
  EXPECT_EQ(post(TransferKind::kWrite, 0, 64, &refused).value(), Posted::kPending);
  ASSERT_TRUE(Run([&] { return !refused.status.ok(); }));
  EXPECT_TRUE(absl::IsPermissionDenied(refused.status)) << refused.status;
  EXPECT_EQ(there.bytes()[0], std::byte{0});
}

// All slots are out, and a turn passes: the refusal is remembered until there is one.
TEST_F(ShmDomainTest, ARefusedSlotIsToldOfWhenItIsThere) {
  End a, b;
  Open(a, b);
  std::vector<SendSlot> held;
  for (SendSlot slot; (slot = a.link->TakeSlot(8)).data != nullptr;) held.push_back(slot);
  EXPECT_EQ(held.size(), a_.domain->stats().send_slots_in_use);
  a_.domain->Poll(64);
  EXPECT_EQ(a.slots_free, 0);
  EXPECT_TRUE(a_.domain->Arm());
  for (const SendSlot slot : held) a_.domain->ReleaseSlot(slot);
  EXPECT_FALSE(a_.domain->Arm());
  a_.domain->Poll(64);
  EXPECT_EQ(a.slots_free, 1);
  EXPECT_TRUE(a_.domain->Arm());
}

// --- slots ---------------------------------------------------------------------------------------

// A batch that will be alone in its ring is made aside: the peer, which looks at the place where it
// will stand, is not to take the line of it away from who still writes there.
TEST_F(ShmDomainTest, ABatchThatIsAloneIsMadeAside) {
  End a, b;
  const LinkMemory view = Open(a, b);
  const SendSlot slot = a.link->TakeSlot(8);
  ASSERT_NE(slot.data, nullptr);
  EXPECT_EQ(slot.room, 1024u);
  std::fill_n(slot.data, 8, std::byte{'s'});
  for (int turn = 0; turn < 10; ++turn) b_.domain->Poll(64);
  EXPECT_EQ(view->to_passive[kRecordHeaderBytes], std::byte{0});
  ASSERT_TRUE(a.link->Send(slot, 8).ok());
  EXPECT_EQ(view->to_passive[kRecordHeaderBytes], std::byte{'s'});
  ASSERT_TRUE(Run([&] { return !b_.received.empty(); }));
  EXPECT_EQ(b_.received[0], "ssssssss");
}

// One batch at a time is made aside. What is written to another slot stands in its ring at once,
// and is a record only when it is sent.
TEST_F(ShmDomainTest, AnotherSlotIsAPlaceInItsRing) {
  End a1, b1, a2, b2;
  const LinkMemory other = Open(a1, b1);
  const LinkMemory view = Open(a2, b2);
  const SendSlot aside = a1.link->TakeSlot(8);
  const SendSlot slot = a2.link->TakeSlot(8);
  ASSERT_NE(slot.data, nullptr);
  EXPECT_EQ(slot.room, 1024u);
  std::fill_n(slot.data, 8, std::byte{'s'});
  EXPECT_EQ(view->to_passive[kRecordHeaderBytes], std::byte{'s'});
  for (int turn = 0; turn < 10; ++turn) b_.domain->Poll(64);
  EXPECT_TRUE(b_.received.empty());
  ASSERT_TRUE(a2.link->Send(slot, 8).ok());
  ASSERT_TRUE(Run([&] { return !b_.received.empty(); }));
  EXPECT_EQ(b_.received[0], "ssssssss");
  a_.domain->ReleaseSlot(aside);
  EXPECT_EQ(a_.domain->stats().send_slots_in_use, 0u);
}

// A domain with the largest slots, which asks its peers for all one-sided access.
class AskingDomainTest : public ShmDomainTest {
 protected:
  AskingDomainTest() : ShmDomainTest(kMaxShmSlotBytes, {false, false}) {}
};

// What is asked meanwhile may take the room that there was when the slot was taken.
TEST_F(AskingDomainTest, ABatchThatWasMadeAsideWaitsForRoom) {
  End a, b;
  Open(a, b);
  std::vector<std::byte> there(size_t{kMaxAsked} * kCopyPieceBytes),
      here(there.size(), std::byte{5});
  const auto remote = b_.domain->Register(MutableByteSpan(there), Access::kRemoteReadWrite).value();
  const auto local = a_.domain->Register(MutableByteSpan(here), Access::kLocalOnly).value();
  const SendSlot slot = a.link->TakeSlot(8);
  ASSERT_EQ(slot.room, kMaxShmSlotBytes);
  std::fill_n(slot.data, slot.room, std::byte{'x'});
  CountedRead write;
  const Transfer transfer = {local.get(), 0, remote->remote()};
  ASSERT_EQ(a.link->Post(TransferKind::kWrite, {&transfer, 1}, &write).value(), Posted::kPending);
  ASSERT_TRUE(a.link->Send(slot, slot.room).ok());
  EXPECT_FALSE(a.link->HasRoom()) << "it waits";
  ASSERT_TRUE(Run([&] { return !b_.received.empty(); }));
  EXPECT_EQ(b_.received[0], std::string(kMaxShmSlotBytes, 'x'));
  EXPECT_TRUE(there == here) << "the write was posted before";
  ASSERT_TRUE(Run([&] { return write.completions == 1; }));
  EXPECT_EQ(a_.domain->stats().send_slots_in_use, 0u);
  EXPECT_TRUE(Delivers(a, "and the next"));
}

TEST_F(ShmDomainTest, AnUnsentSlotLeavesNoTrace) {
  End a, b;
  Open(a, b);
  for (int round = 0; round < 100; ++round) {
    const SendSlot slot = a.link->TakeSlot(8);
    ASSERT_NE(slot.data, nullptr);
    std::fill_n(slot.data, slot.room, std::byte{0xff});
    a_.domain->ReleaseSlot(slot);
    ASSERT_TRUE(Delivers(a, "round " + std::to_string(round)));
    ASSERT_TRUE(b_.Send(b, "heard").ok());
    ASSERT_TRUE(Run([&] { return !std::exchange(a_.received, {}).empty(); }));
  }
  EXPECT_EQ(a_.domain->stats().send_slots_in_use, 0u);
}

// A batch that began small, where a lone one would have stood. (Another is made aside.)
TEST_F(ShmDomainTest, ASlotGrowsWithItsBatch) {
  End a, b, a2, b2;
  Open(a, b);
  Open(a2, b2);
  ASSERT_TRUE(Delivers(a, std::string(100, '1')));
  ASSERT_TRUE(b_.Send(b, "heard").ok());
  ASSERT_TRUE(Run([&] { return !a_.received.empty(); }));
  SendSlot aside = a2.link->TakeSlot(8);
  EXPECT_FALSE(a2.link->GrowSlot(&aside, 8)) << "it is as large as any";
  SendSlot slot = a.link->TakeSlot(100);
  ASSERT_EQ(slot.room, 120u);
  std::fill_n(slot.data, 120, std::byte{'x'});
  ASSERT_TRUE(a.link->GrowSlot(&slot, 120));
  ASSERT_EQ(slot.room, 1024u);
  std::fill_n(slot.data + 120, 1024 - 120, std::byte{'y'});
  b_.received.clear();
  ASSERT_TRUE(a.link->Send(slot, 1024).ok());
  ASSERT_TRUE(Run([&] { return !b_.received.empty(); }));
  EXPECT_EQ(b_.received[0], std::string(120, 'x') + std::string(904, 'y'));
  a_.domain->ReleaseSlot(aside);
}

// Who is making a batch writes on, though the peer has died meanwhile.
TEST_F(ShmDomainTest, AnAbandonedLinkKeepsTheMemoryOfItsSlot) {
  for (const bool send : {true, false}) {
    End a, b;
    Open(a, b);
    const SendSlot slot = a.link->TakeSlot(8);
    ASSERT_NE(slot.data, nullptr);
    a.link->Abandon();
    std::fill_n(slot.data, slot.room, std::byte{1});
    if (send) {
      EXPECT_FALSE(a.link->Send(slot, 8).ok());
    } else {
      a_.domain->ReleaseSlot(slot);
    }
    EXPECT_EQ(a_.domain->stats().send_slots_in_use, 0u);
    EXPECT_EQ(a.link->TakeSlot(8).data, nullptr);
  }
}

TEST_F(ShmDomainTest, ALinkClosesWithItsSlotOut) {
  End a, b;
  Open(a, b);
  ASSERT_TRUE(Delivers(a, "before"));
  const SendSlot slot = a.link->TakeSlot(8);
  std::fill_n(slot.data, slot.room, std::byte{0xff});
  a.link.reset();
  ASSERT_TRUE(Run([&] { return b.downs == 1; }));
  EXPECT_EQ(b.status.code(), absl::StatusCode::kUnavailable) << b.status;
  EXPECT_EQ(a_.domain->stats().send_slots_in_use, 0u);
}

// The peer writes over the slot while the batch is made: it hurts itself at most.
TEST_F(ShmDomainTest, AScribbledSlotEndsItsLinkAtMost) {
  End a1, b1, a2, b2;
  const LinkMemory scribbled = Open(a1, b1);
  Open(a2, b2);
  std::atomic<bool> stop{false};
  std::thread hostile([&] {
    uint64_t word = 1;
    while (!stop.load()) {
      for (size_t at = 0; at < kRingBytes; at += 8) {
        word = word * 6364136223846793005u + 1;
        std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(&scribbled->to_passive[at]))
            .store(word, std::memory_order_relaxed);
      }
    }
  });
  for (int i = 0; i < 1'000; ++i) {
    a_.Send(a1, "text").IgnoreError();
    a_.domain->Poll(64);
    if (i % 100 == 0) {
      EXPECT_TRUE(Delivers(a2, "the other link goes on"));
    }
  }
  stop.store(true);
  hostile.join();
}

// --- sleepers ------------------------------------------------------------------------------------

// One side sleeps whenever it has nothing to do, with nothing but its doorbell to wake it; the
// other sends, over links that are hot and links that are cold, and waits for the echo.
TEST_F(ShmDomainTest, NoWakeUpIsLost) {
  constexpr size_t kLinks = 20;
  constexpr int kRounds = 3'000;
  std::vector<End> as(kLinks), bs(kLinks);
  for (size_t i = 0; i < kLinks; ++i) Open(as[i], bs[i]);
  std::atomic<bool> stop{false};
  std::thread sleeper([&] {
    while (!stop.load()) {
      EXPECT_TRUE(b_.SleepOnce());
      b_.domain->Poll(64);
      for (const std::string& text : std::exchange(b_.received, {})) {
        EXPECT_TRUE(b_.Send(bs[std::stoul(text)], text).ok());
      }
    }
  });
  const uint64_t seed = TestSeed();
  SCOPED_TRACE(SeedTrace(seed));
  std::mt19937_64 random(seed);
  for (int round = 0; round < kRounds; ++round) {
    const size_t i = random() % (round % 2 == 0 ? kLinks : 2);
    ASSERT_TRUE(a_.Send(as[i], std::to_string(i)).ok());
    const auto give_up = std::chrono::steady_clock::now() + kShmPatience;
    while (a_.received.empty()) {
      a_.domain->Poll(64);
      ASSERT_LT(std::chrono::steady_clock::now(), give_up) << "in round " << round;
    }
    ASSERT_EQ(a_.received[0], std::to_string(i));
    a_.received.clear();
  }
  stop.store(true);
  b_.bell->Ring();
  sleeper.join();
}

// A sender without room sleeps until its peer has made some.
TEST_F(ShmDomainTest, ABlockedSenderIsWokenByItsReader) {
  End a, b;
  Open(a, b);
  constexpr int kBatches = 5'000;
  std::thread sender([&] {
    const std::string text(1000, 's');
    for (int sent = 0; sent < kBatches;) {
      if (a.link->HasRoom()) {
        EXPECT_TRUE(a_.Send(a, text).ok());
        ++sent;
      } else {
        EXPECT_TRUE(a_.SleepOnce());
        a_.domain->Poll(64);
      }
    }
  });
  size_t received = 0;
  const auto give_up = std::chrono::steady_clock::now() + kShmPatience;
  while (received < kBatches && std::chrono::steady_clock::now() < give_up) {
    b_.domain->Poll(64);
    received += std::exchange(b_.received, {}).size();
  }
  sender.join();
  EXPECT_EQ(received, static_cast<size_t>(kBatches));
}

}  // namespace
}  // namespace weft
