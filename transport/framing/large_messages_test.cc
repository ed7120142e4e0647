#include "transport/framing/large_messages.h"

#include <functional>

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
    access_.Start(&framing_, &link_, Agreement());
    large_.Start(&framing_, &link_, /*client=*/0);
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
    large_.Start(&framing_, &link_, /*client=*/0);
  }
  bool Offer(uint64_t id, uint64_t length, uint64_t offset = 0) {
    return OfferTo(large_, id, length, offset);
  }
  bool OfferTo(LargeMessages& to, uint64_t id, uint64_t length, uint64_t offset = 0) {
    std::byte payload[LargeOffer::kBytes];
    LargeOffer offer;
    offer.id = id;
    offer.length = length;
    offer.key = 7;
    offer.offset = offset;
    EncodeLargeOffer(payload, offer);
    return to.OnOffer({FrameKind::kLargeOffer, ByteSpan(payload)});
  }
  // A message for each connection has come, that for `large_` first.
  void BringOneToEach() {
    another_.Start(&framing_, &link_, /*client=*/1);
    ASSERT_TRUE(Offer(0, kLargeBytes));
    ASSERT_TRUE(OfferTo(another_, 0, kLargeBytes + 1));
    for (Operation* const read : link_.posted) read->OnComplete(absl::OkStatus());
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

  void LineTurn(LargeMessages& large) {
    ++turn_;
    large.OnLineTurn();
  }

  bool is_large_ = false;
  std::function<void()> on_delivered_;
  int advances_ = 0;
  int rooms_ = 0;
  int line_turns_ = 0;  // asked for
  uint64_t turn_ = 0;
  std::vector<size_t> delivered_;
  std::vector<std::byte> last_;
  absl::Status failed_;
  FramedRemoteAccess access_{this, &sender_, nullptr, 16};
  LargeMessages large_{this, &sender_, &access_};
  LargeMessages another_{this, &sender_, &access_};  // of another connection; not started

 private:
  void OnLargeMessage(ByteSpan message, uint64_t) override {
    delivered_.push_back(message.size());
    last_.assign(message.begin(), message.end());
    if (on_delivered_) on_delivered_();
  }
  void OnRoom() override { ++rooms_; }
  void AdvanceReadsSoon() override { ++advances_; }
  void LineTurnSoon() override { ++line_turns_; }
  uint64_t Turn() const override { return turn_; }
  void OnLargeFailed(const absl::Status& why) override {
    failed_ = why;
    sender_.Shut();  // as a connection does
  }
  void EndOverdueSoon() override {}
  uint64_t client() const override { return 0; }
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

// Reads that began together end together: the handlers of ten messages ran in one turn, 3 ms.
TEST_F(LargeMessagesTest, WhatHasComeTogetherIsDeliveredInTurns) {
  constexpr size_t kMessages = 4;
  for (uint64_t id = 0; id < kMessages; ++id) ASSERT_TRUE(Offer(id, kLargePieceBytes));
  for (Operation* const read : link_.posted) read->OnComplete(absl::OkStatus());
  EXPECT_EQ(delivered_.size(), 1u);
  for (size_t turn = 1; turn < kMessages; ++turn) {
    EXPECT_EQ(line_turns_, static_cast<int>(turn));
    large_.AdvanceReads();  // which is not its turn
    EXPECT_EQ(delivered_.size(), turn);
    LineTurn(large_);
    EXPECT_EQ(delivered_.size(), turn + 1);
  }
  EXPECT_EQ(line_turns_, static_cast<int>(kMessages) - 1) << "it has left the line";
  ++turn_;
  ASSERT_TRUE(Offer(kMessages, kLargePieceBytes));
  link_.posted.back()->OnComplete(absl::OkStatus());
  EXPECT_EQ(delivered_.size(), kMessages + 1) << "while the line is empty nobody waits";
}

TEST_F(LargeMessagesTest, WhatHasComeByTwoConnectionsIsDeliveredInTurns) {
  BringOneToEach();
  EXPECT_EQ(delivered_, std::vector<size_t>{kLargeBytes});
  LineTurn(another_);  // which is not its turn
  EXPECT_EQ(delivered_.size(), 1u);
  LineTurn(large_);
  LineTurn(another_);
  EXPECT_EQ(delivered_, (std::vector<size_t>{kLargeBytes, kLargeBytes + 1}));
  another_.Cease();
  another_.Stop();
}

// Connections whose handlers close them (for what they were sent makes no sense, or their seal is
// broken) each found the line empty, one behind the other in one turn.
TEST_F(LargeMessagesTest, WhoIsClosedByItsMessageMakesNoRoomForAnotherInTheSameTurn) {
  on_delivered_ = [this] { large_.LeaveLine(); };  // as a connection that closes
  BringOneToEach();
  EXPECT_EQ(delivered_, std::vector<size_t>{kLargeBytes});
  another_.OnLineTurn();
  EXPECT_EQ(delivered_.size(), 1u) << "in the same turn";
  LineTurn(another_);
  EXPECT_EQ(delivered_.size(), 2u);
  another_.Cease();
  another_.Stop();
}

// What a read copies as it is posted takes this turn's time.
TEST_F(LargeMessagesTest, CopiesAreMadeAPieceAtATime) {
  link_.result = Posted::kDone;
  for (uint64_t id = 0; id < 3; ++id) ASSERT_TRUE(Offer(id, kLargePieceBytes));
  EXPECT_EQ(advances_, 1) << "the others are not read yet";
  large_.AdvanceReads();
  EXPECT_EQ(delivered_.size(), 1u);
  EXPECT_EQ(advances_, 2);
  large_.AdvanceReads();
  EXPECT_EQ(delivered_.size(), 1u) << "it is not its turn";
  LineTurn(large_);
  LineTurn(large_);
  EXPECT_EQ(delivered_.size(), 3u);
}

TEST_F(LargeMessagesTest, WhatIsNotMuchIsDeliveredInOneTurn) {
  for (uint64_t id = 0; id < 3; ++id) ASSERT_TRUE(Offer(id, kLargePieceBytes / 2));
  for (const uint64_t id : {1, 2, 0}) link_.posted[id]->OnComplete(absl::OkStatus());
  EXPECT_EQ(delivered_.size(), 2u);
  LineTurn(large_);
  EXPECT_EQ(delivered_.size(), 3u);
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
  EXPECT_TRUE(large_.has_due());
  large_.AppendDue();
  EXPECT_FALSE(large_.has_due());
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

// Such a read went to the provider, which knows nothing of spans that only engines touch.
TEST_F(LargeMessagesTest, AnOfferInMemoryThatOnlyEnginesTouchIsRefused) {
  EXPECT_FALSE(Offer(0, kLargeBytes, kSealedOffset));
  EXPECT_FALSE(Offer(0, kLargeBytes, ~uint64_t{0})) << "and ends beyond all memory";
  EXPECT_TRUE(link_.posted.empty());
  EXPECT_TRUE(Offer(0, kLargeBytes, kSealedOffset - 1));
}

// libfabric's tcp takes an answer that is shorter than what was asked for as the whole: the message
// was delivered with what its buffer had held before, which may have been another client's.
TEST_F(LargeMessagesTest, WhatAnAnswerLeavesOutIsNotWhatTheBufferHadBefore) {
  StartAgainOverOfiTcp();
  for (uint64_t id : {0, 1}) {
    ASSERT_TRUE(Offer(id, kLargeBytes));
    if (id == 0) std::fill(link_.reads[0].begin(), link_.reads[0].end(), std::byte{7});
    link_.posted[id]->OnComplete(absl::OkStatus());
    LineTurn(large_);
  }
  ASSERT_EQ(link_.reads[0].data(), link_.reads[1].data()) << "the same buffer";
  EXPECT_EQ(last_, std::vector<std::byte>(kLargeBytes));
  // And of another client's connection.
  std::fill(link_.reads[1].begin(), link_.reads[1].end(), std::byte{7});
  another_.Start(&framing_, &link_, /*client=*/1);
  ASSERT_TRUE(OfferTo(another_, 0, kLargeBytes));
  link_.posted[2]->OnComplete(absl::OkStatus());
  ASSERT_EQ(link_.reads[1].data(), link_.reads[2].data()) << "the same buffer still";
  EXPECT_EQ(last_, std::vector<std::byte>(kLargeBytes));
  another_.Cease();
  another_.Stop();
}

TEST_F(LargeMessagesTest, AReadThatFailsEndsTheConnection) {
  ASSERT_TRUE(Offer(0, kLargeBytes));
  link_.posted[0]->OnComplete(absl::UnavailableError("gone"));
  EXPECT_TRUE(absl::IsUnavailable(failed_));
  EXPECT_TRUE(delivered_.empty());
}

class SealedLargeMessagesTest : public LargeMessagesTest {
 protected:
  SealedLargeMessagesTest() {
    sender_.Shut();
    sender_.Stop();
    Start(&*own_.batches_out);
    large_.Cease();
    large_.Stop();
    links_.set_kind(PathKind::kVerbs);
    large_.Start(&framing_, &link_, /*client=*/0, &own_);
  }
  bool AppendDue() override {
    large_.AppendDue();
    return large_.has_due();
  }

  // The peer's offer of 'p's, sealed to where it is read from.
  bool OfferSealed(uint64_t id, size_t bytes = kLargeBytes) {
    std::vector<std::byte> message(bytes, std::byte{'p'});
    std::byte payload[LargeOffer::kSealedBytes];
    EncodeLargeOffer(payload, {id, 7, 0, bytes});
    peer_.large_out.Encrypt({}, message, message.data(), &payload[LargeOffer::kBytes]);
    if (!large_.OnOffer({FrameKind::kLargeOffer, ByteSpan(payload)})) return false;
    std::copy(message.begin(), message.end(), link_.reads[id].begin());
    return true;
  }

  const LinkSecret secret_ = {};
  ConnectionSeal own_{secret_, /*dialled=*/true};
  ConnectionSeal peer_{secret_, /*dialled=*/false};
};

TEST_F(SealedLargeMessagesTest, AMessageIsCiphertextBeforeItsOfferLeaves) {
  std::byte* const data = large_.Reserve(kLargeBytes);
  ASSERT_NE(data, nullptr);
  ASSERT_TRUE(large_.Commit(kLargeBytes, &is_large_).ok());
  std::memset(data, 'm', kLargeBytes);  // as Append() allows it
  EXPECT_FALSE(Done(0)) << "the peer has not heard of it";
  EndTurn();
  std::vector<std::byte>& batch = link_.sent[0];
  const size_t bytes = batch.size() - Seal::kTagBytes;
  const MutableByteSpan all(batch);
  const MutableByteSpan frames = all.first(bytes).subspan(kBatchHeaderBytes);
  ASSERT_TRUE(peer_.batches_in->Decrypt(all.first(kBatchHeaderBytes), frames, all.subspan(bytes),
                                        frames.data()));
  const ByteSpan offered = frames.subspan(kFrameHeaderBytes);
  ASSERT_EQ(offered.size(), LargeOffer::kSealedBytes);
  LargeOffer offer;
  ASSERT_TRUE(DecodeLargeOffer(offered.first(LargeOffer::kBytes), &offer));
  EXPECT_EQ(offer.length, kLargeBytes);
  std::vector<std::byte> message(data, data + kLargeBytes);
  const std::vector<std::byte> expected(kLargeBytes, std::byte{'m'});
  EXPECT_NE(message, expected);
  ASSERT_TRUE(
      peer_.large_in.Decrypt({}, message, offered.subspan(LargeOffer::kBytes), message.data()));
  EXPECT_EQ(message, expected);
  EXPECT_TRUE(Done(0));
}

TEST_F(SealedLargeMessagesTest, WhatIsReadIsOpenedInOrder) {
  ASSERT_TRUE(OfferSealed(0) && OfferSealed(1));
  link_.posted[1]->OnComplete(absl::OkStatus());
  EXPECT_TRUE(delivered_.empty());
  link_.posted[0]->OnComplete(absl::OkStatus());
  EXPECT_EQ(delivered_, (std::vector<size_t>{kLargeBytes, kLargeBytes}));
  EXPECT_EQ(last_, std::vector<std::byte>(kLargeBytes, std::byte{'p'}));
}

TEST_F(SealedLargeMessagesTest, WhatIsChangedOnTheWayIsNotDelivered) {
  ASSERT_TRUE(OfferSealed(0));
  link_.reads[0][kLargeBytes / 2] ^= std::byte{1};
  link_.posted[0]->OnComplete(absl::OkStatus());
  EXPECT_TRUE(absl::IsDataLoss(failed_)) << failed_;
  EXPECT_TRUE(delivered_.empty());
}

// libfabric's tcp takes such an answer for the whole (docs/quirks.md).
TEST_F(SealedLargeMessagesTest, AMessageOfWhichAPartHasNotComeIsNotDelivered) {
  ASSERT_TRUE(OfferSealed(0));
  std::fill(link_.reads[0].begin() + kLargeBytes / 2, link_.reads[0].end(), std::byte{0});
  link_.posted[0]->OnComplete(absl::OkStatus());
  EXPECT_TRUE(absl::IsDataLoss(failed_)) << failed_;
  EXPECT_TRUE(delivered_.empty());
}

TEST_F(SealedLargeMessagesTest, WhatCannotBeOfferedEndsTheConnectionAndNothingMoreLeaves) {
  ASSERT_TRUE(Send("one"));
  ASSERT_TRUE(SendLarge().ok() && SendLarge().ok());
  links_.registered = absl::ResourceExhaustedError("no memory can be locked");
  for (uint32_t i = 0; i < kWindow; ++i) {
    ASSERT_TRUE(sender_.window().Arrive());
    sender_.window().Owe();
  }
  EndTurn();
  EXPECT_TRUE(absl::IsResourceExhausted(failed_)) << failed_;
  EXPECT_TRUE(link_.sent.empty());
  EXPECT_EQ(sender_.first_unsent(), 0u);
  sender_.CheckInvariants();
}

TEST_F(SealedLargeMessagesTest, WithoutCreditsAnOfferWaits) {
  ASSERT_TRUE(SendLarge().ok());
  while (Send("x")) sender_.Flush();
  const size_t before = link_.sent.size();
  EndTurn();
  EXPECT_EQ(link_.sent.size(), before);
  EXPECT_TRUE(large_.has_due());
  ASSERT_TRUE(sender_.window().Regain(kWindow / 2));
  sender_.FlushAtTurnsEnd();
  EndTurn();
  EXPECT_EQ(link_.sent.size(), before + 1);
  EXPECT_FALSE(large_.has_due());
}

// A message of 64 MiB was sealed whole when its batch left, and opened whole when it had come: the
// engine did nothing else for 30 ms.
TEST_F(SealedLargeMessagesTest, MoreThanAPieceIsSealedInTurns) {
  constexpr size_t kBytes = 5 * kLargePieceBytes / 2;
  ASSERT_NE(large_.Reserve(kBytes), nullptr);
  ASSERT_TRUE(large_.Commit(kBytes, &is_large_).ok());
  EndTurn();
  EXPECT_TRUE(link_.sent.empty());
  EXPECT_EQ(line_turns_, 1);
  LineTurn(large_);
  EXPECT_EQ(line_turns_, 2);
  EXPECT_FALSE(large_.has_due());
  LineTurn(large_);
  EXPECT_EQ(line_turns_, 2) << "it is done";
  EndTurn();
  EXPECT_EQ(link_.sent.size(), 1u);
  EXPECT_TRUE(Done(0));
}

TEST_F(SealedLargeMessagesTest, MoreThanAPieceIsOpenedInTurnsAndNothingBehindItBefore) {
  constexpr size_t kBytes = 5 * kLargePieceBytes / 2;
  ASSERT_TRUE(OfferSealed(0, kBytes));
  link_.posted[0]->OnComplete(absl::OkStatus());
  ASSERT_TRUE(OfferSealed(1));
  link_.posted[1]->OnComplete(absl::OkStatus());
  EXPECT_EQ(line_turns_, 1);
  LineTurn(large_);
  large_.AdvanceReads();
  EXPECT_TRUE(delivered_.empty());
  LineTurn(large_);
  EXPECT_EQ(delivered_, (std::vector<size_t>{kBytes, kLargeBytes}));
  EXPECT_EQ(line_turns_, 2) << "it is done";
  EXPECT_EQ(last_, std::vector<std::byte>(kLargeBytes, std::byte{'p'}));
}

TEST_F(SealedLargeMessagesTest, NothingOfAMessageIsDeliveredThatIsChangedInItsFirstPiece) {
  ASSERT_TRUE(OfferSealed(0, 2 * kLargePieceBytes));
  link_.reads[0][0] ^= std::byte{1};
  link_.posted[0]->OnComplete(absl::OkStatus());
  EXPECT_TRUE(failed_.ok());
  LineTurn(large_);
  EXPECT_TRUE(absl::IsDataLoss(failed_)) << failed_;
  EXPECT_TRUE(delivered_.empty());
}

// Whose peer sends without end would not send any more itself.
TEST_F(SealedLargeMessagesTest, SealingAndOpeningTakeTurns) {
  ASSERT_TRUE(OfferSealed(0, 3 * kLargePieceBytes));
  link_.posted[0]->OnComplete(absl::OkStatus());
  ASSERT_NE(large_.Reserve(3 * kLargePieceBytes), nullptr);
  ASSERT_TRUE(large_.Commit(3 * kLargePieceBytes, &is_large_).ok());
  EndTurn();
  // Two pieces are left to open, and three to seal.
  for (const size_t delivered : {0, 0, 1, 1}) {
    LineTurn(large_);
    EXPECT_EQ(delivered_.size(), delivered);
  }
  EndTurn();
  EXPECT_FALSE(Done(0)) << "it is not sealed yet";
  LineTurn(large_);
  EndTurn();
  EXPECT_TRUE(Done(0));
}

TEST_F(SealedLargeMessagesTest, AnOfferWithoutATagIsRefused) { EXPECT_FALSE(Offer(0, 100)); }

}  // namespace
}  // namespace weft
