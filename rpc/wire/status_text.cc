#include "rpc/wire/status_text.h"

#include "absl/strings/cord.h"
#include "core/strings.h"
#include "rpc/wire/frame.h"
#include "weft/status.h"

namespace weft {
namespace {

constexpr absl::string_view kNotRunUrl = "weft.not_run";
constexpr absl::string_view kOutcomeUnknownUrl = "weft.outcome_unknown";

bool KeepsItsCode(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnauthenticated:
    case absl::StatusCode::kUnimplemented:
    case absl::StatusCode::kCancelled:
      return true;
    default:
      return false;
  }
}

std::string_view TextOf(const absl::Status& status) { return ToStd(status.message()); }

// The end of a connection by this side stays CANCELLED; all other reasons are UNAVAILABLE.
absl::Status ConnectionLost(std::string_view address, const absl::Status& why, Delivery delivery,
                            std::string_view what_then) {
  const absl::StatusCode code = why.code() == absl::StatusCode::kCancelled
                                    ? absl::StatusCode::kCancelled
                                    : absl::StatusCode::kUnavailable;
  const std::string text =
      StrCat("connection to ", address, " lost: ", TextOf(why), " (", what_then, ")");
  return WithDelivery(absl::Status(code, text), delivery);
}

}  // namespace

std::string_view CutStatusText(std::string_view text) {
  if (text.size() <= kMaxStatusText) return text;
  size_t end = kMaxStatusText;
  const auto continues = [&](size_t at) {
    return (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80;
  };
  while (end > kMaxStatusText - 4 && continues(end)) --end;
  return text.substr(0, end);
}

absl::Status NoServerError(std::string_view address, const absl::Status& why) {
  const absl::StatusCode code =
      KeepsItsCode(why.code()) ? why.code() : absl::StatusCode::kUnavailable;
  const std::string_view what_then =
      code == absl::StatusCode::kUnavailable ? " (not sent, safe to retry)" : " (not sent)";
  const std::string text = StrCat("no server at ", address, ": ", TextOf(why), what_then);
  return WithDelivery(absl::Status(code, text), Delivery::kNotSent);
}

absl::Status NotSentError(std::string_view address, const absl::Status& why) {
  return ConnectionLost(address, why, Delivery::kNotSent, "not sent, safe to retry");
}

absl::Status MayHaveRunError(std::string_view address, const absl::Status& why) {
  return ConnectionLost(address, why, Delivery::kMayHaveRun,
                        "the request was sent and may have run");
}

absl::Status NotTakenError(std::string_view address, const absl::Status& why) {
  return ConnectionLost(address, why, Delivery::kNotSent, "not run, safe to retry");
}

absl::Status LeavingError(std::string_view address) {
  return WithDelivery(
      absl::UnavailableError(
          StrCat("the server at ", address, " is about to shut down (not sent, safe to retry)")),
      Delivery::kNotSent);
}

absl::Status NotRunError(absl::StatusCode code, std::string_view text) {
  return NotRunError(absl::Status(code, ToAbsl(text)));
}

absl::Status NotRunError(absl::Status status) {
  status.SetPayload(kNotRunUrl, absl::Cord());
  return status;
}

bool IsNotRun(const absl::Status& status) { return status.GetPayload(kNotRunUrl).has_value(); }

absl::Status OutcomeUnknownError(std::string_view why) {
  absl::Status status = NotRunError(
      absl::StatusCode::kAborted,
      StrCat("the server has no record of what became of this call: ", why, " (not run)"));
  status.SetPayload(kOutcomeUnknownUrl, absl::Cord());
  return status;
}

bool IsOutcomeUnknown(const absl::Status& status) {
  return status.GetPayload(kOutcomeUnknownUrl).has_value();
}

bool MayBeWeftsOwn(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kUnavailable:
      return true;
    default:
      return false;
  }
}

std::string DurationText(uint64_t us) {
  constexpr uint64_t kUsPerMs = 1'000;
  constexpr uint64_t kUsPerSec = 1'000'000;
  if (us % kUsPerSec == 0) return StrCat(us / kUsPerSec, " s");
  if (us % kUsPerMs == 0) return StrCat(us / kUsPerMs, " ms");
  return StrCat(us, " us");
}

}  // namespace weft
