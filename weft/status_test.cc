#include "weft/status.h"

#include <gtest/gtest.h>

#include "absl/strings/cord.h"

namespace weft {
namespace {

TEST(DeliveryTest, StandsInTheStatusAndLeavesTheRest) {
  const absl::Status gone = absl::UnavailableError("gone");
  EXPECT_EQ(DeliveryOf(gone), Delivery::kUnknown);
  const absl::Status not_sent = WithDelivery(gone, Delivery::kNotSent);
  EXPECT_EQ(DeliveryOf(not_sent), Delivery::kNotSent);
  EXPECT_EQ(not_sent.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(not_sent.message(), "gone");
  EXPECT_EQ(DeliveryOf(WithDelivery(not_sent, Delivery::kMayHaveRun)), Delivery::kMayHaveRun);
  EXPECT_EQ(WithDelivery(not_sent, Delivery::kUnknown), gone);
}

TEST(DeliveryTest, OkHasNone) {
  EXPECT_EQ(WithDelivery(absl::OkStatus(), Delivery::kMayHaveRun), absl::OkStatus());
  EXPECT_EQ(DeliveryOf(absl::OkStatus()), Delivery::kUnknown);
}

TEST(DeliveryTest, AValueOfAnotherMakerMeansNothing) {
  absl::Status status = absl::UnavailableError("gone");
  status.SetPayload("weft.delivery", absl::Cord("perhaps"));
  EXPECT_EQ(DeliveryOf(status), Delivery::kUnknown);
}

}  // namespace
}  // namespace weft
