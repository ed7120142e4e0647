// Large transfers of several links: what a turn moves of them, and who has the next one.

#include "transport/tcp/tcp_turn.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "transport/link.h"
#include "transport/tcp/testing/tcp_side.h"
#include "transport/testing/post.h"

namespace weft {
namespace {

TEST(TcpTurnOfLinksTest, ALinkIsAloneOnceItHasMovedMuchAndNoOtherAnything) {
  const int one = 1, other = 2;
  TcpTurn turn;
  EXPECT_EQ(turn.most_bytes(&one), TcpTurn::kSharedBytes);
  turn.OnSent(&one, TcpTurn::kAloneBytes - 1);
  EXPECT_EQ(turn.most_bytes(&one), TcpTurn::kSharedBytes);
  turn.OnReceived(&one, 1);
  EXPECT_EQ(turn.most_bytes(&one), TcpOutput::kMostPumpBytes);
  EXPECT_EQ(turn.most_bytes(&other), TcpTurn::kSharedBytes);
  turn.OnSent(&other, 0);  // which had nothing to send
  EXPECT_EQ(turn.most_bytes(&one), TcpOutput::kMostPumpBytes);
  turn.OnReceived(&other, 64);
  EXPECT_EQ(turn.most_bytes(&one), TcpTurn::kSharedBytes);
  turn.OnSent(&one, TcpTurn::kAloneBytes);
  EXPECT_EQ(turn.most_bytes(&one), TcpOutput::kMostPumpBytes);
  turn.Forget(&one);
  EXPECT_EQ(turn.most_bytes(&one), TcpTurn::kSharedBytes) << "another link, in its memory";
}

TEST(TcpTurnOfLinksTest, BothDirectionsOfATurnAreBounded) {
  const int link = 1;
  TcpTurn turn;
  turn.OnReceived(&link, TcpTurn::kMostBytes - 1);
  EXPECT_TRUE(turn.may_receive() && turn.may_send());
  turn.OnReceived(&link, 1);
  EXPECT_FALSE(turn.may_receive());
  EXPECT_TRUE(turn.may_send());
  turn.OnSent(&link, TcpTurn::kMostBytes);
  EXPECT_FALSE(turn.may_send());
  turn.Begin();
  EXPECT_TRUE(turn.may_receive() && turn.may_send());
}

// Links of a, by each of which it writes to memory of b's, or reads there.
class TcpTurnTest : public testing::Test {
 protected:
  static constexpr size_t kLinks = 6;
  static constexpr size_t kBytes = size_t{1} << 20;

  struct Transfer {
    std::vector<std::byte> from = std::vector<std::byte>(kBytes, std::byte{1});
    std::vector<std::byte> to = std::vector<std::byte>(kBytes);
    std::unique_ptr<Region> local, remote;
    CountedOperation operation;
    LinkEnd here, there;  // go first

    uint64_t moved() const {
      return static_cast<uint64_t>(std::count(to.begin(), to.end(), std::byte{1}));
    }
  };

  void SetUp() override {
    for (size_t i = 0; i < kLinks; ++i) {
      Transfer& transfer = transfers_[i];
      TcpLinkEnds(a_, transfer.here, b_, transfer.there, 17 + i);
      transfer.local = std::move(a_.domain->Register(transfer.from, Access::kLocalOnly)).value();
      transfer.remote =
          std::move(b_.domain->Register(transfer.to, Access::kRemoteReadWrite)).value();
    }
    a_.Poll();
  }
  void Begin(Transfer& transfer, TransferKind kind) {
    ASSERT_TRUE(Post(*transfer.here.link, kind,
                     {{transfer.local.get(), 0, transfer.remote->remote()}}, &transfer.operation)
                    .ok());
  }
  // All but `idle` of them; and a turn of a, which uses itself up.
  void BeginAndUseATurnUp(size_t idle, TransferKind kind = TransferKind::kWriteUnordered) {
    for (size_t i = idle; i < kLinks; ++i) Begin(transfers_[i], kind);
    a_.domain->Poll(64);
    ASSERT_GE(Moved(), TcpTurn::kMostBytes - kPieceBytes);
  }
  // What of transfers that write has left a so far.
  uint64_t Moved() {
    while (b_.domain->Poll(64) > 0 || b_.IsReadable()) {
    }
    uint64_t moved = 0;
    for (const Transfer& transfer : transfers_) moved += transfer.moved();
    return moved;
  }
  bool AreOver() const {
    return std::all_of(std::begin(transfers_), std::end(transfers_), [](const Transfer& transfer) {
      return transfer.operation.completions == 1;
    });
  }

  // In a turn, and on top of it what one link moves at a time.
  static constexpr uint64_t kMostInATurn = TcpTurn::kMostBytes + TcpTurn::kSharedBytes;

  TcpSide a_, b_;
  Transfer transfers_[kLinks];
};

// Each of them moved up to 1 MiB at the beginning of a turn, and again at its end: with six clients
// that read much a turn took 2 to 9 ms, and each small call waited for it.
TEST_F(TcpTurnTest, TransfersOfManyLinksShareATurnAndAllComeToTheirs) {
  for (size_t i = 0; i < kLinks; ++i) {
    Begin(transfers_[i], i % 2 == 0 ? TransferKind::kWrite : TransferKind::kWriteUnordered);
  }
  uint64_t before = Moved();
  EXPECT_EQ(before, 0u);
  for (size_t turn = 0; turn < kLinks; ++turn) {
    a_.domain->Poll(64);
    const uint64_t now = Moved();
    EXPECT_LE(now - before, kMostInATurn);
    before = now;
  }
  for (const Transfer& transfer : transfers_) EXPECT_GT(transfer.moved(), 0u);
  ASSERT_TRUE(TcpRunUntil({&a_, &b_}, [&] { return AreOver(); }));
  for (const Transfer& transfer : transfers_) {
    EXPECT_TRUE(transfer.operation.status.ok()) << transfer.operation.status;
    EXPECT_EQ(transfer.to, transfer.from);
  }
}

TEST_F(TcpTurnTest, ABatchDoesNotWaitForTransfersNeitherOthersNorItsOwnLinks) {
  BeginAndUseATurnUp(/*idle=*/1);
  const uint64_t before = Moved();
  ASSERT_TRUE(a_.Send(transfers_[0].here, "by a link with nothing else").ok());
  ASSERT_TRUE(a_.Send(transfers_[1].here, "by one with a transfer").ok());
  EXPECT_LE(Moved() - before, kPieceBytes) << "the rest of what had begun";
  EXPECT_EQ(b_.received,
            (std::vector<std::string>{"by a link with nothing else", "by one with a transfer"}));
}

// A batch behind a write that is in order may not overtake it: every batch pumped 128 KiB more of
// it.
TEST_F(TcpTurnTest, BatchesBehindWritesInOrderSendNoMoreOfThese) {
  BeginAndUseATurnUp(/*idle=*/0, TransferKind::kWrite);
  const uint64_t before = Moved();
  for (Transfer& transfer : transfers_) {
    while (a_.Send(transfer.here, "behind the write").ok()) {
    }
  }
  EXPECT_LE(Moved() - before, kLinks * kPieceBytes) << "the rest of what had begun";
  EXPECT_TRUE(b_.received.empty());
  ASSERT_TRUE(TcpRunUntil({&a_, &b_}, [&] { return AreOver(); }));
}

TEST_F(TcpTurnTest, ASmallReadDoesNotWaitForTheTransfersOfOthers) {
  BeginAndUseATurnUp(/*idle=*/1);
  std::vector<std::byte> place(64);
  const auto local = std::move(a_.domain->Register(place, Access::kLocalOnly)).value();
  CountedOperation read;
  RemoteSpan remote = transfers_[0].remote->remote();
  remote.length = place.size();
  ASSERT_TRUE(Read(*transfers_[0].here.link, *local, 0, remote, &read).ok());
  a_.domain->Poll(64);
  Moved();  // b answers
  a_.domain->Poll(64);
  EXPECT_EQ(read.completions, 1);
}

// Requests to read, ends and small answers of a link that has a transfer as well left in its turn
// only: behind a piece of every other link's transfer.
TEST_F(TcpTurnTest, ASmallReadDoesNotWaitForTheTransfersOfOthersWhereItsLinkHasOneToo) {
  BeginAndUseATurnUp(/*idle=*/0);
  // This one has had its turn, and is behind all others.
  Transfer& last = transfers_[0];
  std::vector<std::byte> place(64);
  const auto local = std::move(a_.domain->Register(place, Access::kLocalOnly)).value();
  CountedOperation read;
  RemoteSpan remote = last.remote->remote();
  remote.length = place.size();
  ASSERT_TRUE(Read(*last.here.link, *local, 0, remote, &read).ok());
  a_.domain->Poll(64);
  Moved();  // b answers
  a_.domain->Poll(64);
  EXPECT_EQ(read.completions, 1);
  ASSERT_TRUE(TcpRunUntil({&a_, &b_}, [&] { return AreOver() && read.completions == 1; }));
}

// A batch took two pieces of its own link's transfer along, before those whose turn it was: who
// calls for an answer in each turn had all that a turn sends, and the others one piece together.
TEST_F(TcpTurnTest, WhoSendsBatchesMovesNoMoreOfItsTransferThanOthersOfTheirs) {
  for (Transfer& transfer : transfers_) Begin(transfer, TransferKind::kWriteUnordered);
  a_.on_received = [this] {
    for (int i = 0; i < 3; ++i) a_.Send(transfers_[0].here, "an answer").IgnoreError();
  };
  for (int turn = 0; turn < 4; ++turn) {
    ASSERT_TRUE(b_.Send(transfers_[0].there, "a call").ok());
    a_.domain->Poll(64);
    Moved();
  }
  ASSERT_FALSE(a_.received.empty());
  uint64_t others = 0;  // the most of any of them
  for (size_t i = 1; i < kLinks; ++i) others = std::max(others, transfers_[i].moved());
  EXPECT_LE(transfers_[0].moved(), others + kPieceBytes);
  a_.on_received = nullptr;
  ASSERT_TRUE(TcpRunUntil({&a_, &b_}, [&] { return AreOver(); }));
}

TEST_F(TcpTurnTest, WhatArrivesByManyLinksIsTakenInTurns) {
  for (Transfer& transfer : transfers_) Begin(transfer, TransferKind::kWriteUnordered);
  for (size_t turn = 0; turn < 2 * kLinks; ++turn) a_.domain->Poll(64);
  const auto moved = [&] {
    uint64_t moved = 0;
    for (const Transfer& transfer : transfers_) moved += transfer.moved();
    return moved;
  };
  b_.domain->Poll(64);
  const uint64_t first = moved();
  // The likely link, and one more than a turn takes, each of a piece and little more.
  EXPECT_LE(first, TcpTurn::kMostBytes + 2 * (kPieceBytes + 1024));
  EXPECT_GT(Moved(), first) << "the kernel held no more than a turn takes";
}

// The link that is read first in each turn could bring all that a turn takes, turn after turn.
TEST_F(TcpTurnTest, ALinkThatBringsMuchKeepsNobodyElseOut) {
  const std::string batch(8000, 'm');
  const auto fill = [&] {
    while (a_.Send(transfers_[0].here, batch).ok()) {
    }
  };
  // Until the link is the likely one, and the kernel has much room for it.
  for (int round = 0; round < 500; ++round) {
    fill();
    a_.domain->Poll(64);
    b_.domain->Poll(64);
  }
  fill();
  b_.received.clear();
  ASSERT_TRUE(a_.Send(transfers_[1].here, "a small call").ok());
  for (int turn = 0; turn < 2; ++turn) b_.domain->Poll(64);  // one may be the other link's
  EXPECT_EQ(std::count(b_.received.begin(), b_.received.end(), "a small call"), 1);
  EXPECT_GE(b_.received.size() * batch.size(), TcpTurn::kMostBytes / 2)
      << "the other link has not brought what the test is about";
}

}  // namespace
}  // namespace weft
