#include "transport/ofi/fabric_parts.h"

#include <algorithm>
#include <utility>

#include "transport/ofi/fabric_link.h"

namespace weft {
namespace {

uint64_t LargestKey(size_t key_bytes) {
  return key_bytes >= sizeof(uint64_t) ? ~uint64_t{0} : (uint64_t{1} << (8 * key_bytes)) - 1;
}

uint32_t MostPieces(const fi_tx_attr& attributes) {
  const size_t least = std::min(attributes.iov_limit, attributes.rma_iov_limit);
  return static_cast<uint32_t>(std::clamp(least, size_t{1}, size_t{FabricLink::kMostPieces}));
}

}  // namespace

FabricParts::FabricParts(const OfiOptions& options, std::shared_ptr<FabricObjects> fabric_objects,
                         const FabricTraits& fabric_traits)
    : traits(fabric_traits),
      objects(std::move(fabric_objects)),
      inject_bytes(traits.injects ? objects->info->tx_attr->inject_size : 0),
      max_transfer_bytes(objects->info->ep_attr->max_msg_size),
      max_key(LargestKey(objects->info->domain_attr->mr_key_size)),
      max_pieces(traits.groups_operations ? MostPieces(*objects->info->tx_attr) : 1),
      registrar(objects->domain.get(), *objects->info, &stats),
      slots(&registrar, options.slot_bytes, options.wide_slot_bytes, options.max_pool_bytes,
            &stats),
      receives(objects->shared_receive.get(), &slots.receive_pool(), options.sink, traits.receives,
               &stats),
      operations(options.max_outstanding_operations),
      queues(objects.get(), {options.near_links, traits.max_in_flight, traits.looks_cost}),
      links(&stats) {}

}  // namespace weft
