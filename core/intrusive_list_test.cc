#include "core/intrusive_list.h"

#include <deque>
#include <list>
#include <memory>
#include <vector>

#include "core/random.h"
#include "core/test_seed.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

struct Item : ListNode<> {
  explicit Item(int v) : value(v) {}
  int value;
};

std::vector<int> Values(IntrusiveList<Item>& list) {
  list.CheckInvariants();
  std::vector<int> values;
  for (const Item& item : list) values.push_back(item.value);
  EXPECT_EQ(values.size(), list.CountSlowly());
  return values;
}

using V = std::vector<int>;

class IntrusiveListTest : public testing::Test {
 protected:
  Item one_{1}, two_{2}, three_{3};
  IntrusiveList<Item> list_;
};

TEST_F(IntrusiveListTest, KeepsTheOrderOfBothEnds) {
  list_.PushBack(&two_);
  list_.PushBack(&three_);
  list_.PushFront(&one_);
  EXPECT_EQ(Values(list_), (V{1, 2, 3}));
  EXPECT_EQ(list_.Front(), &one_);
  EXPECT_EQ(list_.Back(), &three_);
  EXPECT_EQ(list_.PopFront(), &one_);
  EXPECT_EQ(list_.PopBack(), &three_);
  EXPECT_EQ(Values(list_), (V{2}));
}

TEST_F(IntrusiveListTest, EmptyListGivesNullptr) {
  EXPECT_TRUE(list_.empty());
  EXPECT_EQ(list_.Front(), nullptr);
  EXPECT_EQ(list_.Back(), nullptr);
  EXPECT_EQ(list_.PopFront(), nullptr);
  EXPECT_EQ(list_.PopBack(), nullptr);
}

TEST_F(IntrusiveListTest, ElementLeavesWithoutNamingTheList) {
  list_.PushBack(&one_);
  list_.PushBack(&two_);
  list_.PushBack(&three_);
  IntrusiveList<Item>::Remove(&two_);
  EXPECT_FALSE(IntrusiveList<Item>::IsLinked(&two_));
  EXPECT_EQ(Values(list_), (V{1, 3}));
  IntrusiveList<Item>::Remove(&two_);
  EXPECT_EQ(Values(list_), (V{1, 3}));
}

TEST_F(IntrusiveListTest, CurrentElementMayLeaveOrDieDuringIteration) {
  list_.PushBack(&one_);
  list_.PushBack(new Item(20));
  list_.PushBack(&two_);
  list_.PushBack(new Item(30));
  for (Item& item : list_) {
    if (item.value >= 20) delete &item;
  }
  EXPECT_EQ(Values(list_), (V{1, 2}));
  for (Item& item : list_) item.Unlink();
  EXPECT_TRUE(list_.empty());
}

TEST_F(IntrusiveListTest, DestroyedElementLeavesItsList) {
  list_.PushBack(&one_);
  {
    Item shortlived(9);
    list_.PushBack(&shortlived);
    list_.PushBack(&two_);
  }
  EXPECT_EQ(Values(list_), (V{1, 2}));
}

TEST_F(IntrusiveListTest, DestroyedListLetsItsElementsGo) {
  {
    IntrusiveList<Item> shortlived;
    shortlived.PushBack(&one_);
    shortlived.PushBack(&two_);
  }
  EXPECT_FALSE(one_.linked());
  list_.PushBack(&one_);
  EXPECT_EQ(Values(list_), (V{1}));
}

TEST_F(IntrusiveListTest, SpliceMovesAllInOrder) {
  IntrusiveList<Item> other;
  list_.SpliceBack(other);
  EXPECT_TRUE(list_.empty());
  list_.PushBack(&one_);
  other.PushBack(&two_);
  other.PushBack(&three_);
  list_.SpliceBack(other);
  EXPECT_EQ(Values(list_), (V{1, 2, 3}));
  EXPECT_EQ(Values(other), V{});
  list_.SpliceBack(list_);
  EXPECT_EQ(Values(list_), (V{1, 2, 3}));
}

struct ReadyTag;
struct IdleTag;
struct Both : ListNode<ReadyTag>, ListNode<IdleTag> {};

TEST(IntrusiveList, ElementIsOnOneListForEachTag) {
  Both both;
  IntrusiveList<Both, ReadyTag> ready;
  IntrusiveList<Both, IdleTag> idle;
  ready.PushBack(&both);
  idle.PushBack(&both);
  ready.Remove(&both);
  EXPECT_TRUE(ready.empty());
  EXPECT_EQ(idle.Front(), &both);
}

// Against std::list.
TEST(IntrusiveList, AgreesWithItsModel) {
  const uint64_t seed = TestSeed();
  SCOPED_TRACE(SeedTrace(seed));
  Random random(seed);
  std::deque<Item> items;
  for (int i = 0; i < 30; ++i) items.emplace_back(i);
  IntrusiveList<Item> lists[2];
  std::list<int> models[2];
  for (int step = 0; step < 5'000; ++step) {
    Item& item = items[random.Uniform(items.size())];
    const uint64_t side = random.Uniform(2);
    if (item.linked()) {
      IntrusiveList<Item>::Remove(&item);
      for (std::list<int>& model : models) model.remove(item.value);
    } else if (random.Chance(0.5)) {
      lists[side].PushBack(&item);
      models[side].push_back(item.value);
    } else {
      lists[side].PushFront(&item);
      models[side].push_front(item.value);
    }
    if (random.Chance(0.02)) {
      lists[side].SpliceBack(lists[1 - side]);
      models[side].splice(models[side].end(), models[1 - side]);
    }
    for (int i = 0; i < 2; ++i) ASSERT_EQ(Values(lists[i]), V(models[i].begin(), models[i].end()));
  }
}

}  // namespace
}  // namespace weft
