#include "rpc/wire/extras.h"

#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "core/strings.h"
#include "rpc/wire/extras.pb.h"
#include "rpc/wire/frame.h"
#include "rpc/wire/status_text.h"

namespace weft {
namespace {

constexpr absl::string_view kOwnPrefix = "weft.";

size_t CountedBytes(absl::string_view key, size_t value_bytes) {
  return key.size() + value_bytes + kMetadataEntryBytes;
}

void EncodeOnce(const OnceAttempt& attempt, rpc::OnceCall* call) {
  call->set_session_high(attempt.id.session.high);
  call->set_session_low(attempt.id.session.low);
  call->set_sequence(attempt.id.sequence);
  call->set_first_unanswered(attempt.first_unanswered);
}

// False: it has no meaning.
bool DecodeOnce(const rpc::Extras& extras, bool of_error, OnceExtras* once) {
  if (once == nullptr) return !extras.has_once() && !extras.outcome_unknown();
  if (extras.outcome_unknown() && !of_error) return false;
  once->outcome_unknown = extras.outcome_unknown();
  if (!extras.has_once()) return true;
  const rpc::OnceCall& call = extras.once();
  once->attempt = {{{call.session_high(), call.session_low()}, call.sequence()},
                   call.first_unanswered()};
  return call.first_unanswered() >= 1 && call.first_unanswered() <= call.sequence();
}

}  // namespace

std::string EncodeExtras(const Metadata& metadata, const absl::Status& details,
                         const OnceAttempt* once) {
  rpc::Extras extras;
  if (once != nullptr) EncodeOnce(*once, extras.mutable_once());
  extras.set_outcome_unknown(IsOutcomeUnknown(details));
  for (const Metadata::Entry& entry : metadata) {
    rpc::Pair& pair = *extras.add_metadata();
    pair.set_key(entry.key);
    pair.set_value(entry.value);
  }
  size_t room = kMaxMetadataBytes;
  details.ForEachPayload([&](absl::string_view url, const absl::Cord& payload) {
    const size_t bytes = CountedBytes(url, payload.size());
    if (absl::StartsWith(url, kOwnPrefix) || bytes > room) return;
    room -= bytes;
    rpc::Pair& pair = *extras.add_details();
    pair.set_key(std::string(url));
    pair.set_value(std::string(payload));
  });
  return extras.SerializeAsString();
}

bool DecodeExtras(ByteSpan encoded, Metadata* metadata, absl::Status* details, OnceExtras* once) {
  rpc::Extras extras;
  if (encoded.size() > kMaxExtrasBytes ||
      !extras.ParseFromArray(encoded.data(), static_cast<int>(encoded.size()))) {
    return false;
  }
  if (!DecodeOnce(extras, details != nullptr, once)) return false;
  for (const rpc::Pair& pair : extras.metadata()) {
    if (!metadata->Add(pair.key(), pair.value()).ok()) return false;
  }
  if (details == nullptr) return extras.details_size() == 0;
  size_t room = kMaxMetadataBytes;
  for (const rpc::Pair& pair : extras.details()) {
    const size_t bytes = CountedBytes(pair.key(), pair.value().size());
    if (pair.key().empty() || absl::StartsWith(pair.key(), kOwnPrefix) || bytes > room) {
      return false;
    }
    room -= bytes;
    details->SetPayload(pair.key(), absl::Cord(pair.value()));
  }
  return true;
}

}  // namespace weft
