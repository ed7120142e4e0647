#include "transport/buffer_pool.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "transport/network.h"

namespace weft {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

class BufferPoolTest : public testing::Test {
 protected:
  explicit BufferPoolTest(EngineOptions::Drive drive = EngineOptions::Drive::kOwnThread) {
    EngineOptions options;
    options.drive = drive;
    auto engine = OpenNetworkEngine(options);
    EXPECT_TRUE(engine.ok()) << engine.status();
    engine_ = *std::move(engine);
    UsePool({});
  }

  void UsePool(const BufferPoolOptions& options) {
    pool_.reset();
    pool_ = std::make_unique<BufferPool>(engine_.get(), options);
  }

  void UsePoolOf(uint64_t max_bytes) {
    BufferPoolOptions options;
    options.max_bytes = max_bytes;
    UsePool(options);
  }

  std::unique_ptr<Buffer> Allocate(size_t bytes) {
    auto buffer = pool_->Allocate(bytes);
    EXPECT_TRUE(buffer.ok()) << buffer.status();
    return buffer.ok() ? *std::move(buffer) : nullptr;
  }

  bool IsFull(size_t bytes) {
    const absl::Status status = pool_->Allocate(bytes).status();
    if (!status.ok()) {
      EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
      EXPECT_NE(status.message().find("BufferPoolOptions::max_bytes"), std::string::npos) << status;
    }
    return !status.ok();
  }

  std::unique_ptr<Engine> engine_;
  std::unique_ptr<BufferPool> pool_;
};

TEST_F(BufferPoolTest, ABufferIsAsLongAsAskedForAndInsideOfItsSlab) {
  for (const size_t bytes : {size_t{1}, size_t{4096}, size_t{4097}, kMiB, 2 * kMiB, 3 * kMiB,
                             64 * kMiB, 64 * kMiB + 1}) {
    const std::unique_ptr<Buffer> buffer = Allocate(bytes);
    EXPECT_EQ(buffer->bytes().size(), bytes);
    const size_t offset = buffer->slice().offset;
    const MutableByteSpan slab = buffer->slice().memory->bytes();
    EXPECT_EQ(buffer->bytes().data(), slab.data() + offset);
    EXPECT_LE(offset + bytes, slab.size());
    EXPECT_EQ(offset % 4096, 0u);
    buffer->bytes()[0] = buffer->bytes()[bytes - 1] = std::byte{1};
  }
}

TEST_F(BufferPoolTest, BuffersOfASlabDoNotOverlapAndShareItsMemory) {
  std::vector<std::unique_ptr<Buffer>> buffers;
  for (int i = 0; i < 512; ++i) {
    buffers.push_back(Allocate(4096));
    std::memset(buffers.back()->bytes().data(), i % 251, 4096);
  }
  EXPECT_EQ(pool_->mapped_bytes(), 2 * kMiB);
  for (int i = 0; i < 512; ++i) {
    EXPECT_EQ(buffers[i]->slice().memory, buffers[0]->slice().memory);
    EXPECT_EQ(buffers[i]->bytes()[0], static_cast<std::byte>(i % 251));
    EXPECT_EQ(buffers[i]->bytes()[4095], static_cast<std::byte>(i % 251));
  }
  buffers.push_back(Allocate(4096));
  EXPECT_EQ(pool_->mapped_bytes(), 4 * kMiB);
}

// The slab has other users' bytes behind and in front of it.
TEST_F(BufferPoolTest, ASliceLiesInItsBufferOrIsNotValid) {
  std::vector<std::byte> bytes(5000);
  const std::unique_ptr<Buffer> buffers[] = {Allocate(5000), Allocate(5000),
                                             Buffer::Of(*engine_, bytes)};
  for (const std::unique_ptr<Buffer>& buffer : buffers) {
    std::byte* const at = buffer->bytes().data();
    ASSERT_TRUE(buffer->slice().valid());
    EXPECT_EQ(buffer->slice().bytes().data(), at);
    EXPECT_EQ(buffer->slice().bytes().size(), 5000u);
    ASSERT_TRUE(buffer->slice(4000, 1000).valid());
    EXPECT_EQ(buffer->slice(4000, 1000).bytes().data(), at + 4000);
    EXPECT_EQ(buffer->slice(4000, 1000).bytes().size(), 1000u);
    EXPECT_TRUE(buffer->slice(5000, 0).valid());
    EXPECT_FALSE(buffer->slice(4000, 1001).valid());
    EXPECT_FALSE(buffer->slice(5001, 0).valid());
    EXPECT_FALSE(buffer->slice(~size_t{0}, 1).valid());
    EXPECT_FALSE(buffer->slice(1, ~size_t{0}).valid());
  }
}

TEST_F(BufferPoolTest, WhatComesBackIsUsedAgain) {
  for (const size_t bytes : {size_t{100}, 3 * kMiB, 100 * kMiB}) {
    const std::byte* const first = Allocate(bytes)->bytes().data();
    const uint64_t mapped = pool_->mapped_bytes();
    for (int i = 0; i < 100; ++i) EXPECT_EQ(Allocate(bytes)->bytes().data(), first);
    EXPECT_EQ(pool_->mapped_bytes(), mapped);
  }
  EXPECT_EQ(pool_->buffers(), 0u);
}

TEST_F(BufferPoolTest, AnIdleSlabServesBuffersOfOtherSizes) {
  for (size_t bytes = 4096; bytes <= 2 * kMiB; bytes *= 2) Allocate(bytes);
  EXPECT_EQ(pool_->mapped_bytes(), 2 * kMiB);
}

TEST_F(BufferPoolTest, TheBoundHoldsAndIsNamed) {
  UsePoolOf(4 * kMiB);
  const std::unique_ptr<Buffer> first = Allocate(2 * kMiB);
  std::unique_ptr<Buffer> second = Allocate(4096);
  EXPECT_TRUE(IsFull(2 * kMiB));
  EXPECT_TRUE(IsFull(5 * kMiB));
  EXPECT_EQ(pool_->mapped_bytes(), 4 * kMiB);
  second.reset();
  EXPECT_FALSE(IsFull(2 * kMiB));
}

// Otherwise one use of the pool for large buffers would leave nothing for small ones.
TEST_F(BufferPoolTest, IdleSlabsMakeRoomForOtherSizesAtTheBound) {
  UsePoolOf(16 * kMiB);
  for (const size_t bytes : {16 * kMiB, size_t{4096}, 8 * kMiB, 4 * kMiB, 15 * kMiB}) {
    EXPECT_NE(Allocate(bytes), nullptr) << bytes;
  }
  EXPECT_LE(pool_->mapped_bytes(), 16 * kMiB);
}

TEST_F(BufferPoolTest, APinnedBufferDoesNotGoBackBeforeTheLastUnpin) {
  std::unique_ptr<Buffer> buffer = Allocate(4096);
  LocalMemory& memory = *buffer->slice().memory;
  const size_t offset = buffer->slice().offset;
  const std::byte* const at = buffer->bytes().data();
  memory.Pin(offset + 100);
  memory.Pin(offset + 4095);
  buffer.reset();
  EXPECT_EQ(pool_->buffers(), 1u);
  EXPECT_NE(Allocate(4096)->bytes().data(), at);
  memory.Unpin(offset);
  EXPECT_EQ(pool_->buffers(), 1u);
  memory.Unpin(offset);
  EXPECT_EQ(pool_->buffers(), 0u);
  EXPECT_NE(Allocate(4096), nullptr);
}

TEST_F(BufferPoolTest, BuffersAndPinsMayOutliveThePool) {
  std::unique_ptr<Buffer> buffer = Allocate(kMiB);
  std::unique_ptr<Buffer> pinned = Allocate(kMiB);
  LocalMemory& memory = *pinned->slice().memory;
  const size_t offset = pinned->slice().offset;
  memory.Pin(offset);
  pinned.reset();
  pool_.reset();
  std::memset(buffer->bytes().data(), 1, kMiB);
  buffer.reset();
  memory.Unpin(offset);
}

TEST_F(BufferPoolTest, ThreadsMayAllocateAndFreeAtOnce) {
  UsePoolOf(64 * kMiB);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([this, t] {
      std::vector<std::unique_ptr<Buffer>> mine;
      for (size_t i = 0; i < 500; ++i) {
        const size_t bytes = size_t{4096} << (i % 9);
        auto buffer = pool_->Allocate(bytes);
        ASSERT_TRUE(buffer.ok()) << buffer.status();
        std::memset((*buffer)->bytes().data(), t, 64);
        mine.push_back(*std::move(buffer));
        if (mine.size() > 5) {
          EXPECT_EQ(mine.front()->bytes()[63], static_cast<std::byte>(t));
          mine.erase(mine.begin());
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(pool_->buffers(), 0u);
}

TEST_F(BufferPoolTest, NoBytesAreAnErrorAndAbsurdOnesAreRefused) {
  EXPECT_TRUE(absl::IsInvalidArgument(pool_->Allocate(0).status()));
  EXPECT_TRUE(absl::IsResourceExhausted(pool_->Allocate(~size_t{0}).status()));
}

class CallerDrivenBufferPoolTest : public BufferPoolTest {
 protected:
  CallerDrivenBufferPoolTest() : BufferPoolTest(EngineOptions::Drive::kCaller) {}
};

TEST_F(CallerDrivenBufferPoolTest, IdleSlabsMakeRoomThoughNobodyDrives) {
  UsePoolOf(4 * kMiB);
  EXPECT_NE(Allocate(4 * kMiB), nullptr);
  EXPECT_NE(Allocate(3 * kMiB), nullptr);
  std::thread([this] { EXPECT_NE(Allocate(4096), nullptr); }).join();
}

}  // namespace
}  // namespace weft
