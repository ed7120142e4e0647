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
                          private ConnectionOwner {
 protected:
  BatchReceiverTest() {
    Start();
    sender_.Shut();  // until Open()
    connection_ = *FramedConnection::Create(&table_, this, nullptr, {});
    receiver_ =
        std::make_unique<BatchReceiver>(static_cast<BatchReceiver::Host*>(this), connection_.get(),
                                        static_cast<ConnectionHandler*>(this), &sender_);
    index_ = *table_.Add(receiver_.get(), kToken);
    receiver_->Start(&framing_, /*most_early_batches=*/2, /*most_early_bytes=*/10'000);
  }
  void TearDown() override {
    receiver_->Stop();
    table_.Remove(index_);
    connection_->End(absl::CancelledError("over"), /*peer_dead=*/false);
    PartsTest::TearDown();
  }

  void Open() {
    sender_.Open();
    receiver_->Open();
  }
  void Receive(const Texts& texts, uint16_t credits = 0) {
    std::vector<std::byte> batch(FakeDomain::kSlotBytes);
    MessageRoom frames(FrameHeader(FrameKind::kMessage));
    frames.Open(batch.data() + kBatchHeaderBytes, FakeDomain::kSlotBytes - kBatchHeaderBytes);
    for (const std::string& text : texts) {
      std::memcpy(frames.AppendMessage(text.size()).data, text.data(), text.size());
    }
    batch.resize(static_cast<size_t>(frames.next() - batch.data()));
    EncodeBatchHeader(batch.data(), {index_, kToken, credits, frames.frames(), sequence_++});
    table_.OnReceived(batch);
  }

  static constexpr uint32_t kToken = 77;

  uint32_t index_ = 0;
  uint32_t sequence_ = 0;
  Texts messages_;
  Texts malformed_;
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
  void OnCloseRequested(FramedConnection&, std::string_view) override {}
  void SendGrant(FramedConnection&, ByteSpan) override {}

  ConnectionTable table_{2};
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
  Open();
  ++sequence_;
  Receive({"second"});
  EXPECT_EQ(malformed_, Texts{"a batch out of sequence"});
  EXPECT_TRUE(messages_.empty());
}

TEST_F(BatchReceiverTest, CreditsThatWereNeverGrantedBreakTheProtocol) {
  Open();
  Receive({"one"}, /*credits=*/1);
  EXPECT_EQ(malformed_, Texts{"more credits than were ever granted"});
}

TEST_F(BatchReceiverTest, WhatFollowsInABatchIsNotDeliveredAfterTheConnectionHasClosed) {
  Open();
  close_at_message_ = true;
  Receive({"last", "never"});
  EXPECT_EQ(messages_, Texts{"last"});
}

}  // namespace
}  // namespace weft
