#include "transport/ofi/fabric_objects.h"

#include <utility>

namespace weft {
namespace {

// What is usual: the sends and receives of some dozen connections. The providers allocate beyond
// it, so it is no limit.
constexpr size_t kQueueEntries = 4096;

}  // namespace

absl::StatusOr<std::shared_ptr<FabricObjects>> FabricObjects::Open(InfoPtr info,
                                                                   fi_wait_obj wait_object,
                                                                   size_t receive_entries) {
  auto objects = std::make_shared<FabricObjects>();
  fid_fabric* fabric = nullptr;
  int result = fi_fabric(info->fabric_attr, &fabric, nullptr);
  if (result != 0) return FabricStatus(result, "fi_fabric");
  objects->fabric.reset(fabric);

  fid_domain* domain = nullptr;
  result = fi_domain(fabric, info.get(), &domain, nullptr);
  if (result != 0) return FabricStatus(result, "fi_domain");
  objects->domain.reset(domain);

  fi_cq_attr queue_attributes = {};
  queue_attributes.size = kQueueEntries;
  queue_attributes.format = FI_CQ_FORMAT_MSG;
  queue_attributes.wait_obj = wait_object;
  fid_cq* queue = nullptr;
  result = fi_cq_open(domain, &queue_attributes, &queue, nullptr);
  if (result != 0) return FabricStatus(result, "fi_cq_open");
  objects->queue.reset(queue);

  fi_rx_attr receive_attributes = *info->rx_attr;
  receive_attributes.size = receive_entries;
  fid_ep* receive = nullptr;
  result = fi_srx_context(domain, &receive_attributes, &receive, nullptr);
  if (result != 0) return FabricStatus(result, "fi_srx_context");
  objects->shared_receive.reset(receive);
  result = fi_ep_bind(receive, &queue->fid, FI_RECV);
  if (result != 0) return FabricStatus(result, "binding shared receives to the queue");

  objects->info = std::move(info);
  return objects;
}

}  // namespace weft
