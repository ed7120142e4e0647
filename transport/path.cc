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
    {PathKind::kShm, "shm"},        {PathKind::kVerbs, "verbs"}, {PathKind::kTcp, "tcp"},
    {PathKind::kOfiTcp, "ofi_tcp"}, {PathKind::kSim, "sim"},
};

// "mlx5_0:1 (RoCE v2, 10.0.0.7)"; what is not known is left out.
std::string PortName(const std::string& device, std::string_view link, const std::string& address) {
  const std::string details = StrCat(link, link.empty() || address.empty() ? "" : ", ", address);
  if (details.empty()) return device;
  return StrCat(device, device.empty() ? "" : " ", "(", details, ")");
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

std::string CandidateName(const PathCandidate& candidate) {
  std::string name(PathKindName(candidate.kind));
  std::string_view link;  // told once: both sides' are the same
  if (candidate.link != LinkKind::kUnknown) link = LinkKindName(candidate.link);
  if (!candidate.device.empty()) {
    name = StrCat(name, " ", PortName(candidate.device, link, candidate.address));
    link = {};
  }
  if (!candidate.peer_device.empty()) {
    name = StrCat(name, " to ", PortName(candidate.peer_device, link, candidate.peer_address));
  }
  return name;
}

std::string SecurityText(const PathInfo& path) {
  const Authentication known = path.identity.authentication;
  const bool stays = path.kind == PathKind::kShm;
  const char* bytes = "no TLS: whoever is on the way can read and change what travels";
  if (path.is_encrypted) {
    bytes = "TLS 1.3, all bytes are encrypted";
  } else if (known == Authentication::kCertificate || known == Authentication::kPreSharedKey) {
    bytes = stays ? "TLS 1.3 for the handshake, the other bytes stay on this host"
                  : "TLS 1.3, but operations on memory are not encrypted";
  } else if (stays) {
    bytes = "no TLS, the bytes stay on this host";
  }
  return StrCat("peer: ", IdentityText(path.identity), "; ", bytes,
                path.kernel_tls.empty() ? "" : ", ", path.kernel_tls);
}

std::string ExplainPaths(const std::vector<PathCandidate>& candidates) {
  // As wide as the longest name, and never narrower than a plain kind.
  size_t width = 5;
  for (const PathCandidate& candidate : candidates) {
    width = std::max(width, CandidateName(candidate).size());
  }
  std::string text;
  for (const PathCandidate& candidate : candidates) {
    absl::StrAppendFormat(&text, "%-*s %-9s  %s\n", static_cast<int>(width),
                          CandidateName(candidate), ToAbsl(OutcomeName(candidate.outcome)),
                          candidate.reason);
  }
  return text;
}

}  // namespace weft
