// What threads get that come together. What children of a fork get: fork_guard_test.cc.
#include "core/process_wide.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <latch>
#include <string>
#include <thread>
#include <vector>

namespace weft {
namespace {

constexpr size_t kThreads = 4;

// What each of some threads gets of `get`, all at the same time.
template <class Get>
auto AllGet(Get get) {
  std::latch all(kThreads);
  std::array<decltype(get()), kThreads> got = {};
  std::vector<std::thread> threads;
  for (auto& mine : got) {
    threads.emplace_back([&] {
      all.arrive_and_wait();
      mine = get();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return got;
}

TEST(ProcessWideTest, OfThreadsThatComeTogetherAllGetTheSameAndTheRestIsDestroyed) {
  static std::atomic<int> alive{0};
  struct Counted {
    Counted() { ++alive; }
    ~Counted() { --alive; }
  };
  static constinit ProcessWide<Counted> counted;
  const auto got = AllGet([] { return &counted.Get(); });
  for (const Counted* each : got) EXPECT_EQ(each, got[0]);
  EXPECT_EQ(alive, 1);
}

TEST(ProcessWideTest, WhatMustNotBeMadeTwiceIsMadeByOneThreadAndTheOthersFindIt) {
  static constinit ProcessWide<std::string> text;
  static std::atomic<int> makes{0};
  const auto make = [] {
    ++makes;
    return std::string("made");
  };
  const auto got =
      AllGet([&] { return &text.GetOnce(make, [] { return std::string("lost in a fork"); }); });
  for (const std::string* each : got) EXPECT_EQ(*each, "made");
  EXPECT_EQ(makes, 1);
}

}  // namespace
}  // namespace weft
