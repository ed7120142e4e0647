#include "transport/ofi/fabric_objects.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "core/status.h"

namespace weft {
namespace {

// What is usual: the sends and receives of some dozen connections. The providers allocate beyond
// it, so it is no limit.
constexpr size_t kQueueEntries = 4096;

// Below this a queue does not serve one connection with default windows.
constexpr uint32_t kMinReceives = 64;

}  // namespace

absl::StatusOr<std::shared_ptr<FabricObjects>> FabricObjects::Open(InfoPtr info,
                                                                   fi_wait_obj wait_object,
                                                                   const QueueSizes& wanted) {
  auto objects = std::make_shared<FabricObjects>();
  fid_fabric* fabric = nullptr;
  int result = LoadedFabricLibrary().fabric(info->fabric_attr, &fabric, nullptr);
  if (result != 0) return FabricStatus(result, "fi_fabric");
  objects->fabric.reset(fabric);

  fid_domain* domain = nullptr;
  result = fi_domain(fabric, info.get(), &domain, nullptr);
  if (result != 0) return FabricStatus(result, "fi_domain");
  objects->domain.reset(domain);

  objects->info = std::move(info);
  objects->sizes = wanted;
  result = objects->OpenQueues(wait_object);
  while (result != 0 && objects->MayShrink()) result = objects->OpenQueues(wait_object);
  if (result != 0) {
    return FabricStatus(
        result, absl::StrCat("opening queues of ", objects->sizes.receives, " receives and ",
                             objects->sizes.sends, " sends", LockedMemoryHint()));
  }
  return objects;
}

bool FabricObjects::MayShrink() {
  if (sizes.sends == 0 || sizes.receives / 2 < kMinReceives) return false;
  sizes.receives /= 2;
  sizes.sends /= 2;
  return true;
}

int FabricObjects::OpenQueues(fi_wait_obj wait_object) {
  fi_cq_attr queue_attributes = {};
  queue_attributes.size = sizes.sends == 0 ? kQueueEntries : size_t{sizes.receives} + sizes.sends;
  queue_attributes.format = FI_CQ_FORMAT_MSG;
  queue_attributes.wait_obj = wait_object;
  fid_cq* opened_queue = nullptr;
  int result = fi_cq_open(domain.get(), &queue_attributes, &opened_queue, nullptr);
  if (result != 0) return result;
  QueuePtr new_queue(opened_queue);

  fi_rx_attr receive_attributes = *info->rx_attr;
  receive_attributes.size = sizes.receives;
  fid_ep* receive = nullptr;
  result = fi_srx_context(domain.get(), &receive_attributes, &receive, nullptr);
  if (result != 0) return result;
  EndpointPtr new_receive(receive);
  // Some providers want to know where completions go; to verbs the endpoints tell.
  result = fi_ep_bind(receive, &opened_queue->fid, FI_RECV);
  if (result != 0 && result != -FI_ENOSYS) return result;
  queue = std::move(new_queue);
  shared_receive = std::move(new_receive);
  return 0;
}

}  // namespace weft
