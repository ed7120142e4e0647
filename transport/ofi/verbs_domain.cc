#include "transport/ofi/verbs_domain.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "core/log.h"
#include "core/status.h"
#include "core/strings.h"
#include "transport/ofi/fabric_link.h"
#include "transport/ofi/hints.h"

namespace weft {
namespace {

// "mlx5_0" of "mlx5_0:1".
std::string DeviceName(const std::string& port) { return port.substr(0, port.rfind(':')); }

// Soft-RoCE has no device behind it. Up to Linux 5.18 its registrations end while a write into them
// goes on; later ones wait for it, but not for ever.
bool IsHardware(const std::string& port) {
  return access(("/sys/class/infiniband/" + DeviceName(port) + "/device/driver").c_str(), F_OK) ==
         0;
}

}  // namespace

absl::StatusOr<std::unique_ptr<LinkDomain>> VerbsDomain::Open(const OfiOptions& options,
                                                              const QueueSizes& queues) {
  if (options.bind_address.empty() || options.device.empty()) {
    return absl::InvalidArgumentError("a verbs domain needs its device and its address");
  }
  WEFT_ASSIGN_OR_RETURN(
      InfoPtr info, Discover({"verbs", options.bind_address},
                             VerbsHints(DeviceName(options.device), options.bind_address).get()));
  WEFT_ASSIGN_OR_RETURN(std::shared_ptr<FabricObjects> objects,
                        FabricObjects::Open(std::move(info), FI_WAIT_FD, queues));
  FabricTraits traits = {PathKind::kVerbs, options.link, {objects->sizes.receives}};
  traits.max_in_flight = objects->sizes.sends;
  traits.receives.spare = kSpareReceives;
  traits.errors_end_links = true;
  traits.reads_prove_writes = true;
  const bool is_hardware = IsHardware(options.device);
  traits.closing_reclaims = options.link != LinkKind::kIwarp && is_hardware;
  traits.completes_out_of_order = options.link == LinkKind::kIwarp && !is_hardware;  // siw
  std::unique_ptr<VerbsDomain> domain(
      new VerbsDomain(options, std::move(objects), traits, is_hardware));
  WEFT_RETURN_IF_ERROR(domain->Start());
  WEFT_ASSIGN_OR_RETURN(domain->bell_, ProbeBell::Create());
  WEFT_RETURN_IF_ERROR(domain->WatchDescriptor(domain->bell_->fd()));
  return std::unique_ptr<LinkDomain>(std::move(domain));
}

VerbsDomain::VerbsDomain(const OfiOptions& options, std::shared_ptr<FabricObjects> objects,
                         const FabricTraits& traits, bool is_hardware)
    : FabricDomain(options, std::move(objects), traits),
      is_hardware_(is_hardware),
      port_(options.sysfs, options.device, options.clock, options.timers,
            [this](const absl::Status& found) { return OnPort(found); }) {
  mutable_path().device = options.device;
}

VerbsDomain::~VerbsDomain() = default;

absl::StatusOr<std::unique_ptr<Link>> VerbsDomain::Connect(const LinkPeer& peer,
                                                           LinkHandler* handler) {
  WEFT_RETURN_IF_ERROR(port_.Begin());
  if (!options().may_start_threads) return FabricDomain::Connect(peer, handler);
  WEFT_RETURN_IF_ERROR(usable());
  WEFT_ASSIGN_OR_RETURN(SocketAddress remote, ParseAddress(peer.address));
  auto link = std::make_unique<FabricLink>(this, handler, peer.nonce);
  probes_.push_back({nullptr, link.get(), remote});
  StartProbes();
  return std::unique_ptr<Link>(std::move(link));
}

absl::StatusOr<std::unique_ptr<Link>> VerbsDomain::Accept(const LinkPeer& peer,
                                                          LinkHandler* handler) {
  WEFT_RETURN_IF_ERROR(port_.Begin());
  return FabricDomain::Accept(peer, handler);
}

// Links that wait for their peers end too: those would wait as long as they may. Handlers hear of
// it from the next Poll().
bool VerbsDomain::OnPort(const absl::Status& found) {
  if (!found.ok() && stats().links_open > 0) {
    WEFT_LOG(kWarning, "verbs: ", ToStd(found.message()));
    for (Pending& pending : probes_) pending.link = nullptr;  // it is one of those
    parts().links.ForEach([&found](FabricLink& link) { link.OnDisconnected(found); });
  }
  return stats().links_open > 0;
}

void VerbsDomain::StartProbes() {
  for (Pending& pending : probes_) {
    if (probing_ == kMaxProbes) return;
    if (pending.probe != nullptr || pending.link == nullptr) continue;
    absl::StatusOr<InfoPtr> info = InfoFor(pending.remote);
    absl::Status status = info.status();
    if (status.ok()) {
      auto probe = AddressProbe::Start(*std::move(info), bell_.get());
      status = probe.status();
      if (status.ok()) pending.probe = *std::move(probe);
    }
    if (status.ok()) {
      ++probing_;
    } else {
      std::exchange(pending.link, nullptr)->OnDisconnected(status);
    }
  }
}

int VerbsDomain::PollConnections(bool found_completions) {
  int found = probes_.empty() ? 0 : FinishProbes();
  found += FabricDomain::PollConnections(found_completions);
  if (!probes_.empty()) LookAtConnections();
  if (!is_hardware_ && stats().links_open > 0 && yields_.IsDue(parts().queue.finds()))
    sched_yield();
  return found;
}

// Those that are done. The bell is silenced first: one that rings meanwhile is heard next time.
int VerbsDomain::FinishProbes() {
  const auto is_over = [](const Pending& pending) {
    return pending.probe == nullptr ? pending.link == nullptr : pending.probe->done();
  };
  if (std::none_of(probes_.begin(), probes_.end(), is_over)) return 0;
  bell_->Silence();
  int count = 0;
  for (auto at = probes_.begin(); at != probes_.end();) {
    if (!is_over(*at)) {
      ++at;
      continue;
    }
    if (at->probe != nullptr) --probing_;
    if (at->link != nullptr) {
      absl::Status status = at->probe->result();
      if (status.ok()) status = BeginConnect(at->link, at->remote);
      if (!status.ok()) at->link->OnDisconnected(status);
    }
    at = probes_.erase(at);
    ++count;
  }
  StartProbes();
  return count;
}

// fi_reject() alone leaves the request's id behind in 1.17, here and in the kernel: whoever reaches
// the port could fill both. An endpoint takes the id over, and its end sends the request away; what
// is left of it is freed by fi_reject(), which then says that it is busy.
void VerbsDomain::Reject(const fi_info& request) {
  fi_info info = request;
  fid_ep* opened = nullptr;
  if (fi_endpoint(objects()->domain.get(), &info, &opened, nullptr) == 0) CloseFid(&opened->fid);
  FabricDomain::Reject(request);
}

void VerbsDomain::Forget(FabricLink* link) {
  for (Pending& pending : probes_) {
    if (pending.link == link) pending.link = nullptr;
  }
  FabricDomain::Forget(link);
}

}  // namespace weft
