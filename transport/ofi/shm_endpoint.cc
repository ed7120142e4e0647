#include "transport/ofi/shm_endpoint.h"

#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "transport/ofi/signal_guard.h"

namespace weft {

absl::StatusOr<std::unique_ptr<ShmEndpoint>> ShmEndpoint::Open(
    std::shared_ptr<FabricObjects> objects, std::string name) {
  InfoPtr info(fi_dupinfo(objects->info.get()));
  if (info == nullptr) return absl::ResourceExhaustedError("no memory for an endpoint");
  std::free(info->src_addr);
  info->src_addr = strdup(name.c_str());
  info->src_addrlen = name.size() + 1;
  std::unique_ptr<ShmEndpoint> opened(new ShmEndpoint(std::move(objects), std::move(name)));
  const FabricObjects& shared = *opened->objects_;

  fi_av_attr attributes = {};
  attributes.type = FI_AV_TABLE;
  attributes.count = 1;
  fid_av* addresses = nullptr;
  int result = fi_av_open(shared.domain.get(), &attributes, &addresses, nullptr);
  if (result != 0) return FabricStatus(result, "fi_av_open (shm)");
  opened->addresses_.reset(addresses);

  fid_ep* endpoint = nullptr;
  {
    SignalGuard guard;
    result = fi_endpoint(shared.domain.get(), info.get(), &endpoint, nullptr);
  }
  if (result != 0) return FabricStatus(result, "fi_endpoint (shm)");
  opened->endpoint_.reset(endpoint);
  result = fi_ep_bind(endpoint, &addresses->fid, 0);
  if (result == 0) result = fi_ep_bind(endpoint, &shared.queue->fid, FI_TRANSMIT | FI_RECV);
  if (result == 0) result = fi_ep_bind(endpoint, &shared.shared_receive->fid, 0);
  if (result == 0) result = fi_enable(endpoint);
  if (result != 0) {
    return FabricStatus(result, "enabling an shm endpoint (it takes 16 MiB of /dev/shm)");
  }
  return opened;
}

absl::Status ShmEndpoint::Insert(const std::string& peer) {
  const int inserted = fi_av_insert(addresses_.get(), peer.c_str(), 1, &peer_, 0, nullptr);
  if (inserted == 1) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("the shm provider does not find ", peer));
}

}  // namespace weft
