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

// Links of a, by each of which it writes to memory of b's.
class TcpTurnTest : public testing::Test {
 protected:
  static constexpr size_t kLinks = 4;
  static constexpr size_t kBytes = size_t{1} << 20;

  struct Transfer {
    std::vector<std::byte> from = std::vector<std::byte>(kBytes, std::byte{1});
    std::vector<std::byte> to = std::vector<std::byte>(kBytes);
    std::unique_ptr<Region> local, remote;
    CountedOperation write;
    LinkEnd here, there;  // go first

    // In order, but for a piece or two at the end.
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
  void Begin(Transfer& transfer) {
    ASSERT_TRUE(
        Write(*transfer.here.link, *transfer.local, 0, transfer.remote->remote(), &transfer.write)
            .ok());
  }
  // What has left a in its turns so far.
  uint64_t Moved() {
    while (b_.domain->Poll(64) > 0 || b_.IsReadable()) {
    }
    uint64_t moved = 0;
    for (const Transfer& transfer : transfers_) moved += transfer.moved();
    return moved;
  }

  // In a turn, and on top of it what one link moves at a time.
  static constexpr uint64_t kMostInATurn = TcpTurn::kMostBytes + TcpTurn::kSharedBytes;

  TcpSide a_, b_;
  Transfer transfers_[kLinks];
};

// Each of them moved up to 1 MiB at the beginning of a turn, and again at its end: with six clients
// that read much a turn took 2 to 9 ms, and each small call waited for it.
TEST_F(TcpTurnTest, TransfersOfManyLinksShareATurnAndAllComeToTheirs) {
  for (Transfer& transfer : transfers_) Begin(transfer);
  uint64_t before = Moved();
  EXPECT_LE(before, kMostInATurn);
  for (size_t turn = 0; turn < kLinks; ++turn) {
    a_.domain->Poll(64);
    const uint64_t now = Moved();
    EXPECT_LE(now - before, kMostInATurn);
    before = now;
  }
  for (const Transfer& transfer : transfers_) EXPECT_GT(transfer.moved(), 0u);
  ASSERT_TRUE(TcpRunUntil({&a_, &b_}, [&] {
    return std::all_of(std::begin(transfers_), std::end(transfers_),
                       [](const Transfer& transfer) { return transfer.write.completions == 1; });
  }));
  for (const Transfer& transfer : transfers_) {
    EXPECT_TRUE(transfer.write.status.ok()) << transfer.write.status;
    EXPECT_EQ(transfer.to, transfer.from);
  }
}

TEST_F(TcpTurnTest, ABatchDoesNotWaitForTheTransfersOfOthers) {
  for (size_t i = 1; i < kLinks; ++i) Begin(transfers_[i]);
  ASSERT_TRUE(a_.Send(transfers_[0].here, "a small call").ok());
  EXPECT_LE(Moved(), kMostInATurn);
  EXPECT_EQ(b_.received, std::vector<std::string>{"a small call"});
}

TEST_F(TcpTurnTest, WhatArrivesByManyLinksIsTakenInTurns) {
  for (Transfer& transfer : transfers_) Begin(transfer);
  for (size_t turn = 0; turn < 2 * kLinks; ++turn) a_.domain->Poll(64);
  uint64_t before = 0;
  // A look at all links, and then what a turn takes of them.
  for (size_t turn = 0; turn < 2 * kLinks; ++turn) {
    b_.domain->Poll(64);
    uint64_t now = 0;
    for (const Transfer& transfer : transfers_) now += transfer.moved();
    EXPECT_LE(now - before, 2 * TcpTurn::kMostBytes) << "one reception more, of as much";
    before = now;
  }
  EXPECT_GT(before, 0u);
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
  for (int turn = 0; turn < 2; ++turn) b_.domain->Poll(64);
  EXPECT_EQ(std::count(b_.received.begin(), b_.received.end(), "a small call"), 1);
}

// Small messages alone could take all that a turn sends, turn after turn.
TEST_F(TcpTurnTest, ATransferGoesOnBesideManyBatches) {
  Begin(transfers_[0]);
  const std::string batch(8000, 'm');
  b_.on_received = [&] {
    for (size_t i = 1; i < kLinks; ++i) b_.Send(transfers_[i].there, batch).IgnoreError();
  };
  a_.on_received = [&] {
    for (size_t i = 1; i < kLinks; ++i) {
      while (a_.Send(transfers_[i].here, batch).ok()) {
      }
    }
  };
  a_.on_received();
  ASSERT_TRUE(TcpRunUntil({&a_, &b_}, [&] { return transfers_[0].write.completions == 1; }));
}

}  // namespace
}  // namespace weft
