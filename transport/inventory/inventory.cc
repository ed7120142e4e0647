#include "transport/inventory/inventory.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/match.h"
#include "core/process_wide.h"
#include "core/strings.h"

namespace weft {
namespace {

const KindFacts& FactsOf(const InventoryFacts& facts, PathKind kind) {
  static constinit ProcessWide<KindFacts> nothing;
  const auto found = facts.kinds.find(kind);
  return found == facts.kinds.end() ? nothing.Get() : found->second;
}

std::string WithPrefix(const std::string& host, uint32_t bits) {
  return host.empty() ? "" : StrCat(host, "/", bits);
}

const FabricDevice* FindDevice(const KindFacts& kind, const std::string& name) {
  for (const FabricDevice& device : kind.devices) {
    if (device.name == name) return &device;
  }
  return nullptr;
}

// --- what libfabric adds ------------------------------------------------------------------------

// Takes the provider's value where the kernel has none; notes it where they differ.
template <class T>
void Merge(const T& from_fabric, std::string_view what, T* value, HostPath* path) {
  if (from_fabric == T{} || from_fabric == *value) return;
  if (*value == T{}) {
    *value = from_fabric;
  } else {
    path->notes.push_back(
        StrCat("libfabric says ", what, " ", from_fabric, ", the kernel ", *value));
  }
}

bool IsUp(const std::string& state) { return state == "ACTIVE" || state == "up"; }

void MergeState(const std::string& state, HostPath* path) {
  if (state.empty() || path->state.empty() || path->state == "unknown") return;
  if (IsUp(state) == IsUp(path->state)) return;
  path->notes.push_back(StrCat("libfabric says state ", state, ", the kernel ", path->state));
}

// `port_count`: providers describe a device by one of its ports, so that what they say of the link
// is only told of devices that have one.
void MergeFabric(const KindFacts& kind, size_t port_count, HostPath* path) {
  const FabricDevice* device = FindDevice(kind, path->device);
  if (device == nullptr) return;
  path->vendor_id = device->vendor_id;
  path->device_id = device->device_id;
  Merge(device->firmware, "firmware", &path->firmware, path);
  if (port_count != 1) return;
  // Verbs has five MTUs only; iWARP's drivers name the next one below their interface's.
  const bool is_rounded = path->link == LinkKind::kIwarp && device->mtu_bytes < path->mtu_bytes;
  if (!is_rounded) Merge(static_cast<uint32_t>(device->mtu_bytes), "MTU", &path->mtu_bytes, path);
  Merge(device->gbit_per_s, "Gb/s", &path->gbit_per_s, path);
  MergeState(device->state, path);
}

// --- shared memory ------------------------------------------------------------------------------

HostPath DescribeSharedMemory(const InventoryFacts& facts) {
  HostPath path;
  path.kind = PathKind::kShm;
  path.link = LinkKind::kSharedMemory;
  path.device = "memory";
  path.free_bytes = facts.available_memory_bytes;
  path.state = "up";
  path.reason = FactsOf(facts, PathKind::kShm).denied;
  return path;
}

// --- RDMA ---------------------------------------------------------------------------------------

HostPath DescribePort(const RdmaPort& port) {
  HostPath path;
  path.kind = PathKind::kVerbs;
  path.link = port.link;
  path.device = port.device;
  path.port = port.port;
  if (!port.interfaces.empty()) path.interface = port.interfaces[0];
  path.state = port.state;
  path.mtu_bytes = port.mtu_bytes;
  path.gbit_per_s = port.gbit_per_s;
  path.numa_node = port.numa_node;
  path.driver = port.driver;
  path.firmware = port.firmware;
  return path;
}

void DescribeAddress(const RdmaPort& port, const RdmaAddress& address, HostPath* path) {
  path->link = address.link;
  path->interface = address.interface;
  path->address = WithPrefix(address.host, address.prefix_bits);
  path->gid_index = address.gid_index;
  for (const RdmaGid& gid : port.gids) {
    if (static_cast<int>(gid.index) != address.gid_index) continue;
    path->gid = gid.text;
    path->gid_type = gid.type;
  }
}

// libfabric hides the provider where libibverbs finds no device at all.
std::string WhyNoVerbs(const std::string& missing) {
  return StrCat(missing,
                "; if ibv_devices does not show the device either, its user-space driver is ",
                "missing (package ibverbs-providers)");
}

std::string WhyPortDenied(const InventoryFacts& facts, const RdmaPort& port,
                          const RdmaAddress* address) {
  const KindFacts& kind = FactsOf(facts, PathKind::kVerbs);
  if (!kind.denied.empty()) return kind.denied;
  std::string why = WhyNotUsable(port, address, facts.filter, facts.process);
  if (why.empty() && !kind.missing.empty()) why = WhyNoVerbs(kind.missing);
  return why;
}

size_t PortCount(const InventoryFacts& facts, const std::string& device) {
  return static_cast<size_t>(
      std::count_if(facts.ports.begin(), facts.ports.end(),
                    [&](const RdmaPort& port) { return port.device == device; }));
}

void AddPort(const InventoryFacts& facts, const RdmaPort& port, const RdmaAddress* address,
             std::vector<HostPath>* paths) {
  HostPath path = DescribePort(port);
  if (address != nullptr) DescribeAddress(port, *address, &path);
  MergeFabric(FactsOf(facts, PathKind::kVerbs), PortCount(facts, port.device), &path);
  path.reason = WhyPortDenied(facts, port, address);
  paths->push_back(std::move(path));
}

void AddPorts(const InventoryFacts& facts, std::vector<HostPath>* paths) {
  for (const RdmaPort& port : facts.ports) {
    if (port.addresses.empty()) AddPort(facts, port, nullptr, paths);
    for (const RdmaAddress& address : port.addresses) AddPort(facts, port, &address, paths);
  }
}

// --- TCP ----------------------------------------------------------------------------------------

std::string WhyInterfaceDenied(const KindFacts& kind, const NetInterface& interface,
                               const InterfaceAddress* address) {
  if (!kind.denied.empty()) return kind.denied;
  if (!kind.missing.empty()) return kind.missing;
  if (interface.state == "down" || (address != nullptr && !address->up)) {
    return StrCat("the interface is down: ip link set ", interface.name,
                  " up, then look at the cable");
  }
  if (address == nullptr) {
    return StrCat("no IP address: ip addr add ADDRESS/BITS dev ", interface.name);
  }
  return "";
}

void AddInterface(const InventoryFacts& facts, PathKind kind, const NetInterface& interface,
                  const InterfaceAddress* address, std::vector<HostPath>* paths) {
  HostPath path;
  path.kind = kind;
  path.link = LinkKind::kIp;
  path.device = path.interface = interface.name;
  if (address != nullptr) path.address = WithPrefix(address->host, address->prefix_bits);
  path.state = interface.state;
  path.mtu_bytes = interface.mtu_bytes;
  path.gbit_per_s = interface.gbit_per_s;
  path.numa_node = interface.numa_node;
  path.driver = interface.driver;
  MergeFabric(FactsOf(facts, kind), 1, &path);
  path.reason = WhyInterfaceDenied(FactsOf(facts, kind), interface, address);
  paths->push_back(std::move(path));
}

// `kind`: tcp or ofi_tcp.
void AddInterfaces(const InventoryFacts& facts, PathKind kind, std::vector<HostPath>* paths) {
  for (const NetInterface& interface : facts.interfaces) {
    if (interface.addresses.empty()) AddInterface(facts, kind, interface, nullptr, paths);
    for (const InterfaceAddress& address : interface.addresses) {
      AddInterface(facts, kind, interface, &address, paths);
    }
  }
}

// --- places -------------------------------------------------------------------------------------

bool IsOfferOf(const RdmaOffer& offer, const HostPath& path) {
  return offer.device == StrCat(path.device, ":", path.port) &&
         WithPrefix(offer.address.host, offer.address.prefix_bits) == path.address;
}

std::string WhyRdmaIsPlacedSo(const HostPath& path, const RdmaProcessFacts& process) {
  const auto& near = process.near_nodes;
  if (path.numa_node < 0 || near.empty()) return "usable";
  const bool is_near = std::find(near.begin(), near.end(), path.numa_node) != near.end();
  return StrCat("usable; ", is_near ? "near to" : "far from", " this process's processors (node ",
                path.numa_node, ")");
}

// Gives a place to the usable paths of this kind, which have no reason against them.
uint32_t PlaceRdma(const InventoryFacts& facts, uint32_t next, std::vector<HostPath>* paths) {
  for (const RdmaOffer& offer : ChooseRdma(facts.ports, facts.filter, facts.process)) {
    for (HostPath& path : *paths) {
      if (path.kind != PathKind::kVerbs || !path.reason.empty() || !IsOfferOf(offer, path))
        continue;
      path.place = next++;
      path.reason = WhyRdmaIsPlacedSo(path, facts.process);
    }
  }
  for (HostPath& path : *paths) {
    if (path.kind != PathKind::kVerbs || !path.reason.empty()) continue;
    path.reason = StrCat("more than ", kMaxRdmaOffers,
                         " addresses could be used, and others come first: name the devices in "
                         "WEFT_DEVICES");
  }
  return next;
}

uint32_t PlaceTogether(PathKind kind, std::string_view reason, uint32_t next,
                       std::vector<HostPath>* paths) {
  bool any = false;
  for (HostPath& path : *paths) {
    if (path.kind != kind || !path.reason.empty()) continue;
    path.place = next;
    path.reason = std::string(reason);
    any = true;
  }
  return any ? next + 1 : next;
}

}  // namespace

std::vector<HostPath> DescribeHost(const InventoryFacts& facts) {
  std::vector<HostPath> paths = {DescribeSharedMemory(facts)};
  AddPorts(facts, &paths);
  AddInterfaces(facts, PathKind::kTcp, &paths);
  const auto& order = facts.order;
  if (std::find(order.begin(), order.end(), PathKind::kOfiTcp) != order.end()) {
    AddInterfaces(facts, PathKind::kOfiTcp, &paths);  // of those who name it
  }
  uint32_t next = 1;
  for (const PathKind kind : order) {
    if (kind == PathKind::kVerbs) {
      next = PlaceRdma(facts, next, &paths);
    } else if (kind == PathKind::kShm) {
      next =
          PlaceTogether(kind, "usable, between processes of one user on this host", next, &paths);
    } else {
      next = PlaceTogether(kind, "usable", next, &paths);
    }
  }
  return paths;
}

}  // namespace weft
