// What is counted as under way. That completions are found is the claim of every test of links.

#include "transport/ofi/completion_queue.h"

#include <memory>
#include <utility>

#include "gtest/gtest.h"
#include "transport/ofi/fabric_objects.h"
#include "transport/ofi/hints.h"

namespace weft {
namespace {

constexpr uint32_t kMaxInFlight = 3;

std::shared_ptr<FabricObjects> OpenTcp() {
  auto info = Discover({"tcp", "127.0.0.1"}, TcpHints().get());
  if (!info.ok()) return nullptr;
  auto objects = FabricObjects::Open(*std::move(info), FI_WAIT_FD, {/*receives=*/64, /*sends=*/0});
  return objects.ok() ? *objects : nullptr;
}

class CompletionQueueTest : public testing::Test {
 protected:
  std::shared_ptr<FabricObjects> objects_ = OpenTcp();
  CompletionQueue queue_{objects_->queue.get(), kMaxInFlight};
};

TEST_F(CompletionQueueTest, WhatIsUnderWayIsBounded) {
  queue_.CountFlight(kMaxInFlight - 1);
  EXPECT_TRUE(queue_.HasFlightRoom());
  queue_.CountFlight(+1);
  EXPECT_FALSE(queue_.HasFlightRoom());
  queue_.CountFlight(-2);
  EXPECT_TRUE(queue_.HasFlightRoom());
  EXPECT_EQ(queue_.in_flight(), kMaxInFlight - 2);
}

TEST_F(CompletionQueueTest, AnEmptyQueueGivesNothing) {
  EXPECT_FALSE(queue_.HasEntries());
  const int found = queue_.Read(
      /*budget=*/64, [](const fi_cq_msg_entry&) { ADD_FAILURE() << "an entry"; },
      [] { ADD_FAILURE() << "errors"; },
      [](fid_cq*, const fi_cq_err_entry&) { ADD_FAILURE() << "an error"; });
  EXPECT_EQ(found, 0);
  EXPECT_EQ(queue_.finds(), 0u);
}

}  // namespace
}  // namespace weft
