// When a peer is declared dead, and when it is not, in a time that only the test moves.

#include "transport/control/peer_watch.h"

#include "core/clock.h"
#include "core/timer_wheel.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

constexpr uint64_t kTimeoutNs = 3 * kNsPerSec;
constexpr uint64_t kIntervalNs = kTimeoutNs / PeerWatch::kHeartbeatsPerTimeout;
constexpr uint64_t kStepNs = 10 * kNsPerMs;  // between two turns of a healthy engine

class PeerWatchTest : public testing::Test, protected Timer {
 protected:
  void Start(const PeerWatch::Terms& terms) {
    watch_.Start(clock_.NowNs(), terms);
    Schedule();
  }
  void StartBoth() { Start({kTimeoutNs, kTimeoutNs, /*peer_promises=*/true}); }

  // The engine turns all the time. `heard_each_ns`: how often the peer is heard; 0: never.
  void Drive(uint64_t ns, uint64_t heard_each_ns = 0) {
    for (uint64_t at = kStepNs; at <= ns; at += kStepNs) {
      clock_.Advance(kStepNs);
      if (heard_each_ns != 0 && at % heard_each_ns == 0) watch_.OnHeard(clock_.NowNs());
      wheel_.Advance(clock_.NowNs());
    }
  }
  // Nobody drives for a while; then there is one turn, which begins with the timers.
  void Pause(uint64_t ns) {
    clock_.Advance(ns);
    wheel_.Advance(clock_.NowNs());
  }

  // As a connection does it.
  void OnTimer() override {
    switch (watch_.OnTime(clock_.NowNs(), [this] { return unread_; })) {
      case PeerWatch::Verdict::kNothing:
        break;
      case PeerWatch::Verdict::kHeartbeat:
        ++beats_;
        break;
      case PeerWatch::Verdict::kSilent:
        ++deaths_;
        return;
    }
    Schedule();
  }
  void Schedule() {
    if (watch_.due_ns() != kNever) wheel_.Schedule(this, watch_.due_ns());
  }

  FakeClock clock_;
  TimerWheel wheel_{clock_.NowNs()};
  PeerWatch watch_;
  bool unread_ = false;
  uint32_t beats_ = 0;
  int deaths_ = 0;
};

TEST_F(PeerWatchTest, ASilentPeerIsDeclaredDeadOnceAndInTime) {
  StartBoth();
  Drive(kTimeoutNs - kStepNs);
  EXPECT_EQ(deaths_, 0);
  Drive(2 * kStepNs);
  EXPECT_EQ(deaths_, 1);
  Drive(10 * kTimeoutNs);
  EXPECT_EQ(deaths_, 1);
}

TEST_F(PeerWatchTest, TwoHeartbeatsAreSentInEachTimeout) {
  StartBoth();
  Drive(10 * kTimeoutNs, kIntervalNs);
  EXPECT_EQ(deaths_, 0);
  // The wheel's ticks make each a little late.
  EXPECT_GE(beats_, 19u);
  EXPECT_LE(beats_, 20u);
}

// What two heartbeats in each timeout leave room for: nothing is lost, but a scheduler, or a lost
// packet that TCP sends again, may hold one up.
TEST_F(PeerWatchTest, AHeartbeatMayBeLateByHalfTheTimeout) {
  StartBoth();
  for (int beat = 0; beat < 20; ++beat) {
    Drive(beat % 2 == 0 ? kTimeoutNs - 2 * kStepNs : 2 * kStepNs);
    watch_.OnHeard(clock_.NowNs());
  }
  EXPECT_EQ(deaths_, 0);
}

TEST_F(PeerWatchTest, TheSmallerTimeoutSetsThePace) {
  Start({4 * kTimeoutNs, kTimeoutNs, true});
  Drive(4 * kTimeoutNs, kIntervalNs);
  EXPECT_GE(beats_, 7u);
}

TEST_F(PeerWatchTest, APeerThatIsHeardJustInTimeStays) {
  StartBoth();
  Drive(20 * kTimeoutNs, kTimeoutNs - 2 * kStepNs);
  EXPECT_EQ(deaths_, 0);
  Drive(kTimeoutNs + kStepNs);
  EXPECT_EQ(deaths_, 1);
}

TEST_F(PeerWatchTest, OnlyAPeerThatPromisesHeartbeatsIsWatched) {
  Start({kTimeoutNs, kTimeoutNs, /*peer_promises=*/false});
  Drive(10 * kTimeoutNs);
  EXPECT_EQ(deaths_, 0);
  EXPECT_GT(beats_, 0u);  // it watches this side
}

// A release without heartbeats says neither that it watches nor that it promises anything.
TEST_F(PeerWatchTest, AnOldPeerIsLeftAlone) {
  Start({kTimeoutNs, 0, false});
  Drive(10 * kTimeoutNs);
  EXPECT_EQ(deaths_, 0);
  EXPECT_EQ(beats_, 0u);
  EXPECT_EQ(wheel_.size(), 0u);
}

TEST_F(PeerWatchTest, WhoDoesNotWatchStillSends) {
  Start({0, kTimeoutNs, true});
  Drive(2 * kTimeoutNs);
  EXPECT_EQ(deaths_, 0);
  EXPECT_GE(beats_, 3u);
}

// A watched peer has to hear something as well, or it would stop sending.
TEST_F(PeerWatchTest, WhoWatchesSendsAlsoToAPeerThatDoesNot) {
  Start({kTimeoutNs, 0, true});
  Drive(kTimeoutNs - kStepNs);
  EXPECT_GE(beats_, 1u);
}

TEST_F(PeerWatchTest, WhatWaitsInTheSocketIsASignOfLife) {
  StartBoth();
  Drive(kTimeoutNs - kStepNs);
  unread_ = true;
  Drive(2 * kStepNs);
  EXPECT_EQ(deaths_, 0);
  unread_ = false;
  Drive(kTimeoutNs + kStepNs);
  EXPECT_EQ(deaths_, 1);
}

// An engine that nobody drives, a process that was stopped, a machine that was paused.
TEST_F(PeerWatchTest, AfterALongPauseTheClockStartsAgain) {
  StartBoth();
  Drive(kTimeoutNs - kStepNs);
  for (int round = 0; round < 10; ++round) {
    Pause(1000 * kTimeoutNs);
    EXPECT_EQ(deaths_, 0);
    Drive(kTimeoutNs - 2 * kStepNs);
    EXPECT_EQ(deaths_, 0);
  }
  Drive(4 * kStepNs);
  EXPECT_EQ(deaths_, 1);
}

// Shorter ones do not help a dead peer: a server with long handlers must notice it too.
TEST_F(PeerWatchTest, ShortPausesDoNotHideADeath) {
  StartBoth();
  for (int turn = 0; turn < 6; ++turn) Pause(kTimeoutNs / 3);
  EXPECT_EQ(deaths_, 1);
}

TEST_F(PeerWatchTest, APeerThatNobodyDrivesIsNotSentHeartbeatsForEver) {
  Start({kTimeoutNs, kTimeoutNs, /*peer_promises=*/false});
  Drive(100 * kTimeoutNs);
  EXPECT_EQ(beats_, PeerWatch::kMaxUnanswered);
  watch_.OnHeard(clock_.NowNs());
  Drive(2 * kTimeoutNs);
  EXPECT_GE(beats_, PeerWatch::kMaxUnanswered + 3);
}

TEST_F(PeerWatchTest, AFloodOfFramesIsToldFromWhatWaitedDuringAPause) {
  StartBoth();
  PeerWatch::FrameCount flood, other;
  for (uint32_t i = 0; i < PeerWatch::kMaxFrames; ++i) ASSERT_TRUE(watch_.OnFrame(&flood));
  EXPECT_FALSE(watch_.OnFrame(&flood));
  EXPECT_TRUE(watch_.OnFrame(&other)) << "of another connection";
  Drive(kIntervalNs + kStepNs, kStepNs);
  EXPECT_TRUE(watch_.OnFrame(&flood));
}

TEST_F(PeerWatchTest, AWatchThatIsNotAskedIsQuiet) {
  StartBoth();
  wheel_.Cancel(this);
  Drive(10 * kTimeoutNs);
  EXPECT_EQ(deaths_, 0);
  EXPECT_EQ(beats_, 0u);
}

}  // namespace
}  // namespace weft
