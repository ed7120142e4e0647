#include "transport/ofi/device_list.h"

#include <algorithm>
#include <cstring>

#include "core/status.h"
#include "transport/ofi/fabric.h"

namespace weft {
namespace {

constexpr double kGiga = 1e9;

std::string Text(const char* text) { return text == nullptr ? "" : text; }

std::string StateText(fi_link_state state) {
  if (state == FI_LINK_UP) return "up";
  return state == FI_LINK_DOWN ? "down" : "";
}

// Nothing is asked of the endpoints: this is not a search for a path.
InfoPtr WidestHints(std::string_view provider) {
  InfoPtr hints = NewInfo();
  hints->fabric_attr->prov_name = strdup(std::string(provider).c_str());
  hints->mode = ~uint64_t{0};
  hints->domain_attr->mode = ~uint64_t{0};
  hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
  return hints;
}

FabricDevice ToDevice(const fi_info& info) {
  FabricDevice device;
  device.provider = Text(info.fabric_attr->prov_name);
  if (const fi_device_attr* card = info.nic->device_attr; card != nullptr) {
    device.name = Text(card->name);
    device.vendor_id = Text(card->vendor_id);
    device.device_id = Text(card->device_id);
    device.firmware = Text(card->firmware);
  }
  if (const fi_link_attr* link = info.nic->link_attr; link != nullptr) {
    device.network = Text(link->network_type);
    device.state = StateText(link->state);
    device.mtu_bytes = link->mtu;
    device.gbit_per_s = static_cast<double>(link->speed) / kGiga;
  }
  return device;
}

}  // namespace

absl::StatusOr<std::vector<FabricDevice>> ListFabricDevices(std::string_view provider) {
  WEFT_RETURN_IF_ERROR(LoadFabricLibrary());
  const InfoPtr hints = WidestHints(provider);
  WEFT_ASSIGN_OR_RETURN(const InfoPtr found,
                        Discover({std::string(provider), /*node=*/""}, hints.get()));
  std::vector<FabricDevice> devices;
  for (const fi_info* info = found.get(); info != nullptr; info = info->next) {
    if (info->nic == nullptr) continue;
    FabricDevice device = ToDevice(*info);
    const bool known = std::any_of(devices.begin(), devices.end(), [&](const FabricDevice& other) {
      return other.name == device.name;
    });
    if (!known) devices.push_back(std::move(device));
  }
  return devices;
}

}  // namespace weft
