// Large transfers over all lanes of a channel, on a simulated network: how they are cut, what they
// gain, and what becomes of them when a lane is lost.
#include "rpc/memory/remote_stripes.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rpc/server/exported_memory.h"
#include "rpc/testing/lanes_test.h"
#include "weft/status.h"

namespace weft::test {
namespace {

constexpr size_t kBytes = 6 * kLeastStripeBytes;

class RemoteStripesTest : public LanesTest {
 protected:
  ~RemoteStripesTest() override {
    buffer_.reset();
    memory_.reset();
    exported_.reset();
  }

  void OpenMemory(const RemoteMemoryOptions& options = {}) {
    Open();
    for (size_t i = 0; i < kBytes; ++i) owned_[i] = static_cast<std::byte>(i * 31 >> 3);
    exported_ = *server_->Export(owned_, {.rights = kAllRights});
    auto memory = RemoteMemory::Open(*channel_, exported_->handle(), options);
    ASSERT_TRUE(memory.ok()) << memory.status();
    memory_ = *std::move(memory);
    buffer_ = memory_->BufferOf(local_);
  }

  bool IsSame() { return std::memcmp(local_.data(), owned_.data(), kBytes) == 0; }
  void Clear() { std::memset(local_.data(), 0, kBytes); }
  void FillLocal() {
    for (size_t i = 0; i < kBytes; ++i) local_[i] = static_cast<std::byte>(i * 17 >> 4);
  }
  template <class F>
  uint64_t Took(F what) {
    const uint64_t start_ns = network_.clock().NowNs();
    what();
    return network_.clock().NowNs() - start_ns;
  }
  Function<void(absl::Status)> Ending(std::optional<absl::Status>* end) {
    return [this, end](absl::Status status) {
      EXPECT_FALSE(end->has_value());
      EXPECT_TRUE(lanes().engines()[home_]->InTurn());
      *end = std::move(status);
    };
  }

  std::vector<std::byte> owned_ = std::vector<std::byte>(kBytes);
  std::vector<std::byte> local_ = std::vector<std::byte>(kBytes);
  std::unique_ptr<ExportedMemory> exported_;
  std::unique_ptr<RemoteMemory> memory_;
  std::unique_ptr<Buffer> buffer_;
};

// Each lane has a wire of its own: the same bytes take a third of the time.
TEST_F(RemoteStripesTest, LargeTransfersMoveOverAllLanesAtOnce) {
  OpenMemory();
  EXPECT_EQ(exported_->leases(), 1u);
  ASSERT_EQ(memory_->Read(0, buffer_->slice()), absl::OkStatus());
  EXPECT_TRUE(IsSame());
  EXPECT_EQ(exported_->leases(), kLanes);

  const auto plain = channel_->AllocateBuffer(kBytes);
  ASSERT_TRUE(plain.ok()) << plain.status();
  const uint64_t by_one_ns =
      Took([&] { EXPECT_EQ(memory_->Read(0, (*plain)->slice()), absl::OkStatus()); });
  Clear();
  const uint64_t by_all_ns =
      Took([&] { EXPECT_EQ(memory_->Read(0, buffer_->slice()), absl::OkStatus()); });
  EXPECT_TRUE(IsSame());
  EXPECT_LT(by_all_ns * 2, by_one_ns);
  EXPECT_LT(Took([&] { EXPECT_EQ(memory_->Write(0, buffer_->slice()), absl::OkStatus()); }) * 2,
            by_one_ns);
}

TEST_F(RemoteStripesTest, ACallBehindAWriteFindsAllOfIt) {
  OpenMemory();
  int found = 0;
  service_.look = [&](ServerContext&) { found += IsSame() ? 1 : 0; };
  FillLocal();
  ASSERT_EQ(memory_->Write(0, buffer_->slice()), absl::OkStatus());
  ASSERT_EQ(Echo(), absl::OkStatus());
  EXPECT_EQ(found, 1);
  Clear();
  const RemotePiece whole = {0, buffer_->slice()};
  ASSERT_EQ(memory_->WriteAcknowledged({&whole, 1}), absl::OkStatus());
  EXPECT_TRUE(IsSame());
  FillLocal();
  std::optional<absl::Status> end;
  memory_->WriteUnordered({&whole, 1}, Ending(&end));
  ASSERT_TRUE(RunUntil([&] { return end.has_value(); }));
  EXPECT_EQ(*end, absl::OkStatus());
  ASSERT_EQ(Echo(), absl::OkStatus());
  EXPECT_EQ(found, 2);
}

// Its stripes would be behind nothing.
TEST_F(RemoteStripesTest, AWriteThatACallMayFollowAtOnceStaysOnOneLane) {
  OpenMemory();
  int found = 0;
  service_.look = [&](ServerContext&) { found += IsSame() ? 1 : 0; };
  FillLocal();
  std::optional<absl::Status> end;
  memory_->Write(0, buffer_->slice(), Ending(&end));
  ASSERT_EQ(Echo(), absl::OkStatus());
  EXPECT_EQ(found, 1);
  EXPECT_EQ(exported_->leases(), 1u);
  ASSERT_TRUE(RunUntil([&] { return end.has_value(); }));
}

// The end of a write proves no arrival: stripes on other connections would overtake it.
TEST_F(RemoteStripesTest, NothingIsCutBehindAWriteThatMayNotHaveArrived) {
  OpenMemory();
  const RemotePiece little = {3 * kLeastStripeBytes, buffer_->slice(3 * kLeastStripeBytes, 64)};
  const RemotePiece whole = {0, buffer_->slice()};
  std::optional<absl::Status> end;
  memory_->WriteUnordered({&little, 1}, Ending(&end));
  ASSERT_EQ(memory_->WriteAcknowledged({&little, 1}), absl::OkStatus());
  ASSERT_TRUE(RunUntil([&] { return end.has_value(); }));
  FillLocal();
  ASSERT_EQ(memory_->Write(0, buffer_->slice()), absl::OkStatus());
  ASSERT_EQ(memory_->Read(0, buffer_->slice()), absl::OkStatus());
  EXPECT_EQ(exported_->leases(), 1u) << "one of them had ended, if any, when the proof began";
  FillLocal();
  ASSERT_EQ(memory_->WriteAcknowledged({&whole, 1}), absl::OkStatus());
  EXPECT_TRUE(IsSame());
  ASSERT_EQ(memory_->Read(0, buffer_->slice()), absl::OkStatus());
  EXPECT_EQ(exported_->leases(), kLanes);
}

TEST_F(RemoteStripesTest, BatchesAreCutWhereTheirStripesEnd) {
  OpenMemory();
  const size_t odd = kLeastStripeBytes - 4097;
  const std::vector<RemotePiece> pieces = {
      {0, buffer_->slice(kBytes - odd, odd)},
      {odd, buffer_->slice(100, 3 * kLeastStripeBytes)},
      {odd + 3 * kLeastStripeBytes, buffer_->slice(100 + 3 * kLeastStripeBytes, 50)},
  };
  std::optional<absl::Status> end;
  memory_->ReadBatch(pieces, Ending(&end));
  EXPECT_FALSE(end.has_value());
  ASSERT_TRUE(RunUntil([&] { return end.has_value(); }));
  EXPECT_EQ(*end, absl::OkStatus());
  for (const RemotePiece& piece : pieces) {
    EXPECT_EQ(
        std::memcmp(piece.local.bytes().data(), owned_.data() + piece.offset, piece.local.length),
        0);
  }
  EXPECT_EQ(exported_->leases(), kLanes);
}

TEST_F(RemoteStripesTest, SmallTransfersStayOnOneLane) {
  OpenMemory();
  ASSERT_EQ(memory_->Read(0, buffer_->slice(0, 2 * kLeastStripeBytes - 1)), absl::OkStatus());
  ASSERT_EQ(memory_->Read(8, buffer_->slice(8, 8)), absl::OkStatus());
  EXPECT_EQ(exported_->leases(), 1u);
  ASSERT_EQ(memory_->Read(0, buffer_->slice(0, 2 * kLeastStripeBytes)), absl::OkStatus());
  EXPECT_EQ(exported_->leases(), 2u);
}

TEST_F(RemoteStripesTest, WhatIsWrongWithTheWholeIsSaidOfTheWhole) {
  OpenMemory();
  const absl::Status status = memory_->Read(8, buffer_->slice());
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_EQ(DeliveryOf(status), Delivery::kNotSent);
  EXPECT_EQ(exported_->leases(), 1u);
}

TEST_F(RemoteStripesTest, ALaneThatIsLostEndsTheTransferAndTheOthersGoOn) {
  OpenMemory();
  ASSERT_EQ(memory_->Read(0, buffer_->slice()), absl::OkStatus());
  std::optional<absl::Status> end;
  memory_->Read(0, buffer_->slice(), Ending(&end));
  network_.RunFor(5'000);  // the questions are on their way, which takes 10 us
  network_.Partition(Name(next_), "server");
  ASSERT_TRUE(RunUntil([&] { return end.has_value(); }));
  EXPECT_TRUE(absl::IsUnavailable(*end)) << *end;
  network_.RunFor(kNsPerMs);  // the server hears of it too
  EXPECT_EQ(exported_->leases(), kLanes - 1);

  Clear();
  ASSERT_EQ(memory_->Read(0, buffer_->slice()), absl::OkStatus());
  EXPECT_TRUE(IsSame());
  network_.Heal(Name(next_), "server");
  ASSERT_TRUE(RunUntil([&] { return lanes().states().IsReady(next_); }));
  FillLocal();
  ASSERT_EQ(memory_->Write(0, buffer_->slice()), absl::OkStatus());
  ASSERT_EQ(Echo(), absl::OkStatus());
  EXPECT_TRUE(IsSame());
  EXPECT_EQ(exported_->leases(), kLanes);
}

TEST_F(RemoteStripesTest, WithoutItsOwnLaneLargeTransfersGoByTheOthers) {
  OpenMemory();
  CutHome();
  ASSERT_EQ(memory_->Read(0, buffer_->slice()), absl::OkStatus());
  EXPECT_TRUE(IsSame());
  network_.Partition(Name(next_), "server");
  EXPECT_TRUE(absl::IsUnavailable(memory_->Read(0, buffer_->slice())));
  network_.RunFor(kNsPerMs);
  Clear();
  ASSERT_EQ(memory_->Read(0, buffer_->slice()), absl::OkStatus()) << "by the one that is left";
  EXPECT_TRUE(IsSame());
}

// Calls wait behind such a write, and a call by another lane would overtake it.
TEST_F(RemoteStripesTest, ACallDoesNotOvertakeAWriteThatWaitsForItsLane) {
  OpenMemory();
  CutHome();
  bool found = false;
  service_.look = [&](ServerContext&) { found = owned_[7] == std::byte{0xaa}; };
  local_[7] = std::byte{0xaa};
  std::optional<absl::Status> end;
  memory_->Write(7, buffer_->slice(7, 1), Ending(&end));
  Outcome outcome;
  stub_->Echo(MakeData(1, 10), &outcome.reply, {}, outcome.Callback());
  network_.Heal(Name(home_), "server");
  ASSERT_TRUE(RunUntil([&] { return outcome.done() && end.has_value(); }));
  EXPECT_EQ(*end, absl::OkStatus());
  EXPECT_EQ(*outcome.status, absl::OkStatus());
  EXPECT_TRUE(found);
  EXPECT_EQ(CallsOf(home_), 1u);
}

TEST_F(RemoteStripesTest, TheMemoryMayBeDestroyedWhileStripesMove) {
  OpenMemory();
  ASSERT_EQ(memory_->Read(0, buffer_->slice()), absl::OkStatus());
  Clear();
  std::optional<absl::Status> end;
  memory_->Read(0, buffer_->slice(), Ending(&end));
  memory_.reset();
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(*end, absl::OkStatus());
  EXPECT_TRUE(IsSame());
}

TEST_F(RemoteStripesTest, AStripeThatIsLateIsReclaimedLikeOthers) {
  OpenMemory({.timeout_us = 50'000});
  ASSERT_EQ(memory_->Read(0, buffer_->slice()), absl::OkStatus());
  EXPECT_TRUE(memory_->WaitReclaimed(1000));
  network_.StopAnswering("server");
  const absl::Status status = memory_->Read(0, buffer_->slice());
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_FALSE(memory_->WaitReclaimed(1000));
  EXPECT_TRUE(memory_->WaitReclaimed(10'000'000)) << "their connections are given up";
}

}  // namespace
}  // namespace weft::test
