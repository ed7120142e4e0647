#include "transport/ofi/tcp_domain.h"

#include <utility>

#include "core/status.h"
#include "transport/ofi/hints.h"

namespace weft {
namespace {

// The provider's bound of a receive context: a thousand connections with windows of 64.
constexpr uint32_t kMaxReceives = 65536;

}  // namespace

absl::StatusOr<std::unique_ptr<LinkDomain>> TcpDomain::Open(const OfiOptions& options) {
  const std::string node = options.bind_address.empty() ? "0.0.0.0" : options.bind_address;
  WEFT_ASSIGN_OR_RETURN(InfoPtr info, Discover({"tcp", node}, TcpHints().get()));
  WEFT_ASSIGN_OR_RETURN(std::shared_ptr<FabricObjects> objects,
                        FabricObjects::Open(std::move(info), FI_WAIT_FD, {kMaxReceives, 0}));
  const FabricTraits traits = {PathKind::kTcp, LinkKind::kIp, kMaxReceives};
  std::unique_ptr<TcpDomain> domain(new TcpDomain(options, std::move(objects), traits));
  WEFT_RETURN_IF_ERROR(domain->Start());
  return std::unique_ptr<LinkDomain>(std::move(domain));
}

}  // namespace weft
