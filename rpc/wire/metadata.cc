#include "rpc/wire/metadata.h"

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace weft {
namespace {

bool IsKeyByte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
}

bool IsPrintable(char c) { return c >= ' ' && c <= '~'; }

// For error texts: what a program has given may be long, or no text.
std::string Shown(std::string_view text) {
  constexpr size_t kShownBytes = 80;
  return absl::CHexEscape(absl::string_view(text.data(), std::min(text.size(), kShownBytes)));
}

absl::Status CheckEntry(std::string_view key, std::string_view value) {
  if (key.empty() || key.size() > kMaxMetadataKeyBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a metadata key has ", key.size(), " bytes; 1 to ", kMaxMetadataKeyBytes, " are allowed"));
  }
  if (!std::all_of(key.begin(), key.end(), IsKeyByte)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the metadata key \"", Shown(key), "\" has other characters than a-z, 0-9, -, _ and ."));
  }
  const bool binary = key.ends_with("-bin");
  if (!binary && !std::all_of(value.begin(), value.end(), IsPrintable)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the metadata value of \"", Shown(key),
                     "\" is not printable ASCII: let the key end with -bin for other bytes"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Metadata::Add(std::string_view key, std::string_view value) {
  if (absl::Status valid = CheckEntry(key, value); !valid.ok()) return valid;
  const size_t room = kMaxMetadataBytes - bytes_;
  if (key.size() + kMetadataEntryBytes > room ||
      value.size() > room - key.size() - kMetadataEntryBytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("metadata of ", bytes_, " bytes has no room for \"", Shown(key),
                     "\" with a value of ", value.size(), " bytes; ", kMaxMetadataBytes,
                     " are allowed, ", kMetadataEntryBytes, " for each entry included"));
  }
  entries_.push_back({std::string(key), std::string(value)});
  bytes_ += key.size() + value.size() + kMetadataEntryBytes;
  return absl::OkStatus();
}

const std::string* Metadata::Find(std::string_view key) const {
  const auto found = std::find_if(entries_.begin(), entries_.end(),
                                  [key](const Entry& entry) { return entry.key == key; });
  return found == entries_.end() ? nullptr : &found->value;
}

void Metadata::Clear() {
  entries_.clear();
  bytes_ = 0;
}

}  // namespace weft
