#include "embed/session_client.h"

#include "core/random.h"
#include "core/strings.h"
#include "weft/status.h"

namespace weft::embed {

Next NextAfter(const absl::Status& status) {
  const bool is_answer = DeliveryOf(status) == Delivery::kUnknown;
  switch (status.code()) {
    case absl::StatusCode::kResourceExhausted:
      return Next::kAgain;
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kInternal:
      return Next::kAttachAgain;
    case absl::StatusCode::kDataLoss:
      return is_answer ? Next::kGiveUp : Next::kAttachAgain;
    default:
      return Next::kGiveUp;
  }
}

std::string NewClientId(size_t bytes) {
  std::string id(bytes, '\0');
  SecureRandomBytes({reinterpret_cast<std::byte*>(id.data()), id.size()});
  return id;
}

absl::Status WrongReply(std::string_view what) {
  return absl::DataLossError(StrCat("the server's answer makes no sense: ", what));
}

absl::Status NotInTime() { return absl::UnavailableError("the server has not answered in time"); }

}  // namespace weft::embed
