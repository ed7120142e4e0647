#include "rpc/client/lent_memory.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "rpc/testing/loopback.h"

namespace weft::test {
namespace {

// Registers and reclaims memory as the test says.
class LendingAccess : public NoRemoteAccess {
 public:
  class FakeRegion final : public Region {
   public:
    FakeRegion(MutableByteSpan memory, uint64_t key, int* alive)
        : Region(memory, {key, 0, memory.size()}), alive_(alive) {
      ++*alive_;
    }
    ~FakeRegion() override { --*alive_; }

   private:
    int* const alive_;
  };

  absl::StatusOr<std::unique_ptr<Region>> Register(MutableByteSpan memory, Access) override {
    if (left_ == 0) return absl::ResourceExhaustedError("no room for registrations");
    --left_;
    return std::make_unique<FakeRegion>(memory, ++last_key_, &regions_);
  }
  bool Reclaim(std::unique_ptr<Region> region, Operation* op) override {
    region.reset();
    if (reclaims_at_once_) return true;
    pinned_.push_back(op);
    return false;
  }
  // Nothing can touch what was released any more.
  void EndReclaims() {
    std::vector<Operation*> ended;
    ended.swap(pinned_);
    for (Operation* op : ended) op->OnComplete(absl::OkStatus());
  }

  int left_ = 100;  // registrations that are possible
  uint64_t last_key_ = 0;
  int regions_ = 0;
  bool reclaims_at_once_ = true;
  std::vector<Operation*> pinned_;
};

class LendingConnection final : public LendingAccess, public LoopbackConnection {
 public:
  LendingConnection() : LoopbackConnection(this) {}
};

class CountingKeeper final : public LocalMemory::Keeper {
 public:
  void Pin(size_t) override { ++pins; }
  void Unpin(size_t) override { --pins; }
  int pins = 0;
};

// A call, or a stream, with memory that it may lend.
struct Lender final : public Loan::Owner {
  void OnReclaimed() override { ++reclaimed; }
  // As by its deadline, or with what has ended it.
  void End(absl::Status status) {
    loan.EndUse();
    ++ends;
    outcome = std::move(status);
  }

  int reclaimed = 0;
  int ends = 0;
  absl::Status outcome;
  Loan loan{this};
};

class LentMemoryTest : public testing::Test {
 protected:
  void TearDown() override {
    EXPECT_TRUE(lent_.empty());
    EXPECT_EQ(connection_.regions_, 0);
    EXPECT_EQ(keeper_.pins, 0);
  }

  Slice slice(size_t offset, size_t length) { return {&memory_, offset, length}; }
  // A call lends two windows, in the slot of that number.
  absl::Status Lend(Lender& lender, uint32_t slot) {
    lender.loan.Clear();
    lender.loan.Add(slice(0, 16), kMayRead);
    lender.loan.Add(slice(16, 16), kMayWrite);
    lender.loan.Begin();
    return lent_.Lend(connection_, lender.loan, {slot, 1}, table_.data());
  }
  // Its reply is here.
  void EndWhenReclaimed(Lender& lender, absl::Status outcome) {
    lent_.EndWhenReclaimed(connection_, lender.loan, std::move(outcome),
                           [&lender](absl::Status status) { lender.End(std::move(status)); });
  }

  std::array<std::byte, 64> bytes_{};
  CountingKeeper keeper_;
  LocalMemory memory_{MutableByteSpan(bytes_), &keeper_};
  std::array<std::byte, kMaxWindows * kWindowBytes> table_{};
  std::string given_up_;
  Lender call_;
  Lender other_;
  LendingConnection connection_;
  int empty_ = 0;
  LentMemory lent_{[this](std::string_view why) { given_up_ = why; }, [this] { ++empty_; }};
};

TEST_F(LentMemoryTest, ACallEndsOnceItsMemoryIsReclaimed) {
  connection_.reclaims_at_once_ = false;
  ASSERT_TRUE(Lend(call_, 0).ok());
  EXPECT_EQ(connection_.regions_, 2);
  EXPECT_EQ(keeper_.pins, 2);
  EXPECT_TRUE(call_.loan[1].exposed);
  EXPECT_FALSE(call_.loan[0].exposed);

  EndWhenReclaimed(call_, absl::DataLossError("as the server said"));
  EXPECT_EQ(call_.ends, 0);
  EXPECT_EQ(keeper_.pins, 2);
  connection_.EndReclaims();
  EXPECT_EQ(call_.ends, 1);
  EXPECT_TRUE(absl::IsDataLoss(call_.outcome));
  EXPECT_EQ(call_.reclaimed, 1);
}

TEST_F(LentMemoryTest, WhatIsReclaimedAtOnceEndsTheCallInside) {
  ASSERT_TRUE(Lend(call_, 0).ok());
  EndWhenReclaimed(call_, absl::OkStatus());
  EXPECT_EQ(call_.ends, 1);
  EXPECT_EQ(call_.reclaimed, 1);
}

TEST_F(LentMemoryTest, LendingIsAllOrNothing) {
  connection_.left_ = 1;
  EXPECT_TRUE(absl::IsResourceExhausted(Lend(call_, 0)));
  EXPECT_EQ(connection_.regions_, 0);
  EXPECT_EQ(keeper_.pins, 0);
  EXPECT_FALSE(call_.loan[1].exposed);
  EXPECT_EQ(call_.reclaimed, 0);
  call_.End(absl::ResourceExhaustedError("not sent"));
  EXPECT_EQ(call_.reclaimed, 1);
}

TEST_F(LentMemoryTest, AnEmptyWindowNeedsNoRegistration) {
  call_.loan.Add(slice(0, 0), kMayWrite);
  call_.loan.Begin();
  ASSERT_TRUE(lent_.Lend(connection_, call_.loan, {0, 1}, table_.data()).ok());
  EXPECT_EQ(connection_.regions_, 0);
  EndWhenReclaimed(call_, absl::OkStatus());
  EXPECT_EQ(call_.reclaimed, 1);
}

TEST_F(LentMemoryTest, TheMemoryOfACallThatHasEndedStaysPinnedUntilTheServerIsDone) {
  ASSERT_TRUE(Lend(call_, 3).ok());
  call_.End(absl::DeadlineExceededError("no reply"));
  EXPECT_EQ(call_.reclaimed, 0);
  EXPECT_EQ(keeper_.pins, 2);
  lent_.Release(connection_, {3, 3});  // another call's
  lent_.Release(connection_, {2, 1});
  EXPECT_EQ(call_.reclaimed, 0);
  lent_.Release(connection_, {3, 1});
  EXPECT_EQ(call_.reclaimed, 1);
  EXPECT_EQ(call_.ends, 1);
}

TEST_F(LentMemoryTest, ASecondReleaseChangesNothing) {
  connection_.reclaims_at_once_ = false;
  ASSERT_TRUE(Lend(call_, 0).ok());
  call_.End(absl::DeadlineExceededError("no reply"));
  lent_.Release(connection_, {0, 1});
  lent_.Release(connection_, {0, 1});
  EXPECT_EQ(connection_.pinned_.size(), 2u);
  connection_.EndReclaims();
  EXPECT_EQ(call_.reclaimed, 1);
}

TEST_F(LentMemoryTest, TheEndOfTheConnectionReclaimsAllAndLeavesCallsToTheirEnd) {
  ASSERT_TRUE(Lend(call_, 0).ok());
  ASSERT_TRUE(Lend(other_, 1).ok());
  other_.End(absl::DeadlineExceededError("no reply"));
  lent_.ReclaimAll(connection_);
  EXPECT_TRUE(lent_.empty());
  EXPECT_EQ(empty_, 1);
  EXPECT_EQ(other_.reclaimed, 1);
  EXPECT_EQ(call_.reclaimed, 0);
  EXPECT_EQ(call_.ends, 0);
  call_.End(absl::UnavailableError("lost"));
  EXPECT_EQ(call_.reclaimed, 1);
}

TEST_F(LentMemoryTest, ShuttingDownEndsCallsThatWaitForTheirMemory) {
  connection_.reclaims_at_once_ = false;
  ASSERT_TRUE(Lend(call_, 0).ok());
  EndWhenReclaimed(call_, absl::OkStatus());
  lent_.EndCalls(absl::CancelledError("closed"));
  EXPECT_EQ(call_.ends, 1);
  EXPECT_TRUE(absl::IsCancelled(call_.outcome));
  EXPECT_EQ(call_.reclaimed, 0);
  connection_.EndReclaims();
  EXPECT_EQ(call_.ends, 1);
  EXPECT_EQ(call_.reclaimed, 1);
}

TEST_F(LentMemoryTest, AServerThatKeepsTheMemoryCanBeGivenUp) {
  call_.loan.EndConnection("nothing is lent");
  EXPECT_EQ(given_up_, "");
  ASSERT_TRUE(Lend(call_, 0).ok());
  call_.loan.EndConnection("it does not answer");
  EXPECT_EQ(given_up_, "it does not answer");
  EndWhenReclaimed(call_, absl::OkStatus());
}

}  // namespace
}  // namespace weft::test
