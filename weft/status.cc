#include "weft/status.h"

#include "absl/strings/cord.h"
#include "absl/strings/string_view.h"

namespace weft {
namespace {

// The payload of a status in which its Delivery stands, and its values. Printed with the status.
constexpr absl::string_view kDeliveryUrl = "weft.delivery";
constexpr absl::string_view kNotSent = "not_sent";
constexpr absl::string_view kMayHaveRun = "may_have_run";

}  // namespace

Delivery DeliveryOf(const absl::Status& status) {
  const auto payload = status.GetPayload(kDeliveryUrl);
  if (!payload.has_value()) return Delivery::kUnknown;
  if (*payload == kNotSent) return Delivery::kNotSent;
  return *payload == kMayHaveRun ? Delivery::kMayHaveRun : Delivery::kUnknown;
}

absl::Status WithDelivery(absl::Status status, Delivery delivery) {
  if (status.ok()) return status;
  if (delivery == Delivery::kUnknown) {
    status.ErasePayload(kDeliveryUrl);
  } else {
    status.SetPayload(kDeliveryUrl,
                      absl::Cord(delivery == Delivery::kNotSent ? kNotSent : kMayHaveRun));
  }
  return status;
}

}  // namespace weft
