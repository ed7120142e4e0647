#include "transport/framing/large_messages.h"

#include "transport/framing/testing/parts_test.h"

namespace weft {
namespace {

constexpr size_t kLargeBytes = 100'000;

class LargeMessagesTest : public PartsTest,
                          private LargeMessages::Host,
                          private FramedRemoteAccess::Host {
 protected:
  LargeMessagesTest() {
    Start();
    access_.Start(&framing_, &link_, /*peer_answers=*/true, /*peer_leases=*/false);
    large_.Start(&framing_, &link_);
  }
  void TearDown() override {
    large_.Cease();
    access_.Stop();
    large_.Stop();
    access_.End(absl::CancelledError("over"));
    EXPECT_EQ(framing_.send_pool().in_use_bytes(), 0u);
    EXPECT_EQ(framing_.receive_pool().in_use_bytes(), 0u);
    PartsTest::TearDown();
  }
  // As on a path where a read succeeds, whatever the peer has answered.
  void StartAgainOverOfiTcp() {
    large_.Cease();
    large_.Stop();
    links_.set_kind(PathKind::kOfiTcp);
    large_.Start(&framing_, &link_);
  }
  bool Offer(uint64_t id, uint64_t length) {
    std::byte payload[LargeOffer::kBytes];
    LargeOffer offer;
    offer.id = id;
    offer.length = length;
    offer.key = 7;
    EncodeLargeOffer(payload, offer);
    return large_.OnOffer({FrameKind::kLargeOffer, ByteSpan(payload)});
  }
  bool Done(uint64_t id) {
    std::byte payload[LargeDone::kBytes];
    EncodeLargeDone(payload, {id, 0});
    return large_.OnDone({FrameKind::kLargeDone, ByteSpan(payload)});
  }
  absl::Status SendLarge(size_t bytes = kLargeBytes) {
    EXPECT_NE(large_.Reserve(kLargeBytes), nullptr);
    return large_.Commit(bytes, &is_large_);
  }

  bool is_large_ = false;
  int advances_ = 0;
  int rooms_ = 0;
  std::vector<size_t> delivered_;
  std::vector<std::byte> last_;
  absl::Status failed_;
  FramedRemoteAccess access_{this, &sender_, nullptr, 16};
  LargeMessages large_{this, &sender_, &access_};

 private:
  void OnLargeMessage(ByteSpan message, uint64_t) override {
    delivered_.push_back(message.size());
    last_.assign(message.begin(), message.end());
  }
  void OnRoom() override { ++rooms_; }
  void AdvanceReadsSoon() override { ++advances_; }
  void OnLargeFailed(const absl::Status& why) override { failed_ = why; }
  void EndOverdueSoon() override {}
  void SendGrant(ByteSpan) override {}
  void Close(std::string_view) override {}
};

TEST_F(LargeMessagesTest, AMessageIsOfferedAndItsBufferFreeWhenThePeerHasIt) {
  ASSERT_TRUE(SendLarge().ok());
  EXPECT_TRUE(is_large_);
  sender_.Flush();
  EXPECT_EQ(link_.sent.size(), 1u);
  EXPECT_GE(framing_.send_pool().in_use_bytes(), kLargeBytes);
  EXPECT_TRUE(Done(0));
  EXPECT_EQ(framing_.send_pool().in_use_bytes(), 0u);
  EXPECT_GE(rooms_, 1);
  EXPECT_FALSE(Done(1)) << "nothing was offered";
}

TEST_F(LargeMessagesTest, WhatComesOutShortIsAnOrdinaryMessage) {
  ASSERT_TRUE(SendLarge(/*bytes=*/5).ok());
  EXPECT_FALSE(is_large_);
  sender_.Flush();
  ASSERT_EQ(link_.sent.size(), 1u);
  EXPECT_EQ(MessagesOf(0)[0].size(), 5u);
}

TEST_F(LargeMessagesTest, AnAbandonedOneLeavesNothing) {
  ASSERT_NE(large_.Reserve(kLargeBytes), nullptr);
  large_.Abandon();
  EXPECT_FALSE(large_.reserved());
  EXPECT_EQ(sender_.window().credits(), kWindow);
}

TEST_F(LargeMessagesTest, NoMoreThanTheLimitIsUnderWay) {
  for (uint32_t i = 0; i < kLargeOutstanding; ++i) ASSERT_TRUE(SendLarge().ok());
  EXPECT_EQ(large_.Reserve(kLargeBytes), nullptr);
}

TEST_F(LargeMessagesTest, AnOfferIsReadDeliveredAndAnswered) {
  ASSERT_TRUE(Offer(0, kLargeBytes));
  ASSERT_EQ(link_.posted.size(), 1u);
  link_.posted[0]->OnComplete(absl::OkStatus());
  EXPECT_EQ(delivered_, std::vector<size_t>{kLargeBytes});
  EXPECT_TRUE(large_.has_done());
  large_.AppendDones();
  EXPECT_FALSE(large_.has_done());
}

// Its message would come from inside the batch that offers it.
TEST_F(LargeMessagesTest, AReadThatIsDoneAtOnceIsDeliveredLater) {
  link_.result = Posted::kDone;
  ASSERT_TRUE(Offer(0, kLargeBytes));
  ASSERT_TRUE(Offer(1, kLargeBytes + 1));
  EXPECT_TRUE(delivered_.empty());
  EXPECT_GE(advances_, 1);
  large_.AdvanceReads();
  EXPECT_EQ(delivered_, (std::vector<size_t>{kLargeBytes, kLargeBytes + 1}));
}

TEST_F(LargeMessagesTest, OffersAgainstTheRulesAreRefused) {
  EXPECT_FALSE(Offer(1, kLargeBytes)) << "out of order";
  EXPECT_FALSE(Offer(0, 0));
  EXPECT_FALSE(Offer(0, kMaxMessageBytes + 1));
}

// libfabric's tcp takes an answer that is shorter than what was asked for as the whole: the message
// was delivered with what its buffer had held before, which may have been another client's.
TEST_F(LargeMessagesTest, WhatAnAnswerLeavesOutIsNotWhatTheBufferHadBefore) {
  StartAgainOverOfiTcp();
  for (uint64_t id : {0, 1}) {
    ASSERT_TRUE(Offer(id, kLargeBytes));
    if (id == 0) std::fill(link_.reads[0].begin(), link_.reads[0].end(), std::byte{7});
    link_.posted[id]->OnComplete(absl::OkStatus());
  }
  ASSERT_EQ(link_.reads[0].data(), link_.reads[1].data()) << "the same buffer";
  EXPECT_EQ(last_, std::vector<std::byte>(kLargeBytes));
}

TEST_F(LargeMessagesTest, AReadThatFailsEndsTheConnection) {
  ASSERT_TRUE(Offer(0, kLargeBytes));
  link_.posted[0]->OnComplete(absl::UnavailableError("gone"));
  EXPECT_TRUE(absl::IsUnavailable(failed_));
  EXPECT_TRUE(delivered_.empty());
}

}  // namespace
}  // namespace weft
