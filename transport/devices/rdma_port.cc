#include "transport/devices/rdma_port.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "core/strings.h"
#include "transport/devices/numa.h"
#include "transport/devices/port_addresses.h"
#include "transport/devices/port_mtu.h"
#include "transport/devices/sysfs.h"

namespace weft {
namespace {

bool IsIwarp(const RdmaPort& port) { return absl::StartsWith(port.node_type, "4"); }

// "4: ACTIVE" without its number.
std::string Word(const std::string& line) {
  const size_t colon = line.find(": ");
  return colon == std::string::npos ? line : line.substr(colon + 2);
}

LinkKind KindOfGid(const RdmaPort& port, const std::string& type) {
  if (IsIwarp(port)) return LinkKind::kIwarp;
  if (port.link_layer == "InfiniBand") return LinkKind::kInfiniBand;
  if (port.link_layer != "Ethernet") return LinkKind::kUnknown;
  // Kernels before 4.5 know no types: all is v1.
  return type == kTypeRoceV2 ? LinkKind::kRoceV2 : LinkKind::kRoceV1;
}

bool IsEmptyGid(const std::string& text) {
  return text.find_first_not_of("0:") == std::string::npos;
}

// An empty entry is all zeros, or refuses to be read.
std::vector<RdmaGid> ReadGids(const RdmaPort& port, const SysfsFolder& folder) {
  std::vector<RdmaGid> gids;
  const SysfsFolder texts = folder / "gids";
  const SysfsFolder types = folder / "gid_attrs/types";
  const SysfsFolder interfaces = folder / "gid_attrs/ndevs";
  std::vector<std::string> names = texts.Names();
  names.resize(std::min(names.size(), kMaxGids));
  for (const std::string& name : names) {
    RdmaGid gid;
    gid.text = texts.Line(name);
    if (IsEmptyGid(gid.text)) continue;
    gid.index = static_cast<uint32_t>(std::strtoul(name.c_str(), nullptr, 10));
    gid.type = types.Line(name);
    gid.link = KindOfGid(port, gid.type);
    gid.interface = interfaces.Line(name);
    gids.push_back(std::move(gid));
  }
  return gids;
}

// Without a GID an Ethernet port's kind is not settled.
LinkKind KindOfPort(const RdmaPort& port) {
  const bool is_roce = port.link_layer == "Ethernet" && !IsIwarp(port);
  if (is_roce && port.gids.empty()) return LinkKind::kUnknown;
  return KindOfGid(port, port.cm_gid_type());
}

uint32_t ReadMtu(const RdmaPort& port, const SysfsFolder& sysfs) {
  for (const std::string& name : port.interfaces) {
    const SysfsFolder interface = sysfs / "class/net" / name;
    const int64_t mtu = std::max<int64_t>(interface.Number("mtu").value_or(0), 0);
    const uint32_t found = PortMtu(port.link, static_cast<uint32_t>(mtu), interface.Line("mode"));
    if (found != 0) return found;
  }
  return 0;
}

RdmaDeviceFile FindDeviceFile(const RdmaSources& sources, const std::string& name) {
  RdmaDeviceFile file;
  file.path = StrCat(sources.dev, "/infiniband/", name);
  file.exists = ::access(file.path.c_str(), F_OK) == 0;
  file.permitted = ::access(file.path.c_str(), R_OK | W_OK) == 0;
  return file;
}

RdmaDeviceFile FindUverbs(const RdmaSources& sources, const std::string& device) {
  const SysfsFolder all = SysfsFolder(sources.sysfs) / "class/infiniband_verbs";
  for (const std::string& name : all.Names()) {
    if ((all / name).Line("ibdev") == device) return FindDeviceFile(sources, name);
  }
  return {};
}

RdmaDeviceFile FindRdmaCm(const RdmaSources& sources) {
  const bool known = (SysfsFolder(sources.sysfs) / "class/misc/rdma_cm").Exists();
  return known ? FindDeviceFile(sources, "rdma_cm") : RdmaDeviceFile{};
}

// What all ports of a device share.
RdmaPort ReadDevice(const RdmaSources& sources, const std::string& name) {
  const SysfsFolder folder = SysfsFolder(sources.sysfs) / "class/infiniband" / name;
  RdmaPort port;
  port.device = name;
  port.node_type = folder.Line("node_type");
  port.firmware = folder.Line("fw_ver");
  port.numa_node = static_cast<int>(folder.Number("device/numa_node").value_or(-1));
  port.driver = folder.LinkName("device/driver");
  port.uverbs = FindUverbs(sources, name);
  port.rdma_cm = FindRdmaCm(sources);
  return port;
}

void ReadPort(const RdmaSources& sources, const std::string& number, RdmaPort* port) {
  const SysfsFolder sysfs(sources.sysfs);
  const SysfsFolder folder = sysfs / "class/infiniband" / port->device / "ports" / number;
  port->port = static_cast<uint32_t>(std::strtoul(number.c_str(), nullptr, 10));
  port->link_layer = folder.Line("link_layer");
  port->state = Word(folder.Line("state"));
  port->physical_state = Word(folder.Line("phys_state"));
  port->rate = folder.Line("rate");
  port->gbit_per_s = std::strtod(port->rate.c_str(), nullptr);
  port->roce_mode = (SysfsFolder(sources.configfs) / "rdma_cm" / port->device / "ports" / number)
                        .Line("default_roce_mode");
  port->gids = ReadGids(*port, folder);
  port->link = KindOfPort(*port);
  port->interfaces = InterfacesOfPort(*port, sysfs);
  // A device in software works on another's card.
  if (port->driver.empty() && !port->interfaces.empty()) {
    port->numa_node = NodeOfInterface(sources.sysfs, port->interfaces.front());
  }
  port->addresses = AddressesOfPort(*port, sources.interfaces, sysfs);
  port->mtu_bytes = ReadMtu(*port, sysfs);
}

}  // namespace

std::string RdmaPort::name() const { return StrCat(device, ":", port); }

std::string RdmaPort::cm_gid_type() const {
  if (link_layer != "Ethernet" || IsIwarp(*this)) return "";
  if (!roce_mode.empty()) return roce_mode;
  const bool has_v2 = std::any_of(gids.begin(), gids.end(),
                                  [](const RdmaGid& gid) { return gid.type == kTypeRoceV2; });
  if (has_v2) return kTypeRoceV2;
  const bool has_types =
      std::any_of(gids.begin(), gids.end(), [](const RdmaGid& gid) { return !gid.type.empty(); });
  return has_types ? kTypeRoceV1 : "";
}

std::string GidText(std::string_view host) {
  const std::string text(host);
  uint8_t bytes[16] = {};
  if (inet_pton(AF_INET, text.c_str(), bytes + 12) == 1) {
    bytes[10] = bytes[11] = 0xff;
  } else if (inet_pton(AF_INET6, text.c_str(), bytes) != 1) {
    return "";
  }
  std::string gid;
  for (int i = 0; i < 16; i += 2) {
    absl::StrAppendFormat(&gid, "%s%02x%02x", i == 0 ? "" : ":", bytes[i], bytes[i + 1]);
  }
  return gid;
}

std::vector<RdmaPort> ReadRdmaPorts(const RdmaSources& sources) {
  std::vector<RdmaPort> ports;
  const SysfsFolder all = SysfsFolder(sources.sysfs) / "class/infiniband";
  for (const std::string& name : all.Names()) {
    const RdmaPort device = ReadDevice(sources, name);
    for (const std::string& number : (all / name / "ports").Names()) {
      if (ports.size() == kMaxRdmaPorts) return ports;
      ports.push_back(device);
      ReadPort(sources, number, &ports.back());
    }
  }
  return ports;
}

}  // namespace weft
