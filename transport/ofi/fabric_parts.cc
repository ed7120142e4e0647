#include "transport/ofi/fabric_parts.h"

#include <utility>

#include "transport/ofi/fabric_link.h"

namespace weft {
namespace {

uint64_t LargestKey(size_t key_bytes) {
  return key_bytes >= sizeof(uint64_t) ? ~uint64_t{0} : (uint64_t{1} << (8 * key_bytes)) - 1;
}

}  // namespace

FabricParts::FabricParts(const OfiOptions& options, std::shared_ptr<FabricObjects> fabric_objects,
                         const FabricTraits& fabric_traits)
    : traits(fabric_traits),
      objects(std::move(fabric_objects)),
      max_transfer_bytes(objects->info->ep_attr->max_msg_size),
      max_key(LargestKey(objects->info->domain_attr->mr_key_size)),
      registrar(objects->domain.get(), *objects->info, &stats),
      slots(&registrar, options.slot_bytes, options.max_pool_bytes, &stats),
      receives(objects->shared_receive.get(), &slots.pool(), options.sink, traits.receives, &stats),
      operations(options.max_outstanding_operations),
      queue(objects->queue.get(), traits.max_in_flight),
      links(&stats) {}

}  // namespace weft
