// Each link that is scheduled comes once, and whoever is called may destroy any link.
#include "transport/link_lists.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace weft {
namespace {

class ListedLink final : public LinkNodes, private LinkHandler {
 public:
  ListedLink(LinkLists<ListedLink>* lists, std::string name, std::vector<std::string>* told)
      : lists_(*lists), name_(std::move(name)), told_(*told) {
    lists_.Join(this);
  }
  ~ListedLink() { lists_.Leave(this); }

  bool up() const { return is_up; }
  LinkHandler* handler() { return this; }
  const std::string& name() const { return name_; }
  void Retry() { Note("retry"); }
  void DeliverEvent() { Note("event"); }

  bool is_up = true;
  std::function<void()> when_told;

 private:
  void OnLinkUp() override {}
  void OnLinkDown(const absl::Status&) override {}
  void OnSlotsFree() override { Note("room"); }
  void Note(const std::string& what) {
    told_.push_back(name_ + " " + what);
    const std::function<void()> told = when_told;  // it may destroy this object
    if (told) told();
  }

  LinkLists<ListedLink>& lists_;
  const std::string name_;
  std::vector<std::string>& told_;
};

class LinkListsTest : public testing::Test {
 protected:
  using Told = std::vector<std::string>;

  Told TakeTold() { return std::exchange(told_, {}); }

  LinkDomainStats stats_;
  LinkLists<ListedLink> lists_{&stats_};
  Told told_;
  std::unique_ptr<ListedLink> a_ = std::make_unique<ListedLink>(&lists_, "a", &told_);
  std::unique_ptr<ListedLink> b_ = std::make_unique<ListedLink>(&lists_, "b", &told_);
  std::unique_ptr<ListedLink> c_ = std::make_unique<ListedLink>(&lists_, "c", &told_);
};

TEST_F(LinkListsTest, LinksAreCounted) {
  EXPECT_EQ(stats_.links_open, 3u);
  b_.reset();
  EXPECT_EQ(stats_.links_open, 2u);
}

TEST_F(LinkListsTest, WhatIsScheduledTwiceComesOnce) {
  lists_.ScheduleRetry(b_.get());
  lists_.ScheduleRetry(a_.get());
  lists_.ScheduleRetry(b_.get());
  lists_.ScheduleEvent(c_.get());
  lists_.ScheduleEvent(c_.get());
  EXPECT_TRUE(lists_.has_retries() && lists_.has_events());
  lists_.Retry();
  EXPECT_EQ(TakeTold(), (Told{"b retry", "a retry"}));
  EXPECT_EQ(lists_.DeliverEvents(), 1);
  EXPECT_EQ(TakeTold(), Told{"c event"});
  EXPECT_FALSE(lists_.has_retries() || lists_.has_events());
  lists_.Retry();
  EXPECT_EQ(lists_.DeliverEvents(), 0);
  EXPECT_EQ(TakeTold(), Told{});
}

TEST_F(LinkListsTest, WhatIsScheduledMeanwhileComesNextTime) {
  a_->when_told = [this] { lists_.ScheduleRetry(a_.get()); };
  lists_.ScheduleRetry(a_.get());
  lists_.Retry();
  EXPECT_EQ(TakeTold(), Told{"a retry"});
  EXPECT_TRUE(lists_.has_retries());
  a_->when_told = nullptr;
  lists_.Retry();
  EXPECT_EQ(TakeTold(), Told{"a retry"});
  EXPECT_FALSE(lists_.has_retries());
}

// Whoever comes first again and again keeps nobody from his turn.
TEST_F(LinkListsTest, ThoseThatHadNoTurnAreBeforeThoseThatComeAgain) {
  Told turns;
  int left = 0;
  const auto take = [&](ListedLink* link) {
    turns.push_back(link->name());
    lists_.ScheduleTurn(link);
    lists_.ScheduleTurn(link);  // it is there once
    return --left > 0;
  };
  for (ListedLink* link : {a_.get(), b_.get(), c_.get()}) lists_.ScheduleTurn(link);
  for (int i = 0; i < 3; ++i) {
    left = 2;
    lists_.GiveTurns(take);
  }
  EXPECT_EQ(turns, (Told{"a", "b", "c", "a", "b", "c"}));
  left = 10;
  lists_.GiveTurns(take);
  EXPECT_EQ(turns.size(), 9u) << "one turn each";
  a_->ForgetDuties();
  b_.reset();
  turns.clear();
  left = 10;
  lists_.GiveTurns(take);
  EXPECT_EQ(turns, Told{"c"});
  EXPECT_TRUE(lists_.has_turns());
}

TEST_F(LinkListsTest, OnlyLinksThatAreUpHearOfRoom) {
  b_->is_up = false;
  lists_.TellSlotsFree();
  EXPECT_EQ(TakeTold(), (Told{"a room", "c room"}));
}

TEST_F(LinkListsTest, WhoIsToldMayDestroyAnyLinkAndOpenOthers) {
  std::unique_ptr<ListedLink> d;
  a_->when_told = [&] {
    b_.reset();
    d = std::make_unique<ListedLink>(&lists_, "d", &told_);
    a_.reset();
  };
  lists_.TellSlotsFree();
  EXPECT_EQ(TakeTold(), (Told{"a room", "c room"}));
  lists_.ScheduleEvent(c_.get());
  lists_.ScheduleEvent(d.get());
  c_->when_told = [&] { d.reset(); };
  EXPECT_EQ(lists_.DeliverEvents(), 1);
  EXPECT_EQ(stats_.links_open, 1u);
}

TEST_F(LinkListsTest, AnyRetryAsksUntilOneSaysYes) {
  EXPECT_FALSE(lists_.AnyRetry([](ListedLink&) { return true; }));
  lists_.ScheduleRetry(a_.get());
  lists_.ScheduleRetry(b_.get());
  int asked = 0;
  EXPECT_FALSE(lists_.AnyRetry([&](ListedLink&) { return ++asked == 3; }));
  EXPECT_TRUE(lists_.AnyRetry([&](ListedLink&) { return ++asked == 3; }));
  EXPECT_EQ(asked, 3);
}

TEST_F(LinkListsTest, ALinkThatForgetsItsDutiesIsNotCalled) {
  lists_.ScheduleRetry(a_.get());
  lists_.ScheduleEvent(a_.get());
  a_->ForgetDuties();
  EXPECT_FALSE(lists_.has_retries() || lists_.has_events());
}

}  // namespace
}  // namespace weft
