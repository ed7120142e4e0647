#include "core/counters.h"

#include <thread>

#include "gtest/gtest.h"

namespace weft {
namespace {

using Values = CounterSet::Values;

TEST(Counter, CountsUpAndDown) {
  Counter counter;
  counter.Increment();
  counter.Add(10);
  EXPECT_EQ(counter.value(), 11u);
  counter.Sub(4);
  EXPECT_EQ(counter.value(), 7u);
  counter.Set(100);
  EXPECT_EQ(counter.value(), 100u);
}

TEST(CounterSet, ListsNamesInOrder) {
  Counter sent;
  Counter received;
  CounterSet set;
  set.Register("engine.frames_sent", &sent);
  set.Register("engine.frames_received", &received);
  sent.Add(3);
  EXPECT_EQ(set.Snapshot(), (Values{{"engine.frames_received", 0}, {"engine.frames_sent", 3}}));
  set.Unregister(&sent);
  set.Unregister(&received);
}

TEST(CounterSet, AddsUpWhatHasTheSameName) {
  Counter first;
  Counter second;
  CounterSet set;
  set.Register("x", &first);
  set.Register("x", &second);
  first.Add(1);
  second.Add(2);
  EXPECT_EQ(set.Snapshot(), (Values{{"x", 3}}));
}

TEST(CounterSet, TotalsDoNotFallWhenAComponentEnds) {
  Counter lasting;
  CounterSet set;
  set.Register("x", &lasting);
  lasting.Add(1);
  for (int i = 0; i < 2; ++i) {
    Counter ending;
    set.Register("x", &ending);
    ending.Add(5);
    set.Unregister(&ending);
  }
  EXPECT_EQ(set.Snapshot(), (Values{{"x", 11}}));
}

TEST(CounterSet, UnregisteringAStrangerDoesNothing) {
  Counter stranger;
  CounterSet set;
  set.Unregister(&stranger);
  EXPECT_TRUE(set.Snapshot().empty());
}

// ThreadSanitizer watches: a snapshot may be taken while the owner counts.
TEST(CounterSet, OthersMayReadWhileTheOwnerCounts) {
  Counter counter;
  CounterSet set;
  set.Register("x", &counter);
  std::thread owner([&counter] {
    for (int i = 0; i < 100'000; ++i) counter.Increment();
  });
  uint64_t previous = 0;
  for (int i = 0; i < 1000; ++i) {
    const uint64_t value = set.Snapshot()[0].second;
    EXPECT_GE(value, previous);
    previous = value;
  }
  owner.join();
  EXPECT_EQ(set.Snapshot(), (Values{{"x", 100'000}}));
}

}  // namespace
}  // namespace weft
