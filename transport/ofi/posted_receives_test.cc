// The receives of a domain: how many are posted, and what becomes of those that fail.
//
// Receives are posted to a context of the tcp provider that no endpoint has; what the provider
// would report of them the test reports in its place.

#include "transport/ofi/posted_receives.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "transport/ofi/fabric_objects.h"
#include "transport/ofi/hints.h"

namespace weft {
namespace {

constexpr uint32_t kSlotBytes = 256;
constexpr uint32_t kMostAsked = 48;

struct Sink final : BatchSink {
  void OnReceived(ByteSpan batch, LinkHandler*) override {
    received.emplace_back(reinterpret_cast<const char*>(batch.data()), batch.size());
  }
  std::vector<std::string> received;
};

std::shared_ptr<FabricObjects> OpenTcp() {
  auto info = Discover({"tcp", "127.0.0.1"}, TcpHints().get());
  if (!info.ok()) return nullptr;
  auto objects = FabricObjects::Open(*std::move(info), FI_WAIT_FD, {/*receives=*/64, /*sends=*/0});
  return objects.ok() ? *objects : nullptr;
}

class PostedReceivesTest : public testing::Test {
 protected:
  void Make(const PostedReceives::Limits& limits) {
    ASSERT_NE(objects_, nullptr);
    pool_ = std::make_unique<SlotPool>(&registrar_, kSlotBytes, /*max_bytes=*/1 << 20);
    ASSERT_TRUE(pool_->Reserve(SlotPool::kSlotsPerChunk).ok());
    receives_ = std::make_unique<PostedReceives>(objects_->shared_receive.get(), pool_.get(),
                                                 &sink_, limits, &stats_);
  }
  void MakeLikeTcp() { Make({.most_asked = kMostAsked, .cut_off_is_filled = true}); }

  // One that the provider holds.
  Slot* Posted() {
    for (uint32_t i = 0; i < pool_->slots(); ++i) {
      if (pool_->At(i)->posted) return pool_->At(i);
    }
    ADD_FAILURE() << "no receive is posted";
    return nullptr;
  }
  // The provider writes `text` into a receive, over and over, until that is full.
  static std::string Fill(Slot* slot, const std::string& text) {
    std::string all;
    while (all.size() < kSlotBytes) all += text;
    all.resize(kSlotBytes);
    std::copy(all.begin(), all.end(), reinterpret_cast<char*>(slot->data));
    return all;
  }

  std::shared_ptr<FabricObjects> objects_ = OpenTcp();
  LinkDomainStats stats_;
  Registrar registrar_{objects_->domain.get(), *objects_->info, &stats_};
  Sink sink_;
  std::unique_ptr<SlotPool> pool_;
  std::unique_ptr<PostedReceives> receives_;
};

// A batch that was longer than its receive ended its connection up to libfabric 1.18. Since 1.19
// tcp fills the receive, fails it (FI_ETRUNC), leaves the rest of the batch out, and goes on: the
// receive was only posted again, so that the batch was lost, and both ends stayed open and waited.
// The sink gets what there is, which names the connection and is not complete.
TEST_F(PostedReceivesTest, ABatchThatWasCutOffIsHandedOn) {
  MakeLikeTcp();
  ASSERT_TRUE(receives_->Add(4));
  Slot* const slot = Posted();
  const std::string beginning = Fill(slot, "too long ");
  receives_->OnFailed(slot->id(), FI_ETRUNC);
  ASSERT_EQ(sink_.received.size(), 1u);
  EXPECT_EQ(sink_.received[0], beginning);
  EXPECT_EQ(stats_.receives_posted, 4u) << "posted again";
  EXPECT_EQ(stats_.receives_withheld, 0u);
}

// No provider is seen to tell more than there was room for; and none is to be trusted with that.
TEST_F(PostedReceivesTest, ALengthBeyondTheReceiveIsNotBelieved) {
  MakeLikeTcp();
  ASSERT_TRUE(receives_->Add(4));
  Slot* const slot = Posted();
  const std::string beginning = Fill(slot, "longer still ");
  receives_->OnDone(slot->id(), 2 * kSlotBytes);
  ASSERT_EQ(sink_.received.size(), 1u);
  EXPECT_EQ(sink_.received[0], beginning);
}

// What is in it is an earlier batch, maybe of another connection.
TEST_F(PostedReceivesTest, WhatAFailedReceiveHoldsIsNotHandedOn) {
  MakeLikeTcp();
  ASSERT_TRUE(receives_->Add(4));
  for (const int error : {FI_ECANCELED, FI_EIO, FI_ECONNRESET}) {
    Slot* const slot = Posted();
    Fill(slot, "an earlier batch ");
    receives_->OnFailed(slot->id(), error);
    EXPECT_EQ(stats_.receives_posted, 3u);
    EXPECT_EQ(stats_.receives_withheld, 1u);
    EXPECT_TRUE(receives_->lacks(/*idle=*/false));
    receives_->TopUp();
    EXPECT_EQ(stats_.receives_posted, 4u);
    EXPECT_EQ(stats_.receives_withheld, 0u);
  }
  EXPECT_TRUE(sink_.received.empty());
}

TEST_F(PostedReceivesTest, OnlyWhereTheProviderHasFilledItIsACutOffReceiveRead) {
  Make({.most_asked = kMostAsked});
  ASSERT_TRUE(receives_->Add(4));
  Slot* const slot = Posted();
  Fill(slot, "an earlier batch ");
  receives_->OnFailed(slot->id(), FI_ETRUNC);
  EXPECT_TRUE(sink_.received.empty());
  EXPECT_EQ(stats_.receives_withheld, 1u);
}

TEST_F(PostedReceivesTest, ALateErrorOfAnEarlierReceiveIsDropped) {
  MakeLikeTcp();
  ASSERT_TRUE(receives_->Add(4));
  const WorkId earlier = Posted()->id();
  receives_->OnFailed(earlier, FI_ECANCELED);
  receives_->TopUp();
  receives_->OnFailed(earlier, FI_ETRUNC);
  receives_->OnDone(earlier, 1);
  EXPECT_TRUE(sink_.received.empty());
  EXPECT_EQ(stats_.receives_posted, 4u);
}

TEST_F(PostedReceivesTest, MoreThanTheProviderTakesAreRefused) {
  MakeLikeTcp();
  ASSERT_TRUE(receives_->CheckRoom(kMostAsked).ok());
  ASSERT_TRUE(receives_->Add(kMostAsked - 1));
  EXPECT_TRUE(receives_->CheckRoom(1).ok());
  EXPECT_EQ(receives_->CheckRoom(2).code(), absl::StatusCode::kResourceExhausted);
  receives_->Remove(1);
  EXPECT_TRUE(receives_->CheckRoom(2).ok());
}

TEST_F(PostedReceivesTest, ConnectionsShareWhatIsPosted) {
  Make({.most_asked = kMostAsked, .most_posted = 8});
  EXPECT_EQ(receives_->MissingFor(6), 6u);
  ASSERT_TRUE(receives_->Add(6));
  EXPECT_EQ(receives_->MissingFor(6), 2u);
  ASSERT_TRUE(receives_->Add(6));
  EXPECT_EQ(stats_.receives_posted, 8u);
  EXPECT_EQ(stats_.receives_withheld, 4u);
  receives_->Remove(12);
  EXPECT_EQ(stats_.receives_posted, 0u) << "they stay, for the next connection";
  EXPECT_EQ(receives_->MissingFor(6), 0u);
}

TEST_F(PostedReceivesTest, ThoseToSpareArePostedWhenNothingComes) {
  Make({.most_asked = kMostAsked, .spare = 2});
  ASSERT_TRUE(receives_->Add(4));
  EXPECT_FALSE(receives_->lacks(/*idle=*/true));
  for (int i = 0; i < 2; ++i) receives_->OnDone(Posted()->id(), 1);
  EXPECT_FALSE(receives_->lacks(/*idle=*/false)) << "peers have the four that they may use";
  EXPECT_TRUE(receives_->lacks(/*idle=*/true));
  receives_->TopUp();
  EXPECT_FALSE(receives_->lacks(/*idle=*/true));
}

}  // namespace
}  // namespace weft
