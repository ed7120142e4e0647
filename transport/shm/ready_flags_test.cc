// Which links call, and that nobody's call is left behind.

#include "transport/shm/ready_flags.h"

#include <algorithm>
#include <memory>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace weft {
namespace {

class ReadyFlagsTest : public testing::Test {
 protected:
  std::vector<uint32_t> Calling() {
    std::vector<uint32_t> found;
    ready_flags_.ForEachReady([&](uint32_t index) { found.push_back(index); });
    return found;
  }
  void Call(uint32_t index) { bytes_->of[index].store(1); }

  const std::unique_ptr<SharedReadyFlags> bytes_ = std::make_unique<SharedReadyFlags>();
  ReadyFlags ready_flags_{bytes_.get()};
};

TEST_F(ReadyFlagsTest, ColdLinksThatCallAreFoundOnce) {
  for (uint32_t i = 0; i < 100; ++i) ASSERT_EQ(ready_flags_.Take(), i);
  EXPECT_TRUE(Calling().empty());
  Call(0);
  Call(63);
  Call(99);
  EXPECT_EQ(Calling(), (std::vector<uint32_t>{0, 63, 99}));
  EXPECT_TRUE(Calling().empty());
}

TEST_F(ReadyFlagsTest, HotLinksAreNotFoundAndTheirWritersStoreNothing) {
  for (uint32_t i = 0; i < 10; ++i) ready_flags_.Take();
  ready_flags_.MakeHot(4);
  EXPECT_EQ(bytes_->of[4].load(), 1);
  EXPECT_TRUE(Calling().empty());
  ready_flags_.MakeCold(4);
  EXPECT_EQ(bytes_->of[4].load(), 0);
  Call(4);
  EXPECT_EQ(Calling(), (std::vector<uint32_t>{4}));
}

TEST_F(ReadyFlagsTest, IndicesAreUsedAgainAndBounded) {
  for (uint32_t i = 0; i < kMaxShmLinks; ++i) ASSERT_EQ(ready_flags_.Take(), i);
  EXPECT_EQ(ready_flags_.Take(), ReadyFlags::kNone);
  ready_flags_.MakeHot(17);
  ready_flags_.Give(17);
  EXPECT_EQ(ready_flags_.Take(), 17u);
  EXPECT_TRUE(Calling().empty()) << "what the last owner's peer did is forgotten";
}

TEST_F(ReadyFlagsTest, HostileValuesArePutRight) {
  for (uint32_t i = 0; i < 16; ++i) ready_flags_.Take();
  ready_flags_.MakeHot(3);
  bytes_->of[3].store(0);
  bytes_->of[5].store(255);
  EXPECT_EQ(Calling(), (std::vector<uint32_t>{5}));
  EXPECT_EQ(bytes_->of[3].load(), 1);
  EXPECT_EQ(bytes_->of[5].load(), 0);
}

}  // namespace
}  // namespace weft
