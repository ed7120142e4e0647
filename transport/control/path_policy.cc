#include "transport/control/path_policy.h"

#include <algorithm>
#include <cstdlib>

#include "core/status.h"
#include "core/strings.h"
#include "transport/framing/credit_window.h"

namespace weft {
namespace {

constexpr PathKind kRealPaths[] = {PathKind::kShm, PathKind::kTcp};
constexpr uint32_t kMaxOperations = 1024;

bool Contains(const std::vector<PathKind>& kinds, PathKind kind) {
  return std::find(kinds.begin(), kinds.end(), kind) != kinds.end();
}

std::string Join(const std::vector<PathKind>& kinds) {
  std::string text;
  for (const PathKind kind : kinds)
    text = StrCat(text, text.empty() ? "" : ",", PathKindName(kind));
  return text;
}

absl::Status CheckReal(const std::vector<PathKind>& kinds, std::string_view where) {
  for (const PathKind kind : kinds) {
    if (std::find(std::begin(kRealPaths), std::end(kRealPaths), kind) != std::end(kRealPaths)) {
      continue;
    }
    return absl::InvalidArgumentError(StrCat(where, ": path \"", PathKindName(kind),
                                             "\" does not lead to other processes; use shm, tcp"));
  }
  return absl::OkStatus();
}

absl::Status OutOfBounds(std::string_view option, uint64_t value, std::string_view bounds) {
  return absl::InvalidArgumentError(
      StrCat("LinkOptions::", option, " is ", value, "; it must be ", bounds));
}

}  // namespace

absl::StatusOr<PathPolicy> ReadPathPolicy(const LinkOptions& options) {
  if (!options.paths.empty()) {
    WEFT_RETURN_IF_ERROR(CheckReal(options.paths, "LinkOptions::paths"));
    return PathPolicy{options.paths,
                      StrCat("denied by its options (paths = ", Join(options.paths), ")")};
  }
  const char* text = std::getenv(kPathsVariable);
  if (text == nullptr || *text == '\0') {
    return PathPolicy{{std::begin(kRealPaths), std::end(kRealPaths)}, ""};
  }
  const std::string where = StrCat(kPathsVariable, "=", Printable(text, 200));
  absl::StatusOr<std::vector<PathKind>> kinds = ParsePathList(text);
  if (!kinds.ok()) return Annotate(kinds.status(), where);
  WEFT_RETURN_IF_ERROR(CheckReal(*kinds, where));
  return PathPolicy{*std::move(kinds), StrCat("denied by ", where)};
}

std::vector<PathOffer> ApplyPolicy(const PathPolicy& policy, const std::vector<PathOffer>& all) {
  std::vector<PathOffer> offers;
  for (const PathKind kind : policy.allowed) {
    const auto found = std::find_if(all.begin(), all.end(),
                                    [kind](const PathOffer& offer) { return offer.kind == kind; });
    if (found != all.end()) {
      offers.push_back(*found);
    } else {
      PathOffer missing;
      missing.kind = kind;
      missing.unavailable = "this path is not part of the program";
      offers.push_back(std::move(missing));
    }
  }
  for (const PathOffer& offer : all) {
    if (Contains(policy.allowed, offer.kind)) continue;
    offers.push_back(offer);
    offers.back().unavailable = policy.denial;
  }
  return offers;
}

absl::Status CheckLinkOptions(const LinkOptions& options, const std::string& hello) {
  if (options.window_slots < kMinWindowSlots || options.window_slots > kMaxWindowSlots) {
    return OutOfBounds("window_slots", options.window_slots, "4..1024");
  }
  if (options.max_outstanding_operations < 1 ||
      options.max_outstanding_operations > kMaxOperations) {
    return OutOfBounds("max_outstanding_operations", options.max_outstanding_operations, "1..1024");
  }
  if (options.connect_timeout_ns == 0) return OutOfBounds("connect_timeout_ns", 0, "at least 1");
  if (options.peer_timeout_ns != 0 && (options.peer_timeout_ns < kMinPeerTimeoutNs ||
                                       options.peer_timeout_ns > kMaxPeerTimeoutNs)) {
    return OutOfBounds("peer_timeout_ns", options.peer_timeout_ns,
                       "0 or 100000000 to 3600000000000 (100 ms to 1 h)");
  }
  if (options.path_timeout_ns == 0) return OutOfBounds("path_timeout_ns", 0, "at least 1");
  for (size_t i = 0; i < options.paths.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (options.paths[i] != options.paths[j]) continue;
      return absl::InvalidArgumentError(
          StrCat("LinkOptions::paths names ", PathKindName(options.paths[i]), " twice"));
    }
  }
  if (hello.size() > kMaxHelloBytes) {
    return absl::InvalidArgumentError(
        StrCat("the hello has ", hello.size(), " bytes; the limit is ", kMaxHelloBytes));
  }
  return absl::OkStatus();
}

}  // namespace weft
