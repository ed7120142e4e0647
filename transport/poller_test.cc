#include "transport/poller.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <utility>

namespace weft {
namespace {

// An eventfd that counts how often it was found ready.
class Bell : public PollHandler {
 public:
  Bell() : descriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
  ~Bell() { close(descriptor); }
  void Ring() const { ASSERT_EQ(eventfd_write(descriptor, 1), 0); }
  void OnReady(uint32_t events) override {
    EXPECT_NE(events & EPOLLIN, 0U);
    ++ready;
    if (action) action();
  }

  const int descriptor;
  int ready = 0;
  std::function<void()> action;
};

class PollerTest : public testing::Test {
 protected:
  void SetUp() override {
    auto made = Poller::Create();
    ASSERT_TRUE(made.ok()) << made.status();
    poller_ = *std::move(made);
  }
  void Watch(Bell& bell) { ASSERT_TRUE(poller_->Add(bell.descriptor, EPOLLIN, &bell).ok()); }

  std::unique_ptr<Poller> poller_;
};

TEST_F(PollerTest, ReadyDescriptorsReachTheirHandlers) {
  Bell quiet;
  Bell loud;
  Watch(quiet);
  Watch(loud);
  loud.Ring();
  EXPECT_EQ(poller_->Poll(), 1);
  EXPECT_EQ(loud.ready, 1);
  EXPECT_EQ(quiet.ready, 0);
}

// A completion queue's descriptor stays readable until somebody is about to sleep and looks at the
// queue. It counted as work, so that over tcp Engine::Poll() found something to do for ever, and
// who waited for it to be idle waited in vain.
TEST_F(PollerTest, WhatOnlyEndsASleepIsNoWork) {
  const Bell bell;
  ASSERT_TRUE(poller_->Add(bell.descriptor, EPOLLIN, /*handler=*/nullptr).ok());
  bell.Ring();
  EXPECT_EQ(poller_->Poll(), 0);
  poller_->Wait(/*timeout_ns=*/3'600'000'000'000);  // ends at once
}

// A sleep and the look behind it were two system calls for the same events.
TEST_F(PollerTest, WhatASleepHasFoundIsToldByTheNextPollAlone) {
  Bell first;
  Bell second;
  Watch(first);
  Watch(second);
  first.Ring();
  EXPECT_TRUE(poller_->Wait(/*timeout_ns=*/0));
  second.Ring();
  EXPECT_EQ(poller_->Poll(), 1);
  EXPECT_EQ(first.ready, 1);
  EXPECT_EQ(second.ready, 0);
  EXPECT_EQ(poller_->Poll(), 2) << "they are level-triggered";
}

TEST_F(PollerTest, WhatIsRemovedBehindTheSleepThatFoundItIsSilent) {
  Bell bell;
  Watch(bell);
  bell.Ring();
  EXPECT_TRUE(poller_->Wait(/*timeout_ns=*/0));
  poller_->Remove(bell.descriptor);
  EXPECT_EQ(poller_->Poll(), 0);
  EXPECT_FALSE(poller_->Wait(/*timeout_ns=*/0));
}

TEST_F(PollerTest, ARemovedDescriptorIsSilent) {
  Bell bell;
  Watch(bell);
  bell.Ring();
  poller_->Remove(bell.descriptor);
  poller_->Remove(bell.descriptor);
  EXPECT_EQ(poller_->Poll(), 0);
  EXPECT_EQ(bell.ready, 0);
}

// Two control sockets die at once, and the handler of one closes both: the second event of that
// round must not reach the handler that is gone.
TEST_F(PollerTest, AHandlerMayRemoveAnotherThatIsReadyInTheSameRound) {
  Bell a;
  Bell b;
  Watch(a);
  Watch(b);
  a.action = [&] { poller_->Remove(b.descriptor); };
  b.action = [&] { poller_->Remove(a.descriptor); };
  a.Ring();
  b.Ring();
  poller_->Poll();
  EXPECT_EQ(a.ready + b.ready, 1);
}

TEST_F(PollerTest, ModifySilencesAndRevives) {
  Bell bell;
  Watch(bell);
  bell.Ring();
  ASSERT_TRUE(poller_->Modify(bell.descriptor, 0).ok());
  EXPECT_EQ(poller_->Poll(), 0);
  ASSERT_TRUE(poller_->Modify(bell.descriptor, EPOLLIN).ok());
  EXPECT_EQ(poller_->Poll(), 1);
}

TEST_F(PollerTest, WaitEndsWhenSomethingIsReadyAndCallsNobody) {
  Bell bell;
  Watch(bell);
  bell.Ring();
  poller_->Wait(/*timeout_ns=*/3'600'000'000'000);
  EXPECT_EQ(bell.ready, 0);
}

TEST_F(PollerTest, ABadDescriptorIsAnError) {
  EXPECT_FALSE(poller_->Add(-1, EPOLLIN, nullptr).ok());
}

}  // namespace
}  // namespace weft
