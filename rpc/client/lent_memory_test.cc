#include "rpc/client/lent_memory.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "rpc/testing/test_call.h"

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

struct Lender final : public Loan::Owner {
  void OnReclaimed() override { ++reclaimed; }
  int reclaimed = 0;
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
  absl::Status Lend(TestCall& call, Lender& lender, uint32_t slot) {
    lender.loan.Clear();
    lender.loan.Add(slice(0, 16), kMayRead);
    lender.loan.Add(slice(16, 16), kMayWrite);
    lender.loan.Begin();
    call.loan = &lender.loan;
    call.state = ClientCall::State::kSent;
    return lent_.Lend(connection_, call, {slot, 1}, table_.data());
  }
  // As a client does: by its deadline, or with what has ended it.
  void End(ClientCall& call, absl::Status status) {
    if (call.loan != nullptr) LentMemory::EndLoan(call);
    call.state = ClientCall::State::kDone;
    call.Complete(std::move(status));
  }

  std::array<std::byte, 64> bytes_{};
  CountingKeeper keeper_;
  LocalMemory memory_{MutableByteSpan(bytes_), &keeper_};
  std::array<std::byte, kMaxWindows * kWindowBytes> table_{};
  std::string given_up_;
  IdleClient client_;
  TestCall call_{client_};
  TestCall other_call_{client_};
  Lender lender_;
  Lender other_lender_;
  LendingConnection connection_;
  LentMemory lent_{[this](ClientCall& call, absl::Status status) { End(call, std::move(status)); },
                   [this](std::string_view why) { given_up_ = why; }};
};

TEST_F(LentMemoryTest, ACallEndsOnceItsMemoryIsReclaimed) {
  connection_.reclaims_at_once_ = false;
  ASSERT_TRUE(Lend(call_, lender_, 0).ok());
  EXPECT_EQ(connection_.regions_, 2);
  EXPECT_EQ(keeper_.pins, 2);
  EXPECT_TRUE(lender_.loan[1].exposed);
  EXPECT_FALSE(lender_.loan[0].exposed);

  lent_.EndWhenReclaimed(connection_, call_, absl::DataLossError("as the server said"));
  EXPECT_EQ(call_.state, ClientCall::State::kReclaiming);
  EXPECT_EQ(keeper_.pins, 2);
  connection_.EndReclaims();
  EXPECT_EQ(call_.ends, 1);
  EXPECT_TRUE(absl::IsDataLoss(call_.outcome));
  EXPECT_EQ(lender_.reclaimed, 1);
}

TEST_F(LentMemoryTest, WhatIsReclaimedAtOnceEndsTheCallInside) {
  ASSERT_TRUE(Lend(call_, lender_, 0).ok());
  lent_.EndWhenReclaimed(connection_, call_, absl::OkStatus());
  EXPECT_EQ(call_.ends, 1);
  EXPECT_EQ(lender_.reclaimed, 1);
}

TEST_F(LentMemoryTest, LendingIsAllOrNothing) {
  connection_.left_ = 1;
  EXPECT_TRUE(absl::IsResourceExhausted(Lend(call_, lender_, 0)));
  EXPECT_EQ(connection_.regions_, 0);
  EXPECT_EQ(keeper_.pins, 0);
  EXPECT_FALSE(lender_.loan[1].exposed);
  EXPECT_EQ(lender_.reclaimed, 0);
  End(call_, absl::ResourceExhaustedError("not sent"));
  EXPECT_EQ(lender_.reclaimed, 1);
}

TEST_F(LentMemoryTest, AnEmptyWindowNeedsNoRegistration) {
  lender_.loan.Add(slice(0, 0), kMayWrite);
  call_.loan = &lender_.loan;
  ASSERT_TRUE(lent_.Lend(connection_, call_, {0, 1}, table_.data()).ok());
  EXPECT_EQ(connection_.regions_, 0);
  lent_.EndWhenReclaimed(connection_, call_, absl::OkStatus());
  EXPECT_EQ(lender_.reclaimed, 1);
}

TEST_F(LentMemoryTest, TheMemoryOfACallThatHasEndedStaysPinnedUntilTheServerIsDone) {
  ASSERT_TRUE(Lend(call_, lender_, 3).ok());
  End(call_, absl::DeadlineExceededError("no reply"));
  EXPECT_EQ(lender_.reclaimed, 0);
  EXPECT_EQ(keeper_.pins, 2);
  lent_.Release(connection_, {3, 3});  // another call's
  lent_.Release(connection_, {2, 1});
  EXPECT_EQ(lender_.reclaimed, 0);
  lent_.Release(connection_, {3, 1});
  EXPECT_EQ(lender_.reclaimed, 1);
  EXPECT_EQ(call_.ends, 1);
}

TEST_F(LentMemoryTest, ASecondReleaseChangesNothing) {
  connection_.reclaims_at_once_ = false;
  ASSERT_TRUE(Lend(call_, lender_, 0).ok());
  End(call_, absl::DeadlineExceededError("no reply"));
  lent_.Release(connection_, {0, 1});
  lent_.Release(connection_, {0, 1});
  EXPECT_EQ(connection_.pinned_.size(), 2u);
  connection_.EndReclaims();
  EXPECT_EQ(lender_.reclaimed, 1);
}

TEST_F(LentMemoryTest, TheEndOfTheConnectionReclaimsAllAndLeavesCallsToTheirEnd) {
  ASSERT_TRUE(Lend(call_, lender_, 0).ok());
  ASSERT_TRUE(Lend(other_call_, other_lender_, 1).ok());
  End(other_call_, absl::DeadlineExceededError("no reply"));
  lent_.ReclaimAll(connection_);
  EXPECT_TRUE(lent_.empty());
  EXPECT_EQ(other_lender_.reclaimed, 1);
  EXPECT_EQ(lender_.reclaimed, 0);
  EXPECT_EQ(call_.ends, 0);
  End(call_, absl::UnavailableError("lost"));
  EXPECT_EQ(lender_.reclaimed, 1);
}

TEST_F(LentMemoryTest, ShuttingDownEndsCallsThatWaitForTheirMemory) {
  connection_.reclaims_at_once_ = false;
  ASSERT_TRUE(Lend(call_, lender_, 0).ok());
  lent_.EndWhenReclaimed(connection_, call_, absl::OkStatus());
  lent_.EndCalls(absl::CancelledError("closed"));
  EXPECT_EQ(call_.ends, 1);
  EXPECT_TRUE(absl::IsCancelled(call_.outcome));
  EXPECT_EQ(lender_.reclaimed, 0);
  connection_.EndReclaims();
  EXPECT_EQ(call_.ends, 1);
  EXPECT_EQ(lender_.reclaimed, 1);
}

TEST_F(LentMemoryTest, AServerThatKeepsTheMemoryCanBeGivenUp) {
  lender_.loan.EndConnection("nothing is lent");
  EXPECT_EQ(given_up_, "");
  ASSERT_TRUE(Lend(call_, lender_, 0).ok());
  lender_.loan.EndConnection("it does not answer");
  EXPECT_EQ(given_up_, "it does not answer");
  lent_.EndWhenReclaimed(connection_, call_, absl::OkStatus());
}

}  // namespace
}  // namespace weft::test
