#include "transport/framing/reclaimer.h"

#include <gtest/gtest.h>

#include <vector>

namespace weft {
namespace {

struct Told final : public Operation {
  void OnComplete(const absl::Status& status) override {
    ++times;
    EXPECT_TRUE(status.ok());
  }
  int times = 0;
};

// Adds another when it is told, and has it sent.
struct Adding final : public Operation {
  Adding(Reclaimer* reclaimer, Operation* added) : reclaimer_(*reclaimer), added_(added) {}
  void OnComplete(const absl::Status& status) override {
    ++times;
    EXPECT_TRUE(status.ok());
    reclaimer_.Add(added_);
    if (reclaimer_.wants_advance()) reclaimer_.Advance();
  }
  int times = 0;

 private:
  Reclaimer& reclaimer_;
  Operation* const added_;
};

class ReclaimerTest : public testing::Test, private Reclaimer::Host {
 protected:
  // The end of a turn.
  void Flush() {
    while (soon_) {
      soon_ = false;
      if (reclaimer_.wants_advance()) reclaimer_.Advance();
    }
  }
  void Pass(size_t fence) { fences_[fence]->OnComplete(absl::OkStatus()); }
  // All that is under way: the last fence; or both probes.
  void PassAll() {
    if (has_fence_) return Pass(fences_.size() - 1);
    Answer();
    Answer();
  }
  void Answer() { probes_.back()->OnComplete(absl::OkStatus()); }

  bool has_fence_ = true;
  bool has_room_ = true;
  bool soon_ = false;
  std::vector<Operation*> fences_;
  std::vector<Operation*> probes_;
  Reclaimer reclaimer_{this};

 private:
  bool HasFence() const override { return has_fence_; }
  absl::Status SendFenceForReclaimer(Operation* passed) override {
    if (!has_room_) return absl::UnavailableError("no room");
    fences_.push_back(passed);
    return absl::OkStatus();
  }
  absl::Status AskForReclaimer(Operation* probe) override {
    if (!has_room_) return absl::UnavailableError("no room");
    probes_.push_back(probe);
    return absl::OkStatus();
  }
  void AdvanceSoon() override { soon_ = true; }
};

TEST_F(ReclaimerTest, RegionsOfOneTurnShareAFence) {
  Told first, second;
  reclaimer_.Add(&first);
  reclaimer_.Add(&second);
  EXPECT_TRUE(fences_.empty()) << "it goes with what the turn sends";
  Flush();
  ASSERT_EQ(fences_.size(), 1u);
  EXPECT_EQ(reclaimer_.pinned(), 2u);
  Pass(0);
  EXPECT_EQ(first.times, 1);
  EXPECT_EQ(second.times, 1);
  EXPECT_EQ(reclaimer_.pinned(), 0u);
  EXPECT_TRUE(probes_.empty());
}

TEST_F(ReclaimerTest, ARegionThatComesLaterIsNotCoveredByAnEarlierFence) {
  Told first, second;
  reclaimer_.Add(&first);
  Flush();
  reclaimer_.Add(&second);
  Flush();
  ASSERT_EQ(fences_.size(), 2u);
  Pass(0);
  EXPECT_EQ(first.times, 1);
  EXPECT_EQ(second.times, 0);
  Pass(1);
  EXPECT_EQ(second.times, 1);
}

TEST_F(ReclaimerTest, MoreThanThereAreFencesWaitForTheNextOne) {
  std::vector<Told> told(10);
  for (Told& one : told) {
    reclaimer_.Add(&one);
    Flush();
  }
  const size_t under_way = fences_.size();
  ASSERT_LT(under_way, told.size());
  Pass(0);
  Flush();
  ASSERT_EQ(fences_.size(), under_way + 1) << "those that waited share one";
  for (size_t i = 1; i < fences_.size(); ++i) Pass(i);
  for (const Told& one : told) EXPECT_EQ(one.times, 1);
  EXPECT_EQ(reclaimer_.pinned(), 0u);
}

TEST_F(ReclaimerTest, AFenceWithoutRoomIsSentLater) {
  Told told;
  has_room_ = false;
  reclaimer_.Add(&told);
  Flush();
  EXPECT_TRUE(reclaimer_.wants_advance());
  has_room_ = true;
  reclaimer_.Advance();
  ASSERT_EQ(fences_.size(), 1u);
  EXPECT_FALSE(reclaimer_.wants_advance());
  Pass(0);
  EXPECT_EQ(told.times, 1);
}

TEST_F(ReclaimerTest, WithoutAFenceTwoAnswersAreNeeded) {
  has_fence_ = false;
  Told told;
  reclaimer_.Add(&told);
  ASSERT_EQ(probes_.size(), 1u);
  Answer();
  EXPECT_EQ(told.times, 0);
  ASSERT_EQ(probes_.size(), 2u);
  Answer();
  EXPECT_EQ(told.times, 1);
  EXPECT_TRUE(fences_.empty());
}

// A callback that sends something takes the next fence along.
TEST_F(ReclaimerTest, WhoIsToldMayAddMoreAndSendItAtOnce) {
  for (const bool has_fence : {true, false}) {
    has_fence_ = has_fence;
    fences_.clear();
    probes_.clear();
    Told before, last, added;
    Adding first(&reclaimer_, &added);
    reclaimer_.Add(&before);
    Flush();
    reclaimer_.Add(&first);
    reclaimer_.Add(&last);
    PassAll();
    EXPECT_EQ(before.times, 1);
    Flush();
    PassAll();
    EXPECT_EQ(first.times, 1);
    EXPECT_EQ(last.times, 1);
    EXPECT_EQ(added.times, 0) << "its memory may still be touched";
    Flush();
    PassAll();
    EXPECT_EQ(first.times, 1);
    EXPECT_EQ(added.times, 1);
    EXPECT_EQ(reclaimer_.pinned(), 0u);
  }
}

TEST_F(ReclaimerTest, TheEndTellsEverybodyOnce) {
  std::vector<Told> told(8);
  for (Told& one : told) {
    reclaimer_.Add(&one);
    Flush();
  }
  reclaimer_.End();
  for (const Told& one : told) EXPECT_EQ(one.times, 1);
}

}  // namespace
}  // namespace weft
