#include "transport/framing/large_pool.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace weft {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

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
    LargeBuffer* const buffer = pool_.Acquire(bytes);
    ASSERT_NE(buffer, nullptr);
    EXPECT_GE(buffer->memory.size(), bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->memory.data()) % 4096, 0u);
    buffer->memory.front() = buffer->memory.back() = std::byte{1};
    pool_.Release(buffer);
  }
}

TEST_F(LargePoolTest, AReleasedBufferIsUsedAgain) {
  LargeBuffer* const first = pool_.Acquire(100'000);
  pool_.Release(first);
  LargeBuffer* const second = pool_.Acquire(70'000);
  EXPECT_EQ(second, first);
  pool_.Release(second);
}

TEST_F(LargePoolTest, TheLimitHoldsAndKeptBuffersMakeRoom) {
  std::vector<LargeBuffer*> all;
  while (LargeBuffer* buffer = pool_.Acquire(kMiB)) all.push_back(buffer);
  EXPECT_EQ(all.size(), 64u);
  EXPECT_EQ(pool_.in_use_bytes(), 64 * kMiB);
  for (LargeBuffer* buffer : all) pool_.Release(buffer);
  EXPECT_EQ(pool_.kept_bytes(), 64 * kMiB);
  LargeBuffer* const whole = pool_.Acquire(64 * kMiB);
  ASSERT_NE(whole, nullptr);
  EXPECT_EQ(pool_.kept_bytes(), 0u);
  pool_.Release(whole);
}

TEST_F(LargePoolTest, ClaimsAreServedInTheirOrderAndBeforeOthers) {
  LargeBuffer* const whole = pool_.Acquire(64 * kMiB);
  Claim large, small;
  EXPECT_EQ(pool_.AcquireOrWait(32 * kMiB, &large), nullptr);
  EXPECT_EQ(pool_.AcquireOrWait(16 * 1024, &small), nullptr);
  EXPECT_EQ(pool_.Acquire(1), nullptr) << "claims wait";
  pool_.Release(whole);
  ASSERT_NE(large.buffer, nullptr);
  ASSERT_NE(small.buffer, nullptr);
  EXPECT_GE(large.buffer->memory.size(), 32 * kMiB);
  pool_.Release(large.buffer);
  pool_.Release(small.buffer);
}

// A connection that has many messages claims again as soon as it was served.
TEST_F(LargePoolTest, WhoClaimsAgainStandsBehindThoseThatWait) {
  LargeBuffer* const whole = pool_.Acquire(64 * kMiB);
  Claim busy, other;
  EXPECT_EQ(pool_.AcquireOrWait(64 * kMiB, &busy), nullptr);
  EXPECT_EQ(pool_.AcquireOrWait(64 * kMiB, &other), nullptr);
  pool_.Release(whole);
  LargeBuffer* const first = std::exchange(busy.buffer, nullptr);
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(pool_.AcquireOrWait(64 * kMiB, &busy), nullptr);
  pool_.Release(first);
  EXPECT_EQ(busy.calls, 1);
  ASSERT_NE(other.buffer, nullptr);
  pool_.Release(other.buffer);
  EXPECT_EQ(busy.calls, 2);
  pool_.Release(busy.buffer);
}

TEST_F(LargePoolTest, AWithdrawnClaimLetsTheNextOnePass) {
  LargeBuffer* const half = pool_.Acquire(32 * kMiB);
  Claim too_large, fits;
  EXPECT_EQ(pool_.AcquireOrWait(64 * kMiB, &too_large), nullptr);
  EXPECT_EQ(pool_.AcquireOrWait(kMiB, &fits), nullptr);
  pool_.Withdraw(&too_large);
  EXPECT_EQ(too_large.calls, 0);
  ASSERT_NE(fits.buffer, nullptr);
  pool_.Release(fits.buffer);
  pool_.Release(half);
}

TEST_F(LargePoolTest, WatchersAreToldOnce) {
  LargeBuffer* const first = pool_.Acquire(1);
  LargeBuffer* const second = pool_.Acquire(1);
  Watcher watcher;
  pool_.Watch(&watcher);
  pool_.Watch(&watcher);
  pool_.Release(first);
  pool_.Release(second);
  EXPECT_EQ(watcher.calls, 1);
}

// Those that held, or waited for, buffers of 64 MiB kept everybody else waiting as well.
TEST(LargePoolReserveTest, SmallBuffersDoNotWaitForLargeOnesNorStarveThem) {
  LargePool pool(/*domain=*/nullptr, 256 * kMiB);
  std::vector<LargeBuffer*> large, small;
  while (LargeBuffer* buffer = pool.Acquire(64 * kMiB)) large.push_back(buffer);
  EXPECT_EQ(large.size(), 3u);
  Claim claim;
  EXPECT_EQ(pool.AcquireOrWait(64 * kMiB, &claim), nullptr);
  while (LargeBuffer* buffer = pool.Acquire(kMiB)) small.push_back(buffer);
  EXPECT_EQ(small.size(), 32u) << "an eighth of the pool, while a large one waits";
  Claim small_claim;
  EXPECT_EQ(pool.AcquireOrWait(kMiB, &small_claim), nullptr);
  pool.Release(large.back());
  ASSERT_NE(claim.buffer, nullptr);
  large.back() = claim.buffer;
  EXPECT_NE(small_claim.buffer, nullptr) << "no large one waits any more, and there is room";
  pool.CheckInvariants();
  for (LargeBuffer* buffer : large) pool.Release(buffer);
  for (LargeBuffer* buffer : small) pool.Release(buffer);
  pool.Release(small_claim.buffer);
}

// --- lending -------------------------------------------------------------------------------------

class LentBuffersTest : public testing::Test {
 protected:
  static constexpr size_t kLimit = 256 * kMiB;
  LentBuffersTest() : pool_(std::in_place, /*domain=*/nullptr, kLimit) {}

  std::shared_ptr<const void> Lend(size_t bytes) {
    LargeBuffer* const buffer = pool_->Acquire(bytes);
    std::shared_ptr<const void> lent = pool_->Lend(buffer);
    if (lent == nullptr) pool_->Release(buffer);
    pool_->CheckInvariants();
    return lent;
  }

  std::optional<LargePool> pool_;
};

TEST_F(LentBuffersTest, ALentBufferIsNobodyElsesUntilItIsBack) {
  LargeBuffer* const buffer = pool_->Acquire(kMiB);
  buffer->memory.front() = std::byte{7};
  std::shared_ptr<const void> lent = pool_->Lend(buffer);
  ASSERT_NE(lent, nullptr);
  EXPECT_EQ(lent.get(), buffer->memory.data());
  LargeBuffer* const other = pool_->Acquire(kMiB);
  EXPECT_NE(other, buffer);
  pool_->Release(other);
  EXPECT_EQ(*static_cast<const std::byte*>(lent.get()), std::byte{7});

  std::shared_ptr<const void> copy = lent;
  lent.reset();
  EXPECT_EQ(pool_->lent_bytes(), kMiB);
  copy.reset();
  LargeBuffer* const again = pool_->Acquire(kMiB);
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
  LargeBuffer* const whole = pool_->Acquire(64 * kMiB);
  ASSERT_NE(whole, nullptr) << "messages still fit";
  pool_->Release(whole);
  lent.pop_back();
  EXPECT_NE(Lend(32 * kMiB), nullptr);
}

TEST(LargePoolLendTest, APoolOfOneMessageLendsNothing) {
  LargePool pool(/*domain=*/nullptr, LargePool::kLargestBytes);
  LargeBuffer* const buffer = pool.Acquire(1);
  EXPECT_EQ(pool.Lend(buffer), nullptr);
  pool.Release(buffer);
}

TEST_F(LentBuffersTest, ALentBufferOutlivesThePool) {
  LargeBuffer* const buffer = pool_->Acquire(kMiB);
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
    LargeBuffer* const own = pool_->Acquire(1);
    pool_->Release(own);
    for (std::thread& thread : threads) thread.join();
  }
  LargeBuffer* const last = pool_->Acquire(1);
  EXPECT_EQ(pool_->lent_bytes(), 0u);
  pool_->Release(last);
  pool_->CheckInvariants();
}

}  // namespace
}  // namespace weft
