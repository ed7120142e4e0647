#include "core/priority_lists.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

namespace weft::test {
namespace {

enum class Priority : uint8_t { kControl = 0, kNormal = 1, kBackground = 2 };

struct Item : ListNode<> {
  explicit Item(char its_name) : name(its_name) {}
  const char name;
};

class PriorityListsTest : public testing::Test {
 protected:
  std::string TakeAll(Priority least = Priority::kBackground) {
    std::string taken;
    while (Item* const item = lists_.PopFront(least)) taken.push_back(item->name);
    return taken;
  }

  Item a_{'a'}, b_{'b'}, c_{'c'}, d_{'d'};
  PriorityLists<Item, Priority, 3> lists_;
};

TEST_F(PriorityListsTest, TheMostUrgentLeavesFirstAndEqualsInOrder) {
  lists_.PushBack(&a_, Priority::kBackground);
  lists_.PushBack(&b_, Priority::kNormal);
  lists_.PushBack(&c_, Priority::kControl);
  lists_.PushBack(&d_, Priority::kNormal);
  EXPECT_EQ(lists_.CountSlowly(), 4u);
  EXPECT_EQ(TakeAll(), "cbda");
  EXPECT_TRUE(lists_.empty());
}

TEST_F(PriorityListsTest, WhatIsLessUrgentThanAskedForStays) {
  lists_.PushBack(&a_, Priority::kBackground);
  lists_.PushBack(&b_, Priority::kNormal);
  EXPECT_EQ(TakeAll(Priority::kControl), "");
  EXPECT_EQ(TakeAll(Priority::kNormal), "b");
  EXPECT_EQ(lists_.Front(), &a_);
  EXPECT_FALSE(lists_.empty());
}

TEST_F(PriorityListsTest, OnlyWhoIsMoreUrgentMayPass) {
  EXPECT_TRUE(lists_.may_pass(Priority::kBackground));
  lists_.PushBack(&a_, Priority::kNormal);
  EXPECT_TRUE(lists_.may_pass(Priority::kControl));
  EXPECT_FALSE(lists_.may_pass(Priority::kNormal));
  EXPECT_FALSE(lists_.may_pass(Priority::kBackground));
}

TEST_F(PriorityListsTest, WhatIsPutBackIsFirstOfItsPriority) {
  lists_.PushBack(&a_, Priority::kNormal);
  lists_.PushBack(&b_, Priority::kNormal);
  Item* const first = lists_.PopFront();
  lists_.PushBack(&c_, Priority::kControl);
  lists_.PushFront(first, Priority::kNormal);
  EXPECT_EQ(TakeAll(), "cab");
}

TEST_F(PriorityListsTest, WhoIsVisitedMayLeave) {
  lists_.PushBack(&a_, Priority::kBackground);
  lists_.PushBack(&b_, Priority::kControl);
  lists_.PushBack(&c_, Priority::kControl);
  std::string visited;
  lists_.ForEach([&](Item& item) {
    visited.push_back(item.name);
    if (item.name != 'c') lists_.Remove(&item);
  });
  EXPECT_EQ(visited, "bca");
  EXPECT_EQ(TakeAll(), "c");
}

}  // namespace
}  // namespace weft::test
