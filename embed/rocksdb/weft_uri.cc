#include "embed/rocksdb/weft_uri.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "core/status.h"
#include "core/strings.h"
#include "weft/path.h"
#include "weft/security.h"

namespace weft::embed {
namespace {

// An hour: nobody waits longer for a file.
constexpr uint64_t kMaxPatienceSeconds = 3600;

absl::Status Wrong(std::string_view part, std::string_view why) {
  return absl::InvalidArgumentError(StrCat("\"", part, "\" in a URI of Weft: ", why));
}

absl::StatusOr<uint64_t> SecondsOf(std::string_view text) {
  uint64_t seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (error != std::errc() || end != text.data() + text.size() || seconds < 1 ||
      seconds > kMaxPatienceSeconds) {
    return Wrong(text, StrCat("patience is 1 to ", kMaxPatienceSeconds, " seconds"));
  }
  return seconds;
}

absl::Status TakeOption(const std::string& key, const std::string& value,
                        const std::vector<std::string>& own,
                        std::vector<std::string>* security_flags, WeftUri* uri) {
  if (key == "paths") {
    WEFT_ASSIGN_OR_RETURN(uri->channel.link.paths, ParsePathList(value));
  } else if (key == "patience") {
    WEFT_ASSIGN_OR_RETURN(const uint64_t seconds, SecondsOf(value));
    uri->patience_us = 1'000'000 * seconds;
  } else if (key == "crc32c") {
    if (value != "0" && value != "1") return Wrong(value, "crc32c is 0 or 1");
    uri->crc32c = value == "1";
  } else if (key == "tls-any-client" || key == "tls-require-encryption" || key == "tls-kernel") {
    if (value == "1") security_flags->push_back(StrCat("--", key));
  } else if (key.starts_with("tls-")) {
    security_flags->push_back(StrCat("--", key, "=", value));
  } else if (std::find(own.begin(), own.end(), key) != own.end()) {
    uri->own[key] = value;
  } else {
    return Wrong(key, "there is no such key");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<WeftUri> ParseWeftUri(std::string_view scheme, std::string_view text,
                                     const std::vector<std::string>& own) {
  const std::string begin = StrCat(scheme, "://");
  if (!text.starts_with(begin)) return Wrong(text, StrCat("it begins with ", begin));
  text.remove_prefix(begin.size());
  WeftUri uri;
  std::string_view options;
  if (const size_t question = text.find('?'); question != std::string_view::npos) {
    options = text.substr(question + 1);
    text = text.substr(0, question);
  }
  const size_t slash = text.find('/');
  uri.address = std::string(text.substr(0, slash));
  if (uri.address.find(':') == std::string::npos) return Wrong(uri.address, "HOST:PORT is needed");
  if (slash != std::string_view::npos) {
    std::string_view folder = text.substr(slash);
    while (folder.starts_with('/')) folder.remove_prefix(1);
    while (folder.ends_with('/')) folder.remove_suffix(1);
    uri.folder = std::string(folder);
  }
  std::vector<std::string> security_flags;
  while (!options.empty()) {
    const size_t end = options.find('&');
    const std::string_view option = options.substr(0, end);
    const size_t colon = option.find_first_of(":=");
    if (colon == std::string_view::npos) return Wrong(option, "KEY:VALUE is needed");
    WEFT_RETURN_IF_ERROR(TakeOption(std::string(option.substr(0, colon)),
                                    std::string(option.substr(colon + 1)), own, &security_flags,
                                    &uri));
    options = end == std::string_view::npos ? std::string_view() : options.substr(end + 1);
  }
  WEFT_ASSIGN_OR_RETURN(uri.channel.security, TakeSecurityFlags(&security_flags));
  if (!security_flags.empty()) return Wrong(security_flags.front(), "there is no such flag");
  return uri;
}

}  // namespace weft::embed
