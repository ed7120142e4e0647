#include "transport/devices/rdma_reasons.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "core/strings.h"

namespace weft {
namespace {

constexpr uint64_t kKiB = 1024;
constexpr uint64_t kMiB = kKiB * 1024;

bool IsIwarp(const RdmaPort& port) { return port.link == LinkKind::kIwarp; }
bool IsInfiniBand(const RdmaPort& port) { return port.link == LinkKind::kInfiniBand; }

std::string InterfaceOr(const RdmaPort& port, const char* placeholder) {
  return port.interfaces.empty() ? placeholder : port.interfaces[0];
}

std::string WhyFileDenied(const RdmaDeviceFile& file) {
  if (!file.exists) {
    return StrCat(file.path,
                  " is missing, though the kernel has the device: in a container, start ",
                  "it with --device=", file.path, "; elsewhere look at udev");
  }
  if (!file.permitted) {
    return StrCat("no permission to open ", file.path,
                  " for reading and writing: chmod 0666, or join its group (ls -l ", file.path,
                  "; a udev rule makes that last)");
  }
  return "";
}

// What makes rdma_cm of this port use GIDs of that type.
std::string CommandForMode(const RdmaPort& port, const std::string& type) {
  const std::string folder = StrCat("/sys/kernel/config/rdma_cm/", port.device);
  return StrCat("mkdir -p ", folder, " && echo \"", type, "\" > ", folder, "/ports/", port.port,
                "/default_roce_mode");
}

const RdmaGid* GidAt(const RdmaPort& port, int index) {
  for (const RdmaGid& gid : port.gids) {
    if (static_cast<int>(gid.index) == index) return &gid;
  }
  return nullptr;
}

const RdmaGid* GidOfAnyType(const RdmaPort& port, const RdmaAddress& address) {
  const std::string text = GidText(address.host);
  for (const RdmaGid& gid : port.gids) {
    if (gid.text == text && gid.interface == address.interface) return &gid;
  }
  return nullptr;
}

std::string InUse(const RdmaPort& port) {
  return absl::StrJoin(port.gids, ", ", [](std::string* text, const RdmaGid& gid) {
    absl::StrAppend(text, gid.index);
  });
}

// The user wants another entry than the one that connections from this address use.
std::string WhyOtherIndex(const RdmaPort& port, const RdmaAddress& address, int index) {
  const RdmaGid* wanted = GidAt(port, index);
  if (wanted == nullptr) {
    return StrCat("GID index ", index, " (WEFT_GID_INDEX) is empty on this port: those in use are ",
                  InUse(port));
  }
  const std::string type = port.cm_gid_type();
  if (!type.empty() && wanted->type != type) {
    return StrCat("GID index ", index, " (WEFT_GID_INDEX) is of type ", wanted->type,
                  ", but rdma_cm uses ", type, " here: choose an index of that type, or ",
                  CommandForMode(port, wanted->type));
  }
  return StrCat("GID index ", index, " (WEFT_GID_INDEX) is ", wanted->text,
                ", and connections from ", address.host, " use index ", address.gid_index,
                ": change or unset WEFT_GID_INDEX");
}

std::string Size(uint64_t bytes) {
  return bytes >= kMiB && bytes % kMiB == 0 ? StrCat(bytes / kMiB, " MiB")
         : bytes >= 10 * kMiB               ? StrCat(bytes / kMiB, " MiB")
                                            : StrCat(bytes / kKiB, " KiB");
}

}  // namespace

std::string WhyDeviceDenied(const RdmaPort& port, const RdmaFilter& filter) {
  if (filter.devices.empty()) return "";
  for (const std::string& name : filter.devices) {
    if (name == port.device || name == port.name()) return "";
  }
  return StrCat("not in WEFT_DEVICES=", absl::StrJoin(filter.devices, ","), ": add ", port.name(),
                " to it, or unset it");
}

std::string WhyNodeTypeDenied(const RdmaPort& port) {
  if (absl::StartsWith(port.node_type, "1:") || absl::StartsWith(port.node_type, "4:")) return "";
  return StrCat("a device of node type \"", port.node_type,
                "\" has no reliable connections: verbs needs \"1: CA\" or \"4: RNIC\"");
}

std::string WhyDeviceFilesDenied(const RdmaPort& port) {
  if (port.uverbs.path.empty()) {
    return "programs cannot reach the device: modprobe ib_uverbs";
  }
  if (port.rdma_cm.path.empty()) {
    return "programs cannot make connections: modprobe rdma_ucm";
  }
  const std::string why = WhyFileDenied(port.uverbs);
  return why.empty() ? WhyFileDenied(port.rdma_cm) : why;
}

std::string WhyNotActive(const RdmaPort& port) {
  if (port.state == "ACTIVE") return "";
  const std::string what = StrCat("the port is ", port.state.empty() ? "in no state" : port.state,
                                  port.physical_state.empty() ? "" : ", ", port.physical_state);
  if (IsInfiniBand(port) && port.physical_state == "LinkUp") {
    return StrCat(what,
                  ": no subnet manager has set it up; start opensm on a host of this network, ",
                  "or look at the switch's");
  }
  if (IsInfiniBand(port)) return StrCat(what, ": look at the cable and at the other end");
  return StrCat(what, ": ip link set ", InterfaceOr(port, "INTERFACE"),
                " up, then look at the cable and at the switch");
}

std::string WhyNoAddress(const RdmaPort& port) {
  const std::string add = StrCat("ip addr add ADDRESS/BITS dev ", InterfaceOr(port, "INTERFACE"));
  if (!IsInfiniBand(port)) {
    return StrCat("no IP address, by which rdma_cm would find the port: ", add);
  }
  if (port.interfaces.empty()) {
    return "no IP address: rdma_cm finds InfiniBand ports by IPoIB: modprobe ib_ipoib, then "
           "ip addr add ADDRESS/BITS dev ib0";
  }
  return StrCat("no IP address on its IPoIB interface, by which rdma_cm would find the port: ",
                add);
}

std::string WhyAddressDenied(const RdmaPort&, const RdmaAddress& address,
                             const RdmaFilter& filter) {
  if (!address.interface_up) {
    return StrCat("interface ", address.interface, " is down: ip link set ", address.interface,
                  " up");
  }
  const auto holds = [&](const Subnet& subnet) { return subnet.Contains(address.host); };
  if (filter.subnets.empty() || std::any_of(filter.subnets.begin(), filter.subnets.end(), holds)) {
    return "";
  }
  const std::string list = absl::StrJoin(
      filter.subnets, ",",
      [](std::string* text, const Subnet& subnet) { absl::StrAppend(text, subnet.text); });
  return StrCat(address.host, " is in no subnet of WEFT_SUBNETS=", list,
                ": add its subnet, or unset it");
}

std::string WhyGidDenied(const RdmaPort& port, const RdmaAddress& address,
                         const RdmaFilter& filter) {
  if (filter.gid_index >= 0 && filter.gid_index != address.gid_index) {
    return WhyOtherIndex(port, address, filter.gid_index);
  }
  if (address.gid_index >= 0 || IsIwarp(port)) return "";
  if (port.gids.empty()) {
    return StrCat("the port's GID table is empty: ip link set ", InterfaceOr(port, "INTERFACE"),
                  " down, then up");
  }
  const std::string type = port.cm_gid_type();
  const RdmaGid* other = GidOfAnyType(port, address);
  if (other == nullptr) {
    return StrCat("no GID of type ", type, " for ", address.host,
                  ": the card cannot use this address; use one of its GID table (rdma link; ",
                  "show_gids)");
  }
  return StrCat("no GID of type ", type, " for ", address.host, ", which rdma_cm uses here; index ",
                other->index, " has it as ", other->type, ": ", CommandForMode(port, other->type));
}

std::string WhyTooFewToLock(const RdmaPort& port, const RdmaProcessFacts& process) {
  if (process.memlock_bytes >= process.wanted_lock_bytes) return "";
  // Soft-iWARP counts even for the privileged.
  const bool counts_all = IsIwarp(port) && port.driver.empty();
  if (process.may_lock_any && !counts_all) return "";
  return StrCat("memlock ", Size(process.memlock_bytes), " is too small for the pool of ",
                Size(process.wanted_lock_bytes),
                ": ulimit -l unlimited (as root), LimitMEMLOCK=infinity in the service's unit, or ",
                "\"* - memlock unlimited\" in /etc/security/limits.d/rdma.conf");
}

}  // namespace weft
