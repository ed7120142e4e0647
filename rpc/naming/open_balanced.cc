// Channels over many servers: what joins targets, sources and channels.
#include <utility>
#include <vector>

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

absl::StatusOr<std::unique_ptr<Channel>> OpenBalanced(const std::vector<Engine*>& engines,
                                                      const std::string& target,
                                                      const ChannelOptions& options,
                                                      const BalancingOptions& balancing) {
  WEFT_RETURN_IF_ERROR(internal::CheckEngines("OpenBalanced", engines));
  std::vector<internal::ChannelParts> lanes;
  for (Engine* const engine : engines) {
    WEFT_ASSIGN_OR_RETURN(std::unique_ptr<AddressSource> source,
                          MakeAddressSource(target, balancing.etcd));
    lanes.push_back({.engine = CoreOf(*engine),
                     .address = target,
                     .options = options,
                     .source = std::move(source),
                     .balancing = balancing});
  }
  return internal::MakeChannel(std::move(lanes));
}

}  // namespace weft
