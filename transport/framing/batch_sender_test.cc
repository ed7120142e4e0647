#include "transport/framing/batch_sender.h"

#include "transport/framing/testing/parts_test.h"

namespace weft {
namespace {

using Texts = std::vector<std::string>;

class BatchSenderTest : public PartsTest {
 protected:
  BatchSenderTest() { Start(); }
};

TEST_F(BatchSenderTest, WhatATurnAppendsLeavesAtItsEndAsOneBatchForOneCredit) {
  ASSERT_TRUE(Send("one"));
  std::byte* const space = sender_.Reserve(100);
  ASSERT_NE(space, nullptr);
  std::memcpy(space, "two", 3);
  sender_.Commit(3);
  sender_.room().Commit();
  EXPECT_TRUE(link_.sent.empty());
  EndTurn();
  ASSERT_EQ(link_.sent.size(), 1u);
  EXPECT_EQ(MessagesOf(0), (Texts{"one", "two"}));
  EXPECT_EQ(sender_.window().credits(), kWindow - 1);
  EXPECT_EQ(sender_.first_unsent(), 2u);
  EXPECT_EQ(sender_.batches_sent(), 1u);
  sender_.CheckInvariants();
}

TEST_F(BatchSenderTest, NothingLeavesWhileThereIsAReservation) {
  ASSERT_TRUE(Send("one"));
  ASSERT_NE(sender_.Reserve(10), nullptr);
  sender_.Flush();
  EndTurn();
  EXPECT_TRUE(link_.sent.empty());
  sender_.Abandon();
  EndTurn();
  ASSERT_EQ(link_.sent.size(), 1u);
  EXPECT_EQ(MessagesOf(0), Texts{"one"});
}

TEST_F(BatchSenderTest, AnAbandonedReservationGivesItsSlotAndCreditBack) {
  ASSERT_NE(sender_.Reserve(10), nullptr);
  EXPECT_EQ(sender_.window().credits(), kWindow - 1);
  sender_.Abandon();
  EXPECT_EQ(sender_.window().credits(), kWindow);
}

TEST_F(BatchSenderTest, AFullSlotLeavesAndTheNextOneIsFilled) {
  const std::string half(500, 'x');
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(Send(half));
  EXPECT_EQ(link_.sent.size(), 2u) << "a frame of each does not fit beside another";
  EndTurn();
  EXPECT_EQ(link_.sent.size(), 3u);
}

TEST_F(BatchSenderTest, WithoutCreditsAMessageIsRefusedAndItsUserAwaitsRoom) {
  for (uint32_t i = 0; i < kWindow - 1; ++i) {
    ASSERT_TRUE(Send("one")) << i;
    EndTurn();
  }
  EXPECT_FALSE(Send("more"));
  EXPECT_TRUE(sender_.awaits_room());
  EXPECT_EQ(sender_.credit_stalls(), 1u);
  ASSERT_TRUE(sender_.window().Regain(1));
  EXPECT_TRUE(Send("more"));
}

TEST_F(BatchSenderTest, WithoutASlotNoCreditIsSpent) {
  links_.free_slots = 0;
  EXPECT_FALSE(Send("one"));
  EXPECT_EQ(sender_.window().credits(), kWindow);
  links_.free_slots = 100;
}

TEST_F(BatchSenderTest, OneThatIsShutTakesAndSendsNothing) {
  ASSERT_TRUE(Send("one"));
  sender_.Shut();
  EXPECT_EQ(sender_.Reserve(1000), nullptr);
  EXPECT_EQ(sender_.Reserve(1), nullptr) << "also where the open slot has room";
  EXPECT_FALSE(sender_.room().Fits(FrameBytes(0)));
  sender_.Flush();
  EndTurn();
  EXPECT_TRUE(link_.sent.empty());
}

class SealedBatchSenderTest : public PartsTest {
 protected:
  static constexpr uint64_t kPerKey = 3;

  SealedBatchSenderTest() { Start(&own_); }

  // Opens what was sent last; false: it is not sealed.
  bool Open() {
    std::vector<std::byte>& batch = link_.sent.back();
    const size_t bytes = batch.size() - Seal::kTagBytes;
    const MutableByteSpan all(batch);
    const MutableByteSpan frames = all.first(bytes).subspan(kBatchHeaderBytes);
    const bool opened =
        peer_.Decrypt(all.first(kBatchHeaderBytes), frames, all.subspan(bytes), frames.data());
    batch.resize(bytes);
    return opened;
  }

 private:
  const LinkSecret secret_ = {};
  Seal own_{Seal::Role::kEncrypts, secret_, "batches", kPerKey};
  Seal peer_{Seal::Role::kDecrypts, secret_, "batches", kPerKey};
};

TEST_F(SealedBatchSenderTest, EveryBatchIsSealedBeyondTheLimitOfAKey) {
  for (size_t i = 0; i < 4 * kPerKey; ++i) {
    ASSERT_TRUE(Send("a message"));
    EndTurn();
    ASSERT_EQ(link_.sent.size(), i + 1);
    EXPECT_EQ(AsStringView(link_.sent[i]).find("message"), std::string_view::npos);
    ASSERT_TRUE(Open());
    EXPECT_EQ(MessagesOf(i), Texts{"a message"});
    ASSERT_TRUE(sender_.window().Regain(1));
  }
}

TEST_F(SealedBatchSenderTest, TheLargestMessageLeavesRoomForTheTag) {
  const std::string largest(sender_.eager_bytes(), 'x');
  ASSERT_TRUE(Send(largest));
  EndTurn();
  EXPECT_LE(link_.sent[0].size(), FakeDomain::kSlotBytes);
  ASSERT_TRUE(Open());
  EXPECT_EQ(MessagesOf(0), Texts{largest});
}

class ProvedBatchSenderTest : public PartsTest {
 protected:
  static constexpr Nonce128 kProof = {0x0123456789abcdef, 0xfedcba9876543210};

  ProvedBatchSenderTest() { Start(kProof); }

  // Takes the proof off what was sent last; false: it is not there.
  bool TakeProof() {
    std::vector<std::byte>& batch = link_.sent.back();
    const std::byte* const tag = &batch[batch.size() - Seal::kTagBytes];
    const bool is_there = LoadLe64(tag) == kProof.high && LoadLe64(tag + 8) == kProof.low;
    batch.resize(batch.size() - Seal::kTagBytes);
    return is_there;
  }
};

TEST_F(ProvedBatchSenderTest, EveryBatchEndsInTheProofForWhichTheLargestMessageLeavesRoom) {
  for (const std::string& text : {std::string("small"), std::string(sender_.eager_bytes(), 'x')}) {
    ASSERT_TRUE(Send(text));
    EndTurn();
    EXPECT_LE(link_.sent.back().size(), FakeDomain::kSlotBytes);
    ASSERT_TRUE(TakeProof());
    EXPECT_EQ(MessagesOf(link_.sent.size() - 1), Texts{text});
  }
}

}  // namespace
}  // namespace weft
