#include "transport/buffer_pool.h"

#include <gtest/gtest.h>
#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "transport/devices/numa.h"
#include "transport/engine.h"
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

// A client of a server filled all slabs with small buffers, and kept one in each: by its bytes it
// had little, and nobody had a buffer of another size.
TEST_F(BufferPoolTest, AClientLeavesAnEighthOfTheSlabsToOthers) {
  constexpr uint64_t kGreedy = 1;
  constexpr uint64_t kModest = 2;
  UsePoolOf(16 * kMiB);  // 8 slabs
  std::vector<std::unique_ptr<Buffer>> filled;
  absl::StatusOr<std::unique_ptr<Buffer>> buffer = pool_->Allocate(32 << 10, kGreedy);
  for (; buffer.ok(); buffer = pool_->Allocate(32 << 10, kGreedy)) {
    filled.push_back(*std::move(buffer));
  }
  EXPECT_TRUE(absl::IsResourceExhausted(buffer.status())) << buffer.status();
  EXPECT_EQ(filled.size(), 7u * 64);
  std::map<const LocalMemory*, std::unique_ptr<Buffer>> kept;  // one of each slab
  for (std::unique_ptr<Buffer>& one : filled) kept[one->slice().memory] = std::move(one);
  filled.clear();
  EXPECT_EQ(kept.size(), 7u);
  EXPECT_EQ(pool_->buffers(), 7u);
  EXPECT_FALSE(pool_->Allocate(kMiB, kGreedy).ok());
  EXPECT_TRUE(pool_->Allocate(32 << 10, kGreedy).ok()) << "in a slab that it has";
  auto other = pool_->Allocate(kMiB, kModest);
  EXPECT_TRUE(other.ok()) << other.status();
  EXPECT_FALSE(pool_->Allocate(kMiB, kGreedy).ok()) << "there is room, in another's slab";
  kept.erase(kept.begin());
  EXPECT_TRUE(pool_->Allocate(kMiB, kModest).ok()) << "in the slab that it has";
  EXPECT_TRUE(pool_->Allocate(64 << 10, kModest).ok());
}

TEST_F(BufferPoolTest, BuffersOfTwoClientsLieInNoSlabTogether) {
  const auto one = *pool_->Allocate(4096, 1);
  const auto other = *pool_->Allocate(4096, 2);
  const auto nobodys = Allocate(4096);
  EXPECT_NE(one->slice().memory, other->slice().memory);
  EXPECT_NE(one->slice().memory, nobodys->slice().memory);
  EXPECT_NE(other->slice().memory, nobodys->slice().memory);
  EXPECT_EQ((*pool_->Allocate(4096, 1))->slice().memory, one->slice().memory);
}

TEST_F(BufferPoolTest, ASlabThatIsIdleIsNobodys) {
  UsePoolOf(2 * kMiB);
  for (uint64_t client = 1; client < 100; ++client) {
    const auto buffer = pool_->Allocate(kMiB, client);
    EXPECT_TRUE(buffer.ok()) << buffer.status();
  }
  EXPECT_EQ(pool_->mapped_bytes(), 2 * kMiB);
}

// What is late may write into it: until the last pin is gone its client has it.
TEST_F(BufferPoolTest, WhatIsPinnedIsItsClientsStill) {
  UsePoolOf(4 * kMiB);
  std::unique_ptr<Buffer> buffer = *pool_->Allocate(kMiB, 1);
  LocalMemory& memory = *buffer->slice().memory;
  const size_t offset = buffer->slice().offset;
  memory.Pin(offset);
  buffer.reset();
  EXPECT_FALSE(pool_->Allocate(4096, 1).ok()) << "the other slab is for others";
  memory.Unpin(offset);
  EXPECT_TRUE(pool_->Allocate(4096, 1).ok());
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

// What the kernel was asked of some pages: a mode of <linux/mempolicy.h>, and the nodes it is
// about.
struct PagePolicy {
  int mode = -1;  // -1: the kernel does not say
  uint64_t nodes = 0;

  friend bool operator==(const PagePolicy&, const PagePolicy&) = default;
};

PagePolicy PolicyOf(const void* memory) {
  // Room for as many nodes as a kernel may be built for.
  unsigned long nodes[1024 / (8 * sizeof(unsigned long))] = {};
  int mode = -1;
  const long failed = syscall(SYS_get_mempolicy, &mode, nodes, 8 * sizeof(nodes), memory,
                              static_cast<unsigned long>(MPOL_F_ADDR));
  return failed == 0 ? PagePolicy{mode, nodes[0]} : PagePolicy{};
}

// Whether this process may ask for a node, and hear of it: containers often may not.
bool PoliciesWork(int node) {
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void* const memory =
      mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return false;
  const unsigned long mask = 1UL << node;
  const bool asked = syscall(SYS_mbind, memory, page, static_cast<unsigned long>(MPOL_PREFERRED),
                             &mask, 8 * sizeof(mask) + 1, 0UL) == 0;
  const bool told = PolicyOf(memory) == PagePolicy{MPOL_PREFERRED, mask};
  munmap(memory, page);
  return asked && told;
}

// What a pool asks the kernel for; that there is one node does no harm.
class BufferPoolNodeTest : public testing::Test {
 protected:
  static constexpr int kNoSuchNode = 63;  // the largest that can be asked for

  void SetUp() override {
    const std::vector<int> cpus = AllowedProcessors();
    node_ = cpus.empty() ? -1 : NodeOfProcessor(kSysfs, cpus.front());
    if (node_ < 0 || node_ >= kNoSuchNode || !PoliciesWork(node_)) {
      GTEST_SKIP() << "the kernel knows no nodes, or says nothing of where memory is to lie";
    }
  }

  static std::unique_ptr<Engine> EngineOn(int node, uint32_t number) {
    EngineOptions options;
    options.drive = EngineOptions::Drive::kCaller;
    options.numa_node = node;
    auto engine = OpenNumberedEngine(options, number);
    EXPECT_TRUE(engine.ok()) << engine.status();
    return *std::move(engine);
  }

  // Of a pool of engines that have these nodes.
  static PagePolicy PolicyOfBuffers(const std::vector<int>& nodes,
                                    const BufferPoolOptions& options = {}) {
    uint32_t number = NewEngineNumbers(static_cast<uint32_t>(nodes.size()));
    std::vector<std::unique_ptr<Engine>> engines;
    std::vector<EngineCore*> cores;
    for (const int node : nodes) {
      engines.push_back(EngineOn(node, number++));
      cores.push_back(&CoreOf(*engines.back()));
    }
    BufferPool pool(cores, options);
    const auto small = pool.Allocate(4096);
    const auto large = pool.Allocate(3 * kMiB);
    EXPECT_TRUE(small.ok() && large.ok());
    if (!small.ok() || !large.ok()) return {};
    const PagePolicy policy = PolicyOf((*small)->bytes().data());
    EXPECT_EQ(PolicyOf((*large)->bytes().data()), policy);
    EXPECT_EQ(PolicyOf((*large)->bytes().data() + 3 * kMiB - 1), policy);
    return policy;
  }

  PagePolicy OnNode() const { return {MPOL_PREFERRED, uint64_t{1} << node_}; }

  const PagePolicy anywhere_ = {MPOL_DEFAULT, 0};
  int node_ = -1;
};

TEST_F(BufferPoolNodeTest, ItsMemoryIsAskedForOnTheNodeOfItsEngine) {
  using Source = MappedMemoryOptions::Source;
  for (const Source source : {Source::kMemfd, Source::kAnonymous}) {
    BufferPoolOptions options;
    options.memory.source = source;
    EXPECT_EQ(PolicyOfBuffers({node_}, options), OnNode());
    EXPECT_EQ(PolicyOfBuffers({-1}, options), anywhere_);
  }
}

TEST_F(BufferPoolNodeTest, ItsOwnOptionsComeFirst) {
  BufferPoolOptions options;
  options.memory.numa_node = node_;
  EXPECT_EQ(PolicyOfBuffers({-1}, options), OnNode());
  // The kernel refuses that one, so nothing is asked for: not the engine's either.
  options.memory.numa_node = kNoSuchNode;
  EXPECT_EQ(PolicyOfBuffers({node_}, options), anywhere_);
}

TEST_F(BufferPoolNodeTest, EnginesOfDifferentNodesHaveNoneInCommon) {
  EXPECT_EQ(PolicyOfBuffers({node_, node_}), OnNode());
  EXPECT_EQ(PolicyOfBuffers({node_, -1}), anywhere_);
  EXPECT_EQ(PolicyOfBuffers({-1, node_}), anywhere_);
}

}  // namespace
}  // namespace weft
