#include "transport/framing/batch_receiver.h"

#include "transport/framing/framed_connection.h"
#include "transport/framing/testing/parts_test.h"

namespace weft {
namespace {

using Texts = std::vector<std::string>;

// Batches of a peer, and what becomes of them. The connection is only a name to the receiver.
class BatchReceiverTest : public PartsTest,
                          private BatchReceiver::Host,
                          private ConnectionHandler,
                          private ConnectionOwner,
                          private LinkHandler {
 protected:
  BatchReceiverTest() {
    Start();
    sender_.Shut();  // until Open()
    connection_ = *FramedConnection::Create(&table_, this, nullptr, {});
    receiver_ =
        std::make_unique<BatchReceiver>(static_cast<BatchReceiver::Host*>(this), connection_.get(),
                                        static_cast<ConnectionHandler*>(this), &sender_);
    index_ = *table_.Add(receiver_.get(), kToken);
    receiver_->Start(&framing_, /*first_sequence=*/0, /*most_early_batches=*/2,
                     /*most_early_bytes=*/10'000);
  }
  void TearDown() override {
    receiver_->Stop();
    table_.Remove(index_);
    connection_->End(absl::CancelledError("over"), /*peer_dead=*/false);
    PartsTest::TearDown();
  }

  // From now on batches come with their link.
  void TellLinks() {
    by_ = this;
    table_.SetLink(index_, &PrefetchList::None(), by_);
  }
  void Open() {
    sender_.Open();
    receiver_->Open();
  }
  void Receive(const Texts& texts, uint16_t credits = 0) {
    table_.OnReceived(NextBatch(texts, credits), by_);
  }
  std::vector<std::byte> NextBatch(const Texts& texts, uint16_t credits = 0) {
    std::vector<std::byte> batch(FakeDomain::kSlotBytes);
    MessageRoom frames(FrameHeader(FrameKind::kMessage));
    frames.Open(batch.data() + kBatchHeaderBytes, FakeDomain::kSlotBytes - kBatchHeaderBytes);
    for (const std::string& text : texts) {
      std::memcpy(frames.AppendMessage(text.size()).data, text.data(), text.size());
    }
    batch.resize(static_cast<size_t>(frames.next() - batch.data()));
    EncodeBatchHeader(batch.data(), {index_, kToken, credits, frames.frames(), sequence_++});
    return batch;
  }

  static constexpr uint32_t kToken = 77;

  ConnectionTable table_{2};
  uint32_t index_ = 0;
  uint32_t sequence_ = 0;
  Texts messages_;
  Texts malformed_;
  LinkHandler* by_ = nullptr;
  absl::Status link_down_;
  bool close_at_message_ = false;
  std::unique_ptr<BatchReceiver> receiver_;

 private:
  // BatchReceiver::Host
  bool OnFrame(const Frame&) override { return false; }
  void OnMalformed(std::string_view what) override {
    malformed_.emplace_back(what);
    sender_.Shut();
  }
  void OnRoom() override {}
  // ConnectionHandler
  void OnOpen(Connection&) override {}
  void OnMessage(Connection&, ByteSpan message) override {
    messages_.emplace_back(reinterpret_cast<const char*>(message.data()), message.size());
    if (close_at_message_) sender_.Shut();
  }
  void OnClosed(Connection&, const absl::Status&) override {}
  // ConnectionOwner
  void OnLinkUp(FramedConnection&) override {}
  void OnBroken(FramedConnection&, const absl::Status&) override {}
  // LinkHandler
  void OnLinkUp() override {}
  void OnLinkDown(const absl::Status& why) override { link_down_ = why; }
  void OnSlotsFree() override {}
  void OnCloseRequested(FramedConnection&, std::string_view) override {}
  void SendGrant(FramedConnection&, ByteSpan) override {}

  std::unique_ptr<FramedConnection> connection_;
};

TEST_F(BatchReceiverTest, MessagesAreDeliveredInOrderAndCreditsComeBack) {
  Open();
  ASSERT_TRUE(Send("something"));
  EndTurn();
  Receive({"one", "two"}, /*credits=*/1);
  Receive({"three"});
  EXPECT_EQ(messages_, (Texts{"one", "two", "three"}));
  EXPECT_EQ(sender_.window().credits(), kWindow);
  EXPECT_EQ(receiver_->messages(), 3u);
  EXPECT_EQ(receiver_->batches(), 2u);
}

TEST_F(BatchReceiverTest, WhatComesBeforeItIsOpenIsDeliveredThen) {
  Receive({"early"});
  EXPECT_TRUE(messages_.empty());
  Open();
  EXPECT_EQ(messages_, Texts{"early"});
}

TEST_F(BatchReceiverTest, MoreThanMayComeEarlyBreaksTheProtocol) {
  for (int i = 0; i < 3; ++i) Receive({"early"});
  EXPECT_EQ(malformed_, Texts{"a batch without a credit"});
}

TEST_F(BatchReceiverTest, ABatchOutOfSequenceBreaksTheProtocol) {
  TellLinks();
  Open();
  ++sequence_;
  Receive({"second"});
  EXPECT_EQ(malformed_, Texts{"a batch out of sequence"});
  EXPECT_TRUE(messages_.empty());
}

// Where a provider does not tell the link, the token was all that a stranger had to guess, 32 bits;
// and who had guessed it, and not the number, ended the connection.
TEST_F(BatchReceiverTest, WhoKnowsTheTokenAndNotTheNumberIsNotHeard) {
  receiver_->Start(&framing_, /*first_sequence=*/~uint32_t{0}, 2, 10'000);
  Receive({"guessed"});
  sequence_ = ~uint32_t{0};
  Receive({"early"});
  Open();
  Receive({"open"});
  ++sequence_;
  Receive({"guessed"});
  EXPECT_EQ(messages_, (Texts{"early", "open"}));
  EXPECT_TRUE(malformed_.empty());
  EXPECT_EQ(table_.stats().batches_unknown, 2u);
}

TEST_F(BatchReceiverTest, ABatchWithoutItsLinkIsNotTakenWhereLinksAreTold) {
  TellLinks();
  Open();
  by_ = nullptr;
  Receive({"forged"});
  EXPECT_TRUE(messages_.empty() && malformed_.empty() && link_down_.ok());
  EXPECT_EQ(table_.stats().batches_unknown, 1u);
}

TEST_F(BatchReceiverTest, ABatchThatNamesNobodyEndsItsLink) {
  TellLinks();
  table_.OnReceived({}, by_);
  EXPECT_TRUE(absl::IsDataLoss(link_down_)) << link_down_;
}

TEST_F(BatchReceiverTest, CreditsThatWereNeverGrantedBreakTheProtocol) {
  Open();
  Receive({"one"}, /*credits=*/1);
  EXPECT_EQ(malformed_, Texts{"more credits than were ever granted"});
}

// A batch that was still being filled has its credit. A peer that returned it was believed: when
// the batch was given up instead, there were more credits than the window has.
TEST_F(BatchReceiverTest, TheCreditOfABatchThatHasNotLeftCannotBeReturned) {
  Open();
  ASSERT_TRUE(Send("not yet sent"));
  Receive({"one"}, /*credits=*/1);
  EXPECT_EQ(malformed_, Texts{"more credits than were ever granted"});
}

TEST_F(BatchReceiverTest, WhatFollowsInABatchIsNotDeliveredAfterTheConnectionHasClosed) {
  Open();
  close_at_message_ = true;
  Receive({"last", "never"});
  EXPECT_EQ(messages_, Texts{"last"});
}

// Where links share receives, and nothing is sealed. Token and number were all that a stranger had
// to guess, 64 bits.
class ProvedBatchReceiverTest : public BatchReceiverTest {
 protected:
  static constexpr Nonce128 kProof = {0x0123456789abcdef, 0xfedcba9876543210};

  ProvedBatchReceiverTest() {
    receiver_->Start(&framing_, /*first_sequence=*/0, 2, 10'000, kProof);
  }
  std::vector<std::byte> Proved(const Texts& texts) {
    std::vector<std::byte> batch = NextBatch(texts);
    const size_t bytes = batch.size();
    batch.resize(bytes + Seal::kTagBytes);
    StoreLe64(&batch[bytes], kProof.high);
    StoreLe64(&batch[bytes + 8], kProof.low);
    return batch;
  }
};

TEST_F(ProvedBatchReceiverTest, WhatEndsInTheProofIsTakenWithoutIt) {
  table_.OnReceived(Proved({"early"}), by_);
  Open();
  table_.OnReceived(Proved({"one", "two"}), by_);
  table_.OnReceived(Proved({}), by_);
  EXPECT_EQ(messages_, (Texts{"early", "one", "two"}));
  EXPECT_EQ(receiver_->batches(), 3u);
  EXPECT_TRUE(malformed_.empty());
  EXPECT_EQ(table_.stats().batches_unknown, 0u);
}

TEST_F(ProvedBatchReceiverTest, WhoHasABitOfItWrongIsNotHeardAndEndsNothing) {
  Open();
  const std::vector<std::byte> right = Proved({"right"});
  for (size_t bit = 0; bit < 8 * Seal::kTagBytes; ++bit) {
    std::vector<std::byte> wrong = right;
    wrong[right.size() - Seal::kTagBytes + bit / 8] ^= std::byte{1} << (bit % 8);
    table_.OnReceived(wrong, by_);
  }
  std::vector<std::byte> wrong = right;
  StoreLe32(&wrong[4], kToken + 1);
  table_.OnReceived(wrong, by_);
  EXPECT_EQ(table_.stats().batches_unknown, 8 * Seal::kTagBytes + 1);
  EXPECT_TRUE(messages_.empty() && malformed_.empty());
  table_.OnReceived(right, by_);
  EXPECT_EQ(messages_, Texts{"right"});
}

TEST_F(ProvedBatchReceiverTest, WhatHasNoRoomForItOrDoesNotHaveItIsNotHeardAndEndsNothing) {
  Open();
  Receive({"a message of more than 16 bytes"});
  sequence_ = 0;
  const std::vector<std::byte> right = Proved({});
  for (size_t bytes = 0; bytes < right.size(); ++bytes) {
    table_.OnReceived(ByteSpan(right).first(bytes), by_);
  }
  EXPECT_EQ(table_.stats().batches_unknown, 1 + right.size());
  EXPECT_TRUE(messages_.empty() && malformed_.empty());
  table_.OnReceived(right, by_);
  EXPECT_EQ(receiver_->batches(), 1u);
}

TEST_F(ProvedBatchReceiverTest, WhatItsPeerDoesWrongEndsTheConnection) {
  Open();
  std::vector<std::byte> batch = Proved({"one"});
  StoreLe16(&batch[10], 2);  // frames
  table_.OnReceived(batch, by_);
  EXPECT_EQ(malformed_, Texts{"frames that do not fill their batch"});
}

class SealedBatchReceiverTest : public BatchReceiverTest {
 protected:
  static constexpr uint64_t kPerKey = 3;

  SealedBatchReceiverTest() {
    receiver_->Start(&framing_, /*first_sequence=*/0, 2, 10'000, &own_);
    Open();
  }
  std::vector<std::byte> Sealed(const Texts& texts) { return Sealed(NextBatch(texts)); }
  std::vector<std::byte> Sealed(std::vector<std::byte> batch) {
    const size_t bytes = batch.size();
    batch.resize(bytes + Seal::kTagBytes);
    const MutableByteSpan all(batch);
    const MutableByteSpan frames = all.first(bytes).subspan(kBatchHeaderBytes);
    peer_.Encrypt(all.first(kBatchHeaderBytes), frames, frames.data(), &batch[bytes]);
    return batch;
  }

 private:
  const LinkSecret secret_ = {};
  Seal own_{Seal::Role::kDecrypts, secret_, "batches", kPerKey};
  Seal peer_{Seal::Role::kEncrypts, secret_, "batches", kPerKey};
};

TEST_F(SealedBatchReceiverTest, BatchesAreOpenedBeyondTheLimitOfAKey) {
  Texts sent;
  for (uint64_t i = 0; i < 4 * kPerKey; ++i) {
    sent.push_back("message " + std::to_string(i));
    const std::vector<std::byte> batch = Sealed({sent.back()});
    EXPECT_EQ(AsStringView(batch).find("message"), std::string_view::npos);
    table_.OnReceived(batch, by_);
    framing_.Promise(sender_.window().TakeOwed());
  }
  EXPECT_EQ(messages_, sent);
  EXPECT_TRUE(malformed_.empty());
}

TEST_F(SealedBatchReceiverTest, WhatIsChangedOnTheWayEndsItsConnection) {
  std::vector<std::byte> batch = Sealed({"pay 5 to A"});
  batch[kBatchHeaderBytes + kFrameHeaderBytes] ^= std::byte{1};
  table_.OnReceived(batch, by_);
  EXPECT_EQ(malformed_, Texts{"a batch whose seal is broken"});
  EXPECT_TRUE(messages_.empty());
}

TEST_F(SealedBatchReceiverTest, WhatIsNotSealedEndsItsConnection) {
  Receive({});
  EXPECT_EQ(malformed_, Texts{"a batch without a seal"});
}

// Where links are not told, a wrong number is nobody's; but here the peer has sealed it.
TEST_F(SealedBatchReceiverTest, WhatComesAgainEndsItsConnection) {
  const std::vector<std::byte> batch = Sealed({"pay 5 to A"});
  table_.OnReceived(batch, by_);
  table_.OnReceived(batch, by_);
  EXPECT_EQ(messages_, Texts{"pay 5 to A"});
  EXPECT_EQ(malformed_, Texts{"a batch out of sequence"});
}

TEST_F(SealedBatchReceiverTest, WhatHasOvertakenAnotherEndsItsConnection) {
  static_cast<void>(Sealed({"left out"}));
  table_.OnReceived(Sealed({"pay 5 to A"}), by_);
  EXPECT_EQ(malformed_, Texts{"a batch out of sequence"});
  EXPECT_TRUE(messages_.empty());
}

// The token was compared before the seal was looked at, which takes microseconds: a stranger was
// told by time that he had guessed it, and had 32 bits left to guess for ending the connection,
// not 64.
TEST_F(SealedBatchReceiverTest, TheSealAndNotTheTokenSaysWhoseABatchOutOfOrderIs) {
  std::vector<std::byte> batch = NextBatch({"pay 5 to A"});
  StoreLe32(&batch[4], kToken + 1);
  table_.OnReceived(Sealed(batch), by_);
  EXPECT_EQ(malformed_, Texts{"a batch out of sequence"});
  EXPECT_TRUE(messages_.empty());
}

TEST_F(SealedBatchReceiverTest, AStrangersBatchWithAWrongTokenIsDroppedAndEndsNothing) {
  const std::vector<std::byte> right = Sealed({"pay 5 to A"});
  std::vector<std::byte> batch = right;
  StoreLe32(&batch[4], kToken + 1);
  table_.OnReceived(batch, by_);
  EXPECT_EQ(table_.stats().batches_unknown, 1u);
  table_.OnReceived(right, by_);
  EXPECT_EQ(messages_, Texts{"pay 5 to A"});
  EXPECT_TRUE(malformed_.empty());
}

TEST_F(SealedBatchReceiverTest, AStrangersBatchOutOfOrderIsDroppedAndEndsNothing) {
  std::vector<std::byte> batch = Sealed({"pay 5 to A"});
  const std::vector<std::byte> right = batch;
  StoreLe32(&batch[12], 1);
  table_.OnReceived(batch, by_);
  EXPECT_EQ(table_.stats().batches_unknown, 1u);
  table_.OnReceived(right, by_);
  EXPECT_EQ(messages_, Texts{"pay 5 to A"});
  EXPECT_TRUE(malformed_.empty());
}

}  // namespace
}  // namespace weft
