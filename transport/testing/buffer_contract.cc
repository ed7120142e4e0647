// Pool memory under transfers: registered once for each slab, and never again.

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "transport/buffer_pool.h"
#include "transport/testing/contract_test.h"
#include "transport/testing/post.h"
#include "transport/testing/region_pair.h"

namespace weft {
namespace {

TEST_P(ContractTest, AThousandUsesOfPoolMemoryRegisterItOnce) {
  Open();
  RegionPair regions(client_, server_end());
  BufferPool pool(&world_->client());
  const auto use = [&](size_t bytes) {
    auto buffer = pool.Allocate(bytes);
    ASSERT_TRUE(buffer.ok()) << buffer.status();
    const auto region = (*buffer)->slice().memory->For(client_.connection());
    ASSERT_TRUE(region.ok()) << region.status();
    TestOperation read;
    ASSERT_TRUE(Read(client_.connection(), **region, (*buffer)->slice().offset,
                     regions.Remote(100, bytes), &read)
                    .ok());
    ASSERT_TRUE(Run([&] { return read.done(); }));
    ASSERT_TRUE(read.result.ok()) << read.result;
    ASSERT_TRUE(std::equal((*buffer)->bytes().begin(), (*buffer)->bytes().end(),
                           regions.server_memory.begin() + 100));
  };
  use(4096);
  const uint64_t ever = world_->RegistrationsEver();
  for (size_t i = 0; i < 1000; ++i) ASSERT_NO_FATAL_FAILURE(use(100 << (i % 10)));
  EXPECT_EQ(world_->RegistrationsEver(), ever);
  EXPECT_EQ(pool.mapped_bytes(), BufferPool::kSlabBytes);
}

TEST_P(ContractTest, APoolThatEndsGivesItsRegistrationsBack) {
  Open();
  const uint64_t before = world_->Count().registrations;
  {
    BufferPool pool(&world_->client());
    auto small = pool.Allocate(4096);
    auto large = pool.Allocate(size_t{5} << 20);
    ASSERT_TRUE(small.ok() && large.ok());
    ASSERT_TRUE((*small)->slice().memory->For(client_.connection()).ok());
    ASSERT_TRUE((*large)->slice().memory->For(client_.connection()).ok());
    EXPECT_EQ(world_->Count().registrations, before + 2);
  }
  EXPECT_EQ(world_->Count().registrations, before);
}

TEST_P(ContractTest, ABufferOfTheProgramsMemoryGivesItsRegistrationsBack) {
  Open();
  RegionPair regions(client_, server_end());
  std::vector<std::byte> bytes(4096);
  const uint64_t before = world_->Count().registrations;
  {
    const std::unique_ptr<Buffer> buffer = Buffer::Of(world_->client(), bytes);
    EXPECT_EQ(world_->Count().registrations, before);
    const Slice slice = buffer->slice(1000, 100);
    const auto region = slice.memory->For(client_.connection());
    ASSERT_TRUE(region.ok()) << region.status();
    TestOperation read;
    ASSERT_TRUE(
        Read(client_.connection(), **region, slice.offset, regions.Remote(100, 100), &read).ok());
    ASSERT_TRUE(Run([&] { return read.done(); }));
    ASSERT_TRUE(read.result.ok()) << read.result;
    EXPECT_TRUE(std::equal(slice.bytes().begin(), slice.bytes().end(),
                           regions.server_memory.begin() + 100));
    EXPECT_EQ(world_->Count().registrations, before + 1);
  }
  EXPECT_EQ(world_->Count().registrations, before);
}

}  // namespace
}  // namespace weft
