#include "rpc/wire/extras.h"

#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "core/strings.h"
#include "rpc/wire/extras.pb.h"
#include "rpc/wire/frame.h"

namespace weft {
namespace {

constexpr absl::string_view kOwnPrefix = "weft.";

size_t CountedBytes(absl::string_view key, size_t value_bytes) {
  return key.size() + value_bytes + kMetadataEntryBytes;
}

}  // namespace

std::string EncodeExtras(const Metadata& metadata, const absl::Status& details) {
  rpc::Extras extras;
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

bool DecodeExtras(ByteSpan encoded, Metadata* metadata, absl::Status* details) {
  rpc::Extras extras;
  if (encoded.size() > kMaxExtrasBytes ||
      !extras.ParseFromArray(encoded.data(), static_cast<int>(encoded.size()))) {
    return false;
  }
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
