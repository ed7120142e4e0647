// A port whose state changes in a made-up sysfs, on a clock that the test moves.
#include "transport/ofi/port_watch.h"

#include <gtest/gtest.h>

#include <vector>

#include "transport/devices/testing/recorded_tree.h"

namespace weft {
namespace {

class PortWatchTest : public testing::Test {
 protected:
  void Set(const std::string& state, const std::string& physical) {
    tree_.Add("[class/infiniband/rxe0/ports/1]\nstate = " + state + "\nphys_state = " + physical +
              "\n");
  }
  void SetUp() override { Set("4: ACTIVE", "5: LinkUp"); }

  PortWatch Watch(const std::string& port = "rxe0:1") {
    return PortWatch(tree_.sources().sysfs, port, &clock_, &timers_,
                     [this](const absl::Status& found) {
                       found_.push_back(found);
                       return links_ > 0;
                     });
  }
  void Pass(uint64_t ns) {
    clock_.Advance(ns);
    timers_.Advance(clock_.NowNs());
  }
  // Until the next look, and no further.
  void PassALook() { Pass(PortWatch::kLookNs + TimerWheel::kTickNs); }

  RecordedTree tree_{"rxe"};
  FakeClock clock_;
  TimerWheel timers_{clock_.NowNs()};
  int links_ = 1;
  std::vector<absl::Status> found_;
};

TEST_F(PortWatchTest, APortThatGoesDownIsToldOfInWords) {
  PortWatch watch = Watch();
  ASSERT_EQ(watch.Begin(), absl::OkStatus());
  PassALook();
  ASSERT_EQ(found_.size(), 1u);
  EXPECT_EQ(found_[0], absl::OkStatus());
  Set("1: DOWN", "2: Polling");
  EXPECT_EQ(found_.size(), 1u) << "nobody looks before it is time";
  PassALook();
  ASSERT_EQ(found_.size(), 2u);
  EXPECT_EQ(found_[1],
            absl::UnavailableError("the RDMA port rxe0:1 is DOWN, Polling: look at its cable, at "
                                   "the switch, and at its interface (rdma link, ip link)"));
  Set("4: ACTIVE", "5: LinkUp");
  PassALook();
  EXPECT_EQ(found_.back(), absl::OkStatus());
}

TEST_F(PortWatchTest, ALinkOverAPortThatIsDownDoesNotBegin) {
  PortWatch watch = Watch();
  Set("2: INIT", "5: LinkUp");
  const absl::Status refused = watch.Begin();
  EXPECT_TRUE(absl::IsUnavailable(refused)) << refused;
  EXPECT_NE(refused.message().find("rxe0:1 is INIT, LinkUp"), absl::string_view::npos) << refused;
  EXPECT_EQ(timers_.size(), 0u);
  Set("4: ACTIVE", "5: LinkUp");
  EXPECT_EQ(watch.Begin(), absl::OkStatus());
}

TEST_F(PortWatchTest, ItLooksOnceASecondAndOnlyWhileThereAreLinks) {
  PortWatch watch = Watch();
  EXPECT_EQ(timers_.size(), 0u);
  for (int links = 0; links < 3; ++links) ASSERT_EQ(watch.Begin(), absl::OkStatus());
  EXPECT_EQ(timers_.size(), 1u);
  for (size_t looks = 1; looks <= 5; ++looks) {
    Pass(PortWatch::kLookNs / 2);
    EXPECT_EQ(found_.size(), looks - 1);
    Pass(PortWatch::kLookNs / 2 + TimerWheel::kTickNs);
    EXPECT_EQ(found_.size(), looks);
  }
  links_ = 0;
  PassALook();
  EXPECT_EQ(timers_.size(), 0u) << "it rests";
  links_ = 1;
  ASSERT_EQ(watch.Begin(), absl::OkStatus());
  PassALook();
  EXPECT_EQ(found_.size(), 7u);
}

// The kernel's word for a port that is about to come back.
TEST_F(PortWatchTest, APortThatIsActiveInSomeWayIsUp) {
  PortWatch watch = Watch();
  Set("5: ACTIVE_DEFER", "6: LinkErrorRecovery");
  EXPECT_EQ(watch.Begin(), absl::OkStatus());
}

TEST_F(PortWatchTest, AStateThatCannotBeReadSaysNothing) {
  EXPECT_EQ(Watch("rxe7:1").Begin(), absl::OkStatus());
  EXPECT_EQ(Watch("no port").Begin(), absl::OkStatus());
  tree_.Add("[class/infiniband/rxe0/ports/2]\nstate !\n");
  EXPECT_EQ(Watch("rxe0:2").Begin(), absl::OkStatus());
}

}  // namespace
}  // namespace weft
