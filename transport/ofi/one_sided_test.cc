// Reads and writes of a peer's memory over every kind of link.

#include <algorithm>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "transport/ofi/testing/link_fixture.h"
#include "transport/testing/post.h"

namespace weft {
namespace {

class OneSidedTest : public testing::TestWithParam<PathKind> {
 protected:
  static constexpr uint32_t kOperations = 8;

  static OfiOptions Options() {
    OfiOptions options;
    options.max_outstanding_operations = kOperations;
    return options;
  }

  OneSidedTest() : a_(GetParam(), Options()), b_(GetParam(), Options()) {
    EXPECT_TRUE(a_.domain->AddSlots(16, 16).ok());
    EXPECT_TRUE(b_.domain->AddSlots(16, 16).ok());
    Open(a_.endpoint, b_.endpoint);
  }

  void Open(LinkEnd& a, LinkEnd& b) {
    const uint64_t nonce = ++nonce_;
    b.link = std::move(b_.domain->Accept(b_.PeerOf(a_, nonce), &b)).value();
    a.link = std::move(a_.domain->Connect(a_.PeerOf(b_, nonce), &a)).value();
    EXPECT_TRUE(Run([&] { return a.ups == 1 && b.ups == 1; }));
  }

  std::unique_ptr<Region> Register(Side& side, std::vector<std::byte>& memory, Access access) {
    auto region = side.domain->Register(MutableByteSpan(memory), access);
    EXPECT_TRUE(region.ok()) << region.status();
    return std::move(region).value();
  }

  static std::vector<std::byte> Pattern(size_t bytes) {
    std::vector<std::byte> memory(bytes);
    for (size_t i = 0; i < bytes; ++i) memory[i] = static_cast<std::byte>(i * 7 + i / 251);
    return memory;
  }

  template <class Done>
  bool Run(Done done) {
    return RunUntil({&a_, &b_}, done);
  }

  // Over shared memory a transfer is copied inside the post, and so complete when that returns.
  static bool IsDoneAtOnce() { return GetParam() == PathKind::kShm; }

  Side a_;
  Side b_;
  uint64_t nonce_ = 0;
};

TEST_P(OneSidedTest, ReadAndWriteMoveEverySize) {
  for (const size_t bytes : {1, 63, 4096, 4097, 65536, 1 << 20, (4 << 20) + 3}) {
    std::vector<std::byte> here(bytes);
    std::vector<std::byte> there = Pattern(bytes);
    auto local = Register(a_, here, Access::kLocalOnly);
    auto remote = Register(b_, there, Access::kRemoteReadWrite);
    CountedOperation read, write;
    ASSERT_TRUE(Read(*a_.endpoint.link, *local, 0, remote->remote(), &read).ok());
    EXPECT_TRUE(read.completions == 0 || IsDoneAtOnce()) << "completions come from Poll()";
    ASSERT_TRUE(Run([&] { return read.completions == 1; }));
    ASSERT_TRUE(read.status.ok()) << read.status;
    EXPECT_EQ(here, there);
    std::reverse(here.begin(), here.end());
    ASSERT_TRUE(Write(*a_.endpoint.link, *local, 0, remote->remote(), &write).ok());
    ASSERT_TRUE(Run([&] { return write.completions == 1; }));
    ASSERT_TRUE(write.status.ok()) << write.status;
    ASSERT_TRUE(a_.Send("written").ok());
    ASSERT_TRUE(Run([&] { return b_.received.size() == 1; }));
    EXPECT_EQ(here, there);
    b_.received.clear();
  }
}

// Where the end of a read proves writes: nobody but this side does anything.
TEST_P(OneSidedTest, AWriteHasArrivedWhenAReadBehindItHasEndedAndTheOwnerSleeps) {
  EXPECT_EQ(a_.endpoint.link->reads_prove_writes(), GetParam() == PathKind::kVerbs);
  if (!a_.endpoint.link->reads_prove_writes()) return;  // the owner has a part in it
  for (const size_t bytes : {1, 4096, 1 << 20}) {
    std::vector<std::byte> here = Pattern(bytes);
    std::vector<std::byte> there(bytes);
    std::vector<std::byte> byte(1);
    auto local = Register(a_, here, Access::kLocalOnly);
    auto sink = Register(a_, byte, Access::kLocalOnly);
    auto remote = Register(b_, there, Access::kRemoteReadWrite);
    CountedOperation write, read;
    ASSERT_TRUE(Write(*a_.endpoint.link, *local, 0, remote->remote(), &write).ok());
    ASSERT_TRUE(RunUntil({&a_}, [&] { return write.completions == 1; }));
    ASSERT_TRUE(write.status.ok()) << write.status;
    ASSERT_TRUE(
        Read(*a_.endpoint.link, *sink, 0, remote->remote().Slice(bytes - 1, 1), &read).ok());
    ASSERT_TRUE(RunUntil({&a_}, [&] { return read.completions == 1; }));
    ASSERT_TRUE(read.status.ok()) << read.status;
    EXPECT_EQ(there, here);
    EXPECT_EQ(byte[0], here.back());
  }
}

TEST_P(OneSidedTest, PartsAreAddressedByOffset) {
  std::vector<std::byte> here(100);
  std::vector<std::byte> there = Pattern(1000);
  auto local = Register(a_, here, Access::kLocalOnly);
  auto remote = Register(b_, there, Access::kRemoteRead);
  CountedOperation read;
  ASSERT_TRUE(Read(*a_.endpoint.link, *local, 10, remote->remote().Slice(500, 50), &read).ok());
  ASSERT_TRUE(Run([&] { return read.completions == 1; }));
  EXPECT_TRUE(std::equal(here.begin() + 10, here.begin() + 60, there.begin() + 500));
  EXPECT_EQ(here[9], std::byte{0});
  EXPECT_EQ(here[60], std::byte{0});
}

TEST_P(OneSidedTest, NothingToMoveIsRefused) {
  std::vector<std::byte> here(8), there(8);
  auto local = Register(a_, here, Access::kLocalOnly);
  auto remote = Register(b_, there, Access::kRemoteRead);
  CountedOperation read;
  EXPECT_EQ(Read(*a_.endpoint.link, *local, 8, remote->remote().Slice(8, 0), &read).code(),
            absl::StatusCode::kInvalidArgument);
  a_.domain->Poll(1);
  EXPECT_EQ(read.completions, 0);
}

TEST_P(OneSidedTest, LocalBoundsAreChecked) {
  std::vector<std::byte> here(64), there(128);
  auto local = Register(a_, here, Access::kLocalOnly);
  auto remote = Register(b_, there, Access::kRemoteRead);
  CountedOperation op;
  Link& link = *a_.endpoint.link;
  const auto invalid = absl::StatusCode::kInvalidArgument;
  EXPECT_EQ(Read(link, *local, 0, remote->remote().Slice(0, 65), &op).code(), invalid);
  EXPECT_EQ(Read(link, *local, 65, remote->remote().Slice(0, 0), &op).code(), invalid);
  EXPECT_EQ(Read(link, *local, 64, remote->remote().Slice(0, 1), &op).code(), invalid);
  EXPECT_EQ(Read(link, *local, SIZE_MAX, remote->remote().Slice(0, 2), &op).code(), invalid);
  RemoteSpan wraps = remote->remote();
  wraps.offset = ~uint64_t{0} - 3;
  wraps.length = 8;
  EXPECT_EQ(Read(link, *local, 0, wraps, &op).code(), invalid);
  EXPECT_EQ(Read(link, *remote, 0, remote->remote().Slice(0, 8), &op).code(), invalid)
      << "registered with another domain";
  a_.domain->Poll(8);
  EXPECT_EQ(op.completions, 0);
}

TEST_P(OneSidedTest, OutstandingOperationsAreBounded) {
  if (IsDoneAtOnce()) GTEST_SKIP() << "none is outstanding here";
  std::vector<std::byte> here(64), there(64);
  auto local = Register(a_, here, Access::kLocalOnly);
  auto remote = Register(b_, there, Access::kRemoteRead);
  std::vector<CountedOperation> ops(kOperations + 1);
  for (uint32_t i = 0; i < kOperations; ++i) {
    ASSERT_TRUE(Read(*a_.endpoint.link, *local, 0, remote->remote(), &ops[i]).ok());
  }
  EXPECT_EQ(Read(*a_.endpoint.link, *local, 0, remote->remote(), &ops[kOperations]).code(),
            absl::StatusCode::kResourceExhausted);
  ASSERT_TRUE(Run([&] {
    return std::all_of(ops.begin(), ops.end() - 1, [](auto& op) { return op.completions == 1; });
  }));
  EXPECT_EQ(ops[kOperations].completions, 0);
  EXPECT_FALSE(a_.domain->busy());
}

TEST_P(OneSidedTest, AWriteIsVisibleWhenALaterMessageArrives) {
  std::vector<std::byte> here = Pattern(1 << 20), there(1 << 20);
  auto local = Register(a_, here, Access::kLocalOnly);
  auto remote = Register(b_, there, Access::kRemoteWrite);
  for (int round = 0; round < 20; ++round) {
    std::fill(there.begin(), there.end(), std::byte{0});
    bool seen_whole = false;
    b_.on_received = [&] { seen_whole = here == there; };
    CountedOperation write;
    ASSERT_TRUE(Write(*a_.endpoint.link, *local, 0, remote->remote(), &write).ok());
    ASSERT_TRUE(a_.Send("look").ok());
    ASSERT_TRUE(Run([&] { return !b_.received.empty() && write.completions == 1; }));
    EXPECT_TRUE(seen_whole);
    b_.received.clear();
  }
  b_.on_received = nullptr;
}

// --- what a peer must not reach ----------------------------------------------------------------

// On tcp the provider ends the connection.
TEST_P(OneSidedTest, BadKeyFailsItsOperationAndOtherLinksGoOn) {
  LinkEnd a2, b2;
  Open(a2, b2);
  std::vector<std::byte> here(64), there = Pattern(64);
  auto local = Register(a_, here, Access::kLocalOnly);
  auto remote = Register(b_, there, Access::kRemoteRead);
  RemoteSpan bad = remote->remote();
  bad.key ^= 0x80;
  CountedOperation op, good;
  ASSERT_TRUE(Read(*a_.endpoint.link, *local, 0, bad, &op).ok());
  ASSERT_TRUE(Run([&] { return op.completions + a_.endpoint.downs >= 1; }));
  if (GetParam() == PathKind::kShm) {
    EXPECT_EQ(op.status.code(), absl::StatusCode::kPermissionDenied);
  }
  a_.endpoint.link.reset();
  EXPECT_EQ(op.completions, 1);
  EXPECT_FALSE(op.status.ok());
  ASSERT_TRUE(Read(*a2.link, *local, 0, remote->remote(), &good).ok());
  ASSERT_TRUE(Run([&] { return good.completions == 1; }));
  EXPECT_TRUE(good.status.ok()) << good.status;
  EXPECT_EQ(here, there);
}

TEST_P(OneSidedTest, RangesAndRightsAreEnforced) {
  std::vector<std::byte> here(64), there = Pattern(64);
  const std::vector<std::byte> original = there;
  auto local = Register(a_, here, Access::kLocalOnly);
  auto readable = Register(b_, there, Access::kRemoteRead);
  RemoteSpan beyond = readable->remote();
  beyond.offset += 32;
  struct Case {
    bool is_read;
    RemoteSpan span;
  };
  for (const Case& bad : {Case{true, beyond}, Case{false, readable->remote()}}) {
    LinkEnd a, b;
    Open(a, b);
    CountedOperation op;
    ASSERT_TRUE((bad.is_read ? Read(*a.link, *local, 0, bad.span, &op)
                             : Write(*a.link, *local, 0, bad.span, &op))
                    .ok());
    // tcp and iWARP report a write as done when it is sent; the peer then ends the connection.
    EXPECT_TRUE(Run(
        [&] { return (op.completions == 1 && !op.status.ok()) || a.downs == 1 || b.downs == 1; }));
    EXPECT_EQ(there, original);
  }
}

TEST_P(OneSidedTest, ADestroyedRegionCannotBeReached) {
  std::vector<std::byte> here(64), there = Pattern(64);
  auto local = Register(a_, here, Access::kLocalOnly);
  auto region = Register(b_, there, Access::kRemoteRead);
  const RemoteSpan stale = region->remote();
  region.reset();
  CountedOperation op;
  ASSERT_TRUE(Read(*a_.endpoint.link, *local, 0, stale, &op).ok());
  ASSERT_TRUE(Run([&] { return op.completions + a_.endpoint.downs >= 1; }));
  EXPECT_EQ(here, std::vector<std::byte>(64));
}

TEST_P(OneSidedTest, RegionsReturnTheirRegistrations) {
  std::vector<std::byte> memory(4096);
  const uint64_t before = b_.domain->stats().registrations_open;
  for (int i = 0; i < 10000; ++i) {
    auto region = Register(b_, memory, Access::kRemoteRead);
    ASSERT_EQ(b_.domain->stats().registrations_open, before + 1);
  }
  EXPECT_EQ(b_.domain->stats().registrations_open, before);
}

// Where the device does not choose them. A provider that made them by itself would count 1, 2, 3.
TEST(OfiTcpKeysTest, AllSixtyFourBitsAreRandom) {
  Side side(PathKind::kOfiTcp, OfiOptions());
  std::vector<std::byte> memory(64);
  uint64_t in_all = ~uint64_t{0};
  uint64_t in_any = 0;
  std::vector<std::unique_ptr<Region>> regions;
  for (int i = 0; i < 64; ++i) {
    auto region = side.domain->Register(MutableByteSpan(memory), Access::kRemoteRead);
    ASSERT_TRUE(region.ok()) << region.status();
    in_all &= (*region)->remote().key;
    in_any |= (*region)->remote().key;
    regions.push_back(*std::move(region));
  }
  // That a bit is the same in all of them happens once in 10^17 runs.
  EXPECT_EQ(in_all, 0u);
  EXPECT_EQ(in_any, ~uint64_t{0});
}

// --- several at once ---------------------------------------------------------------------------

class SeveralAtOnceTest : public OneSidedTest {
 protected:
  static constexpr size_t kPiece = 50;

  SeveralAtOnceTest() : here_(kOperations * kPiece), there_(Pattern(size_t{kOperations} * 100)) {
    local_ = Register(a_, here_, Access::kLocalOnly);
    remote_ = Register(b_, there_, Access::kRemoteReadWrite);
  }

  absl::Status Read(size_t i) {
    return weft::Read(*a_.endpoint.link, *local_, i * kPiece, Remote(i), &ops_[i]);
  }
  absl::Status Write(size_t i) {
    return weft::Write(*a_.endpoint.link, *local_, i * kPiece, Remote(i), &ops_[i]);
  }
  RemoteSpan Remote(size_t i) const { return remote_->remote().Slice(i * 100, kPiece); }
  bool AreEqual(size_t i) const {
    const auto at = here_.begin() + static_cast<ptrdiff_t>(i * kPiece);
    return std::equal(at, at + kPiece, there_.begin() + static_cast<ptrdiff_t>(i * 100));
  }
  bool AllComplete() {
    return Run([&] {
      return std::all_of(ops_.begin(), ops_.end(), [](const auto& op) { return op.completions; });
    });
  }
  void ExpectEachOnce() {
    for (const CountedOperation& op : ops_) EXPECT_EQ(op.completions, 1);
  }

  std::vector<std::byte> here_;
  std::vector<std::byte> there_;
  std::unique_ptr<Region> local_;
  std::unique_ptr<Region> remote_;
  std::vector<CountedOperation> ops_{kOperations};
};

TEST_P(SeveralAtOnceTest, EachReadBringsItsOwn) {
  for (int round = 0; round < 20; ++round) {
    std::fill(here_.begin(), here_.end(), std::byte{0});
    ops_.assign(kOperations, {});
    for (size_t i = 0; i < kOperations; ++i) ASSERT_TRUE(Read(i).ok());
    ASSERT_TRUE(AllComplete());
    ExpectEachOnce();
    for (size_t i = 0; i < kOperations; ++i) EXPECT_TRUE(ops_[i].status.ok() && AreEqual(i));
    EXPECT_FALSE(a_.domain->busy());
  }
}

TEST_P(SeveralAtOnceTest, ReadsAndWritesMayTakeTurns) {
  std::fill(here_.begin(), here_.end(), std::byte{3});
  for (size_t i = 0; i < kOperations; ++i) {
    ASSERT_TRUE((i / 3 % 2 == 0 ? Write(i) : Read(i)).ok());
  }
  ASSERT_TRUE(AllComplete());
  ASSERT_TRUE(a_.Send("behind them").ok());
  ASSERT_TRUE(Run([&] { return b_.received.size() == 1; }));
  ExpectEachOnce();
  for (size_t i = 0; i < kOperations; ++i) EXPECT_TRUE(AreEqual(i)) << i;
}

// A message waits with the writes before it.
TEST_P(SeveralAtOnceTest, AMessageBehindWritesFindsThemAll) {
  std::fill(here_.begin(), here_.end(), std::byte{4});
  for (size_t i = 0; i < kOperations; ++i) ASSERT_TRUE(Write(i).ok());
  ASSERT_TRUE(a_.Send("notify").ok());
  bool all = false;
  b_.on_received = [&] {
    all = true;
    for (size_t i = 0; i < kOperations; ++i) all = all && AreEqual(i);
  };
  ASSERT_TRUE(Run([&] { return b_.received.size() == 1; }));
  EXPECT_TRUE(all);
  ASSERT_TRUE(AllComplete());
}

// Whoever hears of the first may end the link: the others have been told when that returns.
TEST_P(SeveralAtOnceTest, ALinkThatEndsWithTheFirstEndsTheOthersOnce) {
  if (IsDoneAtOnce()) GTEST_SKIP() << "none waits for another here";
  struct Closing final : Operation {
    void OnComplete(const absl::Status&) override {
      link->reset();
      for (const CountedOperation& other : *others) ended += other.completions;
    }
    std::unique_ptr<Link>* link = nullptr;
    std::vector<CountedOperation>* others = nullptr;
    int ended = 0;
  } first;
  first.link = &a_.endpoint.link;
  first.others = &ops_;
  ASSERT_TRUE(Read(0).ok());
  ASSERT_TRUE(Read(1).ok());
  ASSERT_TRUE(weft::Read(*a_.endpoint.link, *local_, 0, Remote(0), &first).ok());
  for (size_t i = 2; i < kOperations - 1; ++i) ASSERT_TRUE(Read(i).ok());
  ASSERT_TRUE(Run([&] { return first.ended > 0; }));
  EXPECT_EQ(first.ended, static_cast<int>(kOperations) - 1);
  a_.domain->Poll(16);
  for (size_t i = 0; i < kOperations - 1; ++i) EXPECT_EQ(ops_[i].completions, 1) << i;
  EXPECT_FALSE(a_.domain->busy());
}

TEST_P(SeveralAtOnceTest, ABatchGoesAsOne) {
  std::vector<Transfer> pieces;
  for (size_t i = 0; i < kOperations; ++i) {
    Transfer piece;
    piece.local = local_.get();
    piece.local_offset = i * kPiece;
    piece.remote = Remote(i);
    pieces.push_back(piece);
  }
  ASSERT_TRUE(ReadBatch(*a_.endpoint.link, pieces, &ops_[0]).ok());
  ASSERT_TRUE(Run([&] { return ops_[0].completions == 1; }));
  EXPECT_TRUE(ops_[0].status.ok()) << ops_[0].status;
  for (size_t i = 0; i < kOperations; ++i) EXPECT_TRUE(AreEqual(i));
  EXPECT_FALSE(a_.domain->busy());
}

INSTANTIATE_TEST_SUITE_P(Providers, SeveralAtOnceTest, testing::ValuesIn(TestedPaths()),
                         [](const auto& info) { return std::string(PathKindName(info.param)); });

// Soft-iWARP says that a write or a send is over before it says so of a read that was posted ahead
// of it, and libfabric takes the oldest work of a link for the one that is over. So it gave a work
// to one link that was on another's list still, and the process ended by a wild pointer.
TEST_P(OneSidedTest, ReadsWritesAndMessagesOfTwoLinksAllEndOnce) {
  constexpr int kReads = 100;  // by each link, and as many others meanwhile as it takes
  struct Repeated {
    LinkEnd* by;
    bool is_read;
    CountedOperation operation = {};
    int posted = 0;
    bool over() const { return operation.completions == posted; }
  };
  LinkEnd c, d;
  Open(c, d);
  std::vector<std::byte> here(256 << 10), there(256 << 10), word(8), word_there(8);
  auto sink = Register(a_, here, Access::kLocalOnly);
  auto long_source = Register(b_, there, Access::kRemoteRead);
  auto source = Register(a_, word, Access::kLocalOnly);
  auto target = Register(b_, word_there, Access::kRemoteWrite);
  std::vector<Repeated> all = {{&a_.endpoint, true}, {&a_.endpoint, false}, {&a_.endpoint, false},
                               {&c, true},           {&c, false},           {&c, false}};
  ASSERT_LE(all.size(), kOperations);
  size_t sent = 0;
  ASSERT_TRUE(Run([&] {
    bool reads_are_over = true;
    for (Repeated& one : all) {
      if (one.is_read) reads_are_over = reads_are_over && one.over() && one.posted == kReads;
    }
    for (Repeated& one : all) {
      if (!one.over() || (one.is_read ? one.posted == kReads : reads_are_over)) continue;
      ++one.posted;
      Link& link = *one.by->link;
      EXPECT_TRUE((one.is_read ? Read(link, *sink, 0, long_source->remote(), &one.operation)
                               : Write(link, *source, 0, target->remote(), &one.operation))
                      .ok());
      if (sent == b_.received.size()) sent += a_.Send(*one.by, "a message").ok();
    }
    return reads_are_over && sent == b_.received.size() &&
           std::all_of(all.begin(), all.end(), [](const Repeated& one) { return one.over(); });
  }));
  for (const Repeated& one : all) EXPECT_TRUE(one.operation.status.ok()) << one.operation.status;
  EXPECT_FALSE(a_.domain->busy());
}

// --- fences ------------------------------------------------------------------------------------

class FenceTest : public OneSidedTest {
 protected:
  // Enough that it is in no socket's buffers: it goes on while both sides look after it.
  static constexpr size_t kLong = 64 << 20;

  bool HasFence() const { return b_.endpoint.link->has_fence(); }
  bool BeginsToCome(const std::vector<std::byte>& memory) {
    return Run([&] { return memory[0] != std::byte{0}; });
  }
  // Sent by the owner of a region that is closed; the other side's program does not answer.
  void SendFence() {
    const SendSlot slot = b_.domain->AcquireSlot();
    ASSERT_NE(slot.data, nullptr);
    slot.data[0] = std::byte{1};
    ASSERT_TRUE(b_.endpoint.link->SendFence(slot, 1, &fence_).ok());
  }

  CountedOperation fence_;
};

TEST_P(FenceTest, BehindItNoWriteThatHadBegunGoesOn) {
  if (!HasFence()) GTEST_SKIP() << "this path has none";
  std::vector<std::byte> here(kLong, std::byte{1}), there(kLong);
  auto local = Register(a_, here, Access::kLocalOnly);
  auto remote = Register(b_, there, Access::kRemoteWrite);
  CountedOperation write;
  ASSERT_TRUE(weft::Write(*a_.endpoint.link, *local, 0, remote->remote(), &write).ok());
  ASSERT_TRUE(BeginsToCome(there));
  ASSERT_EQ(there.back(), std::byte{0}) << "the write is over already";
  ASSERT_FALSE(b_.endpoint.link->Reclaim(std::move(remote)));
  SendFence();
  ASSERT_TRUE(Run([&] { return fence_.completions == 1; }));
  EXPECT_EQ(there.back(), std::byte{1}) << "what had begun has come to its end before";
  std::fill(there.begin(), there.end(), std::byte{2});
  CountedOperation late;
  ASSERT_TRUE(weft::Write(*a_.endpoint.link, *local, 0, RemoteSpan{1, 0, kLong}, &late).ok());
  ASSERT_TRUE(Run([&] { return b_.endpoint.downs + a_.endpoint.downs > 0; }));
  EXPECT_EQ(std::count(there.begin(), there.end(), std::byte{2}), static_cast<ptrdiff_t>(kLong));
}

TEST_P(FenceTest, BehindItNoReadThatHadBegunGoesOn) {
  if (!HasFence()) GTEST_SKIP() << "this path has none";
  std::vector<std::byte> here(kLong), there(kLong, std::byte{1});
  auto local = Register(a_, here, Access::kLocalOnly);
  auto remote = Register(b_, there, Access::kRemoteRead);
  CountedOperation read;
  ASSERT_TRUE(weft::Read(*a_.endpoint.link, *local, 0, remote->remote(), &read).ok());
  ASSERT_TRUE(BeginsToCome(here));
  ASSERT_FALSE(b_.endpoint.link->Reclaim(std::move(remote)));
  SendFence();
  ASSERT_TRUE(Run([&] { return fence_.completions == 1; }));
  std::fill(there.begin(), there.end(), std::byte{2});  // the next message, another peer's
  ASSERT_TRUE(Run([&] { return read.completions == 1; }));
  EXPECT_EQ(std::count(here.begin(), here.end(), std::byte{2}), 0);
}

TEST_P(FenceTest, ALinkThatEndsTellsNobody) {
  if (!HasFence()) GTEST_SKIP() << "this path has none";
  SendFence();
  b_.endpoint.link.reset();
  b_.domain->Poll(16);
  EXPECT_EQ(fence_.completions, 0);
}

INSTANTIATE_TEST_SUITE_P(Providers, FenceTest, testing::ValuesIn(TestedPaths()),
                         [](const auto& info) { return std::string(PathKindName(info.param)); });

// --- acknowledged writes -----------------------------------------------------------------------

class AcknowledgedWriteTest : public OneSidedTest {
 protected:
  // The sockets' buffers hold it, so that a plain write is over when it has been posted.
  static constexpr size_t kBytes = 4096;

  // Whether the path has them: else they are writes like others.
  bool HasThem() const { return a_.endpoint.link->has_fence(); }

  void Post(Operation* op) {
    ASSERT_TRUE(WriteAcknowledged(*a_.endpoint.link, *local_, 0, remote_->remote(), op).ok());
  }
  void PollHere() {
    for (int i = 0; i < 1000; ++i) a_.domain->Poll(64);
  }

  std::vector<std::byte> here_ = Pattern(kBytes);
  std::vector<std::byte> there_ = std::vector<std::byte>(kBytes);
  std::unique_ptr<Region> local_ = Register(a_, here_, Access::kLocalOnly);
  std::unique_ptr<Region> remote_ = Register(b_, there_, Access::kRemoteWrite);
  CountedOperation write_;
};

TEST_P(AcknowledgedWriteTest, IsOverWhenTheBytesAreInThePeersMemory) {
  if (!HasThem()) GTEST_SKIP() << "this path has none";
  Post(&write_);
  PollHere();
  EXPECT_EQ(write_.completions, 0) << "the peer has not taken them";
  ASSERT_TRUE(Run([&] { return write_.completions == 1; }));
  EXPECT_TRUE(write_.status.ok()) << write_.status;
  EXPECT_EQ(here_, there_);
}

TEST_P(AcknowledgedWriteTest, SeveralEndInTheOrderOfTheirPostsAmongOtherOperations) {
  CountedOperation plain, second;
  Post(&write_);
  ASSERT_TRUE(weft::Write(*a_.endpoint.link, *local_, 0, remote_->remote(), &plain).ok());
  Post(&second);
  ASSERT_TRUE(Run([&] {
    EXPECT_GE(write_.completions, second.completions);
    return second.completions == 1 && plain.completions == 1;
  }));
  EXPECT_TRUE(second.status.ok() && plain.status.ok() && write_.status.ok());
}

TEST_P(AcknowledgedWriteTest, EndsOnceWhenTheLinkDoes) {
  Post(&write_);
  a_.endpoint.link.reset();
  EXPECT_EQ(write_.completions, 1);
  PollHere();
  EXPECT_EQ(write_.completions, 1);
  EXPECT_FALSE(a_.domain->busy());
}

TEST_P(AcknowledgedWriteTest, EndsWithAnErrorWhenThePeerIsGoneBeforeItHasTakenThem) {
  if (!HasThem()) GTEST_SKIP() << "this path has none";
  Post(&write_);
  PollHere();
  b_.endpoint.link.reset();
  ASSERT_TRUE(Run([&] { return a_.endpoint.downs == 1; }));
  a_.endpoint.link.reset();
  EXPECT_EQ(write_.completions, 1);
  EXPECT_FALSE(write_.status.ok());
}

INSTANTIATE_TEST_SUITE_P(Providers, AcknowledgedWriteTest, testing::ValuesIn(TestedPaths()),
                         [](const auto& info) { return std::string(PathKindName(info.param)); });

// --- closing -----------------------------------------------------------------------------------

TEST_P(OneSidedTest, ClosingCompletesOutstandingOperationsInside) {
  std::vector<std::byte> here(8 << 20), there(8 << 20);
  auto local = Register(a_, here, Access::kLocalOnly);
  auto remote = Register(b_, there, Access::kRemoteReadWrite);
  std::vector<CountedOperation> ops(4);
  for (CountedOperation& op : ops) {
    ASSERT_TRUE(weft::Read(*a_.endpoint.link, *local, 0, remote->remote(), &op).ok());
  }
  a_.endpoint.link.reset();
  for (const CountedOperation& op : ops) {
    EXPECT_EQ(op.completions, 1);
    EXPECT_EQ(op.status.code(), absl::StatusCode::kCancelled) << op.status;
  }
  a_.domain->Poll(16);
  for (const CountedOperation& op : ops) EXPECT_EQ(op.completions, 1);
  EXPECT_FALSE(a_.domain->busy());
}

TEST_P(OneSidedTest, AbandoningCompletesOutstandingOperationsFromPoll) {
  std::vector<std::byte> here(8 << 20), there(8 << 20);
  auto local = Register(a_, here, Access::kLocalOnly);
  auto remote = Register(b_, there, Access::kRemoteReadWrite);
  CountedOperation op;
  ASSERT_TRUE(weft::Read(*a_.endpoint.link, *local, 0, remote->remote(), &op).ok());
  a_.endpoint.link->Abandon();
  EXPECT_EQ(op.completions, 0);
  a_.domain->Poll(16);
  EXPECT_EQ(op.completions, 1);
  EXPECT_EQ(op.status.code(), absl::StatusCode::kUnavailable);
  EXPECT_FALSE(a_.Send("x").ok());
}

INSTANTIATE_TEST_SUITE_P(Providers, OneSidedTest, testing::ValuesIn(TestedPaths()),
                         [](const auto& info) { return std::string(PathKindName(info.param)); });

}  // namespace
}  // namespace weft
