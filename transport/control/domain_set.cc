#include "transport/control/domain_set.h"

#include <algorithm>
#include <utility>

#include "core/log.h"
#include "core/status.h"
#include "core/strings.h"

namespace weft {

DomainSet::DomainSet(std::vector<PathProvider> providers, const FramingOptions& framing,
                     Poller* poller, BatchSink* sink)
    : framing_(framing), poller_(poller), sink_(sink), providers_(std::move(providers)) {}

DomainSet::~DomainSet() {
  for (const Entry& entry : open_) {
    if (entry.links->descriptor() >= 0) poller_->Remove(entry.links->descriptor());
  }
}

PathProvider* DomainSet::Find(PathKind kind) {
  for (PathProvider& provider : providers_) {
    if (provider.kind == kind) return &provider;
  }
  return nullptr;
}

std::vector<PathOffer> DomainSet::Offers(const PathPolicy& policy, uint64_t now_ns,
                                         const std::string& host) {
  std::vector<PathOffer> all;
  for (PathProvider& provider : providers_) {
    PathOffer plain;
    plain.link = provider.link;
    if (provider.is_bound_to_host) plain.host = host;
    std::vector<PathOffer> offers = {plain};
    if (provider.offers && policy.Allows(provider.kind)) {
      offers = provider.offers(policy.rdma, now_ns);
    }
    for (PathOffer& offer : offers) {
      offer.kind = provider.kind;
      offer.provider = provider.provider;
      all.push_back(std::move(offer));
    }
  }
  std::vector<PathOffer> offers = ApplyPolicy(policy, all);
  for (PathOffer& offer : offers) {
    PathProvider* const provider = offer.unavailable.empty() ? Find(offer.kind) : nullptr;
    if (provider == nullptr || !provider->fabric_version) continue;
    offer.fabric_version = provider->fabric_version();
  }
  return offers;
}

// Now rather than while the first client waits; what cannot be opened is that client's reason not
// to take it. Of each kind the best offer only: a host with eight RDMA ports would look at all of
// them in every turn, also those that no client has.
void DomainSet::OpenBest(const PathPolicy& policy, uint64_t now_ns) {
  std::vector<PathKind> done;
  for (const PathOffer& offer : Offers(policy, now_ns, /*host=*/"")) {
    const bool has_one = std::find(done.begin(), done.end(), offer.kind) != done.end();
    if (has_one || !offer.unavailable.empty() || Find(offer.kind)->is_bound_to_host) continue;
    if (Open(offer, now_ns).ok()) done.push_back(offer.kind);
  }
}

absl::StatusOr<FramingDomain*> DomainSet::Open(const PathOffer& offer, uint64_t now_ns) {
  const Key key(offer);
  for (const Entry& entry : open_) {
    if (!(entry.key == key)) continue;
    const absl::Status usable = entry.links->usable();
    if (usable.ok()) return entry.framing.get();
    if (now_ns - entry.opened_ns < kRetryOpenNs) return usable;
  }
  std::erase_if(failures_, [now_ns](const Failure& old) { return old.forget_ns <= now_ns; });
  for (const Failure& failure : failures_) {
    if (failure.key == key) return failure.why;
  }
  absl::StatusOr<std::unique_ptr<LinkDomain>> links = OpenLinks(offer);
  if (!links.ok()) {
    WEFT_LOG(kInfo, "path ", PathKindName(offer.kind), " ", offer.device,
             " is not available: ", ToStd(links.status().message()));
    if (failures_.size() == kMaxDomains) failures_.erase(failures_.begin());
    failures_.push_back({key, links.status(), now_ns + kRetryOpenNs});
    return links.status();
  }
  auto framing = std::make_unique<FramingDomain>(
      links->get(), framing_, framing_.first_path_number + static_cast<uint32_t>(open_.size()));
  open_.push_back({key, now_ns, *std::move(links), std::move(framing)});
  polled_[polled_count_++] = open_.back().links.get();
  return open_.back().framing.get();
}

absl::StatusOr<std::unique_ptr<LinkDomain>> DomainSet::OpenLinks(const PathOffer& offer) {
  PathProvider* const provider = Find(offer.kind);
  if (provider == nullptr) {
    return absl::UnimplementedError(
        StrCat("path ", PathKindName(offer.kind), " is not part of this program"));
  }
  WEFT_RETURN_IF_ERROR(CheckRoom(*provider, offer));
  WEFT_ASSIGN_OR_RETURN(std::unique_ptr<LinkDomain> links, provider->open(offer, sink_));
  if (links->descriptor() >= 0) {
    WEFT_RETURN_IF_ERROR(poller_->Add(links->descriptor(), EPOLLIN, /*handler=*/nullptr));
  }
  return links;
}

absl::Status DomainSet::TakeSocket(Descriptor socket, const Nonce128& nonce) {
  for (const Entry& entry : open_) {
    if (entry.key.kind == PathKind::kTcp) return entry.links->TakeSocket(std::move(socket), nonce);
  }
  return absl::NotFoundError("this engine has no path that takes sockets");
}

absl::Status DomainSet::CheckRoom(const PathProvider& provider, const PathOffer& offer) const {
  if (open_.size() == kMaxDomains) {
    return absl::ResourceExhaustedError(
        StrCat("this engine has all its ", kMaxDomains, " fabric domains open"));
  }
  if (!provider.is_bound_to_host || offer.host.empty()) return absl::OkStatus();
  const auto bound = std::count_if(open_.begin(), open_.end(), [&offer](const Entry& entry) {
    return entry.key.kind == offer.kind && !entry.key.host.empty();
  });
  if (static_cast<size_t>(bound) < kMaxHosts) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      StrCat("this engine listens for ", PathKindName(offer.kind), " at ", kMaxHosts,
             " addresses of this host already, and this client comes by another"));
}

// Asks every domain even after one has refused: asking makes some providers progress.
bool DomainSet::Arm() {
  bool may_sleep = true;
  for (const Entry& entry : open_) may_sleep = entry.links->Arm() && may_sleep;
  return may_sleep;
}

LinkDomainStats DomainSet::TotalStats() const {
  LinkDomainStats total;
  for (const Entry& entry : open_) {
    const LinkDomainStats& stats = entry.links->stats();
    total.registrations += stats.registrations;
    total.registrations_open += stats.registrations_open;
    total.send_slots_in_use += stats.send_slots_in_use;
    total.receives_posted += stats.receives_posted;
    total.links_open += stats.links_open;
    total.eagain += stats.eagain;
  }
  return total;
}

bool DomainSet::busy() const {
  return std::any_of(open_.begin(), open_.end(),
                     [](const Entry& entry) { return entry.links->busy(); });
}

}  // namespace weft
