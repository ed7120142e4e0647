// Which links call, and that nobody's call is left behind.

#include "transport/shm/attention.h"

#include <algorithm>
#include <memory>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace weft {
namespace {

class AttentionTest : public testing::Test {
 protected:
  std::vector<uint32_t> Calling() {
    std::vector<uint32_t> found;
    attention_.ForEachCalling([&](uint32_t index) { found.push_back(index); });
    return found;
  }
  void Call(uint32_t index) { bytes_->of[index].store(1); }

  const std::unique_ptr<AttentionBytes> bytes_ = std::make_unique<AttentionBytes>();
  Attention attention_{bytes_.get()};
};

TEST_F(AttentionTest, ColdLinksThatCallAreFoundOnce) {
  for (uint32_t i = 0; i < 100; ++i) ASSERT_EQ(attention_.Take(), i);
  EXPECT_TRUE(Calling().empty());
  Call(0);
  Call(63);
  Call(99);
  EXPECT_EQ(Calling(), (std::vector<uint32_t>{0, 63, 99}));
  EXPECT_TRUE(Calling().empty());
}

TEST_F(AttentionTest, HotLinksAreNotFoundAndTheirWritersStoreNothing) {
  for (uint32_t i = 0; i < 10; ++i) attention_.Take();
  attention_.MakeHot(4);
  EXPECT_EQ(bytes_->of[4].load(), 1);
  EXPECT_TRUE(Calling().empty());
  attention_.MakeCold(4);
  EXPECT_EQ(bytes_->of[4].load(), 0);
  Call(4);
  EXPECT_EQ(Calling(), (std::vector<uint32_t>{4}));
}

TEST_F(AttentionTest, IndicesAreUsedAgainAndBounded) {
  for (uint32_t i = 0; i < kMaxShmLinks; ++i) ASSERT_EQ(attention_.Take(), i);
  EXPECT_EQ(attention_.Take(), Attention::kNone);
  attention_.MakeHot(17);
  attention_.Give(17);
  EXPECT_EQ(attention_.Take(), 17u);
  EXPECT_TRUE(Calling().empty()) << "what the last owner's peer did is forgotten";
}

TEST_F(AttentionTest, HostileValuesArePutRight) {
  for (uint32_t i = 0; i < 16; ++i) attention_.Take();
  attention_.MakeHot(3);
  bytes_->of[3].store(0);
  bytes_->of[5].store(255);
  EXPECT_EQ(Calling(), (std::vector<uint32_t>{5}));
  EXPECT_EQ(bytes_->of[3].load(), 1);
  EXPECT_EQ(bytes_->of[5].load(), 0);
}

}  // namespace
}  // namespace weft
