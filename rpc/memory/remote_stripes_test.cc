// Large transfers over all lanes of a channel, on a simulated network: how they are cut, what they
// gain, and what becomes of them when a lane is lost.
#include "rpc/memory/remote_stripes.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rpc/operation/on_engine.h"
#include "rpc/server/exported_memory.h"
#include "rpc/testing/lanes_test.h"
#include "rpc/wire/region_handle_proto.h"
#include "transport/lease.h"
#include "weft/status.h"

namespace weft::test {
namespace {

constexpr size_t kBytes = 6 * kLeastStripeBytes;

class RemoteStripesTest : public LanesTest {
 protected:
  explicit RemoteStripesTest(const SimOptions& options = {}) : LanesTest(options) {}
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
  // Of 64 bytes, by the home lane, and not acknowledged.
  void WriteLittle() {
    const RemotePiece little = {0, buffer_->slice(0, 64)};
    std::optional<absl::Status> end;
    memory_->WriteUnordered({&little, 1}, Ending(&end));
    ASSERT_TRUE(RunUntil([&] { return end.has_value(); }));
    ASSERT_EQ(*end, absl::OkStatus());
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

// The end of a write proves no arrival: stripes on other connections would overtake it. Who finds
// it so has the owner asked, and does not wait for that.
TEST_F(RemoteStripesTest, NothingIsCutBehindAWriteThatMayNotHaveArrived) {
  OpenMemory();
  WriteLittle();
  FillLocal();
  ASSERT_EQ(memory_->Write(0, buffer_->slice()), absl::OkStatus());
  ASSERT_EQ(memory_->Read(0, buffer_->slice()), absl::OkStatus());
  EXPECT_EQ(exported_->leases(), 1u) << "each was behind a write of which nothing was known";
  network_.RunFor(kNsPerMs);  // for the answer
  ASSERT_EQ(memory_->Read(0, buffer_->slice()), absl::OkStatus());
  EXPECT_EQ(exported_->leases(), kLanes);
  EXPECT_TRUE(IsSame());
}

TEST_F(RemoteStripesTest, AnAcknowledgedWriteProvesOfThoseBeforeItThatTheyHaveArrived) {
  OpenMemory();
  WriteLittle();
  const RemotePiece little = {0, buffer_->slice(0, 64)};
  std::optional<absl::Status> end;
  memory_->WriteAcknowledged({&little, 1}, Ending(&end));
  ASSERT_TRUE(RunUntil([&] { return end.has_value(); }));
  ASSERT_EQ(memory_->Read(0, buffer_->slice()), absl::OkStatus());
  EXPECT_EQ(exported_->leases(), kLanes);
}

TEST_F(RemoteStripesTest, AnAtomicProvesOfWritesBeforeItThatTheyHaveArrived) {
  OpenMemory();
  WriteLittle();
  ASSERT_TRUE(memory_->FetchAdd(0, 1).ok());
  ASSERT_EQ(memory_->Read(0, buffer_->slice()), absl::OkStatus());
  EXPECT_EQ(exported_->leases(), kLanes);
}

// Its stripe may arrive behind everything that the others move meanwhile.
TEST_F(RemoteStripesTest, NothingIsCutBehindAWriteOneStripeOfWhichIsLate) {
  OpenMemory({.timeout_us = 50'000});
  ASSERT_EQ(memory_->Write(0, buffer_->slice()), absl::OkStatus());
  const auto read = [&] { EXPECT_EQ(memory_->Read(0, buffer_->slice()), absl::OkStatus()); };
  const uint64_t by_all_ns = Took(read);
  network_.SetWire("server", Name(next_), {.delay_ns = 200 * kNsPerMs});
  const absl::Status late = memory_->Write(0, buffer_->slice());
  EXPECT_TRUE(absl::IsDeadlineExceeded(late)) << late;
  network_.SetWire("server", Name(next_), {});
  EXPECT_GT(Took(read), 2 * by_all_ns) << "by one lane";
  ASSERT_TRUE(memory_->WaitReclaimed(10'000'000));
  read();  // asks
  EXPECT_LT(Took(read), 2 * by_all_ns);
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

// The transfer failed each time, though the other lanes could have moved it.
TEST_F(RemoteStripesTest, ALaneThatIsRefusedALeaseTakesNoPartUntilItHasOne) {
  OpenMemory();
  std::vector<std::unique_ptr<RemoteMemory>> others;  // all that the connection may have
  for (uint32_t i = 0; i < kMaxLeases; ++i) {
    auto other = RemoteMemory::Open(Lane(next_), exported_->handle());
    ASSERT_TRUE(other.ok()) << other.status();
    others.push_back(*std::move(other));
  }
  const absl::Status refused = memory_->Read(0, buffer_->slice());
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  for (int i = 0; i < 3; ++i) {
    Clear();
    ASSERT_EQ(memory_->Read(0, buffer_->slice()), absl::OkStatus());
    EXPECT_TRUE(IsSame());
  }
  EXPECT_EQ(exported_->leases(), kMaxLeases + kLanes - 1);
  others.pop_back();
  for (int i = 0; i < 3; ++i) {  // each asks again, until there is room
    ASSERT_EQ(memory_->Read(0, buffer_->slice()), absl::OkStatus());
  }
  EXPECT_EQ(exported_->leases(), kMaxLeases - 1 + kLanes);
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

TEST_F(RemoteStripesTest, InACallbackOfAnyLaneItIsKnownAtOnceWhetherMemoryIsReclaimed) {
  OpenMemory();
  ASSERT_EQ(memory_->Read(0, buffer_->slice()), absl::OkStatus());
  int reclaimed = 0;
  for (EngineCore* const engine : lanes().engines()) {
    RunOnEngine(*engine, [&] {
      EXPECT_TRUE(memory_->WaitReclaimed(1000));
      memory_->WhenReclaimed([&] { ++reclaimed; });
    });
  }
  EXPECT_EQ(reclaimed, static_cast<int>(kLanes));
}

TEST_F(RemoteStripesTest, WhatWaitsForALateStripeRunsOnTheHomeEngine) {
  OpenMemory({.timeout_us = 50'000});
  ASSERT_EQ(memory_->Read(0, buffer_->slice()), absl::OkStatus());
  network_.SetWire("server", Name(next_), {.delay_ns = 200 * kNsPerMs});
  EXPECT_TRUE(absl::IsDeadlineExceeded(memory_->Read(0, buffer_->slice())));
  bool reclaimed = false;
  memory_->WhenReclaimed([&] {
    EXPECT_TRUE(lanes().engines()[home_]->InTurn());
    reclaimed = true;
  });
  EXPECT_FALSE(reclaimed);
  ASSERT_TRUE(RunUntil([&] { return reclaimed; }));
}

// The end of a stripe waited, in a turn of its engine, for room in the inbox of the home one: two
// engines could wait so for each other.
TEST_F(RemoteStripesTest, WhatIsForAnotherEngineWhoseInboxIsFullIsDeliveredLater) {
  OpenMemory();
  EngineCore& home = *lanes().engines()[home_];
  EngineCore& engine = *lanes().engines()[next_];
  const auto handle = FromProto(exported_->handle());
  ASSERT_TRUE(handle.ok()) << handle.status();
  auto* const core = new RemoteMemoryCore(engine, internal::ConnectionOf(Lane(next_)), *handle, {});
  std::vector<int> delivered;
  Waiter gone;
  RunOnEngine(engine, [&] {
    while (home.Post([] {})) {
    }
    for (const int number : {1, 2}) {
      core->Deliver(home, [&, number] {
        EXPECT_TRUE(home.InTurn());
        EXPECT_EQ(internal::innermost_turn->outer, nullptr) << "in a turn of the other engine";
        delivered.push_back(number);
      });
    }
    core->Shutdown(&gone);
  });
  EXPECT_FALSE(gone.done()) << "before it has handed over what it had";
  ASSERT_TRUE(RunUntil([&] { return delivered.size() == 2; }));
  EXPECT_EQ(delivered, std::vector<int>({1, 2}));
  EXPECT_TRUE(engine.Wait(gone));
}

class RemoteStripesOnSlowWiresTest : public RemoteStripesTest {
 protected:
  RemoteStripesOnSlowWiresTest() : RemoteStripesTest(Apart()) {}

  static SimOptions Apart() {
    SimOptions options;
    options.control_apart = true;
    return options;
  }
};

TEST_F(RemoteStripesOnSlowWiresTest, EachLaneRenewsItsLeaseWhileItsStripeIsUnderWay) {
  OpenMemory({.lease_us = 1'000'000});
  FillLocal();
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    network_.SetWire(Name(lane), "server", {.bytes_per_s = 600'000});  // 3.5 s for a stripe
  }
  const RemotePiece whole = {0, buffer_->slice()};
  std::optional<absl::Status> end;
  const uint64_t took_ns = Took([&] {
    memory_->WriteUnordered({&whole, 1}, Ending(&end));
    ASSERT_TRUE(RunUntil([&] { return end.has_value(); }));
  });
  EXPECT_EQ(*end, absl::OkStatus());
  EXPECT_GE(took_ns, 3 * kNsPerSec);
  EXPECT_TRUE(IsSame());
  EXPECT_EQ(exported_->leases(), kLanes);
}

// A probe that no caller waits for has no deadline: a RemoteMemory that was destroyed waited for
// its answer for ever.
TEST_F(RemoteStripesTest, AnOwnerWhoProvesNothingKeepsNobodyWhoGoes) {
  Open();
  exported_ = *server_->Export(owned_, {.rights = kAllRights});
  EngineCore& engine = *lanes().engines()[next_];
  const auto handle = FromProto(exported_->handle());
  ASSERT_TRUE(handle.ok());
  auto* const core = new RemoteMemoryCore(engine, internal::ConnectionOf(Lane(next_)), *handle, {});
  auto buffer = *Lane(next_).AllocateBuffer(64);
  const RemotePiece piece = {0, buffer->slice(0, 64)};
  std::optional<absl::Status> end;
  RunOnEngine(engine, [&] {
    RemoteOperation& write = *core->NewOperation();
    write.kind = RemoteOperation::Kind::kWrite;
    write.pieces = absl::Span<const RemotePiece>(&piece, 1);
    write.done = [&end](absl::Status status) { end = std::move(status); };
    core->Start(write, absl::OkStatus());
  });
  ASSERT_TRUE(RunUntil([&] { return end.has_value(); }));
  ASSERT_TRUE(core->has_unproven_writes());
  network_.SetWire("server", Name(next_), {.delay_ns = 36'000 * kNsPerSec});
  Waiter gone;
  RunOnEngine(engine, [&] {
    core->Recover();
    core->Shutdown(&gone);
  });
  for (int i = 0; i < 10 && !gone.done(); ++i) network_.RunFor(kNsPerSec);
  EXPECT_TRUE(gone.done());
  network_.SetWire("server", Name(next_), {});
}

}  // namespace
}  // namespace weft::test
