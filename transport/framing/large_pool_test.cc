#include "transport/framing/large_pool.h"

#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace weft {
namespace {

constexpr size_t kMiB = size_t{1} << 20;
constexpr uint64_t kClient = 1;

class Claim final : public LargeClaim {
 public:
  void OnBuffer(LargeBuffer* given) override {
    ++calls;
    buffer = given;
  }
  LargeBuffer* buffer = nullptr;
  int calls = 0;
};

class Watcher final : public LargeWatcher {
 public:
  void OnReleased() override { ++calls; }
  int calls = 0;
};

class LargePoolTest : public testing::Test {
 protected:
  ~LargePoolTest() override { pool_.CheckInvariants(); }
  LargePool pool_{/*domain=*/nullptr, /*limit_bytes=*/64 * kMiB};
};

TEST_F(LargePoolTest, BuffersAreLargeEnoughAndPageAligned) {
  for (size_t bytes : {size_t{0}, size_t{1}, size_t{16384}, size_t{16385}, kMiB + 1, 64 * kMiB}) {
    LargeBuffer* const buffer = pool_.Acquire(bytes, kClient);
    ASSERT_NE(buffer, nullptr);
    EXPECT_GE(buffer->memory.size(), bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->memory.data()) % 4096, 0u);
    buffer->memory.front() = buffer->memory.back() = std::byte{1};
    pool_.Release(buffer);
  }
}

TEST_F(LargePoolTest, AReleasedBufferIsUsedAgain) {
  LargeBuffer* const first = pool_.Acquire(100'000, kClient);
  pool_.Release(first);
  LargeBuffer* const second = pool_.Acquire(70'000, kClient);
  EXPECT_EQ(second, first);
  pool_.Release(second);
}

TEST_F(LargePoolTest, TheLimitHoldsAndKeptBuffersMakeRoom) {
  std::vector<LargeBuffer*> all;
  while (LargeBuffer* buffer = pool_.Acquire(kMiB, kClient)) all.push_back(buffer);
  EXPECT_EQ(all.size(), 64u);
  EXPECT_EQ(pool_.in_use_bytes(), 64 * kMiB);
  for (LargeBuffer* buffer : all) pool_.Release(buffer);
  EXPECT_EQ(pool_.kept_bytes(), 64 * kMiB);
  LargeBuffer* const whole = pool_.Acquire(64 * kMiB, kClient);
  ASSERT_NE(whole, nullptr);
  EXPECT_EQ(pool_.kept_bytes(), 0u);
  pool_.Release(whole);
}

TEST_F(LargePoolTest, ClaimsAreServedInTheirOrderAndBeforeOthers) {
  LargeBuffer* const whole = pool_.Acquire(64 * kMiB, kClient);
  Claim large, small;
  EXPECT_EQ(pool_.AcquireOrWait(32 * kMiB, kClient, &large), nullptr);
  EXPECT_EQ(pool_.AcquireOrWait(16 * 1024, kClient, &small), nullptr);
  EXPECT_EQ(pool_.Acquire(1, kClient), nullptr) << "claims wait";
  pool_.Release(whole);
  ASSERT_NE(large.buffer, nullptr);
  ASSERT_NE(small.buffer, nullptr);
  EXPECT_GE(large.buffer->memory.size(), 32 * kMiB);
  pool_.Release(large.buffer);
  pool_.Release(small.buffer);
}

// A connection that has many messages claims again as soon as it was served.
TEST_F(LargePoolTest, WhoClaimsAgainStandsBehindThoseThatWait) {
  LargeBuffer* const whole = pool_.Acquire(64 * kMiB, kClient);
  Claim busy, other;
  EXPECT_EQ(pool_.AcquireOrWait(64 * kMiB, kClient, &busy), nullptr);
  EXPECT_EQ(pool_.AcquireOrWait(64 * kMiB, kClient, &other), nullptr);
  pool_.Release(whole);
  LargeBuffer* const first = std::exchange(busy.buffer, nullptr);
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(pool_.AcquireOrWait(64 * kMiB, kClient, &busy), nullptr);
  pool_.Release(first);
  EXPECT_EQ(busy.calls, 1);
  ASSERT_NE(other.buffer, nullptr);
  pool_.Release(other.buffer);
  EXPECT_EQ(busy.calls, 2);
  pool_.Release(busy.buffer);
}

TEST_F(LargePoolTest, AWithdrawnClaimLetsTheNextOnePass) {
  LargeBuffer* const half = pool_.Acquire(32 * kMiB, kClient);
  Claim too_large, fits;
  EXPECT_EQ(pool_.AcquireOrWait(64 * kMiB, kClient, &too_large), nullptr);
  EXPECT_EQ(pool_.AcquireOrWait(kMiB, kClient, &fits), nullptr);
  pool_.Withdraw(&too_large);
  EXPECT_EQ(too_large.calls, 0);
  ASSERT_NE(fits.buffer, nullptr);
  pool_.Release(fits.buffer);
  pool_.Release(half);
}

TEST_F(LargePoolTest, WatchersAreToldOnce) {
  LargeBuffer* const first = pool_.Acquire(1, kClient);
  LargeBuffer* const second = pool_.Acquire(1, kClient);
  Watcher watcher;
  pool_.Watch(&watcher, kClient);
  pool_.Watch(&watcher, kClient);
  pool_.Release(first);
  pool_.Release(second);
  EXPECT_EQ(watcher.calls, 1);
}

// Those that held, or waited for, buffers of 64 MiB kept everybody else waiting as well.
TEST(LargePoolReserveTest, SmallBuffersDoNotWaitForLargeOnesNorStarveThem) {
  LargePool pool(/*domain=*/nullptr, 256 * kMiB);
  std::vector<LargeBuffer*> large, small;
  uint64_t client = 0;
  while (LargeBuffer* buffer = pool.Acquire(64 * kMiB, ++client)) large.push_back(buffer);
  EXPECT_EQ(large.size(), 3u);
  Claim claim;
  EXPECT_EQ(pool.AcquireOrWait(64 * kMiB, client, &claim), nullptr);
  while (LargeBuffer* buffer = pool.Acquire(kMiB, ++client)) small.push_back(buffer);
  EXPECT_EQ(small.size(), 32u) << "an eighth of the pool, while a large one waits";
  Claim small_claim;
  EXPECT_EQ(pool.AcquireOrWait(kMiB, ++client, &small_claim), nullptr);
  pool.Release(large.back());
  ASSERT_NE(claim.buffer, nullptr);
  large.back() = claim.buffer;
  EXPECT_NE(small_claim.buffer, nullptr) << "no large one waits any more, and there is room";
  pool.CheckInvariants();
  for (LargeBuffer* buffer : large) pool.Release(buffer);
  for (LargeBuffer* buffer : small) pool.Release(buffer);
  pool.Release(small_claim.buffer);
}

// --- clients -------------------------------------------------------------------------------------

class LargePoolClientsTest : public testing::Test {
 protected:
  static constexpr uint64_t kBusy = 7;
  static constexpr uint64_t kOther = 8;
  static constexpr uint64_t kThird = 9;

  ~LargePoolClientsTest() override {
    for (LargeBuffer* buffer : taken_) pool_.Release(buffer);
    pool_.CheckInvariants();
  }
  // All that this client gets.
  size_t TakeAll(uint64_t client, size_t bytes) {
    size_t count = 0;
    while (LargeBuffer* buffer = pool_.Acquire(bytes, client)) {
      taken_.push_back(buffer);
      ++count;
    }
    return count;
  }
  void ReleaseOne() {
    LargeBuffer* const last = taken_.back();
    taken_.pop_back();
    pool_.Release(last);
  }

  LargePool pool_{/*domain=*/nullptr, 256 * kMiB};
  std::vector<LargeBuffer*> taken_;
};

// 40 connections of one client, whose messages could not be read, had all of it.
TEST_F(LargePoolClientsTest, OneThatHasAllItCanLeavesTheLargestMessageAndSmallOnes) {
  EXPECT_EQ(TakeAll(kBusy, 64 * kMiB), 2u);
  TakeAll(kBusy, kMiB);
  EXPECT_EQ(pool_.in_use_bytes(), 160 * kMiB);
  EXPECT_EQ(TakeAll(kOther, 64 * kMiB), 1u);
  EXPECT_EQ(TakeAll(kBusy, 16 * 1024), 0u);
  EXPECT_EQ(TakeAll(kThird, kMiB), 8u) << "a quarter of the eighth for each client, and one more";
}

// One that had a little less than half got the largest message, and had 191 MiB.
TEST_F(LargePoolClientsTest, ItHasNoMoreInWhateverOrderItTakesIt) {
  for (size_t mib = 64; mib > 0; mib /= 2) {
    taken_.push_back(pool_.Acquire(mib * kMiB, kBusy));
    ASSERT_NE(taken_.back(), nullptr) << mib;
  }
  TakeAll(kBusy, 64 * kMiB);
  TakeAll(kBusy, kMiB);
  EXPECT_EQ(pool_.in_use_bytes(), 160 * kMiB);
  EXPECT_EQ(TakeAll(kOther, 64 * kMiB), 1u);
}

TEST_F(LargePoolClientsTest, WhatItClaimsBeyondThatIsInNobodysWay) {
  EXPECT_EQ(TakeAll(kBusy, 64 * kMiB), 2u);
  Claim large, small;
  EXPECT_EQ(pool_.AcquireOrWait(64 * kMiB, kBusy, &large), nullptr);
  TakeAll(kBusy, kMiB);
  EXPECT_EQ(pool_.AcquireOrWait(kMiB, kBusy, &small), nullptr);
  EXPECT_EQ(TakeAll(kOther, 64 * kMiB), 1u) << "not behind the large claim";
  EXPECT_EQ(TakeAll(kThird, kMiB), 8u) << "not behind the small one";
  EXPECT_EQ(large.calls + small.calls, 0);
  while (!taken_.empty()) ReleaseOne();
  ASSERT_NE(large.buffer, nullptr);
  ASSERT_NE(small.buffer, nullptr);
  pool_.Release(large.buffer);
  pool_.Release(small.buffer);
}

// More than are looked at with one release, and nothing is released behind the last one.
TEST_F(LargePoolClientsTest, ThousandsOfClaimsAreAllServed) {
  EXPECT_EQ(TakeAll(kBusy, 64 * kMiB), 2u);
  TakeAll(kBusy, 16 * 1024);
  std::vector<Claim> claims(2000);
  for (Claim& claim : claims) {
    ASSERT_EQ(pool_.AcquireOrWait(16 * 1024, kBusy, &claim), nullptr);
  }
  while (!taken_.empty()) ReleaseOne();
  for (size_t served = 0; served < claims.size();) {
    const size_t before = served;
    for (Claim& claim : claims) {
      if (claim.buffer == nullptr) continue;
      pool_.Release(std::exchange(claim.buffer, nullptr));
      ++served;
    }
    ASSERT_GT(served, before) << "nobody is served any more";
  }
  for (const Claim& claim : claims) ASSERT_EQ(claim.calls, 1);
}

// 16 claims were looked at with a release, whoever's they were: with more of one client before it,
// another one's stayed where it was, though there was room, and nobody else had anything to
// release.
TEST_F(LargePoolClientsTest, ClaimsOfOneClientDoNotHoldUpThoseOfOthers) {
  EXPECT_EQ(TakeAll(kBusy, 64 * kMiB), 2u);
  EXPECT_EQ(TakeAll(kBusy, 32 * kMiB), 1u);
  std::vector<Claim> busy(100);
  for (Claim& claim : busy) {
    ASSERT_EQ(pool_.AcquireOrWait(64 * kMiB, kBusy, &claim), nullptr);
  }
  LargeBuffer* const first = pool_.Acquire(64 * kMiB, kOther);
  ASSERT_NE(first, nullptr);
  Claim second, third;
  ASSERT_EQ(pool_.AcquireOrWait(64 * kMiB, kOther, &second), nullptr) << "apart";
  ASSERT_EQ(pool_.AcquireOrWait(64 * kMiB, kThird, &third), nullptr) << "in line";
  pool_.Release(first);
  ASSERT_NE(third.buffer, nullptr);
  EXPECT_EQ(second.buffer, nullptr);
  pool_.Release(third.buffer);
  ASSERT_NE(second.buffer, nullptr);
  pool_.Release(second.buffer);
  for (Claim& claim : busy) pool_.Withdraw(&claim);
}

// A release looked at 16 clients from the front, and who had just given back all that it had stood
// behind them: it had nothing more to release.
TEST_F(LargePoolClientsTest, WhoReleasesIsLookedAtFirst) {
  EXPECT_EQ(TakeAll(kBusy, 64 * kMiB), 2u);
  EXPECT_EQ(TakeAll(kBusy, 32 * kMiB), 1u);
  std::vector<Claim> others(40);
  for (size_t i = 0; i < others.size(); ++i) {
    LargeBuffer* const buffer = pool_.Acquire(kMiB, 100 + i);
    ASSERT_NE(buffer, nullptr);
    taken_.push_back(buffer);
    ASSERT_EQ(pool_.AcquireOrWait(64 * kMiB, 100 + i, &others[i]), nullptr);
  }
  LargeBuffer* const own = pool_.Acquire(16 * kMiB, kOther);
  ASSERT_NE(own, nullptr);
  Claim claim;
  ASSERT_EQ(pool_.AcquireOrWait(16 * kMiB, kOther, &claim), nullptr) << "apart";
  pool_.Release(own);
  ASSERT_NE(claim.buffer, nullptr);
  pool_.Release(claim.buffer);
  for (Claim& other : others) pool_.Withdraw(&other);
  for (Claim& other : others) {
    if (other.buffer != nullptr) taken_.push_back(other.buffer);
  }
}

// What a program had given back was seen when the next message came, and not by those that waited.
TEST_F(LargePoolClientsTest, WhatComesBackIsSeenByThoseThatWait) {
  std::vector<std::shared_ptr<const void>> lent;
  for (uint64_t client = 1; client <= 2; ++client) {
    LargeBuffer* const buffer = pool_.Acquire(64 * kMiB, client);
    ASSERT_NE(buffer, nullptr);
    lent.push_back(pool_.Lend(buffer));
    ASSERT_NE(lent.back(), nullptr);
  }
  LargeBuffer* const third = pool_.Acquire(64 * kMiB, kThird);
  LargeBuffer* const small = pool_.Acquire(kMiB, kOther);
  ASSERT_TRUE(third != nullptr && small != nullptr);
  Claim claim;
  ASSERT_EQ(pool_.AcquireOrWait(64 * kMiB, 100, &claim), nullptr);
  lent.clear();
  pool_.Release(small);
  ASSERT_NE(claim.buffer, nullptr);
  pool_.Release(claim.buffer);
  pool_.Release(third);
}

// It waited apart where it only did not fit, and small ones passed it for ever.
TEST_F(LargePoolClientsTest, ALargeClaimIsNotStarvedBySmallBuffers) {
  EXPECT_EQ(TakeAll(kBusy, 64 * kMiB), 2u);
  EXPECT_EQ(TakeAll(kBusy, 32 * kMiB), 1u);
  uint64_t client = 100;
  std::deque<LargeBuffer*> small;
  for (int i = 0; i < 40; ++i) small.push_back(pool_.Acquire(kMiB, ++client));
  Claim largest;
  ASSERT_EQ(pool_.AcquireOrWait(64 * kMiB, kOther, &largest), nullptr);
  while (!small.empty() && largest.buffer == nullptr) {
    pool_.Release(small.front());
    small.pop_front();
    if (LargeBuffer* const next = pool_.Acquire(kMiB, ++client)) small.push_back(next);
  }
  ASSERT_NE(largest.buffer, nullptr);
  EXPECT_EQ(small.size(), 32u) << "an eighth";
  pool_.Release(largest.buffer);
  for (LargeBuffer* buffer : small) pool_.Release(buffer);
}

// A client with a thousand connections that waited for room had all of them told, in vain, with
// each message that anybody had taken.
TEST_F(LargePoolClientsTest, FewWatchersAreToldWithEachRelease) {
  std::vector<Watcher> watchers(1000);
  EXPECT_EQ(TakeAll(kOther, kMiB), 160u);
  for (Watcher& watcher : watchers) pool_.Watch(&watcher, kBusy);
  const auto told = [&] {
    int sum = 0;
    for (const Watcher& watcher : watchers) sum += watcher.calls;
    return sum;
  };
  ReleaseOne();
  EXPECT_EQ(told(), 16);
  while (!taken_.empty()) ReleaseOne();
  EXPECT_EQ(told(), 1000) << "behind the last release nobody waits";
}

TEST_F(LargePoolClientsTest, WatchersOfOneThatHasItsPartAreNotTold) {
  TakeAll(kBusy, kMiB);
  Watcher busy, other;
  LargeBuffer* const another = pool_.Acquire(kMiB, kOther);
  pool_.Watch(&busy, kBusy);
  pool_.Watch(&other, kOther);
  pool_.Release(another);
  EXPECT_EQ(busy.calls, 0);
  EXPECT_EQ(other.calls, 1);
  ReleaseOne();
  EXPECT_EQ(busy.calls, 1);
}

TEST_F(LargePoolClientsTest, AClaimApartThatIsWithdrawnIsForgotten) {
  EXPECT_EQ(TakeAll(kBusy, 64 * kMiB), 2u);
  Claim claim;
  EXPECT_EQ(pool_.AcquireOrWait(64 * kMiB, kBusy, &claim), nullptr);
  pool_.Withdraw(&claim);
  while (!taken_.empty()) ReleaseOne();
  EXPECT_EQ(claim.calls, 0);
}

// Over shared memory each message that waits has a region, of which there are 4,096 for all.
TEST_F(LargePoolClientsTest, BuffersAreBoundedByTheirNumberToo) {
  const size_t busy = TakeAll(kBusy, 1);
  EXPECT_EQ(busy, 1280u) << "five eighths, as of the bytes";
  const size_t other = TakeAll(kOther, 1);
  EXPECT_GT(other, 0u);
  for (uint64_t client = 100; client < 200; ++client) TakeAll(client, 1);
  EXPECT_LE(taken_.size(), LargePool::kMaxBuffers);
}

// What a program keeps of a client's messages is the program's to end.
TEST_F(LargePoolClientsTest, LentBuffersAreInNobodysPart) {
  std::vector<std::shared_ptr<const void>> lent;
  for (int i = 0; i < 4; ++i) {
    LargeBuffer* const buffer = pool_.Acquire(32 * kMiB, kBusy);
    ASSERT_NE(buffer, nullptr);
    lent.push_back(pool_.Lend(buffer));
    ASSERT_NE(lent.back(), nullptr);
  }
  EXPECT_EQ(TakeAll(kBusy, 32 * kMiB), 1u);
  EXPECT_EQ(TakeAll(kOther, 64 * kMiB), 1u);
}

// Two messages of a client were kept, and the third one was read when somebody else's had been.
TEST_F(LargePoolClientsTest, WhatIsKeptMakesRoomForClaimsOfItsClient) {
  EXPECT_EQ(TakeAll(kBusy, 64 * kMiB), 2u);
  Claim third;
  EXPECT_EQ(pool_.AcquireOrWait(64 * kMiB, kBusy, &third), nullptr);
  std::vector<std::shared_ptr<const void>> lent;
  for (LargeBuffer* buffer : taken_) {
    lent.push_back(pool_.Lend(buffer));
    ASSERT_NE(lent.back(), nullptr);
  }
  taken_.clear();
  pool_.ServeClaims();
  ASSERT_NE(third.buffer, nullptr);
  pool_.Release(third.buffer);
}

// --- lending -------------------------------------------------------------------------------------

class LentBuffersTest : public testing::Test {
 protected:
  static constexpr size_t kLimit = 256 * kMiB;
  LentBuffersTest() : pool_(std::in_place, /*domain=*/nullptr, kLimit) {}

  std::shared_ptr<const void> Lend(size_t bytes) {
    LargeBuffer* const buffer = pool_->Acquire(bytes, kClient);
    std::shared_ptr<const void> lent = pool_->Lend(buffer);
    if (lent == nullptr) pool_->Release(buffer);
    pool_->CheckInvariants();
    return lent;
  }

  std::optional<LargePool> pool_;
};

TEST_F(LentBuffersTest, ALentBufferIsNobodyElsesUntilItIsBack) {
  LargeBuffer* const buffer = pool_->Acquire(kMiB, kClient);
  buffer->memory.front() = std::byte{7};
  std::shared_ptr<const void> lent = pool_->Lend(buffer);
  ASSERT_NE(lent, nullptr);
  EXPECT_EQ(lent.get(), buffer->memory.data());
  LargeBuffer* const other = pool_->Acquire(kMiB, kClient);
  EXPECT_NE(other, buffer);
  pool_->Release(other);
  EXPECT_EQ(*static_cast<const std::byte*>(lent.get()), std::byte{7});

  std::shared_ptr<const void> copy = lent;
  lent.reset();
  EXPECT_EQ(pool_->lent_bytes(), kMiB);
  copy.reset();
  LargeBuffer* const again = pool_->Acquire(kMiB, kClient);
  EXPECT_TRUE(again == buffer || again == other);
  EXPECT_EQ(pool_->lent_bytes(), 0u);
  pool_->Release(again);
  pool_->CheckInvariants();
}

TEST_F(LentBuffersTest, HalfOfThePoolIsLentAndNoMore) {
  std::vector<std::shared_ptr<const void>> lent;
  while (std::shared_ptr<const void> one = Lend(32 * kMiB)) lent.push_back(std::move(one));
  EXPECT_EQ(lent.size(), 4u);
  EXPECT_EQ(pool_->lent_bytes(), kLimit / 2);
  LargeBuffer* const whole = pool_->Acquire(64 * kMiB, kClient);
  ASSERT_NE(whole, nullptr) << "messages still fit";
  pool_->Release(whole);
  lent.pop_back();
  EXPECT_NE(Lend(32 * kMiB), nullptr);
}

TEST(LargePoolLendTest, APoolOfOneMessageLendsNothing) {
  LargePool pool(/*domain=*/nullptr, LargePool::kLargestBytes);
  LargeBuffer* const buffer = pool.Acquire(1, kClient);
  EXPECT_EQ(pool.Lend(buffer), nullptr);
  pool.Release(buffer);
}

TEST_F(LentBuffersTest, ALentBufferOutlivesThePool) {
  LargeBuffer* const buffer = pool_->Acquire(kMiB, kClient);
  buffer->memory.back() = std::byte{9};
  const std::byte* const last = &buffer->memory.back();
  std::shared_ptr<const void> lent = pool_->Lend(buffer);
  pool_.reset();
  EXPECT_EQ(*last, std::byte{9});
  lent.reset();
}

TEST_F(LentBuffersTest, BuffersComeBackFromOtherThreads) {
  constexpr int kThreads = 2;
  constexpr int kRounds = 200;
  for (int round = 0; round < kRounds; ++round) {
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([lent = Lend(16 << 10)]() mutable { lent.reset(); });
    }
    LargeBuffer* const own = pool_->Acquire(1, kClient);
    pool_->Release(own);
    for (std::thread& thread : threads) thread.join();
  }
  LargeBuffer* const last = pool_->Acquire(1, kClient);
  EXPECT_EQ(pool_->lent_bytes(), 0u);
  pool_->Release(last);
  pool_->CheckInvariants();
}

}  // namespace
}  // namespace weft
