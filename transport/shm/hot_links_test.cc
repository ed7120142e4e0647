// Links that are quiet go cold where there are many, and are found again by their flags.
#include "transport/shm/hot_links.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <vector>

namespace weft {
namespace {

class QuietLink {
 public:
  explicit QuietLink(HotLinks<QuietLink>* links) : links_(*links) {
    EXPECT_TRUE(links_.Join(this));
  }
  ~QuietLink() {
    links_.MakeCold(this);
    links_.Leave(this);
  }

  HotPlace& hot() { return hot_; }
  bool down() const { return is_down; }
  uint64_t Look() {
    if (looks++ == comes_after_looks) records = 1;
    return static_cast<uint64_t>(records);
  }
  int Receive(uint64_t found, int budget) {
    EXPECT_EQ(found, static_cast<uint64_t>(records));
    int count = 0;
    for (; records > 0 && count < budget; ++count, --records) {
      if (!on_record) continue;
      const std::function<void()> run = on_record;  // it may destroy this link
      run();
      return 1;
    }
    return count;
  }
  void RegisterForPrefetch(PrefetchList& prefetch) { prefetch.Begin(/*peer_flag=*/nullptr); }

  bool is_cold() const { return hot_.cold(); }

  int records = 0;
  int looks = 0;
  int comes_after_looks = -1;  // a record
  bool is_down = false;
  std::function<void()> on_record;

 private:
  HotLinks<QuietLink>& links_;
  HotPlace hot_;
};

class HotLinksTest : public testing::Test {
 protected:
  using Links = HotLinks<QuietLink>;

  void Open(size_t count) {
    for (size_t i = 0; i < count; ++i) opened_.push_back(std::make_unique<QuietLink>(&links_));
  }
  QuietLink& link(size_t i) { return *opened_[i]; }
  ReadyFlag& FlagOf(size_t i) { return shared_->of[link(i).hot().flag]; }
  // As a domain does it.
  int Turn() {
    if (!has_duties_) return links_.Receive(64);
    const int done = links_.ReceiveAll(64, [this] { ++seen_; });
    has_duties_ = links_.HasDuties();
    return done;
  }
  void CoolDown() {
    for (uint32_t turn = 0; turn <= Links::kQuietTurns + 1; ++turn) Turn();
    ASSERT_EQ(links_.count(), 0u);
  }

  bool has_duties_ = false;
  int seen_ = 0;
  std::unique_ptr<SharedReadyFlags> shared_ = std::make_unique<SharedReadyFlags>();
  ReadyFlags flags_{shared_.get()};
  Links links_{&flags_, &has_duties_};
  std::vector<std::unique_ptr<QuietLink>> opened_;
};

TEST_F(HotLinksTest, FewLinksAreAlwaysHot) {
  Open(Links::kAlwaysHot);
  for (int turn = 0; turn < 1000; ++turn) EXPECT_EQ(Turn(), 0);
  EXPECT_EQ(links_.count(), Links::kAlwaysHot);
  EXPECT_EQ(link(3).looks, 1000);
  EXPECT_FALSE(has_duties_);
}

TEST_F(HotLinksTest, OfManyThoseThatAreQuietGoCold) {
  Open(Links::kAlwaysHot + 1);
  for (uint32_t turn = 0; turn < 2 * Links::kQuietTurns; ++turn) {
    link(4).records = 1;
    EXPECT_EQ(Turn(), 1);
  }
  EXPECT_EQ(links_.count(), 1u);
  EXPECT_FALSE(link(4).is_cold());
  EXPECT_TRUE(link(5).is_cold());
  EXPECT_TRUE(links_.PrefetchOf(&link(5)).wanted());
  EXPECT_TRUE(has_duties_);
  EXPECT_EQ(FlagOf(4), 1);
  EXPECT_EQ(FlagOf(5), 0);
}

TEST_F(HotLinksTest, ARecordThatComesAsItsLinkGoesColdKeepsItHot) {
  Open(Links::kAlwaysHot + 1);
  for (uint32_t turn = 0; turn < Links::kQuietTurns; ++turn) Turn();
  link(2).comes_after_looks = link(2).looks + 1;
  Turn();
  EXPECT_FALSE(link(2).is_cold());
  EXPECT_TRUE(link(3).is_cold());
}

TEST_F(HotLinksTest, AFlagMakesItsLinkHotAndItsRecordIsReceivedInTheSameTurn) {
  Open(20);
  CoolDown();
  link(7).records = 1;
  FlagOf(7) = 1;
  EXPECT_EQ(Turn(), 1);
  EXPECT_EQ(links_.count(), 1u);
  EXPECT_EQ(seen_, 1);
  EXPECT_FALSE(links_.PrefetchOf(&link(7)).wanted());
}

TEST_F(HotLinksTest, AFlagThatIsSetAheadIsLookedAfterForAWhile) {
  Open(20);
  CoolDown();
  FlagOf(7) = 1;
  link(7).looks = 0;
  EXPECT_EQ(Turn(), 0);
  EXPECT_EQ(link(7).looks, 1 + static_cast<int>(Links::kLooksAfterFlag));
  EXPECT_FALSE(link(7).is_cold());
}

TEST_F(HotLinksTest, FlagsOfNobodyAndOfLinksThatAreDownAreIgnored) {
  Open(20);
  CoolDown();
  shared_->of[21] = 1;
  link(3).is_down = true;
  FlagOf(3) = 1;
  EXPECT_EQ(Turn(), 0);
  EXPECT_EQ(links_.count(), 0u);
}

// A hostile peer has cleared the flag, or it was lost.
TEST_F(HotLinksTest, ARecordWithoutAFlagIsFoundInTime) {
  Open(20);
  CoolDown();
  link(11).records = 1;
  int done = 0;
  uint32_t turns = 0;
  for (; done == 0 && turns <= 20 * Links::kScansPerColdLook; ++turns) done = Turn();
  EXPECT_EQ(done, 1) << turns;
}

TEST_F(HotLinksTest, BeforeASleepEveryRingIsLookedAt) {
  Open(20);
  CoolDown();
  EXPECT_FALSE(links_.AnyHasInput());
  link(2).records = 1;
  EXPECT_TRUE(links_.AnyHasInput());
  EXPECT_FALSE(link(2).is_cold());
}

TEST_F(HotLinksTest, AnAwaitedLinkStaysHotForLongerAndScansAreRarer) {
  Open(20);
  CoolDown();
  links_.AwaitAnswer(&link(9));
  for (uint32_t turn = 0; turn < Links::kAwaitedTurns; ++turn) Turn();
  EXPECT_FALSE(link(9).is_cold());
  FlagOf(4) = 1;
  uint32_t turns = 0;
  while (seen_ == 0 && turns < 100) Turn(), ++turns;
  EXPECT_LE(turns, Links::kAwaitedTurnsPerScan);
  for (uint32_t turn = 0; turn < 2 * Links::kQuietTurns; ++turn) Turn();
  EXPECT_TRUE(link(9).is_cold()) << "not for ever";
}

TEST_F(HotLinksTest, AFloodOnOneLinkLeavesTheOthersTheirTurn) {
  Open(3);
  link(0).records = 1000;
  link(2).records = 1;
  EXPECT_EQ(Turn(), Links::kRecordsAtOnce + 1);
  EXPECT_EQ(link(2).records, 0);
}

TEST_F(HotLinksTest, WhereTheBudgetIsUsedUpTheNextTurnGoesOn) {
  Open(4);
  for (auto& each : opened_) each->records = Links::kRecordsAtOnce;
  EXPECT_EQ(Turn(), 64);
  EXPECT_EQ(link(2).records, Links::kRecordsAtOnce);
  EXPECT_EQ(Turn(), 64);
  EXPECT_EQ(link(3).records, 0);
}

TEST_F(HotLinksTest, ARecordMayEndItsLinkAndOthers) {
  Open(12);
  link(5).records = link(6).records = link(7).records = 1;
  link(5).on_record = [this] {
    opened_[6].reset();
    EXPECT_TRUE(links_.IsReceiving(&link(5)));
    QuietLink* const self = &link(5);
    opened_[5].reset();
    EXPECT_FALSE(links_.IsReceiving(self));
  };
  EXPECT_EQ(Turn(), 2);
  EXPECT_EQ(link(7).records, 0);
  EXPECT_EQ(links_.count(), 10u);
  Turn();
  EXPECT_FALSE(has_duties_) << "the holes are closed";
}

TEST_F(HotLinksTest, AFlagComesBackWhenItsLinkLeaves) {
  Open(2);
  const uint32_t flag = link(1).hot().flag;
  opened_.pop_back();
  Open(1);
  EXPECT_EQ(link(1).hot().flag, flag);
}

}  // namespace
}  // namespace weft
