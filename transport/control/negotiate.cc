#include "transport/control/negotiate.h"

#include <algorithm>
#include <utility>

#include "core/strings.h"
#include "transport/devices/subnet.h"

namespace weft {
namespace {

std::string RangeText(const VersionRange& range) {
  if (range.min == range.max) return StrCat(range.min);
  return StrCat(range.min, " to ", range.max);
}

// Why nothing comes of a path that only the other side has told of.
std::string UnknownTo(std::string_view side, PathKind kind) {
  if (kind != PathKind::kOfiTcp) return StrCat("the ", side, " does not know this path");
  return StrCat("the ", side, " does not name it: both sides must, in LinkOptions::paths or ",
                "WEFT_PATHS");
}

// As much of a boot id as a person compares.
std::string BootIdText(const HostFacts& host) {
  return host.boot_id.empty() ? "unknown" : StrCat(host.boot_id.substr(0, 4), "...");
}

// Why shared memory cannot work between these two, or an empty text.
std::string ShmObstacle(const HostFacts& client, const HostFacts& server) {
  if (client.boot_id.empty() || server.boot_id.empty()) {
    return StrCat("the ", client.boot_id.empty() ? "client" : "server",
                  " cannot read its kernel's boot id (/proc/sys/kernel/random/boot_id)");
  }
  if (client.boot_id != server.boot_id) {
    return "different hosts (the boot ids of their kernels differ)";
  }
  if (client.user_id != server.user_id) {
    return StrCat("different users (uid ", client.user_id, " at the client, ", server.user_id,
                  " at the server): shared memory belongs to one user");
  }
  return "";
}

// How well two RDMA addresses fit together, the better the greater.
enum class RdmaFit : uint8_t {
  kUnavailable = 1,   // one of them cannot be used
  kOtherNetwork = 2,  // InfiniBand does not reach iWARP
  kOtherFamily = 3,   // IPv4 does not reach IPv6
  kOtherSubnet = 4,   // and this kind of link has no routers
  kRoutable = 5,      // by a router, perhaps
  kWouldFit = 6,      // a common subnet, but one of them cannot be used
  kCommonSubnet = 7,
};

bool IsV6(const PathOffer& offer) { return offer.host.find(':') != std::string::npos; }

RdmaFit Fit(const PathOffer& a, const PathOffer& b) {
  const bool usable = a.unavailable.empty() && b.unavailable.empty();
  const RdmaFit worse = usable ? RdmaFit::kOtherNetwork : RdmaFit::kUnavailable;
  if (a.link != b.link || a.link == LinkKind::kUnknown) return worse;
  if (a.host.empty() || b.host.empty()) return worse;
  if (IsV6(a) != IsV6(b)) return usable ? RdmaFit::kOtherFamily : RdmaFit::kUnavailable;
  if (ShareSubnet(a.host, a.prefix_bits, b.host, b.prefix_bits)) {
    return usable ? RdmaFit::kCommonSubnet : RdmaFit::kWouldFit;
  }
  if (!usable) return RdmaFit::kUnavailable;
  const bool has_routers = a.link == LinkKind::kRoceV2 || a.link == LinkKind::kIwarp;
  return has_routers ? RdmaFit::kRoutable : RdmaFit::kOtherSubnet;
}

// "192.168.1.7/24"
std::string PrefixText(const PathOffer& offer) {
  return StrCat(offer.host, "/", offer.prefix_bits);
}

std::string AtBothSides(std::string_view client, std::string_view server) {
  return StrCat(" (", client, " at the client, ", server, " at the server)");
}

// Why nothing comes of this pair. REQUIRES: the client's is available.
std::string RdmaObstacle(const PathOffer& client, const PathOffer& server, bool allow_routed) {
  switch (Fit(client, server)) {
    case RdmaFit::kUnavailable:
    case RdmaFit::kWouldFit:
      return StrCat("server: ", server.unavailable);
    case RdmaFit::kOtherNetwork:
      return StrCat("different networks",
                    AtBothSides(LinkKindName(client.link), LinkKindName(server.link)));
    case RdmaFit::kOtherFamily:
      return StrCat("different address families", AtBothSides(client.host, server.host));
    case RdmaFit::kOtherSubnet:
      return StrCat("no common subnet", AtBothSides(PrefixText(client), PrefixText(server)));
    case RdmaFit::kRoutable:
      if (allow_routed) break;
      return StrCat("no common subnet", AtBothSides(PrefixText(client), PrefixText(server)),
                    "; if a router joins them: LinkOptions::allow_routed or WEFT_ROUTED=1");
    case RdmaFit::kCommonSubnet:
      break;
  }
  return StrCat("there are ", kMaxViableRdmaPairs,
                " better pairs of RDMA addresses: name the one "
                "that is meant by WEFT_DEVICES or WEFT_SUBNETS");
}

// Pairs up the offers of two sides, row by row.
class Pairing {
 public:
  Pairing(const ClientHello& client, const ServerHello& server, bool allow_routed)
      : client_(client), server_(server), allow_routed_(allow_routed) {}

  std::vector<PathPair> Run() {
    bool rdma_done = false;
    for (size_t i = 0; i < client_.paths.size(); ++i) {
      if (client_.paths[i].kind != PathKind::kVerbs) {
        PairPlain(static_cast<int>(i));
      } else if (!std::exchange(rdma_done, true)) {
        PairRdma();  // all addresses at once: their order is of the whole
      }
    }
    ListServersAlone();
    if (rows_.size() > kMaxCandidates) rows_.resize(kMaxCandidates);
    return std::move(rows_);
  }

 private:
  static constexpr int kNone = PathPair::kNone;
  const PathOffer& clients(int i) const { return client_.paths[static_cast<size_t>(i)]; }
  const PathOffer& servers(int i) const { return server_.paths[static_cast<size_t>(i)]; }
  int client_count() const { return static_cast<int>(client_.paths.size()); }
  int server_count() const { return static_cast<int>(server_.paths.size()); }

  void Add(int client, int server, std::string rejected) {
    rows_.push_back({client, server, std::move(rejected)});
  }

  // A kind of which each side has one.
  void PairPlain(int c) {
    int s = 0;
    while (s < server_count() && servers(s).kind != clients(c).kind) ++s;
    if (s == server_count()) s = kNone;
    Add(c, s, PlainObstacle(c, s));
  }

  std::string PlainObstacle(int c, int s) const {
    if (!clients(c).unavailable.empty()) return StrCat("client: ", clients(c).unavailable);
    if (s == kNone) return UnknownTo("server", clients(c).kind);
    if (!servers(s).unavailable.empty()) return StrCat("server: ", servers(s).unavailable);
    if (clients(c).kind != PathKind::kShm) return "";
    return ShmObstacle(client_.host, server_.host);
  }

  void PairRdma() {
    std::vector<size_t> partners(client_.paths.size(), 0);
    AddViable(RdmaFit::kCommonSubnet, &partners);
    if (allow_routed_) AddViable(RdmaFit::kRoutable, &partners);
    for (int c = 0; c < client_count(); ++c) {
      if (clients(c).kind == PathKind::kVerbs && partners[static_cast<size_t>(c)] == 0) {
        AddNearestMiss(c);
      }
    }
  }

  void AddViable(RdmaFit wanted, std::vector<size_t>* partners) {
    for (int c = 0; c < client_count(); ++c) {
      size_t& count = (*partners)[static_cast<size_t>(c)];
      for (int s = 0; s < server_count() && count < kMaxPartners; ++s) {
        if (clients(c).kind != PathKind::kVerbs || servers(s).kind != PathKind::kVerbs) continue;
        if (Fit(clients(c), servers(s)) != wanted || viable_ == kMaxViableRdmaPairs) continue;
        ++viable_;
        ++count;
        Add(c, s, "");
      }
    }
  }

  // A client's address without a partner: the server's that came closest says why.
  void AddNearestMiss(int c) {
    if (!clients(c).unavailable.empty()) {
      return Add(c, kNone, StrCat("client: ", clients(c).unavailable));
    }
    int nearest = kNone;
    for (int s = 0; s < server_count(); ++s) {
      if (servers(s).kind != PathKind::kVerbs) continue;
      if (nearest == kNone || Fit(clients(c), servers(s)) > Fit(clients(c), servers(nearest))) {
        nearest = s;
      }
    }
    if (nearest == kNone) return Add(c, kNone, "the server does not know this path");
    Add(c, nearest, RdmaObstacle(clients(c), servers(nearest), allow_routed_));
  }

  // What only the server knows, and what it lacks and no row has named.
  void ListServersAlone() {
    for (int s = 0; s < server_count(); ++s) {
      const PathOffer& offer = servers(s);
      const bool known = std::any_of(client_.paths.begin(), client_.paths.end(),
                                     [&](const PathOffer& o) { return o.kind == offer.kind; });
      if (!known) {
        Add(kNone, s,
            offer.unavailable.empty() ? UnknownTo("client", offer.kind)
                                      : StrCat("server: ", offer.unavailable));
      } else if (offer.kind == PathKind::kVerbs && !offer.unavailable.empty() && ClientHasRdma() &&
                 !IsNamed(s)) {
        Add(kNone, s, StrCat("server: ", offer.unavailable));
      }
    }
  }

  bool ClientHasRdma() const {
    return std::any_of(client_.paths.begin(), client_.paths.end(), [](const PathOffer& offer) {
      return offer.kind == PathKind::kVerbs && offer.unavailable.empty();
    });
  }
  bool IsNamed(int s) const {
    return std::any_of(rows_.begin(), rows_.end(),
                       [s](const PathPair& row) { return row.server_offer == s; });
  }

  const ClientHello& client_;
  const ServerHello& server_;
  const bool allow_routed_;
  size_t viable_ = 0;
  std::vector<PathPair> rows_;
};

bool Exists(int index, const std::vector<PathOffer>& offers) {
  return index == PathPair::kNone || static_cast<size_t>(index) < offers.size();
}

// Whether a client can try this pair: it must not be led to a link that cannot be.
bool MayTry(const PathPair& pair, const ClientHello& client, const ServerHello& server) {
  if (pair.client_offer == PathPair::kNone || pair.server_offer == PathPair::kNone) return false;
  const PathOffer& own = client.paths[static_cast<size_t>(pair.client_offer)];
  const PathOffer& peers = server.paths[static_cast<size_t>(pair.server_offer)];
  if (own.kind != peers.kind || !own.unavailable.empty() || !peers.unavailable.empty()) {
    return false;
  }
  return own.kind != PathKind::kVerbs || Fit(own, peers) >= RdmaFit::kRoutable;
}

std::string PairName(const PathPair& pair, const ClientHello& client, const ServerHello& server) {
  return CandidateName(DescribePairs({pair}, client.paths, server.paths, /*as_client=*/true)[0]);
}

bool HasFeature(const std::vector<std::string>& features, const std::string& name) {
  return std::find(features.begin(), features.end(), name) != features.end();
}

}  // namespace

absl::StatusOr<uint32_t> NegotiateVersion(const VersionRange& client, const VersionRange& server) {
  const uint32_t version = std::min(client.max, server.max);
  if (version >= client.min && version >= server.min) return version;
  return absl::FailedPreconditionError(StrCat("no common protocol version: the client speaks ",
                                              RangeText(client), ", the server ", RangeText(server),
                                              ": update the older side"));
}

std::vector<std::string> OwnFeatures() {
  return {kRequestsFeature, kLeasesFeature, kSequencesFeature, kProofsFeature};
}

std::vector<std::string> NegotiateFeatures(const std::vector<std::string>& client,
                                           const std::vector<std::string>& server) {
  std::vector<std::string> common;
  for (const std::string& name : client) {
    if (HasFeature(server, name) && !HasFeature(common, name)) common.push_back(name);
  }
  return common;
}

std::vector<PathPair> NegotiatePaths(const ClientHello& client, const ServerHello& server,
                                     bool server_allows_routed) {
  return Pairing(client, server, client.allow_routed || server_allows_routed).Run();
}

std::vector<PathCandidate> DescribePairs(const std::vector<PathPair>& pairs,
                                         const std::vector<PathOffer>& clients,
                                         const std::vector<PathOffer>& servers, bool as_client) {
  const auto find = [](const std::vector<PathOffer>& offers, int index) {
    return index == PathPair::kNone ? nullptr : &offers[static_cast<size_t>(index)];
  };
  std::vector<PathCandidate> candidates;
  for (const PathPair& pair : pairs) {
    const PathOffer* own = find(clients, pair.client_offer);
    const PathOffer* peers = find(servers, pair.server_offer);
    if (!as_client) std::swap(own, peers);
    PathCandidate candidate;
    if (const PathOffer* named = own != nullptr ? own : peers; named != nullptr) {
      candidate.kind = named->kind;
      candidate.link = named->link;
    }
    if (own != nullptr) {
      candidate.device = own->device;
      candidate.address = own->host;
    }
    if (peers != nullptr) {
      candidate.peer_device = peers->device;
      candidate.peer_address = peers->host;
    }
    candidate.reason = pair.rejected;
    candidate.outcome = pair.rejected.empty() ? PathCandidate::Outcome::kNotTried
                                              : PathCandidate::Outcome::kRejected;
    candidates.push_back(std::move(candidate));
  }
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
    reasons = StrCat(reasons, reasons.empty() ? "" : "; ", CandidateName(candidate), ": ",
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
    if (!HasFeature(client.features, feature)) {
      return absl::DataLossError(
          StrCat("the server chose the feature \"", feature, "\", which was not offered"));
    }
  }
  for (const PathPair& pair : server.candidates) {
    if (!Exists(pair.client_offer, client.paths) || !Exists(pair.server_offer, server.paths) ||
        (pair.client_offer == PathPair::kNone && pair.server_offer == PathPair::kNone)) {
      return absl::DataLossError("the server names a candidate of paths that nobody offers");
    }
    if (pair.rejected.empty() && !MayTry(pair, client, server)) {
      return absl::DataLossError(StrCat("the server chose the path ",
                                        PairName(pair, client, server),
                                        ", which is not offered by both sides"));
    }
  }
  return absl::OkStatus();
}

LinkAgreement Agree(const ClientHello& client, const ServerHello& server, bool as_client,
                    uint32_t batch_bytes) {
  // The server names the features that both have.
  const bool sequences = HasFeature(server.features, kSequencesFeature);
  const auto as_seen_by = [&](const auto& own, const auto& peer) {
    return LinkAgreement{
        .peer_index = peer.connection_index,
        .peer_token = peer.connection_token,
        .send_window_slots = peer.limits.window_slots,
        .receive_window_slots = own.limits.window_slots,
        .batch_bytes = batch_bytes,
        .peer_answers = HasFeature(server.features, kRequestsFeature),
        .peer_leases = HasFeature(server.features, kLeasesFeature),
        .send_sequence = sequences ? peer.first_sequence : 0,
        .receive_sequence = sequences ? own.first_sequence : 0,
        .only_sealed = own.limits.require_encryption || peer.limits.require_encryption,
        .has_proofs = HasFeature(server.features, kProofsFeature),
        .send_proof = peer.batch_proof,
        .receive_proof = own.batch_proof,
    };
  };
  return as_client ? as_seen_by(client, server) : as_seen_by(server, client);
}

std::string ChosenReason(const HostFacts& self, const HostFacts& peer, const PathOffer& own_offer,
                         const PathOffer& peer_offer) {
  std::string reason;
  if (own_offer.kind == PathKind::kShm) {
    return StrCat("same host (kernel ", BootIdText(self), ", pid ", peer.process_id, ", uid ",
                  peer.user_id, ")");
  }
  if (own_offer.kind == PathKind::kVerbs) {
    const bool common = Fit(own_offer, peer_offer) == RdmaFit::kCommonSubnet;
    reason = StrCat(LinkKindName(own_offer.link),
                    common ? " in a common subnet (" : " through a router (", PrefixText(own_offer),
                    " here, ", PrefixText(peer_offer), " at the peer), ");
  }
  if (own_offer.kind == PathKind::kTcp) return "sockets by the server's own port";
  const std::string own_version = FabricVersionName(own_offer.fabric_version);
  const std::string peer_version = FabricVersionName(peer_offer.fabric_version);
  if (own_version == peer_version) {
    reason = StrCat(reason, "libfabric ", own_version, " on both sides");
  } else {
    reason = StrCat(reason, "libfabric ", own_version, " here, ", peer_version, " at the peer");
  }
  return reason;
}

std::string FabricVersionName(uint32_t version) {
  return StrCat(version >> 16, ".", version & 0xffff);
}

}  // namespace weft
