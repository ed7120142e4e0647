#include "transport/path.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "core/strings.h"

namespace weft {
namespace {

struct KindName {
  PathKind kind;
  std::string_view name;
};

constexpr KindName kKindNames[] = {
    {PathKind::kShm, "shm"},
    {PathKind::kVerbs, "verbs"},
    {PathKind::kTcp, "tcp"},
    {PathKind::kSim, "sim"},
};

std::string_view OutcomeName(PathCandidate::Outcome outcome) {
  switch (outcome) {
    case PathCandidate::Outcome::kChosen:
      return "chosen";
    case PathCandidate::Outcome::kRejected:
      return "rejected";
    case PathCandidate::Outcome::kNotTried:
      return "not tried";
  }
  return "?";
}

}  // namespace

std::string_view PathKindName(PathKind kind) {
  for (const KindName& entry : kKindNames) {
    if (entry.kind == kind) return entry.name;
  }
  return "unknown";
}

std::string_view LinkKindName(LinkKind kind) {
  switch (kind) {
    case LinkKind::kUnknown:
      return "unknown";
    case LinkKind::kSharedMemory:
      return "shared memory";
    case LinkKind::kInfiniBand:
      return "InfiniBand";
    case LinkKind::kRoceV2:
      return "RoCE v2";
    case LinkKind::kRoceV1:
      return "RoCE v1";
    case LinkKind::kIwarp:
      return "iWARP";
    case LinkKind::kIp:
      return "TCP/IP";
    case LinkKind::kSimulated:
      return "simulated";
  }
  return "unknown";
}

absl::StatusOr<PathKind> ParsePathKind(std::string_view name) {
  std::string known;
  for (const KindName& entry : kKindNames) {
    if (entry.name == name) return entry.kind;
    absl::StrAppend(&known, known.empty() ? "" : ", ", ToAbsl(entry.name));
  }
  return absl::InvalidArgumentError(
      StrCat("path \"", name, "\" is not known; the known ones are ", known));
}

absl::StatusOr<std::vector<PathKind>> ParsePathList(std::string_view text) {
  std::vector<PathKind> kinds;
  for (absl::string_view name : absl::StrSplit(ToAbsl(text), ',')) {
    absl::StatusOr<PathKind> kind = ParsePathKind(ToStd(name));
    if (!kind.ok()) return kind.status();
    if (std::find(kinds.begin(), kinds.end(), *kind) != kinds.end()) {
      return absl::InvalidArgumentError(absl::StrCat("path \"", name, "\" is named twice"));
    }
    kinds.push_back(*kind);
  }
  return kinds;
}

std::string ExplainPaths(const std::vector<PathCandidate>& candidates) {
  std::string text;
  for (const PathCandidate& candidate : candidates) {
    absl::StrAppendFormat(&text, "%-5s %-9s  %s\n", ToAbsl(PathKindName(candidate.kind)),
                          ToAbsl(OutcomeName(candidate.outcome)), candidate.reason);
  }
  return text;
}

}  // namespace weft
