#include "transport/link_life.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class LinkLifeTest : public ::testing::Test, public LinkHandler {
 protected:
  void OnLinkUp() override { heard_.push_back("up"); }
  void OnLinkDown(const absl::Status& why) override {
    heard_.push_back("down: " + std::string(why.message()));
  }
  void OnSlotsFree() override {}

  // What a domain's Poll() does.
  void Poll() {
    while (has_news_) {
      has_news_ = false;
      life_.Deliver([this] { has_news_ = true; });
    }
  }
  void Note(bool news) { has_news_ = has_news_ || news; }

  LinkLife life_{this};
  bool has_news_ = false;
  std::vector<std::string> heard_;
};

TEST_F(LinkLifeTest, TheHandlerHearsFromPollOnly) {
  Note(life_.BecomeUp());
  EXPECT_TRUE(life_.up());
  EXPECT_THAT(heard_, IsEmpty());
  Poll();
  EXPECT_THAT(heard_, ElementsAre("up"));
}

TEST_F(LinkLifeTest, UpComesBeforeDownWhenBothAreNews) {
  Note(life_.BecomeUp());
  Note(life_.Fail(absl::UnavailableError("cut off")));
  Poll();
  EXPECT_THAT(heard_, ElementsAre("up", "down: cut off"));
}

TEST_F(LinkLifeTest, TheFirstReasonIsTold) {
  Note(life_.Fail(absl::UnavailableError("first")));
  EXPECT_FALSE(life_.Fail(absl::DataLossError("second")));
  EXPECT_FALSE(life_.BecomeUp());
  Poll();
  EXPECT_THAT(heard_, ElementsAre("down: first"));
}

TEST_F(LinkLifeTest, NothingIsToldAfterTheEnd) {
  Note(life_.BecomeUp());
  Note(life_.Fail(absl::UnavailableError("cut off")));
  life_.End();
  Poll();
  EXPECT_THAT(heard_, IsEmpty());
}

TEST_F(LinkLifeTest, WhatNeedsALinkIsRefusedByItsState) {
  EXPECT_EQ(life_.CheckUp().code(), absl::StatusCode::kFailedPrecondition);
  life_.BecomeUp();
  EXPECT_TRUE(life_.CheckUp().ok());
  life_.End();
  EXPECT_EQ(life_.CheckUp().code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace weft
