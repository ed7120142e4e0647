#include "transport/framing/large_sender.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/clock.h"
#include "core/timer_wheel.h"
#include "transport/framing/testing/parts_test.h"

namespace weft {
namespace {

// Says of each region whether closing it reclaims; if not, it is reclaimed by the test.
class LargeSenderTest : public testing::Test, private LargeSender::Host {
 protected:
  LargeSenderTest() { sender_.Start(&framing_, /*client=*/0); }
  ~LargeSenderTest() override {
    sender_.Stop();
    EXPECT_EQ(framing_.send_pool().in_use_bytes(), 0u);
  }

  // Where the message is, until it is reclaimed.
  const std::byte* Send() {
    std::byte* const data = sender_.Reserve(kBytes);
    if (data != nullptr) {
      EXPECT_TRUE(sender_.Commit(kBytes).ok());
    }
    return data;
  }
  bool Done(uint64_t id) { return sender_.OnDone({id, 0}); }
  void Reclaimed(size_t index) { pinned_[index]->OnComplete(absl::OkStatus()); }

  void Pass(uint64_t ns) {
    clock_.Advance(ns);
    timers_.Advance(clock_.NowNs());
  }

  static constexpr size_t kBytes = 100'000;
  static constexpr uint64_t kTimeoutNs = kNsPerSec;

  FakeDomain domain_;
  FramingDomain framing_{&domain_};
  FakeClock clock_;
  TimerWheel timers_{clock_.NowNs()};
  LargeSender sender_{this, {&clock_, &timers_, kTimeoutNs}};
  absl::Status overdue_;
  absl::Status failed_;
  bool closing_reclaims_ = false;
  std::vector<Operation*> pinned_;
  int told_ = 0;

 private:
  bool ReclaimLarge(std::unique_ptr<Region> region, Operation* op) override {
    EXPECT_NE(region, nullptr);
    if (!closing_reclaims_) pinned_.push_back(op);
    return closing_reclaims_;
  }
  void OnOfferFailed(const absl::Status& why) override { failed_ = why; }
  void OnLargeReclaimed() override { ++told_; }
  void OnOfferOverdue(const absl::Status& why) override { overdue_ = why; }
};

// A peer said "done" in the middle of its read, and went on reading: what it got was the next
// message, of whomever that was.
TEST_F(LargeSenderTest, ABufferThatMayStillBeReadIsNotUsedAgain) {
  const std::byte* const first = Send();
  ASSERT_TRUE(Done(0));
  EXPECT_NE(Send(), first);
  EXPECT_GE(framing_.send_pool().in_use_bytes(), 2 * kBytes);
  Reclaimed(0);
  EXPECT_EQ(told_, 1);
  EXPECT_EQ(Send(), first);
}

TEST_F(LargeSenderTest, WhereClosingReclaimsABufferIsUsedAgainAtOnce) {
  closing_reclaims_ = true;
  const std::byte* const first = Send();
  ASSERT_TRUE(Done(0));
  EXPECT_EQ(Send(), first);
}

TEST_F(LargeSenderTest, WhatIsNotReclaimedTakesRoom) {
  for (uint64_t id = 0; id < kLargeOutstanding; ++id) {
    ASSERT_NE(Send(), nullptr);
    ASSERT_TRUE(Done(id));
  }
  EXPECT_EQ(sender_.outstanding(), 0u);
  EXPECT_TRUE(sender_.full());
  EXPECT_EQ(Send(), nullptr);
  Reclaimed(0);
  EXPECT_NE(Send(), nullptr);
  EXPECT_TRUE(sender_.full());
}

TEST_F(LargeSenderTest, DonesAreForTheOldestThatIsOffered) {
  EXPECT_FALSE(Done(0));
  Send();
  Send();
  EXPECT_FALSE(Done(1));
  EXPECT_TRUE(Done(0));
  EXPECT_FALSE(Done(0));
  EXPECT_TRUE(Done(1));
}

// The end of the connection reclaims all: what is told afterwards finds nothing to do.
TEST_F(LargeSenderTest, TheEndGivesBackWhatIsPinned) {
  Send();
  Send();
  ASSERT_TRUE(Done(0));
  sender_.Stop();
  EXPECT_EQ(framing_.send_pool().in_use_bytes(), 0u);
  Reclaimed(0);
  EXPECT_EQ(told_, 0);
}

// Whose peer took nothing, and answered heartbeats, had a part of the pool for ever.
TEST_F(LargeSenderTest, APeerThatTakesNothingHasItsTimeAndNoMore) {
  const uint64_t most_ns = LargePatience::kTimesForOffers * kTimeoutNs;
  closing_reclaims_ = true;
  Send();
  Pass(most_ns - kNsPerMs);
  Send();
  ASSERT_TRUE(Done(0));
  Pass(most_ns - kNsPerMs);
  EXPECT_TRUE(overdue_.ok()) << "it has taken one meanwhile: " << overdue_;
  ASSERT_TRUE(Done(1));
  Pass(2 * most_ns);
  EXPECT_TRUE(overdue_.ok()) << "nothing is under way: " << overdue_;
  Send();
  Pass(most_ns + kNsPerMs);
  EXPECT_TRUE(absl::IsUnavailable(overdue_)) << overdue_;
}

// Sixteen messages of 64 MiB for one peer left nothing for the others.
TEST_F(LargeSenderTest, OneConnectionHasAQuarterOfThePoolOrOneMessage) {
  constexpr size_t kMiB = size_t{1} << 20;
  for (int i = 0; i < 2; ++i) {
    ASSERT_NE(sender_.Reserve(32 * kMiB), nullptr);
    ASSERT_TRUE(sender_.Commit(32 * kMiB).ok());
  }
  EXPECT_EQ(sender_.Reserve(kMiB), nullptr);
  closing_reclaims_ = true;
  ASSERT_TRUE(Done(0));
  ASSERT_NE(sender_.Reserve(kMiB), nullptr);
  sender_.Abandon();
}

class SealedLargeSenderTest : public LargeSenderTest {
 protected:
  SealedLargeSenderTest() { sender_.Start(&framing_, /*client=*/0, &seal_); }

  std::byte* Commit() {
    std::byte* const data = sender_.Reserve(kBytes);
    sender_.CommitToSeal(kBytes);
    return data;
  }
  // The number of the next message that the peer is told of; none: -1.
  int Offer() {
    LargeOffer offer;
    ByteSpan tag;
    if (!sender_.NextOffer(&offer, &tag)) return -1;
    tag_.assign(tag.begin(), tag.end());
    sender_.SentOffer();
    return static_cast<int>(offer.id);
  }

  const LinkSecret secret_ = {};
  Seal seal_{Seal::Role::kEncrypts, secret_, "large", /*records_per_key=*/100};
  Seal peer_{Seal::Role::kDecrypts, secret_, "large", /*records_per_key=*/100};
  std::vector<std::byte> tag_;
};

TEST_F(SealedLargeSenderTest, PiecesOfAnyLengthMakeTheSameRecord) {
  for (const size_t piece : {size_t{1}, size_t{999}, kBytes - 1, kBytes}) {
    std::byte* const data = Commit();
    std::fill_n(data, kBytes, std::byte{'m'});
    if (piece == 1) sender_.SealNext(kBytes - 100);
    while (sender_.has_unsealed()) {
      EXPECT_EQ(Offer(), -1) << "it is not sealed whole";
      sender_.SealNext(piece);
    }
    ASSERT_GE(Offer(), 0);
    ASSERT_TRUE(peer_.Decrypt({}, ByteSpan(data, kBytes), tag_, data));
    EXPECT_EQ(data[0], std::byte{'m'});
    EXPECT_EQ(data[kBytes - 1], std::byte{'m'});
  }
}

TEST_F(SealedLargeSenderTest, WhatIsSealedAtOnceIsNoMoreThanWasAskedFor) {
  for (int i = 0; i < 3; ++i) Commit();
  sender_.SealNext(2 * kBytes - 1);
  EXPECT_EQ(Offer(), 0);
  EXPECT_EQ(Offer(), -1);
  sender_.SealNext(1);
  EXPECT_EQ(Offer(), 1);
  EXPECT_TRUE(sender_.has_unsealed());
}

TEST_F(SealedLargeSenderTest, APeerAnswersNothingThatItHasNotBeenToldOf) {
  Commit();
  EXPECT_FALSE(Done(0));
  sender_.SealNext(kBytes);
  EXPECT_FALSE(Done(0));
  ASSERT_EQ(Offer(), 0);
  EXPECT_TRUE(Done(0));
}

TEST_F(SealedLargeSenderTest, OneThatCannotBeRegisteredIsNotOfferedNorAreThoseBehindIt) {
  Commit();
  Commit();
  domain_.registered = absl::ResourceExhaustedError("no memory can be locked");
  sender_.SealNext(2 * kBytes);
  EXPECT_TRUE(absl::IsResourceExhausted(failed_)) << failed_;
  EXPECT_EQ(Offer(), -1);
}

// A peer that gives no credits could keep a message, and its part of the pool, for ever.
TEST_F(SealedLargeSenderTest, APeersTimeRunsWhileThereIsNoRoomForAnOffer) {
  Commit();
  Pass(2 * LargePatience::kTimesForOffers * kTimeoutNs);
  EXPECT_TRUE(overdue_.ok()) << "it is this side that has not sealed it: " << overdue_;
  sender_.SealNext(kBytes);
  Pass(LargePatience::kTimesForOffers * kTimeoutNs + kNsPerMs);
  EXPECT_TRUE(absl::IsUnavailable(overdue_)) << overdue_;
}

}  // namespace
}  // namespace weft
