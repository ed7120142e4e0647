// Which queue an endpoint completes to, and what is counted as under way. That completions are
// found, wherever they come, is the claim of queue_groups_test and near_beside_groups_test.

#include "transport/ofi/completion_queues.h"

#include <memory>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "transport/ofi/hints.h"

namespace weft {
namespace {

constexpr uint32_t kNearLinks = 2;
constexpr uint32_t kMaxInFlight = 3;

std::shared_ptr<FabricObjects> OpenTcp() {
  auto info = Discover({"tcp", "127.0.0.1"}, TcpHints().get());
  if (!info.ok()) return nullptr;
  auto objects = FabricObjects::Open(*std::move(info), FI_WAIT_FD, {/*receives=*/64, /*sends=*/0});
  return objects.ok() ? *objects : nullptr;
}

class CompletionQueuesTest : public testing::Test {
 protected:
  CompletionQueues Make() {
    return CompletionQueues(objects_.get(), {kNearLinks, kMaxInFlight, /*looks_cost=*/true});
  }
  std::shared_ptr<FabricObjects> objects_ = OpenTcp();
};

TEST_F(CompletionQueuesTest, WithoutANearQueueAllCompleteToTheOne) {
  CompletionQueues queues = Make();
  for (uint32_t i = 0; i < 2 * kNearLinks; ++i) {
    const auto joined = queues.Join();
    ASSERT_TRUE(joined.ok()) << joined.status();
    EXPECT_EQ(joined->receives, objects_->queue.get());
    EXPECT_EQ(joined->sends, objects_->queue.get());
    EXPECT_EQ(joined->seat, nullptr);
  }
}

TEST_F(CompletionQueuesTest, TheFirstEndpointsAreNearAndTheirPlacesAreTakenAgain) {
  objects_->OpenNearQueue();
  if (objects_->near_queue.get() == nullptr) GTEST_SKIP() << "this libfabric has no near queue";
  CompletionQueues queues = Make();
  std::vector<EndpointQueues> joined;
  for (uint32_t i = 0; i <= kNearLinks; ++i) joined.push_back(queues.Join().value());
  EXPECT_EQ(joined[0].receives, objects_->near_queue.get());
  EXPECT_EQ(joined[kNearLinks - 1].sends, objects_->near_queue.get());
  EXPECT_EQ(joined[kNearLinks].receives, objects_->queue.get());
  queues.Leave(joined[0]);
  EXPECT_EQ(queues.Join()->receives, objects_->near_queue.get());
  EXPECT_EQ(queues.Join()->receives, objects_->queue.get());
}

TEST_F(CompletionQueuesTest, WhatIsUnderWayIsBounded) {
  CompletionQueues queues = Make();
  queues.CountFlight(/*group=*/nullptr, /*awaited=*/true, kMaxInFlight - 1);
  EXPECT_TRUE(queues.HasFlightRoom());
  queues.CountFlight(nullptr, /*awaited=*/false, +1);
  EXPECT_FALSE(queues.HasFlightRoom());
  queues.CountFlight(nullptr, /*awaited=*/true, -2);
  EXPECT_TRUE(queues.HasFlightRoom());
  EXPECT_EQ(queues.in_flight(), kMaxInFlight - 2);
}

TEST_F(CompletionQueuesTest, AnEmptyQueueGivesNothing) {
  CompletionQueues queues = Make();
  ASSERT_TRUE(queues.Join().ok());
  EXPECT_FALSE(queues.HasEntries());
  const int found = queues.Read(
      /*budget=*/64, /*awaited=*/true, /*hurry=*/false,
      [](const fi_cq_msg_entry&) { ADD_FAILURE() << "an entry"; },
      [] { ADD_FAILURE() << "errors"; },
      [](fid_cq*, const fi_cq_err_entry&) { ADD_FAILURE() << "an error"; });
  EXPECT_EQ(found, 0);
  EXPECT_EQ(queues.finds(), 0u);
}

}  // namespace
}  // namespace weft
