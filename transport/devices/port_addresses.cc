#include "transport/devices/port_addresses.h"

#include <algorithm>

#include "core/strings.h"

namespace weft {
namespace {

constexpr int64_t kEthernetType = 1;  // ARPHRD_ETHER
constexpr int64_t kIpoibType = 32;    // ARPHRD_INFINIBAND

void AddOnce(std::vector<std::string>* names, const std::string& name) {
  if (name.empty() || std::find(names->begin(), names->end(), name) != names->end()) return;
  names->push_back(name);
}

std::vector<std::string> NamedByGids(const RdmaPort& port) {
  std::vector<std::string> names;
  for (const RdmaGid& gid : port.gids) AddOnce(&names, gid.interface);
  return names;
}

std::string WithoutColons(std::string text) {
  text.erase(std::remove(text.begin(), text.end(), ':'), text.end());
  return text;
}

// An iWARP port's one GID is the hardware address of its interface, and zeros.
std::vector<std::string> WithHardwareAddressInGid(const RdmaPort& port, const SysfsFolder& sysfs) {
  std::vector<std::string> names;
  if (port.link != LinkKind::kIwarp || port.gids.empty()) return names;
  const std::string wanted = WithoutColons(port.gids[0].text).substr(0, 12);
  const SysfsFolder all = sysfs / "class/net";
  for (const std::string& name : all.Names()) {
    if (WithoutColons((all / name).Line("address")) == wanted) AddOnce(&names, name);
  }
  return names;
}

// Drivers number a device's interfaces in dev_port; older ones in dev_id.
bool HasPortNumber(const SysfsFolder& interface, uint32_t port) {
  const int64_t number =
      std::max(interface.Number("dev_port").value_or(0), interface.Number("dev_id").value_or(0));
  return number == int64_t{port} - 1;
}

std::vector<std::string> OfTheSameHardware(const RdmaPort& port, const SysfsFolder& sysfs) {
  std::vector<std::string> names;
  const bool is_ib = port.link == LinkKind::kInfiniBand;
  const SysfsFolder all = sysfs / "class/net";
  for (const std::string& name :
       (sysfs / "class/infiniband" / port.device / "device/net").Names()) {
    const SysfsFolder interface = all / name;
    if (interface.Number("type") != (is_ib ? kIpoibType : kEthernetType)) continue;
    if (!HasPortNumber(interface, port.port)) continue;
    AddOnce(&names, name);
    if (is_ib) AddOnce(&names, interface.LinkName("master"));
  }
  return names;
}

// The GID of an IPoIB interface is the end of its hardware address of 20 bytes.
std::string GidOfIpoib(const SysfsFolder& interface) {
  const std::string digits = WithoutColons(interface.Line("address"));
  if (digits.size() != 40) return "";
  std::string text;
  for (size_t at = 8; at < digits.size(); at += 4) {
    text = StrCat(text, text.empty() ? "" : ":", digits.substr(at, 4));
  }
  return text;
}

const RdmaGid* FindGid(const RdmaPort& port, const std::string& text, const std::string& type,
                       const std::string& interface) {
  for (const RdmaGid& gid : port.gids) {
    if (gid.text == text && (type.empty() || gid.type == type) &&
        (gid.interface.empty() || gid.interface == interface)) {
      return &gid;
    }
  }
  return nullptr;
}

int GidIndexOf(const RdmaPort& port, const RdmaAddress& address, const SysfsFolder& sysfs) {
  const RdmaGid* gid = nullptr;
  switch (port.link) {
    case LinkKind::kIwarp:  // GIDs do not take part in its connections
      return port.gids.empty() ? -1 : static_cast<int>(port.gids[0].index);
    case LinkKind::kInfiniBand:
      gid = FindGid(port, GidOfIpoib(sysfs / "class/net" / address.interface), "", "");
      if (gid == nullptr && !port.gids.empty()) gid = &port.gids[0];  // behind a bond
      break;
    default:
      gid = FindGid(port, GidText(address.host), port.cm_gid_type(), address.interface);
      break;
  }
  return gid == nullptr ? -1 : static_cast<int>(gid->index);
}

}  // namespace

std::vector<std::string> InterfacesOfPort(const RdmaPort& port, const SysfsFolder& sysfs) {
  std::vector<std::string> names = NamedByGids(port);
  if (names.empty()) names = WithHardwareAddressInGid(port, sysfs);
  if (names.empty()) AddOnce(&names, (sysfs / "class/infiniband" / port.device).Line("parent"));
  if (names.empty()) names = OfTheSameHardware(port, sysfs);
  return names;
}

std::vector<RdmaAddress> AddressesOfPort(const RdmaPort& port,
                                         const std::vector<InterfaceAddress>& interfaces,
                                         const SysfsFolder& sysfs) {
  std::vector<RdmaAddress> addresses;
  for (const std::string& name : port.interfaces) {
    for (const InterfaceAddress& from : interfaces) {
      if (from.interface != name) continue;
      RdmaAddress address;
      address.host = from.host;
      address.prefix_bits = from.prefix_bits;
      address.interface = name;
      address.interface_up = from.up;
      address.link = port.link;
      address.gid_index = GidIndexOf(port, address, sysfs);
      addresses.push_back(std::move(address));
    }
  }
  return addresses;
}

}  // namespace weft
