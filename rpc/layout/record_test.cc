// Records that show when they were torn.
#include "rpc/layout/record.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "rpc/testing/records.weft.h"

namespace weft::test {
namespace {

const std::byte* Raw(const SnapshotLayout& record) {
  return reinterpret_cast<const std::byte*>(&record);
}
bool Whole(const SnapshotLayout& record) { return IsWholeRecord(Raw(record), sizeof(record)); }

void SetAll(SnapshotLayout& shared, uint64_t number) {
  RecordWriter<SnapshotLayout> writer(shared);
  writer->numbers.fill(number);
}

TEST(RecordTest, ZerosAreARecordAtRest) {
  SnapshotLayout record;
  EXPECT_TRUE(Whole(record));
  EXPECT_EQ(RecordChecksum(Raw(record), sizeof(record)), 0u);
}

TEST(RecordTest, AWriterPublishesAllItsChangesAtItsEnd) {
  SnapshotLayout record;
  {
    RecordWriter<SnapshotLayout> writer(record);
    writer->numbers[3] = 77;
    EXPECT_EQ(record.numbers[3], 0u);
  }
  EXPECT_EQ(record.numbers[3], 77u);
  EXPECT_EQ(record.version, 2u);
  EXPECT_TRUE(Whole(record));
}

TEST(RecordTest, AnAbandonedWriterChangesNothing) {
  SnapshotLayout record;
  SetAll(record, 1);
  const SnapshotLayout before = record;
  {
    RecordWriter<SnapshotLayout> writer(record);
    writer->numbers[3] = 77;
    writer.Abandon();
  }
  EXPECT_EQ(std::memcmp(&record, &before, sizeof(record)), 0);
}

TEST(RecordTest, TheSameContentsAgainAreAnotherRecord) {
  SnapshotLayout record;
  SetAll(record, 5);
  const uint64_t checksum = record.checksum_;
  SetAll(record, 5);
  EXPECT_NE(record.checksum_, checksum);
}

// Bytes from one state up to anywhere, from the other one after: in both directions, and with a
// window of one state inside the other.
TEST(RecordTest, NoMixtureOfTwoStatesIsWhole) {
  SnapshotLayout old_state, new_state;
  SetAll(old_state, 1);
  new_state = old_state;
  SetAll(new_state, 2);
  const auto mixture_is_whole = [](const SnapshotLayout& outside, const SnapshotLayout& inside,
                                   size_t from, size_t to) {
    SnapshotLayout mixed = outside;
    std::memcpy(reinterpret_cast<std::byte*>(&mixed) + from, Raw(inside) + from, to - from);
    const bool same = std::memcmp(&mixed, &outside, sizeof(mixed)) == 0 ||
                      std::memcmp(&mixed, &inside, sizeof(mixed)) == 0;
    return !same && Whole(mixed);
  };
  for (size_t from = 0; from < sizeof(SnapshotLayout); from += 5) {
    for (size_t to = from + 1; to <= sizeof(SnapshotLayout); to += 3) {
      ASSERT_FALSE(mixture_is_whole(old_state, new_state, from, to)) << from << " " << to;
      ASSERT_FALSE(mixture_is_whole(new_state, old_state, from, to)) << from << " " << to;
    }
  }
}

TEST(RecordTest, OneBitBreaksIt) {
  SnapshotLayout record;
  SetAll(record, 0x0123456789ABCDEF);
  for (size_t bit = 0; bit < sizeof(record) * 8; ++bit) {
    SnapshotLayout changed = record;
    reinterpret_cast<std::byte*>(&changed)[bit / 8] ^= std::byte{1} << bit % 8;
    ASSERT_FALSE(Whole(changed)) << bit;
  }
}

TEST(RecordTest, ASecondWriterIsABug) {
  SnapshotLayout record;
  record.version = 1;  // as in the midst of a change
  EXPECT_DEATH(SetAll(record, 1), "");
}

TEST(RecordTest, LocalReadersNeverSeeAMixture) {
  SnapshotLayout record;
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    for (uint64_t number = 1; !stop; ++number) SetAll(record, number);
  });
  uint64_t last = 0;
  for (int i = 0; i < 20'000; ++i) {
    SnapshotLayout copy;
    if (!LoadRecord(record, &copy)) continue;
    for (uint64_t number : copy.numbers) ASSERT_EQ(number, copy.numbers[0]);
    ASSERT_GE(copy.numbers[0], last);
    last = copy.numbers[0];
    ASSERT_TRUE(Whole(copy));
  }
  stop = true;
  writer.join();
}

TEST(RecordTest, AWriterThatHasStoppedMidwayIsToldToLocalReaders) {
  SnapshotLayout record;
  record.version = 1;
  SnapshotLayout copy;
  EXPECT_FALSE(LoadRecord(record, &copy));
}

TEST(FixedBoolTest, AnyByteIsABool) {
  FixedBool flag;
  EXPECT_FALSE(flag);
  flag = true;
  EXPECT_TRUE(flag);
  std::memset(static_cast<void*>(&flag), 0x82, 1);
  EXPECT_TRUE(flag);
}

}  // namespace
}  // namespace weft::test
