// Channels over many servers: what joins targets, sources and channels.
#include <vector>

#include "rpc/client/balancing.h"
#include "rpc/client/channel_parts.h"
#include "rpc/naming/targets.h"

namespace weft {

absl::StatusOr<std::unique_ptr<Channel>> OpenBalanced(Engine& engine, const std::string& target,
                                                      const ChannelOptions& options,
                                                      const BalancingOptions& balancing) {
  return OpenBalanced(std::vector<Engine*>{&engine}, target, options, balancing);
}

absl::StatusOr<std::unique_ptr<Channel>> OpenBalanced(const std::vector<Engine*>& engines,
                                                      const std::string& target,
                                                      const ChannelOptions& options,
                                                      const BalancingOptions& balancing) {
  return internal::MakeChannel(
      {.engines = engines,
       .address = target,
       .options = options,
       .make_source = [&] { return MakeAddressSource(target, balancing.etcd); },
       .balancing = balancing});
}

}  // namespace weft
