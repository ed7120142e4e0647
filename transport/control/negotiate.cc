#include "transport/control/negotiate.h"

#include <algorithm>

#include "core/strings.h"
#include "transport/control/quirks.h"

namespace weft {
namespace {

std::string RangeText(const VersionRange& range) {
  if (range.min == range.max) return StrCat(range.min);
  return StrCat(range.min, " to ", range.max);
}

// As much of a boot id as a person compares.
std::string BootIdText(const HostFacts& host) {
  return host.boot_id.empty() ? "unknown" : StrCat(host.boot_id.substr(0, 4), "...");
}

// Why shared memory cannot work between these two, or an empty text.
std::string ShmObstacle(const HostFacts& client, const HostFacts& server,
                        const PathOffer& client_offer, const PathOffer& server_offer) {
  if (client.boot_id.empty() || server.boot_id.empty()) {
    return StrCat("the ", client.boot_id.empty() ? "client" : "server",
                  " cannot read its kernel's boot id (/proc/sys/kernel/random/boot_id)");
  }
  if (client.boot_id != server.boot_id) {
    return StrCat("different hosts (kernel ", BootIdText(client), " at the client, ",
                  BootIdText(server), " at the server)");
  }
  if (client.user_id != server.user_id) {
    return StrCat("different users (uid ", client.user_id, " at the client, ", server.user_id,
                  " at the server): shared memory belongs to one user");
  }
  if (client.shm_device != server.shm_device || client.shm_inode != server.shm_inode) {
    return "/dev/shm is not the same folder on both sides (separate containers or mounts): share "
           "it "
           "between them";
  }
  if (client_offer.fabric_version != server_offer.fabric_version) {
    return StrCat("different libfabric versions (", FabricVersionName(client_offer.fabric_version),
                  " at the client, ", FabricVersionName(server_offer.fabric_version),
                  " at the server) lay out shared memory differently: install the same one");
  }
  return "";
}

std::string Obstacle(PathKind kind, const ClientHello& client, const ServerHello& server) {
  const PathOffer* client_offer = FindOffer(client.paths, kind);
  const PathOffer* server_offer = FindOffer(server.paths, kind);
  if (client_offer == nullptr) return "the client does not know this path";
  if (!client_offer->unavailable.empty()) return StrCat("client: ", client_offer->unavailable);
  if (server_offer == nullptr) return "the server does not know this path";
  if (!server_offer->unavailable.empty()) return StrCat("server: ", server_offer->unavailable);
  if (kind == PathKind::kShm) {
    return ShmObstacle(client.host, server.host, *client_offer, *server_offer);
  }
  return "";
}

bool Names(const std::vector<PathCandidate>& candidates, PathKind kind) {
  return std::any_of(candidates.begin(), candidates.end(),
                     [kind](const PathCandidate& candidate) { return candidate.kind == kind; });
}

bool Contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool Offers(const std::vector<PathOffer>& offers, PathKind kind) {
  const PathOffer* offer = FindOffer(offers, kind);
  return offer != nullptr && offer->unavailable.empty();
}

}  // namespace

absl::StatusOr<uint32_t> NegotiateVersion(const VersionRange& client, const VersionRange& server) {
  const uint32_t version = std::min(client.max, server.max);
  if (version >= client.min && version >= server.min) return version;
  return absl::FailedPreconditionError(StrCat("no common protocol version: the client speaks ",
                                              RangeText(client), ", the server ", RangeText(server),
                                              ": update the older side"));
}

std::vector<std::string> NegotiateFeatures(const std::vector<std::string>& client,
                                           const std::vector<std::string>& server) {
  std::vector<std::string> common;
  for (const std::string& name : client) {
    if (Contains(server, name) && !Contains(common, name)) common.push_back(name);
  }
  return common;
}

std::vector<PathCandidate> NegotiatePaths(const ClientHello& client, const ServerHello& server) {
  std::vector<PathCandidate> candidates;
  const auto consider = [&](const std::vector<PathOffer>& offers) {
    for (const PathOffer& offer : offers) {
      if (Names(candidates, offer.kind)) continue;
      std::string obstacle = Obstacle(offer.kind, client, server);
      const auto outcome =
          obstacle.empty() ? PathCandidate::Outcome::kNotTried : PathCandidate::Outcome::kRejected;
      candidates.push_back({offer.kind, outcome, std::move(obstacle)});
    }
  };
  consider(client.paths);
  consider(server.paths);
  return candidates;
}

bool HasViable(const std::vector<PathCandidate>& candidates) {
  return std::any_of(candidates.begin(), candidates.end(), [](const PathCandidate& candidate) {
    return candidate.outcome == PathCandidate::Outcome::kNotTried;
  });
}

std::string Summary(const std::vector<PathCandidate>& candidates) {
  std::string reasons;
  for (const PathCandidate& candidate : candidates) {
    const bool open = candidate.outcome == PathCandidate::Outcome::kNotTried;
    reasons = StrCat(reasons, reasons.empty() ? "" : "; ", PathKindName(candidate.kind), ": ",
                     open ? std::string("not tried") : candidate.reason);
  }
  return reasons;
}

absl::Status NoCommonPath(const std::vector<PathCandidate>& candidates) {
  const std::string reasons = Summary(candidates);
  return absl::FailedPreconditionError(
      StrCat("no common path (", reasons.empty() ? "none is offered" : reasons, ")"));
}

absl::Status CheckServerHello(const ClientHello& client, const ServerHello& server) {
  if (server.version < client.versions.min || server.version > client.versions.max) {
    return absl::DataLossError(StrCat("the server chose protocol version ", server.version,
                                      "; offered were ", RangeText(client.versions)));
  }
  for (const std::string& feature : server.features) {
    if (!Contains(client.features, feature)) {
      return absl::DataLossError(
          StrCat("the server chose the feature \"", feature, "\", which was not offered"));
    }
  }
  for (const PathCandidate& candidate : server.candidates) {
    if (candidate.outcome != PathCandidate::Outcome::kNotTried) continue;
    if (!Offers(client.paths, candidate.kind) || !Offers(server.paths, candidate.kind)) {
      return absl::DataLossError(StrCat("the server chose the path ", PathKindName(candidate.kind),
                                        ", which is not offered by both sides"));
    }
  }
  return absl::OkStatus();
}

std::string ChosenReason(PathKind kind, const HostFacts& self, const HostFacts& peer,
                         const PathOffer& own_offer, const PathOffer& peer_offer) {
  std::string reason;
  if (kind == PathKind::kShm) {
    reason = StrCat("same host (kernel ", BootIdText(self), ", pid ", peer.process_id, ", uid ",
                    peer.user_id, "), ");
  }
  const std::string own_version = FabricVersionName(own_offer.fabric_version);
  const std::string peer_version = FabricVersionName(peer_offer.fabric_version);
  if (own_version == peer_version) {
    reason = StrCat(reason, "libfabric ", own_version, " on both sides");
  } else {
    reason = StrCat(reason, "libfabric ", own_version, " here, ", peer_version, " at the peer");
  }
  const std::string_view note = QuirkNote(kind, own_offer.fabric_version);
  return note.empty() ? reason : StrCat(reason, "; note: ", note);
}

std::string FabricVersionName(uint32_t version) {
  return StrCat(version >> 16, ".", version & 0xffff);
}

const PathOffer* FindOffer(const std::vector<PathOffer>& offers, PathKind kind) {
  for (const PathOffer& offer : offers) {
    if (offer.kind == kind) return &offer;
  }
  return nullptr;
}

}  // namespace weft
