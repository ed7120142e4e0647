#include "transport/path_kinds.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "core/status.h"
#include "core/strings.h"

namespace weft {
namespace {

// What leads to other processes, in default order of preference.
constexpr PathKind kRealPaths[] = {PathKind::kShm, PathKind::kVerbs, PathKind::kTcp,
                                   PathKind::kOfiTcp};
// Without a word of the user's: not those that have to be named.
constexpr PathKind kDefaultPaths[] = {PathKind::kShm, PathKind::kVerbs, PathKind::kTcp};

bool Contains(const std::vector<PathKind>& kinds, PathKind kind) {
  return std::find(kinds.begin(), kinds.end(), kind) != kinds.end();
}

std::string Join(const std::vector<PathKind>& kinds) {
  std::string text;
  for (const PathKind kind : kinds) {
    text = StrCat(text, text.empty() ? "" : ",", PathKindName(kind));
  }
  return text;
}

absl::Status CheckReal(const std::vector<PathKind>& kinds, std::string_view where) {
  for (const PathKind kind : kinds) {
    if (std::find(std::begin(kRealPaths), std::end(kRealPaths), kind) != std::end(kRealPaths)) {
      continue;
    }
    return absl::InvalidArgumentError(
        StrCat(where, ": path \"", PathKindName(kind),
               "\" does not lead to other processes; use shm, verbs, tcp, ofi_tcp"));
  }
  return absl::OkStatus();
}

// Takes `kinds` out of what is allowed.
void Deny(const std::vector<PathKind>& kinds, const std::string& why, PathKinds* side) {
  for (const PathKind kind : kinds) {
    if (std::erase(side->allowed, kind) != 0) side->denied.push_back({kind, why});
  }
}

void AllowOnly(std::vector<PathKind> kinds, const std::string& why, PathKinds* side) {
  std::vector<PathKind> others;
  for (const PathKind kind : side->allowed) {
    if (!Contains(kinds, kind)) others.push_back(kind);
  }
  Deny(others, why, side);
  side->allowed = std::move(kinds);
}

absl::Status ReadVariable(PathKinds* side) {
  const char* const value = std::getenv(kPathsVariable);
  if (value == nullptr || *value == 0) return absl::OkStatus();
  const std::string text = StrCat(kPathsVariable, "=", value);
  const bool is_denial = *value == '^';
  absl::StatusOr<std::vector<PathKind>> kinds = ParsePathList(value + (is_denial ? 1 : 0));
  if (!kinds.ok()) return Annotate(kinds.status(), text);
  WEFT_RETURN_IF_ERROR(CheckReal(*kinds, text));
  const std::string why = StrCat("denied by ", text);
  if (is_denial) {
    Deny(*kinds, why, side);
  } else {
    AllowOnly(*std::move(kinds), why, side);
  }
  return absl::OkStatus();
}

}  // namespace

bool PathKinds::Allows(PathKind kind) const { return Contains(allowed, kind); }

absl::StatusOr<PathKinds> ReadPathKinds(const LinkOptions& options) {
  PathKinds side;
  side.allowed.assign(std::begin(kDefaultPaths), std::end(kDefaultPaths));
  WEFT_RETURN_IF_ERROR(CheckReal(options.paths, "LinkOptions::paths"));
  WEFT_RETURN_IF_ERROR(CheckReal(options.denied_paths, "LinkOptions::denied_paths"));
  if (options.paths.empty()) {
    WEFT_RETURN_IF_ERROR(ReadVariable(&side));
  } else {
    AllowOnly(options.paths, StrCat("denied by its options (paths = ", Join(options.paths), ")"),
              &side);
  }
  Deny(options.denied_paths,
       StrCat("denied by its options (denied_paths = ", Join(options.denied_paths), ")"), &side);
  if (!side.allowed.empty()) return side;
  std::string reasons;
  for (const PathKinds::Denial& denial : side.denied) {
    reasons =
        StrCat(reasons, reasons.empty() ? "" : "; ", PathKindName(denial.kind), " is ", denial.why);
  }
  return absl::InvalidArgumentError(StrCat("no path is left: ", reasons));
}

}  // namespace weft
