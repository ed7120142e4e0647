#include "core/grown_array.h"

#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace weft {
namespace {

// Counts how many there are; cannot be moved.
struct Counted {
  explicit Counted(int* count, std::string name = "") : living(count), text(std::move(name)) {
    ++*living;
  }
  Counted(const Counted&) = delete;
  ~Counted() { --*living; }
  int* const living;
  const std::string text;
};

TEST(GrownArray, ConstructsWhatIsAskedForAndDestroysThat) {
  int living = 0;
  {
    GrownArray<Counted> array(1000);
    EXPECT_EQ(living, 0);
    array.Grow(&living, "first");
    array.GrowBy([&](void* place) { ::new (place) Counted(&living, "second"); });
    EXPECT_EQ(living, 2);
    EXPECT_EQ(array.size(), 2u);
    EXPECT_EQ(array.capacity(), 1000u);
    EXPECT_EQ(array[0].text, "first");
    EXPECT_EQ(array[1].text, "second");
  }
  EXPECT_EQ(living, 0);
}

TEST(GrownArray, ElementsStayWhereTheyAre) {
  GrownArray<int> array(100);
  std::vector<int*> places;
  for (int i = 0; i < 100; ++i) places.push_back(&array.Grow(i));
  for (int i = 0; i < 100; ++i) EXPECT_EQ(*places[i], i);
  int expected = 0;
  for (const int value : array) EXPECT_EQ(value, expected++);
  EXPECT_EQ(expected, 100);
}

TEST(GrownArray, HasNothingBeforeItIsReserved) {
  GrownArray<int> array;
  EXPECT_EQ(array.size(), 0u);
  EXPECT_EQ(array.capacity(), 0u);
  EXPECT_EQ(array.begin(), array.end());
  array.Reserve(3);
  EXPECT_EQ(array.capacity(), 3u);
}

TEST(GrownArrayDeathTest, GrowingBeyondTheCapacityAborts) {
  GrownArray<int> array(1);
  array.Grow();
  EXPECT_DEATH(array.Grow(), "check failed");
}

}  // namespace
}  // namespace weft
