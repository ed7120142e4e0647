// Deadlines of operations on remote memory, on a simulated network: when they end, and from when on
// nothing touches the local memory any more.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/random.h"
#include "rpc/memory/remote_array.h"
#include "rpc/memory/remote_memory.h"
#include "rpc/server/exported_memory.h"
#include "rpc/testing/records.weft.h"
#include "rpc/testing/rpc_test.h"
#include "weft/status.h"

namespace weft::test {
namespace {

constexpr size_t kBytes = 4096;
constexpr uint64_t kTimeoutUs = 200'000;

bool Contains(const absl::Status& status, absl::string_view text) {
  return status.message().find(text) != absl::string_view::npos;
}

class RemoteDeadlineTest : public RpcTest {
 protected:
  explicit RemoteDeadlineTest(uint64_t seed = 1) : RpcTest(seed) {
    Start();
    for (size_t i = 0; i < kBytes; ++i) owned_[i] = static_cast<std::byte>(i * 7);
    exported_ = *server_->Export(owned_, {.rights = kAllRights});
    accounts_owned_.resize(kAccounts);
    exported_accounts_ =
        *server_->Export(BytesOf(accounts_owned_), ExportAs<AccountLayout>(kAllRights));
    buffer_ = *channel_->AllocateBuffer(kBytes);
    std::memset(buffer_->bytes().data(), 0, kBytes);
  }
  ~RemoteDeadlineTest() override {
    array_.reset();
    memory_.reset();
    buffer_.reset();
    exported_.reset();
    exported_accounts_.reset();
  }

  void Open(RemoteMemoryOptions options = {.timeout_us = kTimeoutUs}) {
    memory_.reset();
    auto memory = RemoteMemory::Open(*channel_, exported_->handle(), options);
    ASSERT_TRUE(memory.ok()) << memory.status();
    memory_ = *std::move(memory);
  }
  Slice slice(size_t offset, size_t length) { return buffer_->slice(offset, length); }
  bool HasRead(size_t length) {
    return std::memcmp(buffer_->bytes().data(), owned_.data(), length) == 0;
  }
  // What one side sends arrives this much later: nobody takes it for dead, as for one whose machine
  // is busy.
  void DelayBy(uint64_t delay_ns) {
    for (const auto& [from, to] : {std::pair("client", "server"), std::pair("server", "client")}) {
      network_.SetWire(from, to, {.delay_ns = delay_ns});
    }
  }
  uint64_t now_ns() { return network_.clock().NowNs(); }

  static constexpr size_t kAccounts = 300;
  alignas(64) std::array<std::byte, kBytes> owned_ = {};
  std::vector<AccountLayout> accounts_owned_;
  std::unique_ptr<ExportedMemory> exported_;
  std::unique_ptr<ExportedMemory> exported_accounts_;
  std::unique_ptr<Buffer> buffer_;
  std::unique_ptr<RemoteMemory> memory_;
  std::unique_ptr<RemoteArray<AccountLayout>> array_;
};

TEST_F(RemoteDeadlineTest, OptionsHaveBounds) {
  const absl::Status status =
      RemoteMemory::Open(*channel_, exported_->handle(), {.timeout_us = 3'600'000'001}).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
}

TEST_F(RemoteDeadlineTest, OneThatWaitsEndsUnsent) {
  Open({.timeout_us = kTimeoutUs, .resolve_at_once = false});
  DelayBy(kNsPerSec / 2);  // of the lease
  const uint64_t start_ns = now_ns();
  const absl::Status status = memory_->Read(0, slice(0, 64));
  EXPECT_EQ(status, WithDelivery(absl::DeadlineExceededError(
                                     "the operation on memory of sim:server has not ended within "
                                     "200 ms: the owner gave no lease (not sent, safe to retry)"),
                                 Delivery::kNotSent));
  EXPECT_LT(now_ns() - start_ns, 210 * kNsPerMs);
  EXPECT_TRUE(memory_->WaitReclaimed(0));
}

TEST_F(RemoteDeadlineTest, AWriteThatWaitsHoldsCallsNoLonger) {
  Open({.timeout_us = kTimeoutUs, .resolve_at_once = false});
  DelayBy(kNsPerSec / 2);
  Outcome write, call;
  memory_->Write(0, slice(0, 64), write.Callback());
  stub_->Echo(Data(), &call.reply, {}, call.Callback());
  ASSERT_TRUE(RunUntil([&] { return write.done(); }));
  EXPECT_TRUE(absl::IsDeadlineExceeded(*write.status)) << *write.status;
  ASSERT_TRUE(RunUntil([&] { return call.done(); }));
  EXPECT_TRUE(call.status->ok()) << *call.status;
}

TEST_F(RemoteDeadlineTest, OneThatIsSentEndsInTimeAndItsMemoryIsReclaimedLater) {
  Open();
  DelayBy(kNsPerSec / 2);
  const uint64_t start_ns = now_ns();
  const absl::Status read = memory_->Read(0, slice(0, 64));
  EXPECT_EQ(read, WithDelivery(absl::DeadlineExceededError(
                                   "the operation on memory of sim:server has not ended within "
                                   "200 ms (nothing was changed, safe to retry)"),
                               Delivery::kMayHaveRun));
  EXPECT_LT(now_ns() - start_ns, 210 * kNsPerMs);
  EXPECT_FALSE(HasRead(64));
  EXPECT_FALSE(memory_->WaitReclaimed(1000));
  EXPECT_TRUE(memory_->WaitReclaimed(10'000'000));
  EXPECT_TRUE(HasRead(64)) << "what a late read fills";
  // Nothing else has happened.
  DelayBy(10'000);
  EXPECT_TRUE(memory_->Read(0, slice(0, 64)).ok());
  EXPECT_EQ(channel_->stats().connects, 1u);
}

TEST_F(RemoteDeadlineTest, WritesAndAtomicsEndInTimeToo) {
  Open();
  DelayBy(kNsPerSec);
  const uint64_t start_ns = now_ns();
  Outcome write;
  int numbers = 0;
  absl::Status add;
  memory_->Write(0, slice(0, 64), write.Callback());
  memory_->FetchAdd(8, 1, [&](const absl::StatusOr<uint64_t>& before) {
    ++numbers;
    add = before.status();
  });
  ASSERT_TRUE(RunUntil([&] { return numbers == 1; }));
  EXPECT_LT(now_ns() - start_ns, 210 * kNsPerMs);
  EXPECT_TRUE(absl::IsDeadlineExceeded(add)) << add;
  EXPECT_TRUE(Contains(add, "(it may have been carried out)")) << add;
  EXPECT_EQ(DeliveryOf(add), Delivery::kMayHaveRun);
  const absl::StatusOr<uint64_t> swapped = memory_->CompareSwap(16, 0, 1);
  EXPECT_TRUE(absl::IsDeadlineExceeded(swapped.status())) << swapped.status();
  ASSERT_TRUE(RunUntil([&] { return write.done(); }));
  EXPECT_TRUE(memory_->WaitReclaimed(10'000'000));
  EXPECT_EQ(numbers, 1);
  EXPECT_EQ(write.completions, 1);
}

TEST_F(RemoteDeadlineTest, ABufferThatIsLateIsNotHandedOutAgain) {
  Open();
  DelayBy(kNsPerSec / 2);
  ASSERT_FALSE(memory_->Read(0, slice(0, 64)).ok());
  const std::byte* const late = buffer_->bytes().data();
  buffer_.reset();
  std::vector<std::unique_ptr<Buffer>> others;
  for (int i = 0; i < 3; ++i) {
    others.push_back(*channel_->AllocateBuffer(kBytes));
    EXPECT_NE(others.back()->bytes().data(), late);
  }
  EXPECT_TRUE(memory_->WaitReclaimed(10'000'000));
  bool again = false;
  for (int i = 0; i < 100 && !again; ++i) {
    others.push_back(*channel_->AllocateBuffer(kBytes));
    again = others.back()->bytes().data() == late;
  }
  EXPECT_TRUE(again);
}

// Buffers are good for all channels of an engine. With the pool of another channel its
// registrations were closed, though a late operation of this one had not ended, and its provider
// had one of them.
TEST_F(RemoteDeadlineTest, ThePoolOfABufferThatIsLateMayBeGone) {
  Open();
  auto other = *Channel::Open(client(), "sim:server", {});
  auto buffer = *other->AllocateBuffer(kBytes);
  DelayBy(kNsPerSec / 2);
  const absl::Status read = memory_->Read(0, buffer->slice(0, 64));
  EXPECT_TRUE(absl::IsDeadlineExceeded(read)) << read;
  buffer.reset();
  other.reset();
  EXPECT_FALSE(memory_->WaitReclaimed(1000));
  EXPECT_TRUE(memory_->WaitReclaimed(10'000'000));
}

TEST_F(RemoteDeadlineTest, OneThatStaysLateEndsItsConnection) {
  Open();
  DelayBy(10 * kNsPerSec);
  const uint64_t start_ns = now_ns();
  Outcome read, call;
  memory_->Read(0, slice(0, 64), read.Callback());
  stub_->Echo(Data(), &call.reply, {}, call.Callback());
  ASSERT_TRUE(RunUntil([&] { return read.done(); }));
  EXPECT_TRUE(absl::IsDeadlineExceeded(*read.status)) << *read.status;
  EXPECT_TRUE(memory_->WaitReclaimed(60'000'000));
  EXPECT_LT(now_ns() - start_ns, 3300 * kNsPerMs);
  ASSERT_TRUE(RunUntil([&] { return call.done(); }));
  EXPECT_TRUE(absl::IsUnavailable(*call.status)) << *call.status;
  EXPECT_TRUE(Contains(*call.status,
                       "the client gave up the connection: an operation on its memory has not "
                       "ended 3 s after its deadline"))
      << *call.status;
  EXPECT_FALSE(HasRead(64));
  network_.RunFor(30 * kNsPerSec);
  EXPECT_FALSE(HasRead(64)) << "it was said to be reclaimed";
  EXPECT_EQ(read.completions, 1);
}

TEST_F(RemoteDeadlineTest, TheLossOfTheConnectionReclaimsWhatIsLate) {
  Open();
  network_.Partition("client", "server");  // given up after 1 s
  const absl::Status read = memory_->Read(0, slice(0, 64));
  EXPECT_TRUE(absl::IsDeadlineExceeded(read)) << read;
  bool reclaimed = false;
  memory_->WhenReclaimed([&] { reclaimed = true; });
  EXPECT_FALSE(reclaimed);
  ASSERT_TRUE(RunUntil([&] { return reclaimed; }));
}

TEST_F(RemoteDeadlineTest, DestroyingItWaitsForWhatIsLate) {
  Open();
  DelayBy(kNsPerSec / 2);
  Outcome read;
  memory_->Read(0, slice(0, 64), read.Callback());
  ASSERT_TRUE(RunUntil([&] { return read.done(); }));
  bool reclaimed = false;
  memory_->WhenReclaimed([&] { reclaimed = true; });
  memory_.reset();
  EXPECT_TRUE(reclaimed);
  EXPECT_TRUE(HasRead(64));
  EXPECT_EQ(read.completions, 1);
}

TEST_F(RemoteDeadlineTest, ManyEndInTheirOrderAndEachOnce) {
  Open();
  DelayBy(kNsPerSec / 2);
  std::vector<int> ended;
  for (int i = 0; i < 200; ++i) {
    memory_->Read(0, slice(0, 64), [&ended, i](const absl::Status& status) {
      EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
      ended.push_back(i);
    });
  }
  ASSERT_TRUE(RunUntil([&] { return ended.size() == 200; }));
  EXPECT_TRUE(std::is_sorted(ended.begin(), ended.end()));
  EXPECT_TRUE(memory_->WaitReclaimed(10'000'000));
  EXPECT_EQ(ended.size(), 200u);
}

TEST_F(RemoteDeadlineTest, ACallbackMayStartTheNext) {
  Open();
  DelayBy(kNsPerSec / 2);
  int ended = 0;
  Function<void()> next = [&] {
    memory_->Read(0, slice(0, 64), [&](const absl::Status& status) {
      EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
      if (++ended < 5) next();
    });
  };
  next();
  ASSERT_TRUE(RunUntil([&] { return ended == 5; }));
  EXPECT_TRUE(memory_->WaitReclaimed(10'000'000));
}

TEST_F(RemoteDeadlineTest, WithoutATimeoutTheyTakeAsLongAsTheyDo) {
  Open({.timeout_us = 0});
  DelayBy(10 * kNsPerSec);
  EXPECT_TRUE(memory_->Read(0, slice(0, 64)).ok());
  EXPECT_TRUE(HasRead(64));
}

// Records are read into slots: those of late operations are not used for others.
TEST_F(RemoteDeadlineTest, RecordsEndInTimeAndTheirSlotsComeBack) {
  for (size_t i = 0; i < kAccounts; ++i) accounts_owned_[i].balance = static_cast<int64_t>(i);
  array_ = *RemoteArray<AccountLayout>::Open(*channel_, exported_accounts_->handle(),
                                             {.timeout_us = kTimeoutUs});
  DelayBy(kNsPerSec / 2);
  constexpr int kOperations = 10;  // more than there are slots for
  std::vector<uint64_t> indices(64);
  for (size_t i = 0; i < indices.size(); ++i) indices[i] = i;
  std::vector<std::array<AccountLayout, 64>> read(kOperations);
  int ended = 0;
  int late = 0;
  for (auto& into : read) {
    array_->ReadMany(indices, into.data(), [&](const absl::Status& status) {
      ++ended;
      late += absl::IsDeadlineExceeded(status);
    });
  }
  ASSERT_TRUE(RunUntil([&] { return late > 0; }));
  DelayBy(10'000);
  ASSERT_TRUE(RunUntil([&] { return ended == kOperations; }));
  EXPECT_TRUE(array_->memory().WaitReclaimed(10'000'000));
  for (uint64_t i = 0; i < kAccounts; ++i) {
    AccountLayout account;
    ASSERT_TRUE(array_->Read(i, &account).ok());
    ASSERT_EQ(account.balance, static_cast<int64_t>(i));
  }
}

// --- random faults -------------------------------------------------------------------------------

// Wires that are slow, cut and healed: every operation ends once and in time, and what was said to
// be reclaimed stays as it is.
class RandomDeadlines final : public RemoteDeadlineTest {
 public:
  explicit RandomDeadlines(uint64_t seed) : RemoteDeadlineTest(seed), random_(seed) {}

  void TestBody() override {
    Open({.timeout_us = kShortUs, .resolve_at_once = false});
    for (int step = 0; step < 150; ++step) {
      Step();
      network_.RunFor(random_.Uniform(20 * kNsPerMs));
    }
    network_.Heal("client", "server");
    DelayBy(10'000);
    ASSERT_TRUE(RunUntil([this] {
      return std::all_of(started_.begin(), started_.end(),
                         [](const Started& started) { return started.completions > 0; });
    }));
    ASSERT_TRUE(memory_->WaitReclaimed(60'000'000));
    const std::string sentinel(kBytes, 's');
    std::memcpy(buffer_->bytes().data(), sentinel.data(), kBytes);
    network_.RunFor(30 * kNsPerSec);
    ASSERT_EQ(AsStringView(buffer_->bytes()), sentinel);
    for (const Started& started : started_) {
      ASSERT_EQ(started.completions, 1);
      ASSERT_LE(started.ended_ns - started.began_ns, (kShortUs + 1000) * kNsPerUs);
      ok += started.status.ok();
      late += absl::IsDeadlineExceeded(started.status);
      ASSERT_TRUE(started.status.ok() || DeliveryOf(started.status) != Delivery::kUnknown)
          << started.status;
    }
  }

  int ok = 0;
  int late = 0;

 private:
  static constexpr uint64_t kShortUs = 50'000;
  struct Started {
    uint64_t began_ns = 0;
    uint64_t ended_ns = 0;
    int completions = 0;
    absl::Status status;
  };

  void Step() {
    switch (random_.Uniform(20)) {
      case 0:
        return network_.Partition("client", "server");
      case 1:
        return network_.Cut("server", "client");
      case 2:
      case 3:
      case 4:
        return network_.Heal("client", "server");
      case 5:
        return DelayBy(random_.Uniform(200 * kNsPerMs));
      case 6:
      case 7:
        return DelayBy(10'000);
      default:
        for (uint64_t n = random_.Uniform(6); n > 0; --n) StartOne();
    }
  }
  void StartOne() {
    Started& started = started_.emplace_back();
    started.began_ns = now_ns();
    const auto done = [this, &started](absl::Status status) {
      ++started.completions;
      started.ended_ns = now_ns();
      started.status = std::move(status);
    };
    const auto done_with_number = [done](const absl::StatusOr<uint64_t>& before) {
      done(before.status());
    };
    const size_t offset = random_.Uniform(kBytes / 8) * 8;
    const RemotePiece pieces[] = {{offset, slice(offset, 8)}, {0, slice(0, 64)}};
    switch (random_.Uniform(5)) {
      case 0:
        return memory_->ReadBatch(pieces, done);
      case 1:
        return memory_->WriteBatch(pieces, done);
      case 2:
        return memory_->WriteAcknowledged(pieces, done);
      case 3:
        return memory_->FetchAdd(offset, 1, done_with_number);
      default:
        return memory_->CompareSwap(offset, 0, 1, done_with_number);
    }
  }

  Random random_;
  std::deque<Started> started_;
};

TEST(RandomDeadlinesTest, EveryOperationEndsOnceAndInTime) {
  int ok = 0;
  int late = 0;
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    RandomDeadlines world(seed);
    world.TestBody();
    if (testing::Test::HasFailure()) return;
    ok += world.ok;
    late += world.late;
  }
  EXPECT_GT(ok, 0);
  EXPECT_GT(late, 0);
}

}  // namespace
}  // namespace weft::test
