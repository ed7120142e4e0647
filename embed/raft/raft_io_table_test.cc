#include "embed/raft/raft_io_table.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace weft::embed {
namespace {

TEST(RaftIoTable, FindsWhatWasAddedUntilItIsRemoved) {
  RaftIoTable<int> table;
  raft_io one = {};
  raft_io two = {};
  int of_one = 1;
  int of_two = 2;
  EXPECT_EQ(table.Find(&one), nullptr);
  table.Add(&one, &of_one);
  table.Add(&two, &of_two);
  EXPECT_EQ(table.Find(&one), &of_one);
  EXPECT_EQ(table.Find(&two), &of_two);
  table.Remove(&one);
  table.Remove(&one);
  EXPECT_EQ(table.Find(&one), nullptr);
  EXPECT_EQ(table.Find(&two), &of_two);
}

TEST(RaftIoTable, ARaftIoMayComeBack) {
  RaftIoTable<int> table;
  raft_io io = {};
  int first = 1;
  int second = 2;
  table.Add(&io, &first);
  EXPECT_EQ(table.Find(&io), &first);
  table.Remove(&io);
  table.Add(&io, &second);
  EXPECT_EQ(table.Find(&io), &second);
}

// Of several nodes in one process each has a thread of its own.
TEST(RaftIoTable, OneThreadFindsItsOwnWhileOthersComeAndGo) {
  RaftIoTable<int> table;
  raft_io own = {};
  int of_own = 0;
  table.Add(&own, &of_own);
  std::atomic<bool> stop{false};
  std::thread others([&] {
    raft_io io[3] = {};
    int of[3] = {};
    while (!stop) {
      for (int i = 0; i < 3; ++i) table.Add(&io[i], &of[i]);
      for (int i = 0; i < 3; ++i) EXPECT_EQ(table.Find(&io[i]), &of[i]);
      for (int i = 0; i < 3; ++i) table.Remove(&io[i]);
    }
  });
  for (int i = 0; i < 100'000; ++i) ASSERT_EQ(table.Find(&own), &of_own);
  stop = true;
  others.join();
}

}  // namespace
}  // namespace weft::embed
