// Outstanding operations: each user hears of the end once, at the time that the header says.

#include "transport/ofi/outstanding_operations.h"

#include <functional>

#include "gtest/gtest.h"

namespace weft {
namespace {

struct User final : Operation {
  void OnComplete(const absl::Status& result) override {
    ++completions;
    status = result;
    if (on_complete) on_complete();
  }
  int completions = 0;
  absl::Status status;
  std::function<void()> on_complete;
};

class OutstandingOperationsTest : public testing::Test {
 protected:
  OperationRecord* Take(User& user, const FabricLink* link = nullptr) {
    EXPECT_TRUE(operations_.HasRoomFor(1));
    OperationRecord* const record = operations_.Take();
    record->user = &user;
    record->link = const_cast<FabricLink*>(link);
    return record;
  }
  // A link that is compared, and never looked into.
  const FabricLink* Link(size_t number) const {
    return reinterpret_cast<const FabricLink*>(&links_[number]);
  }

  OutstandingOperations operations_{4};
  User users_[5];
  uint64_t links_[2] = {};
};

TEST_F(OutstandingOperationsTest, ARecordIsFreeBeforeItsUserHearsOfTheEnd) {
  OperationRecord* const record = Take(users_[0]);
  const WorkId id = operations_.IdOf(record);
  users_[0].on_complete = [&] {
    EXPECT_EQ(operations_.size(), 0u);
    EXPECT_EQ(operations_.Find(id), nullptr);
  };
  operations_.Complete(record);
  EXPECT_EQ(users_[0].completions, 1);
  EXPECT_TRUE(users_[0].status.ok());
}

TEST_F(OutstandingOperationsTest, ADeferredOneIsNotFoundAndToldLater) {
  OperationRecord* const record = Take(users_[0]);
  const WorkId id = operations_.IdOf(record);
  EXPECT_EQ(operations_.Find(id), record);
  operations_.Defer(record, absl::AbortedError("later"));
  EXPECT_EQ(operations_.Find(id), nullptr);
  EXPECT_EQ(operations_.size(), 1u) << "the record is in use until then";
  EXPECT_EQ(users_[0].completions, 0);
  EXPECT_EQ(operations_.Deliver(/*budget=*/10), 1);
  EXPECT_EQ(users_[0].status.code(), absl::StatusCode::kAborted);
  EXPECT_FALSE(operations_.has_deferred());
}

// A user that posts the next operation from the end of the last would otherwise be the whole turn.
TEST_F(OutstandingOperationsTest, ATurnTellsAsManyAsItsBudget) {
  users_[0].on_complete = [&] { operations_.Defer(Take(users_[0]), absl::OkStatus()); };
  operations_.Defer(Take(users_[0]), absl::OkStatus());
  EXPECT_EQ(operations_.Deliver(/*budget=*/3), 3);
  EXPECT_EQ(users_[0].completions, 3);
  EXPECT_TRUE(operations_.has_deferred());
  users_[0].on_complete = nullptr;
  operations_.Deliver(1);
}

TEST_F(OutstandingOperationsTest, ALinkThatGoesTakesItsOwnAlong) {
  operations_.Defer(Take(users_[0], Link(0)), absl::OkStatus());
  operations_.Defer(Take(users_[1], Link(1)), absl::OkStatus());
  operations_.Defer(Take(users_[2], Link(0)), absl::OkStatus());
  operations_.CompleteOf(Link(0));
  EXPECT_EQ(users_[0].completions, 1);
  EXPECT_EQ(users_[1].completions, 0);
  EXPECT_EQ(users_[2].completions, 1);
  EXPECT_EQ(operations_.Deliver(10), 1);
  EXPECT_EQ(users_[1].completions, 1);
}

TEST_F(OutstandingOperationsTest, RoomIsToldOnceAndAfterARefusalOnly) {
  OperationRecord* const first = Take(users_[0]);
  EXPECT_TRUE(operations_.HasRoomFor(3));
  EXPECT_FALSE(operations_.HasRoomAgain());
  EXPECT_FALSE(operations_.HasRoomFor(4));
  EXPECT_TRUE(operations_.ran_out());
  operations_.Complete(first);
  EXPECT_TRUE(operations_.HasRoomAgain());
  EXPECT_FALSE(operations_.HasRoomAgain());
}

TEST_F(OutstandingOperationsTest, TheUserOfABatchHearsOnceWhenAllPiecesAreOver) {
  Operation* const join = operations_.Join(&users_[0], /*pieces=*/2);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(users_[0].completions, 0);
    OperationRecord* const record = operations_.Take();
    record->user = join;
    operations_.Complete(record);
  }
  EXPECT_EQ(users_[0].completions, 1);
}

}  // namespace
}  // namespace weft
