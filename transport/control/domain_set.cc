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

absl::StatusOr<FramingDomain*> DomainSet::Open(PathKind kind, uint64_t now_ns) {
  for (const Entry& entry : open_) {
    if (entry.links->path().kind == kind) return entry.framing.get();
  }
  std::erase_if(failures_, [now_ns](const Failure& old) { return old.forget_ns <= now_ns; });
  for (const Failure& failure : failures_) {
    if (failure.kind == kind) return failure.why;
  }
  PathProvider* const provider = Find(kind);
  if (provider == nullptr) {
    return absl::UnimplementedError(
        StrCat("path ", PathKindName(kind), " is not part of this program"));
  }
  absl::StatusOr<std::unique_ptr<LinkDomain>> links = provider->open(sink_);
  absl::Status status = links.status();
  if (status.ok() && (*links)->descriptor() >= 0) {
    status = poller_->Add((*links)->descriptor(), EPOLLIN, /*handler=*/nullptr);
  }
  if (!status.ok()) {
    WEFT_LOG(kInfo, "path ", PathKindName(kind), " is not available: ", ToStd(status.message()));
    failures_.push_back({kind, status, now_ns + kRetryOpenNs});
    return status;
  }
  Entry entry;
  entry.framing = std::make_unique<FramingDomain>(links->get(), framing_);
  entry.links = *std::move(links);
  open_.push_back(std::move(entry));
  return open_.back().framing.get();
}

std::string DomainSet::Complete(PathKind kind, const std::string& address,
                                const std::string& host) {
  PathProvider* const provider = Find(kind);
  if (provider == nullptr || !provider->with_host) return address;
  return provider->with_host(address, host);
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
