#include "transport/ofi/tcp_domain.h"

#include <utility>

#include "core/status.h"
#include "transport/ofi/hints.h"

namespace weft {
namespace {

// Windows of all connections together: a bound of what the handshake may promise, not of memory.
constexpr uint32_t kMaxReceives = 1 << 22;

// A message that finds no receive waits in the sender's socket, and the provider looks again. So
// all connections share these: 8 MiB at 65 KiB each where peers send as much (of a small message
// one page is touched), and more than one read of a queue brings, so that none has to wait.
// They are used one after the other: the more there are, the colder is the next.
constexpr uint32_t kMostPosted = 128;

// Up to 1.17 each completion queue has its own way to ask the kernel for news, and goes over all
// its endpoints. Later the domain has one for all its queues, always the same.
bool SeveralQueuesPay() { return FI_VERSION_LT(fi_version(), FI_VERSION(1, 18)); }

// See posted_receives.h.
bool GoesOnBehindCutOffBatches() { return FI_VERSION_GE(fi_version(), FI_VERSION(1, 19)); }

}  // namespace

absl::StatusOr<std::unique_ptr<LinkDomain>> TcpDomain::Open(const OfiOptions& options) {
  const std::string node = options.bind_address.empty() ? "0.0.0.0" : options.bind_address;
  WEFT_ASSIGN_OR_RETURN(InfoPtr info, Discover({"tcp", node}, TcpHints().get()));
  WEFT_ASSIGN_OR_RETURN(std::shared_ptr<FabricObjects> objects,
                        FabricObjects::Open(std::move(info), FI_WAIT_FD, {kMostPosted, 0}));
  if (SeveralQueuesPay()) {
    objects->OpenNearQueue();
    WEFT_RETURN_IF_ERROR(objects->OpenGroups());
  }
  FabricTraits traits = {PathKind::kTcp, LinkKind::kIp, {kMaxReceives, kMostPosted}};
  traits.receives.cut_off_is_filled = GoesOnBehindCutOffBatches();
  traits.looks_cost = true;
  traits.fences = true;
  traits.groups_operations = true;
  std::unique_ptr<TcpDomain> domain(new TcpDomain(options, std::move(objects), traits));
  WEFT_RETURN_IF_ERROR(domain->Start());
  return std::unique_ptr<LinkDomain>(std::move(domain));
}

}  // namespace weft
