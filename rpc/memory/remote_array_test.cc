// Records of a .proto in another process's memory, on a simulated network.
#include "rpc/memory/remote_array.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "rpc/server/exported_memory.h"
#include "rpc/testing/records.weft.h"
#include "rpc/testing/rpc_test.h"
#include "weft/status.h"

namespace weft::test {
namespace {

class RemoteArrayTest : public RpcTest {
 protected:
  static constexpr size_t kRecords = 300;

  ~RemoteArrayTest() override {
    array_.reset();
    snapshots_.reset();
    exported_accounts_.reset();
    exported_snapshots_.reset();
  }

  void StartWithArrays() {
    Start();
    accounts_owned_.resize(kRecords);
    snapshots_owned_.resize(kRecords);
    for (size_t i = 0; i < kRecords; ++i) {
      accounts_owned_[i].owner = i;
      accounts_owned_[i].balance = -static_cast<int64_t>(i);
      accounts_owned_[i].closed = i % 2 == 1;
      SetSnapshot(i, i);
    }
    exported_accounts_ =
        *server_->Export(BytesOf(accounts_owned_), ExportAs<AccountLayout>(kAllRights));
    exported_snapshots_ =
        *server_->Export(BytesOf(snapshots_owned_), ExportAs<SnapshotLayout>(kMayRead));
    auto array = RemoteArray<AccountLayout>::Open(*channel_, exported_accounts_->handle());
    ASSERT_TRUE(array.ok()) << array.status();
    array_ = *std::move(array);
    auto snapshots = RemoteArray<SnapshotLayout>::Open(*channel_, exported_snapshots_->handle());
    ASSERT_TRUE(snapshots.ok()) << snapshots.status();
    snapshots_ = *std::move(snapshots);
  }

  void SetSnapshot(size_t i, uint64_t number) {
    RecordWriter<SnapshotLayout> writer(snapshots_owned_[i]);
    writer->numbers.fill(number);
  }

  std::vector<AccountLayout> accounts_owned_;
  std::vector<SnapshotLayout> snapshots_owned_;
  std::unique_ptr<ExportedMemory> exported_accounts_;
  std::unique_ptr<ExportedMemory> exported_snapshots_;
  std::unique_ptr<RemoteArray<AccountLayout>> array_;
  std::unique_ptr<RemoteArray<SnapshotLayout>> snapshots_;
};

TEST_F(RemoteArrayTest, ReadsAndWritesRecords) {
  StartWithArrays();
  EXPECT_EQ(array_->size(), kRecords);
  AccountLayout account;
  ASSERT_EQ(array_->Read(7, &account), absl::OkStatus());
  EXPECT_EQ(account.owner, 7u);
  EXPECT_EQ(account.balance, -7);
  EXPECT_TRUE(account.closed);
  account.balance = 1000;
  ASSERT_EQ(array_->Write(299, account), absl::OkStatus());
  AccountLayout again;
  ASSERT_EQ(array_->Read(299, &again), absl::OkStatus());
  EXPECT_EQ(again.owner, 7u);
  EXPECT_EQ(accounts_owned_[299].balance, 1000);
}

// More than there are slots, more than a batch takes; in any order, and some twice.
TEST_F(RemoteArrayTest, ReadManyTakesAnyNumberInAnyOrder) {
  StartWithArrays();
  std::vector<uint64_t> indices(2 * kRecords);
  for (size_t k = 0; k < indices.size(); ++k) indices[k] = (k * 7919 + 13) % kRecords;
  std::vector<AccountLayout> accounts(indices.size());
  ASSERT_EQ(array_->ReadMany(indices, accounts.data()), absl::OkStatus());
  for (size_t k = 0; k < indices.size(); ++k) EXPECT_EQ(accounts[k].owner, indices[k]);
  std::vector<SnapshotLayout> snapshots(indices.size());
  ASSERT_EQ(snapshots_->ReadMany(indices, snapshots.data()), absl::OkStatus());
  for (size_t k = 0; k < indices.size(); ++k) EXPECT_EQ(snapshots[k].numbers[125], indices[k]);
  EXPECT_EQ(array_->ReadMany({}, nullptr), absl::OkStatus());
}

TEST_F(RemoteArrayTest, AtomicsNameAMember) {
  StartWithArrays();
  EXPECT_EQ(*array_->FetchAdd(3, &AccountLayout::balance, -10), -3);
  EXPECT_EQ(accounts_owned_[3].balance, -13);
  EXPECT_EQ(*array_->CompareSwap(3, &AccountLayout::owner, 3, 99), 3u);
  EXPECT_EQ(accounts_owned_[3].owner, 99u);
  EXPECT_EQ(*array_->CompareSwap(3, &AccountLayout::owner, 3, 100), 99u);
  EXPECT_EQ(accounts_owned_[3].owner, 99u);
}

TEST_F(RemoteArrayTest, CallbackFormsEndOnce) {
  StartWithArrays();
  constexpr int kReads = 1000;
  std::vector<AccountLayout> accounts(kReads);
  int ended = 0;
  for (int i = 0; i < kReads; ++i) {
    array_->Read(i % kRecords, &accounts[i], [&, i](const absl::Status& status) {
      EXPECT_TRUE(status.ok()) << status;
      EXPECT_EQ(accounts[i].owner, i % kRecords);
      ++ended;
    });
  }
  Outcome beyond, write;
  const AccountLayout changed{.owner = 5};
  array_->Read(kRecords, accounts.data(), beyond.Callback());
  array_->Write(4, changed, write.Callback());
  EXPECT_EQ(ended + beyond.completions + write.completions, 0);
  ASSERT_TRUE(RunUntil([&] { return ended == kReads && beyond.done() && write.done(); }));
  EXPECT_TRUE(absl::IsOutOfRange(*beyond.status)) << *beyond.status;
  EXPECT_TRUE(write.status->ok());
  AccountLayout account;
  ASSERT_EQ(array_->Read(4, &account), absl::OkStatus());
  EXPECT_EQ(account.owner, 5u);
}

// Operations on records waited for slots without any bound: 800 bytes for each.
TEST_F(RemoteArrayTest, NoMoreOperationsWaitThanTheOptionAllows) {
  StartWithArrays();
  constexpr int kReads = 2000;
  RemoteMemoryOptions options;
  options.max_waiting = 300;  // more than there are slots for
  auto array = *RemoteArray<AccountLayout>::Open(*channel_, exported_accounts_->handle(), options);
  std::vector<AccountLayout> accounts(kReads);
  std::vector<int> ends(kReads);
  int read = 0;
  int refused = 0;
  for (int i = 0; i < kReads; ++i) {
    array->Read(i % kRecords, &accounts[i], [&, i](const absl::Status& status) {
      ++ends[i];
      if (status.ok()) {
        ++read;
      } else {
        EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
        EXPECT_EQ(DeliveryOf(status), Delivery::kNotSent);
        ++refused;
      }
    });
  }
  EXPECT_GT(refused, 0);
  ASSERT_TRUE(RunUntil([&] { return read + refused == kReads; }));
  EXPECT_GT(read, 300);
  EXPECT_EQ(std::count(ends.begin(), ends.end(), 1), kReads);
  AccountLayout account;
  EXPECT_EQ(array->Read(7, &account), absl::OkStatus()) << "there is room again";
}

TEST_F(RemoteArrayTest, NumbersBeyondTheEndAreRefused) {
  StartWithArrays();
  AccountLayout account;
  const absl::Status beyond = array_->Read(kRecords, &account);
  EXPECT_TRUE(absl::IsOutOfRange(beyond));
  EXPECT_EQ(beyond.message(),
            "there are 300 records of weft.test.Account; none is number 300 (not sent)");
  EXPECT_EQ(DeliveryOf(beyond), Delivery::kNotSent);
  EXPECT_TRUE(absl::IsOutOfRange(array_->Write(~uint64_t{0}, account)));
  EXPECT_FALSE(array_->FetchAdd(kRecords, &AccountLayout::owner, 1).ok());
  EXPECT_FALSE(array_->FetchAdd(~uint64_t{0} / 40, &AccountLayout::owner, 1).ok());
}

TEST_F(RemoteArrayTest, AnotherVersionOfTheRecordIsAnErrorThatNamesBoth) {
  StartWithArrays();
  const absl::Status differs =
      RemoteArray<WiderAccountLayout>::Open(*channel_, exported_accounts_->handle()).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(differs)) << differs;
  EXPECT_NE(differs.message().find("weft.test.Account"), absl::string_view::npos) << differs;
}

TEST_F(RemoteArrayTest, MemoryThatIsNoNumberOfRecordsIsRefused) {
  StartWithArrays();
  const auto part = exported_accounts_->Derive({.length = 41});
  ASSERT_TRUE(part.ok());
  EXPECT_TRUE(absl::IsInvalidArgument(RemoteArray<AccountLayout>::Open(*channel_, *part).status()));
}

// --- torn reads ----------------------------------------------------------------------------------

TEST_F(RemoteArrayTest, ATornRecordIsReadAgainUntilItIsWhole) {
  StartWithArrays();
  snapshots_owned_[9].version += 1;  // its writer has begun
  snapshots_owned_[9].numbers[0] = 1234;
  const uint64_t indices[] = {8, 9, 10};
  SnapshotLayout read[3];
  Outcome outcome;
  snapshots_->ReadMany(indices, read, outcome.Callback());
  network_.RunFor(5 * kNsPerMs);
  EXPECT_FALSE(outcome.done());
  snapshots_owned_[9].version -= 1;
  SetSnapshot(9, 1234);
  ASSERT_TRUE(RunUntil([&] { return outcome.done(); }));
  EXPECT_TRUE(outcome.status->ok()) << *outcome.status;
  EXPECT_EQ(read[0].numbers[0], 8u);
  EXPECT_EQ(read[1].numbers[0], 1234u);
  EXPECT_EQ(read[1].numbers[125], 1234u);
  EXPECT_EQ(read[2].numbers[0], 10u);
  EXPECT_GE(snapshots_->stats().torn_reads, kTornTriesAtOnce);
}

// Half of a change, with a sequence word that looks at rest: what unordered bytes can look like.
TEST_F(RemoteArrayTest, AnEvenSequenceAloneIsNotBelieved) {
  StartWithArrays();
  const SnapshotLayout before = snapshots_owned_[9];
  SetSnapshot(9, 1234);
  std::copy_n(before.numbers.begin(), 50, snapshots_owned_[9].numbers.begin());
  SnapshotLayout read;
  const absl::Status torn = snapshots_->Read(9, &read);
  EXPECT_TRUE(absl::IsAborted(torn)) << torn;
  EXPECT_EQ(torn.message(),
            "record 9 of weft.test.Snapshot was being changed each of the 512 times that it was "
            "read");
}

TEST_F(RemoteArrayTest, AWriterThatStopsMidwayAbortsItsReadersOnly) {
  StartWithArrays();
  snapshots_owned_[9].version += 1;
  SnapshotLayout read;
  EXPECT_TRUE(absl::IsAborted(snapshots_->Read(9, &read)));
  EXPECT_EQ(snapshots_->Read(10, &read), absl::OkStatus());
  EXPECT_EQ(read.numbers[7], 10u);
}

// --- the end -------------------------------------------------------------------------------------

TEST_F(RemoteArrayTest, DestroyingItEndsEveryOperation) {
  StartWithArrays();
  snapshots_owned_[9].version += 1;
  std::vector<SnapshotLayout> read(400);
  std::vector<Outcome> outcomes(400);
  for (size_t i = 0; i < outcomes.size(); ++i) {
    snapshots_->Read(9, &read[i], outcomes[i].Callback());
  }
  network_.RunFor(2 * kNsPerMs);  // some pause, some wait for a slot
  snapshots_.reset();
  for (const Outcome& outcome : outcomes) {
    ASSERT_EQ(outcome.completions, 1);
    EXPECT_TRUE(absl::IsCancelled(*outcome.status)) << *outcome.status;
  }
}

TEST_F(RemoteArrayTest, DestroyingItRefusesWhatACallbackStartsAgain) {
  StartWithArrays();
  snapshots_owned_[9].version += 1;
  RemoteArray<SnapshotLayout>& snapshots = *snapshots_;
  SnapshotLayout read;
  int reads = 0;
  absl::Status last;
  Function<void()> read_on = [&] {
    ++reads;
    snapshots.Read(9, &read, [&](absl::Status status) {
      last = std::move(status);
      if (absl::IsCancelled(last)) read_on();
    });
  };
  read_on();
  network_.RunFor(2 * kNsPerMs);  // it pauses
  snapshots_.reset();
  EXPECT_EQ(reads, 2);
  EXPECT_TRUE(absl::IsFailedPrecondition(last)) << last;
  EXPECT_EQ(DeliveryOf(last), Delivery::kNotSent);
}

TEST_F(RemoteArrayTest, LossOfTheConnectionEndsEveryOperation) {
  StartWithArrays();
  std::vector<SnapshotLayout> read(400);
  std::vector<Outcome> outcomes(400);
  network_.Partition("client", "server");
  for (size_t i = 0; i < outcomes.size(); ++i) {
    snapshots_->Read(9, &read[i], outcomes[i].Callback());
  }
  ASSERT_TRUE(RunUntil([&] {
    return std::all_of(outcomes.begin(), outcomes.end(), [](const Outcome& o) { return o.done(); });
  }));
  for (const Outcome& outcome : outcomes) {
    EXPECT_TRUE(absl::IsUnavailable(*outcome.status)) << *outcome.status;
  }
}

}  // namespace
}  // namespace weft::test
