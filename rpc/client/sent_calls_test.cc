#include "rpc/client/sent_calls.h"

#include <gtest/gtest.h>

#include <deque>
#include <vector>

#include "rpc/testing/test_call.h"

namespace weft::test {
namespace {

class SentCallsTest : public testing::Test {
 protected:
  static constexpr uint32_t kMost = 3;

  SentCallsTest() { sent_.Open(kMost); }
  void TearDown() override { sent_.CheckInvariants(); }

  void Send(ClientCall& call, uint64_t number) {
    SlabHandle handle;
    SentCalls::Slot* const slot = sent_.Take(&handle);
    ASSERT_NE(slot, nullptr);
    SentCalls::Fill(slot, handle, call, number);
    sent_.CheckInvariants();
  }
  // As a client does whose deadline for the call has passed.
  void Abandon(ClientCall& call) {
    sent_.Abandon(call, [this](SlabHandle slot) { return SendCancel(slot); });
    call.state = ClientCall::State::kDone;
    sent_.CheckInvariants();
  }
  bool SendCancel(SlabHandle slot) {
    if (room_ == 0) return false;
    --room_;
    cancelled_.push_back(slot);
    return true;
  }
  void SendOwedCancels() {
    sent_.SendOwedCancels([this](SlabHandle slot) { return SendCancel(slot); });
    sent_.CheckInvariants();
  }

  int room_ = 100;  // for cancels
  std::vector<SlabHandle> cancelled_;
  IdleClient client_;
  TestCall first_{client_};
  TestCall second_{client_};
  TestCall third_{client_};
  SentCalls sent_;
};

TEST_F(SentCallsTest, AReplyFindsItsCallOnce) {
  Send(first_, 0);
  Send(second_, 1);
  EXPECT_EQ(first_.state, ClientCall::State::kSent);
  const SentCalls::Slot* const slot = sent_.Release(first_.slot);
  ASSERT_NE(slot, nullptr);
  EXPECT_EQ(slot->call, &first_);
  EXPECT_EQ(sent_.Release(first_.slot), nullptr);
  EXPECT_EQ(sent_.in_use(), 1u);
}

TEST_F(SentCallsTest, RepliesToNoCallFindNone) {
  EXPECT_EQ(sent_.Release({0, 1}), nullptr);
  Send(first_, 0);
  EXPECT_EQ(sent_.Release({first_.slot.slot, first_.slot.generation + 1}), nullptr);
  EXPECT_EQ(sent_.Release({first_.slot.slot, first_.slot.generation + 2}), nullptr);
  EXPECT_EQ(sent_.Release({kMost, 1}), nullptr);
  EXPECT_EQ(sent_.Release({0xFFFFFFFF, 0xFFFFFFFF}), nullptr);
  EXPECT_EQ(sent_.in_use(), 1u);
}

TEST_F(SentCallsTest, ThereAreNoMoreSlotsThanWereAgreed) {
  Send(first_, 0);
  Send(second_, 1);
  Send(third_, 2);
  SlabHandle handle;
  EXPECT_EQ(sent_.Take(&handle), nullptr);
  ASSERT_NE(sent_.Release(second_.slot), nullptr);
  ASSERT_NE(sent_.Take(&handle), nullptr);
  sent_.GiveBack(handle);
  EXPECT_EQ(sent_.in_use(), 2u);
}

class PrioritySlotsTest : public SentCallsTest {
 protected:
  static constexpr uint32_t kSlots = 16;

  PrioritySlotsTest() {
    IntrusiveList<ClientCall> none;
    sent_.Close(0, &none, &none);
    sent_.Open(kSlots, /*control=*/2);
  }

  // How many calls of that priority find a slot.
  size_t Fill(Priority priority) {
    for (size_t count = 0;; ++count) {
      SlabHandle handle;
      SentCalls::Slot* const slot = sent_.TakeFor(priority, &handle);
      if (slot == nullptr) return count;
      calls_.emplace_back(client_).priority = priority;
      sent_.FillFor(slot, handle, calls_.back(), 0);
      sent_.CheckInvariants();
    }
  }

  std::deque<TestCall> calls_;
};

TEST_F(PrioritySlotsTest, SomeSlotsAreForControlCallsAlone) {
  EXPECT_EQ(Fill(Priority::kNormal), kSlots);
  EXPECT_TRUE(sent_.full());
  EXPECT_EQ(Fill(Priority::kControl), 2u);
  ASSERT_NE(sent_.Release(calls_.front().slot), nullptr);
  EXPECT_EQ(Fill(Priority::kNormal), 0u) << "control calls have as many more";
  EXPECT_EQ(Fill(Priority::kControl), 1u);
}

TEST_F(PrioritySlotsTest, BackgroundCallsLeaveSomeToOthers) {
  EXPECT_EQ(Fill(Priority::kBackground), kSlots - 3);
  EXPECT_FALSE(sent_.full());
  EXPECT_EQ(Fill(Priority::kNormal), 3u);
  ASSERT_NE(sent_.Release(calls_.back().slot), nullptr);
  EXPECT_EQ(Fill(Priority::kBackground), 0u);
  ASSERT_NE(sent_.Release(calls_.front().slot), nullptr);
  EXPECT_EQ(Fill(Priority::kBackground), 1u);
}

TEST_F(PrioritySlotsTest, OneSlotIsThereForAll) {
  IntrusiveList<ClientCall> none;
  sent_.Close(0, &none, &none);
  sent_.Open(1, 0);
  EXPECT_EQ(Fill(Priority::kBackground), 1u);
  EXPECT_EQ(Fill(Priority::kNormal), 0u);
}

TEST_F(SentCallsTest, AnAbandonedSlotIsInUseUntilTheLateReply) {
  Send(first_, 0);
  EXPECT_FALSE(sent_.IsAbandoned(first_.slot));
  Abandon(first_);
  EXPECT_TRUE(sent_.IsAbandoned(first_.slot));
  EXPECT_EQ(sent_.in_use(), 1u);
  EXPECT_EQ(sent_.abandoned(), 1u);
  ASSERT_EQ(cancelled_.size(), 1u);
  EXPECT_EQ(cancelled_[0], first_.slot);
  EXPECT_FALSE(sent_.owes_cancels());

  const SentCalls::Slot* const slot = sent_.Release(first_.slot);
  ASSERT_NE(slot, nullptr);
  EXPECT_EQ(slot->call, nullptr);
  sent_.OnLateReply(*slot);
  EXPECT_EQ(sent_.in_use(), 0u);
  EXPECT_EQ(sent_.abandoned(), 0u);
  EXPECT_FALSE(sent_.IsAbandoned(first_.slot));
}

TEST_F(SentCallsTest, ACancelThatFindsNoRoomIsSentLaterAndOnce) {
  room_ = 0;
  Send(first_, 0);
  Send(second_, 1);
  Abandon(first_);
  Abandon(second_);
  EXPECT_TRUE(sent_.owes_cancels());
  room_ = 1;
  SendOwedCancels();
  EXPECT_TRUE(sent_.owes_cancels());
  room_ = 10;
  SendOwedCancels();
  EXPECT_FALSE(sent_.owes_cancels());
  SendOwedCancels();
  EXPECT_EQ(cancelled_.size(), 2u);
}

TEST_F(SentCallsTest, ALateReplySettlesTheCancelThatWasOwed) {
  room_ = 0;
  Send(first_, 0);
  Abandon(first_);
  sent_.OnLateReply(*sent_.Release(first_.slot));
  EXPECT_FALSE(sent_.owes_cancels());
  room_ = 10;
  SendOwedCancels();
  EXPECT_TRUE(cancelled_.empty());
}

TEST_F(SentCallsTest, TheEndOfTheConnectionTellsWhatWasSentFromWhatWasNot) {
  room_ = 0;
  Send(first_, 4);
  Send(second_, 5);
  Send(third_, 6);
  Abandon(third_);
  IntrusiveList<ClientCall> unsent;
  IntrusiveList<ClientCall> sent;
  sent_.Close(/*first_unsent=*/5, &unsent, &sent);
  EXPECT_EQ(sent.PopFront(), &first_);
  EXPECT_TRUE(sent.empty());
  EXPECT_EQ(unsent.PopFront(), &second_);
  EXPECT_TRUE(unsent.empty());
  EXPECT_EQ(sent_.in_use(), 0u);
  EXPECT_EQ(sent_.abandoned(), 0u);
  EXPECT_FALSE(sent_.owes_cancels());
  // Once more is nothing, and the next connection begins anew.
  sent_.Close(0, &unsent, &sent);
  EXPECT_TRUE(unsent.empty() && sent.empty());
  sent_.Open(1);
  Send(first_, 0);
  SlabHandle handle;
  EXPECT_EQ(sent_.Take(&handle), nullptr);
}

}  // namespace
}  // namespace weft::test
