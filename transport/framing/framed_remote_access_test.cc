#include "transport/framing/framed_remote_access.h"

#include "transport/framing/testing/parts_test.h"

namespace weft {
namespace {

struct Told final : public Operation {
  void OnComplete(const absl::Status& end) override {
    ++times;
    status = end;
  }
  int times = 0;
  absl::Status status;
};

class FramedRemoteAccessTest : public PartsTest, private FramedRemoteAccess::Host {
 protected:
  static constexpr uint32_t kOutstanding = 2;

  FramedRemoteAccessTest() {
    Start();
    access_.Start(&framing_, &link_, Agreement());
  }
  void TearDown() override {
    access_.Stop();
    access_.End(absl::CancelledError("over"));
    PartsTest::TearDown();
  }
  absl::StatusOr<Posted> Read(size_t bytes, Operation* op) {
    const Transfer read = {&region_, 0, {1, 0, bytes}};
    return access_.Post(TransferKind::kRead, absl::MakeConstSpan(&read, 1), op);
  }

  std::byte memory_[64];
  FakeRegion region_{MutableByteSpan(memory_)};
  int rooms_ = 0;
  FramedRemoteAccess access_{this, &sender_, nullptr, kOutstanding};
  Told told_;

 private:
  void OnRoom() override { ++rooms_; }
  void EndOverdueSoon() override {}
  uint64_t client() const override { return 0; }
  void SendGrant(ByteSpan) override {}
  void Close(std::string_view) override {}
};

TEST_F(FramedRemoteAccessTest, APendingOperationIsToldOnceAndMakesRoom) {
  const absl::StatusOr<Posted> posted = Read(64, &told_);
  ASSERT_TRUE(posted.ok() && *posted == Posted::kPending);
  link_.posted[0]->OnComplete(absl::OkStatus());
  EXPECT_EQ(told_.times, 1);
  EXPECT_EQ(rooms_, 1);
}

TEST_F(FramedRemoteAccessTest, OneThatIsDoneAtOnceIsNotToldAndTakesNoPlace) {
  link_.result = Posted::kDone;
  for (uint32_t i = 0; i < 3 * kOutstanding; ++i) {
    const absl::StatusOr<Posted> posted = Read(64, &told_);
    ASSERT_TRUE(posted.ok() && *posted == Posted::kDone);
  }
  EXPECT_EQ(told_.times, 0);
}

TEST_F(FramedRemoteAccessTest, BeyondTheBoundOperationsAreRefusedAndAwaitRoom) {
  for (uint32_t i = 0; i < kOutstanding; ++i) ASSERT_TRUE(Read(8, &told_).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(Read(8, &told_).status()));
  EXPECT_TRUE(sender_.awaits_room());
  for (Operation* op : link_.posted) op->OnComplete(absl::OkStatus());
  EXPECT_TRUE(Read(8, &told_).ok());
  link_.posted.back()->OnComplete(absl::OkStatus());
}

TEST_F(FramedRemoteAccessTest, WhatTheLinkRefusesTakesNoPlace) {
  link_.result = absl::ResourceExhaustedError("the domain is full");
  for (uint32_t i = 0; i < 3 * kOutstanding; ++i) {
    EXPECT_TRUE(absl::IsResourceExhausted(Read(8, &told_).status()));
  }
  EXPECT_TRUE(sender_.awaits_room());
  link_.result = Posted::kDone;
  EXPECT_TRUE(Read(8, &told_).ok());
}

TEST_F(FramedRemoteAccessTest, WrongTransfersAreInvalidAndNothingIsPosted) {
  EXPECT_TRUE(absl::IsInvalidArgument(Read(65, &told_).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(Read(0, &told_).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(access_.Post(TransferKind::kRead, {}, &told_).status()));
  const Transfer nowhere = {nullptr, 0, {1, 0, 8}};
  EXPECT_TRUE(absl::IsInvalidArgument(
      access_.Post(TransferKind::kWrite, absl::MakeConstSpan(&nowhere, 1), &told_).status()));
  EXPECT_TRUE(link_.posted.empty());
}

TEST_F(FramedRemoteAccessTest, WithoutAnOpenConnectionNothingIsPostedOrAsked) {
  sender_.Shut();
  EXPECT_TRUE(absl::IsFailedPrecondition(Read(8, &told_).status()));
  EXPECT_TRUE(absl::IsFailedPrecondition(access_.Probe(&told_)));
  EXPECT_TRUE(absl::IsFailedPrecondition(
      access_.Register(MutableByteSpan(memory_), Access::kLocalOnly).status()));
}

TEST_F(FramedRemoteAccessTest, AProbeLeavesWithTheTurnAndEndsWithTheConnection) {
  ASSERT_TRUE(access_.Probe(&told_).ok());
  EndTurn();
  EXPECT_EQ(link_.sent.size(), 1u);
  access_.Stop();
  access_.End(absl::CancelledError("over"));
  EXPECT_EQ(told_.times, 1);
  EXPECT_TRUE(absl::IsCancelled(told_.status));
}

TEST_F(FramedRemoteAccessTest, APinnedRegionIsReclaimedWhenTheConnectionIsGoneAtTheLatest) {
  EXPECT_TRUE(access_.Reclaim(std::make_unique<FakeRegion>(MutableByteSpan(memory_)), &told_));
  link_.reclaims = false;
  EXPECT_FALSE(access_.Reclaim(std::make_unique<FakeRegion>(MutableByteSpan(memory_)), &told_));
  EXPECT_EQ(told_.times, 0);
  access_.Stop();
  access_.End(absl::CancelledError("over"));
  EXPECT_EQ(told_.times, 1);
  EXPECT_TRUE(told_.status.ok());
}

}  // namespace
}  // namespace weft
