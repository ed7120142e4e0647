#include "rpc/client/waiting_calls.h"

#include <gtest/gtest.h>

#include <vector>

#include "rpc/testing/test_call.h"

namespace weft::test {
namespace {

class WaitingCallsTest : public testing::Test {
 protected:
  static constexpr uint32_t kLimit = 2;

  void TearDown() override { waiting_.CheckInvariants(kLimit); }

  IdleClient client_;
  TestCall first_{client_};
  TestCall second_{client_};
  TestCall third_{client_};
  WaitingCalls waiting_;
};

TEST_F(WaitingCallsTest, CallsLeaveInTheirOrder) {
  EXPECT_TRUE(waiting_.may_pass());
  ASSERT_TRUE(waiting_.PushBack(first_, kLimit));
  ASSERT_TRUE(waiting_.PushBack(second_, kLimit));
  EXPECT_EQ(first_.state, ClientCall::State::kQueued);
  EXPECT_FALSE(waiting_.may_pass());
  EXPECT_EQ(waiting_.PopFront(), &first_);
  EXPECT_EQ(waiting_.PopFront(), &second_);
  EXPECT_EQ(waiting_.PopFront(), nullptr);
  EXPECT_TRUE(waiting_.empty());
}

TEST_F(WaitingCallsTest, BeyondTheLimitNoneIsTaken) {
  ASSERT_TRUE(waiting_.PushBack(first_, kLimit));
  ASSERT_TRUE(waiting_.PushBack(second_, kLimit));
  EXPECT_FALSE(waiting_.PushBack(third_, kLimit));
  EXPECT_EQ(third_.state, ClientCall::State::kNew);
  EXPECT_EQ(waiting_.size(), kLimit);
  waiting_.Remove(first_);
  EXPECT_TRUE(waiting_.PushBack(third_, kLimit));
}

TEST_F(WaitingCallsTest, WithALimitOfNoneNoneWaits) {
  EXPECT_FALSE(waiting_.PushBack(first_, 0));
  EXPECT_TRUE(waiting_.empty());
}

TEST_F(WaitingCallsTest, TheMostUrgentLeavesFirst) {
  constexpr uint32_t kThree = 3;
  first_.priority = Priority::kBackground;
  third_.priority = Priority::kControl;
  ASSERT_TRUE(waiting_.PushBack(first_, kThree));
  EXPECT_TRUE(waiting_.may_pass(Priority::kNormal));
  EXPECT_FALSE(waiting_.may_pass(Priority::kBackground));
  ASSERT_TRUE(waiting_.PushBack(second_, kThree));
  EXPECT_FALSE(waiting_.may_pass(Priority::kNormal));
  EXPECT_TRUE(waiting_.may_pass(Priority::kControl));
  ASSERT_TRUE(waiting_.PushBack(third_, kThree));
  EXPECT_EQ(waiting_.PopFront(Priority::kControl), &third_);
  EXPECT_EQ(waiting_.PopFront(Priority::kControl), nullptr);
  waiting_.Hold();
  EXPECT_FALSE(waiting_.may_pass(Priority::kControl));
  EXPECT_TRUE(waiting_.Release());
  EXPECT_EQ(waiting_.PopFront(Priority::kNormal), &second_);
  EXPECT_EQ(waiting_.PopFront(), &first_);
}

TEST_F(WaitingCallsTest, WhatCouldNotBeSentIsNextAgain) {
  ASSERT_TRUE(waiting_.PushBack(first_, kLimit));
  ASSERT_TRUE(waiting_.PushBack(second_, kLimit));
  ClientCall* const call = waiting_.PopFront();
  waiting_.Return(*call);
  EXPECT_EQ(waiting_.size(), 2u);
  EXPECT_EQ(waiting_.PopFront(), &first_);
}

TEST_F(WaitingCallsTest, WhileHeldNoneLeavesAndNoneMayPass) {
  waiting_.Hold();
  waiting_.Hold();
  EXPECT_FALSE(waiting_.may_pass());
  ASSERT_TRUE(waiting_.PushBack(first_, kLimit));
  EXPECT_EQ(waiting_.PopFront(), nullptr);
  EXPECT_FALSE(waiting_.Release());
  EXPECT_EQ(waiting_.PopFront(), nullptr);
  EXPECT_TRUE(waiting_.Release());
  EXPECT_EQ(waiting_.PopFront(), &first_);
  EXPECT_TRUE(waiting_.may_pass());
}

TEST_F(WaitingCallsTest, CallsThatWaitForAServerOutliveTheOthers) {
  second_.wait_for_server = true;
  ASSERT_TRUE(waiting_.PushBack(first_, kLimit));
  ASSERT_TRUE(waiting_.PushBack(second_, kLimit));
  IntrusiveList<ClientCall> taken;
  waiting_.TakeAll(/*also_patient=*/false, &taken);
  EXPECT_EQ(taken.PopFront(), &first_);
  EXPECT_TRUE(taken.empty());
  EXPECT_EQ(waiting_.size(), 1u);
  waiting_.TakeAll(/*also_patient=*/true, &taken);
  EXPECT_EQ(taken.PopFront(), &second_);
  EXPECT_TRUE(waiting_.empty());
}

TEST_F(WaitingCallsTest, WhileRoomIsWantedItIsNotEmptyAndNoCallPasses) {
  ASSERT_TRUE(waiting_.PushBack(first_, kLimit));
  waiting_.SetRoomWanted(true);
  EXPECT_EQ(waiting_.size(), 1u);
  ASSERT_TRUE(waiting_.PushBack(second_, kLimit));
  EXPECT_FALSE(waiting_.PushBack(third_, kLimit));
  waiting_.CheckInvariants(kLimit);
  EXPECT_EQ(waiting_.PopFront(), &first_);
  waiting_.Remove(second_);
  EXPECT_EQ(waiting_.PopFront(), nullptr);
  EXPECT_EQ(waiting_.size(), 0u);
  EXPECT_FALSE(waiting_.empty());
  EXPECT_FALSE(waiting_.may_pass());
  EXPECT_TRUE(waiting_.room_wanted());
  waiting_.SetRoomWanted(false);
  EXPECT_TRUE(waiting_.empty());
  EXPECT_TRUE(waiting_.may_pass());
}

}  // namespace
}  // namespace weft::test
