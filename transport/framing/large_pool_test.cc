#include "transport/framing/large_pool.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace weft
