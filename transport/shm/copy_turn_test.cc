// Copies of an engine's turn, in time that passes when it is looked at: a piece takes a fifth of
// the turn. What is small, or has its turn, is copied at once; the rest goes on by turns.

#include "transport/shm/copy_turn.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "core/clock.h"
#include "transport/mapped_memory.h"
#include "transport/shm/copy_ways.h"
#include "transport/shm/old_mappings.h"
#include "transport/shm/testing/shm_pair.h"
#include "transport/testing/endpoint.h"

namespace weft {
namespace {

constexpr uint64_t kPieceNs = CopyTurn::kMostNs / 5;
constexpr uint64_t kPieceBytes = CopyTurn::kPieceBytes;
constexpr uint64_t kTurnBytes = 5 * kPieceBytes;

class CopyTurnTest : public ShmDomainTest {
 protected:
  static constexpr uint64_t kBytes = 6 << 20;
  static constexpr std::byte kNew{7};

  explicit CopyTurnTest(const CopyWays& ways = {}) : ShmDomainTest(1024, ways, Ticking()) {}

  // Looked at before and behind each piece.
  static const Clock& Ticking() {
    static const FakeClock clock(kNsPerSec, /*step_ns=*/kPieceNs);
    return clock;
  }

  // b's memory, which a reaches, and a's own.
  struct Place {
    MappedMemory there;
    std::unique_ptr<Region> remote;
    std::vector<std::byte> here;
    std::unique_ptr<Region> local;
  };
  Place NewPlace() {
    MappedMemoryOptions options;
    options.source = MappedMemoryOptions::Source::kMemfd;
    options.huge_pages = MappedMemoryOptions::HugePages::kNever;
    Place place{MappedMemory::Map(kBytes, options).value(), nullptr,
                std::vector<std::byte>(kBytes, kNew), nullptr};
    place.remote = b_.domain->Register(place.there.bytes(), Access::kRemoteReadWrite).value();
    place.local = a_.domain->Register(MutableByteSpan(place.here), Access::kLocalOnly).value();
    return place;
  }
  // How much of what was written is there.
  static uint64_t WrittenBytes(const Place& place) {
    constexpr size_t kBlock = 4096;
    uint64_t written = 0;
    for (size_t at = 0; at < kBytes; at += kBlock) {
      const std::byte* const there = place.there.bytes().data() + at;
      const bool all = std::memcmp(there, place.here.data(), kBlock) == 0;
      written += all ? kBlock : static_cast<uint64_t>(std::count(there, there + kBlock, kNew));
    }
    return written;
  }
  static Posted Write(End& end, const Place& place, uint64_t offset, uint64_t bytes,
                      Operation* op) {
    const Transfer transfer = {place.local.get(), offset,
                               place.remote->remote().Slice(offset, bytes)};
    return end.link->Post(TransferKind::kWrite, {&transfer, 1}, op).value();
  }
};

TEST_F(CopyTurnTest, WhatTheTurnHasTimeForIsCopiedAtOnceAndTheRestGoesOn) {
  End a, b;
  Open(a, b);
  const Place place = NewPlace();
  TestOperation op;
  a_.domain->Poll(64);
  EXPECT_EQ(Write(a, place, 0, kTurnBytes, &op), Posted::kDone);
  a_.domain->Poll(64);
  EXPECT_EQ(Write(a, place, kTurnBytes, 3 * kTurnBytes, &op), Posted::kPending);
  EXPECT_EQ(WrittenBytes(place), 2 * kTurnBytes);
  EXPECT_FALSE(a_.domain->Arm()) << "nobody sleeps over it";
  EXPECT_EQ(a_.domain->Poll(64), 1);
  EXPECT_EQ(WrittenBytes(place), 3 * kTurnBytes);
  EXPECT_EQ(op.completions, 0);
  a_.domain->Poll(64);
  EXPECT_EQ(WrittenBytes(place), 4 * kTurnBytes);
  a_.domain->Poll(64);
  EXPECT_EQ(op.completions, 1);
  EXPECT_TRUE(op.result.ok()) << op.result;
  EXPECT_TRUE(a_.domain->Arm());
}

// Three that have more than a turn's worth share the turns.
TEST_F(CopyTurnTest, LinksHaveTheirTurnsOneAfterTheOther) {
  End a[3], b[3];
  std::vector<Place> places;
  TestOperation ops[3];
  for (size_t i = 0; i < 3; ++i) {
    Open(a[i], b[i]);
    places.push_back(NewPlace());
  }
  const auto progress = [&] {
    uint64_t least = kBytes, most = 0, all = 0;
    for (const Place& place : places) {
      const uint64_t bytes = WrittenBytes(place);
      least = std::min(least, bytes);
      most = std::max(most, bytes);
      all += bytes;
    }
    EXPECT_LE(most - least, 2 * kTurnBytes) << "a turn, and what was copied at once";
    return all;
  };
  a_.domain->Poll(64);
  for (size_t i = 0; i < 3; ++i)
    EXPECT_EQ(Write(a[i], places[i], 0, kBytes, &ops[i]), Posted::kPending);
  uint64_t before = progress();
  EXPECT_EQ(before, kTurnBytes);
  while (before < 3 * kBytes) {
    a_.domain->Poll(64);
    const uint64_t now = progress();
    ASSERT_GT(now, before);
    ASSERT_LE(now - before, kTurnBytes);
    before = now;
  }
  EXPECT_TRUE(Run([&] {
    return ops[0].completions == 1 && ops[1].completions == 1 && ops[2].completions == 1;
  }));
}

// Who hears of the end of his copy and asks for the next one does not come before who waits.
TEST_F(CopyTurnTest, WhoAsksAgainWaitsBehindWhoWaits) {
  struct Again final : Operation {
    void OnComplete(const absl::Status&) override { post(); }
    std::function<void()> post;
  } again;
  End a[2], b[2];
  const Place mine = NewPlace(), yours = NewPlace();
  for (size_t i = 0; i < 2; ++i) Open(a[i], b[i]);
  again.post = [&] { EXPECT_EQ(Write(a[0], mine, 0, 2 * kTurnBytes, &again), Posted::kPending); };
  a_.domain->Poll(64);
  again.post();
  TestOperation op;
  EXPECT_EQ(Write(a[1], yours, 0, kTurnBytes, &op), Posted::kPending);
  for (int turn = 0; turn < 3; ++turn) a_.domain->Poll(64);
  EXPECT_EQ(op.completions, 1);
  again.post = [] {};
  a[0].link.reset();
}

TEST_F(CopyTurnTest, SmallOnesWaitForNobody) {
  End a[2], b[2];
  const Place large = NewPlace();
  for (size_t i = 0; i < 2; ++i) Open(a[i], b[i]);
  TestOperation op;
  a_.domain->Poll(64);
  EXPECT_EQ(Write(a[0], large, 0, kBytes, &op), Posted::kPending);
  constexpr uint64_t kSmall = CopyTurn::kSmallBytes;
  for (size_t i = 0; i < 2; ++i) {
    const Place small = NewPlace();
    EXPECT_EQ(Write(a[i], small, 0, kSmall, &op), Posted::kDone);
    const RemoteSpan there = small.remote->remote().Slice(kSmall, kSmall);
    const MutableByteSpan here = small.local->memory().first(kSmall);
    EXPECT_TRUE(a[i].link->MoveNow(TransferKind::kWrite, here, there));
    EXPECT_EQ(WrittenBytes(small), 2 * kSmall);
    const MutableByteSpan more = small.local->memory().first(kSmall + 1);
    EXPECT_FALSE(a[i].link->MoveNow(TransferKind::kWrite, more,
                                    small.remote->remote().Slice(0, kSmall + 1)));
  }
  EXPECT_TRUE(Run([&] { return op.completions == 1; }));
}

TEST_F(CopyTurnTest, WhatMovesNowTakesTheTurnsTime) {
  End a, b;
  Open(a, b);
  const Place place = NewPlace();
  a_.domain->Poll(64);
  const auto move = [&](uint64_t bytes) {
    return a.link->MoveNow(TransferKind::kWrite, place.local->memory().first(bytes),
                           place.remote->remote().Slice(0, bytes));
  };
  EXPECT_FALSE(move(kPieceBytes + 1)) << "it has no turn to go on in";
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(move(kPieceBytes));
  EXPECT_FALSE(move(kPieceBytes));
  a_.domain->Poll(64);
  EXPECT_TRUE(move(kPieceBytes));
}

// Of a batch some are copied, one in part, and some not at all when the turn is over.
TEST_F(CopyTurnTest, ABatchGoesOnWhereItStood) {
  End a, b;
  Open(a, b);
  const Place place = NewPlace();
  std::vector<Transfer> transfers;
  uint64_t offset = 0;
  for (const uint64_t bytes :
       {kPieceBytes, uint64_t{1}, 2 * kPieceBytes, kTurnBytes, uint64_t{3}}) {
    transfers.push_back({place.local.get(), offset, place.remote->remote().Slice(offset, bytes)});
    offset += bytes;
  }
  TestOperation op;
  a_.domain->Poll(64);
  EXPECT_EQ(a.link->Post(TransferKind::kWrite, transfers, &op).value(), Posted::kPending);
  EXPECT_EQ(WrittenBytes(place), kTurnBytes);
  ASSERT_TRUE(Run([&] { return op.completions > 0; }));
  EXPECT_TRUE(op.result.ok()) << op.result;
  EXPECT_EQ(WrittenBytes(place), offset);
  for (int turn = 0; turn < 5; ++turn) a_.domain->Poll(64);
  EXPECT_EQ(op.completions, 1);
}

TEST_F(CopyTurnTest, ABatchThatIsSentBehindAWriteArrivesBehindIt) {
  End a, b;
  Open(a, b);
  const Place place = NewPlace();
  TestOperation op;
  a_.domain->Poll(64);
  EXPECT_EQ(Write(a, place, 0, kBytes, &op), Posted::kPending);
  ASSERT_TRUE(a_.Send(a, "it is written").ok());
  ASSERT_TRUE(Run([&] { return !b_.received.empty(); }));
  EXPECT_EQ(WrittenBytes(place), kBytes);
  EXPECT_TRUE(Run([&] { return op.completions == 1; }));
}

// Some copied, the region closed, and a turn later its owner has other things there.
TEST_F(CopyTurnTest, WhoseRegionIsClosedBetweenTwoTurnsIsRefused) {
  End a, b;
  Open(a, b);
  Place place = NewPlace();
  TestOperation op;
  a_.domain->Poll(64);
  EXPECT_EQ(Write(a, place, 0, kBytes, &op), Posted::kPending);
  place.remote.reset();
  const uint64_t before = WrittenBytes(place);
  ASSERT_TRUE(Run([&] { return op.completions == 1; }));
  EXPECT_TRUE(absl::IsPermissionDenied(op.result)) << op.result;
  EXPECT_EQ(WrittenBytes(place), before);
}

TEST_F(CopyTurnTest, ALinkMayCloseWhileItAwaitsItsTurn) {
  End a[2], b[2];
  const Place places[] = {NewPlace(), NewPlace()};
  TestOperation ops[2];
  for (size_t i = 0; i < 2; ++i) Open(a[i], b[i]);
  a_.domain->Poll(64);
  for (size_t i = 0; i < 2; ++i) Write(a[i], places[i], 0, kBytes, &ops[i]);
  a[0].link.reset();
  EXPECT_EQ(ops[0].completions, 1);
  EXPECT_FALSE(ops[0].result.ok());
  ASSERT_TRUE(Run([&] { return ops[1].completions == 1; }));
  EXPECT_TRUE(ops[1].result.ok()) << ops[1].result;
  EXPECT_EQ(ops[0].completions, 1);
}

// A client with gigabytes mapped left, and its server stood still while it unmapped them.
TEST_F(CopyTurnTest, WhatALinkHadMappedIsUnmappedByTurns) {
  constexpr uint64_t kMapped = 12 * OldMappings::kPieceBytes;
  End a, b;
  Open(a, b);
  MappedMemoryOptions options;
  options.source = MappedMemoryOptions::Source::kMemfd;
  options.huge_pages = MappedMemoryOptions::HugePages::kNever;
  const MappedMemory there = MappedMemory::Map(kMapped, options).value();
  const auto remote = b_.domain->Register(there.bytes(), Access::kRemoteReadWrite).value();
  std::vector<std::byte> here(64);
  ASSERT_TRUE(a.link->MoveNow(TransferKind::kRead, MutableByteSpan(here),
                              remote->remote().Slice(0, here.size())));
  a.link.reset();
  int turns = 0;
  for (; !a_.domain->Arm(); ++turns) EXPECT_GT(a_.domain->Poll(64), 0) << "an idle engine waits";
  EXPECT_GE(turns, 12) << "a piece in each";
}

class UnmappedTurnTest : public CopyTurnTest {
 protected:
  UnmappedTurnTest() : CopyTurnTest({.mappings = false}) {}
};

// By system calls: the same pieces and turns.
TEST_F(UnmappedTurnTest, MemoryThatIsNotMappedIsCopiedByTurns) {
  End a, b;
  Open(a, b);
  const Place place = NewPlace();
  TestOperation op;
  a_.domain->Poll(64);
  EXPECT_EQ(Write(a, place, 0, kBytes, &op), Posted::kPending);
  uint64_t before = WrittenBytes(place);
  EXPECT_LE(before, kTurnBytes);
  while (before < kBytes) {
    a_.domain->Poll(64);
    const uint64_t now = WrittenBytes(place);
    ASSERT_TRUE(now > before && now - before <= kTurnBytes) << before << " " << now;
    before = now;
  }
  EXPECT_TRUE(Run([&] { return op.completions == 1; }));
}

}  // namespace
}  // namespace weft
