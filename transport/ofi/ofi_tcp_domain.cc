#include "transport/ofi/ofi_tcp_domain.h"

#include <utility>

#include "core/status.h"
#include "transport/ofi/hints.h"

namespace weft {
namespace {

// Windows of all connections together: a bound of what the handshake may promise, not of memory.
constexpr uint32_t kMaxReceives = 1 << 22;

// A message that finds no receive waits in the sender's socket, and the provider looks again. So
// all connections share these, more than one read of the queue brings. They are used one after the
// other: the more there are, the colder is the next.
constexpr uint32_t kMostPosted = 128;

// See posted_receives.h.
bool GoesOnBehindCutOffBatches() {
  return FI_VERSION_GE(FabricLibraryVersion(), FI_VERSION(1, 19));
}

}  // namespace

absl::StatusOr<std::unique_ptr<LinkDomain>> OfiTcpDomain::Open(const OfiOptions& options) {
  const std::string node = options.bind_address.empty() ? "0.0.0.0" : options.bind_address;
  WEFT_ASSIGN_OR_RETURN(InfoPtr info, Discover({"tcp", node}, TcpHints().get()));
  WEFT_ASSIGN_OR_RETURN(std::shared_ptr<FabricObjects> objects,
                        FabricObjects::Open(std::move(info), FI_WAIT_FD, {kMostPosted, 0}));
  FabricTraits traits = {PathKind::kOfiTcp, LinkKind::kIp, {kMaxReceives, kMostPosted}};
  traits.receives.cut_off_is_filled = GoesOnBehindCutOffBatches();
  traits.fences = true;
  std::unique_ptr<OfiTcpDomain> domain(new OfiTcpDomain(options, std::move(objects), traits));
  WEFT_RETURN_IF_ERROR(domain->Start());
  return std::unique_ptr<LinkDomain>(std::move(domain));
}

}  // namespace weft
