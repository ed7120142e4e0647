#include "embed/rocksdb/lent_files.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <future>
#include <latch>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "embed/rocksdb/served_folder.h"
#include "embed/rocksdb/testing/file_server.h"
#include "transport/descriptor.h"
#include "weft/engine.h"

namespace weft::embed {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kFileBytes = kMiB + kMiB / 8;  // takes a huge page, of 2 MiB
constexpr uint64_t kOne = 1;                      // clients
constexpr uint64_t kOther = 2;
constexpr uint64_t kThird = 3;

class LentFilesTest : public testing::Test {
 protected:
  LentFilesTest() : folder_("lent_files_test") {
    folder_.Put("file", "");
    std::filesystem::resize_file(folder_.file("file"), kFileBytes);
    file_ = *(*ServedFolder::Open(folder_.path(), /*read_only=*/true))
                 ->OpenFile("file", ServedFolder::Mode::kRead);
  }
  // One file, by so many identities as there are to be copies.
  absl::StatusOr<LentFiles::Loan> Lend(uint64_t identity, uint64_t client) {
    return files_.Lend(identity, file_, kFileBytes, client);
  }
  // One copy more, without a loan. False: it was refused.
  bool TryLoad(uint64_t client) {
    const absl::Status status = Lend(~uint64_t{0}, client).status();
    EXPECT_TRUE(status.ok() || absl::IsResourceExhausted(status)) << status;
    return status.ok();
  }
  // The engine revokes nothing until `go_on`.
  void HoldEngine(std::future<void> go_on) {
    ASSERT_TRUE(engine_->Post([go_on = std::move(go_on)] { go_on.wait(); }));
  }
  // All that one client gets of eight: `first` to `first` + 6.
  void LendSevenTo(uint64_t client, uint64_t first = 1) {
    for (uint64_t identity = first; identity < first + 7; ++identity) {
      auto loan = Lend(identity, client);
      ASSERT_TRUE(loan.ok()) << loan.status() << " " << identity;
      loans_.push_back(*std::move(loan));
    }
  }

  TestFolder folder_;
  Descriptor file_;
  const std::unique_ptr<Engine> engine_ = *OpenNetworkEngine({});
  LentFiles files_{*engine_, 16 * kMiB};
  std::vector<LentFiles::Loan> loans_;  // go first
};

// A file had its own bytes in the account, and its copy took whole huge pages: of files that are
// little more than half a page there were twice as many in memory as there was memory for.
TEST_F(LentFilesTest, ACopyCountsWithThePagesThatItTakes) {
  loans_.push_back(*Lend(1, kOne));
  EXPECT_EQ(files_.bytes(), 2 * kMiB);
  loans_.push_back(*Lend(2, kOne));
  EXPECT_EQ(files_.bytes(), 4 * kMiB);
}

TEST_F(LentFilesTest, AFileThatTakesMoreThanThereIsIsNotLent) {
  LentFiles small(*engine_, kFileBytes);
  EXPECT_TRUE(absl::IsInvalidArgument(small.Lend(1, file_, kFileBytes, kOne).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(files_.Lend(1, file_, 14 * kMiB + 1, kOne).status()))
      << "one client leaves an eighth";
}

TEST_F(LentFilesTest, ALargeFileLeavesAnEighthToOthersAsWell) {
  loans_.push_back(*Lend(1, kOne));
  loans_.push_back(*Lend(2, kOther));
  loans_.pop_back();
  EXPECT_TRUE(absl::IsResourceExhausted(files_.Lend(3, file_, 14 * kMiB, kOne).status()))
      << "though it has less than its share now";
  EXPECT_EQ(files_.bytes(), 4 * kMiB) << "and no copy of another client's makes room in vain";
}

// One client's files had all of it.
TEST_F(LentFilesTest, AClientLeavesAnEighthOfTheMemoryToOthers) {
  LendSevenTo(kOne);
  EXPECT_FALSE(TryLoad(kOne));
  EXPECT_TRUE(Lend(1, kOne).ok()) << "what is there costs nothing";
  auto last = Lend(8, kOther);
  ASSERT_TRUE(last.ok()) << last.status();
  EXPECT_EQ(files_.bytes(), 16 * kMiB);
  EXPECT_FALSE(TryLoad(kOther));
  last->reset();
  EXPECT_TRUE(TryLoad(kThird));
}

TEST_F(LentFilesTest, ACopyCountsForWhoHadItLoadedAndForNoOther) {
  LendSevenTo(kOne);
  for (uint64_t identity = 1; identity <= 7; ++identity) {
    auto loan = Lend(identity, kOther);
    ASSERT_TRUE(loan.ok()) << loan.status();
    loans_.push_back(*std::move(loan));
  }
  EXPECT_EQ(files_.bytes(), 14 * kMiB);
  EXPECT_TRUE(TryLoad(kOther));
}

TEST_F(LentFilesTest, CopiesWithoutLoansMakeRoomWhoeverHadThemLoaded) {
  LendSevenTo(kOne);
  loans_.erase(loans_.begin());
  EXPECT_TRUE(TryLoad(kOne)) << "its own";
  loans_.clear();
  LendSevenTo(kOther, 11);
  EXPECT_FALSE(TryLoad(kOther));
  EXPECT_TRUE(TryLoad(kThird));
}

// It stayed, though nobody could read it, for as long as somebody kept the file open: who kept all
// that a database had replaced left no memory to what it has now.
TEST_F(LentFilesTest, TheMemoryOfAForgottenCopyIsGivenBackThoughALoanLasts) {
  LendSevenTo(kOne);
  for (uint64_t identity = 1; identity <= 7; ++identity) files_.Forget(identity);
  EXPECT_EQ(files_.bytes(), 0u);
  std::vector<LentFiles::Loan> forgotten = std::move(loans_);
  loans_.clear();
  LendSevenTo(kOne);
  forgotten.clear();
  loans_.clear();
  EXPECT_TRUE(TryLoad(kOne)) << "and what is forgotten goes once";
}

// They stayed on a list, which each call looked through, for as long as a loan lasted: as many as
// clients could keep files open.
TEST_F(LentFilesTest, AForgottenCopyIsItsLoansAlone) {
  LentFiles::Loan loan = *Lend(1, kOne);
  const std::weak_ptr<const LentFiles::Entry> entry = loan;
  files_.Forget(1);
  EXPECT_FALSE(entry.expired());
  loan.reset();
  EXPECT_TRUE(entry.expired());
}

// Of several that forgot a file, one revoked its copy, and the others returned at once: a writer
// was told that the file is open while clients still read what it had.
TEST_F(LentFilesTest, WhoeverForgetsAFileWaitsUntilNobodyCanReadItsCopy) {
  constexpr int kRounds = 20;
  constexpr int kWriters = 4;
  for (int round = 0; round < kRounds; ++round) {
    loans_.push_back(*Lend(1, kOne));
    std::promise<void> go_on;
    HoldEngine(go_on.get_future());
    std::latch begun(kWriters + 1);
    std::vector<std::thread> writers;
    for (int i = 0; i < kWriters; ++i) {
      writers.emplace_back([&] {
        begun.arrive_and_wait();
        files_.Forget(1);
        EXPECT_EQ(files_.bytes(), 0u) << "round " << round;
      });
    }
    begun.arrive_and_wait();
    go_on.set_value();
    for (std::thread& writer : writers) writer.join();
  }
}

// Copies of others left, one by one, until none was left that could, and the file was refused all
// the same.
TEST_F(LentFilesTest, NoCopyLeavesWhereThatDoesNotSuffice) {
  for (uint64_t identity = 1; identity <= 5; ++identity) {
    loans_.push_back(*Lend(identity, kOne));
  }
  loans_.push_back(*Lend(6, kOther));
  EXPECT_TRUE(Lend(7, kThird).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(files_.Lend(8, file_, 4 * kMiB, kOne).status()))
      << "it has more than its share, and there would be nothing left to others";
  EXPECT_EQ(files_.bytes(), 14 * kMiB);
  EXPECT_TRUE(TryLoad(kOther)) << "nothing has to leave for that";
  EXPECT_EQ(files_.bytes(), 16 * kMiB);
}

// What left was free before it was revoked, and that may wait for a client: others had its memory
// meanwhile, more than there is.
TEST_F(LentFilesTest, TheMemoryOfACopyThatLeavesIsFreeWhenNobodyCanReadItAndNotBefore) {
  const std::string large(12 * kMiB, 'l');
  folder_.Put("large", large);
  const Descriptor file = *(*ServedFolder::Open(folder_.path(), /*read_only=*/true))
                               ->OpenFile("large", ServedFolder::Mode::kRead);
  EXPECT_TRUE(files_.Lend(1, file, large.size(), kOne).ok());
  loans_.push_back(*Lend(2, kOther));
  loans_.push_back(*Lend(3, kThird));
  EXPECT_EQ(files_.bytes(), 16 * kMiB);
  std::promise<void> go_on;
  HoldEngine(go_on.get_future());
  std::thread lends([&] { EXPECT_TRUE(Lend(4, kThird).ok()); });
  for (int i = 0; i < 10'000; ++i) {
    EXPECT_EQ(files_.bytes(), 16 * kMiB);
    std::this_thread::yield();
  }
  go_on.set_value();
  lends.join();
  EXPECT_EQ(files_.bytes(), 6 * kMiB);
}

}  // namespace
}  // namespace weft::embed
