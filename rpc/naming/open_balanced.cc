// Channels over many servers: what joins targets, sources and channels.
#include <utility>

#include "core/status.h"
#include "rpc/client/balancing.h"
#include "rpc/client/channel_parts.h"
#include "rpc/naming/targets.h"

namespace weft {

absl::StatusOr<std::unique_ptr<Channel>> OpenBalanced(Engine& engine, const std::string& target,
                                                      const ChannelOptions& options,
                                                      const BalancingOptions& balancing) {
  WEFT_ASSIGN_OR_RETURN(std::unique_ptr<AddressSource> source,
                        MakeAddressSource(target, balancing.etcd));
  return internal::MakeChannel({.engine = CoreOf(engine),
                                .address = target,
                                .options = options,
                                .source = std::move(source),
                                .balancing = balancing});
}

}  // namespace weft
