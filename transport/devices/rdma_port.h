// The RDMA ports of this host, as the kernel describes them: what `weft devices` shows, and what
// the verbs path is chosen from. No libfabric and no libibverbs: everything is read from sysfs and
// configfs, so it says something also where those are missing.
//
// Which network a port is on (LinkKind) follows from three files, asked in this order: the device's
// node_type ("4: RNIC" is iWARP, whatever its GIDs call themselves), the port's link_layer
// (InfiniBand or Ethernet), and for Ethernet the type of the GID that rdma_cm would use
// ("RoCE v2", "IB/RoCE v1"), which the administrator may have set in configfs
// (rdma_cm/DEVICE/ports/N/default_roce_mode). Sources: Linux Documentation/ABI/stable/
// sysfs-class-infiniband, Documentation/ABI/testing/configfs-rdma_cm.
//
// Threads: any; plain values. Errors: what cannot be read is left empty; a port that cannot be used
//   says why in words (rdma_choice.h).
// Bounds: at most kMaxRdmaPorts ports, kMaxGids entries of a GID table (Soft-RoCE has 1024, nearly
//   all of them empty: some milliseconds).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "transport/path.h"

namespace weft {

inline constexpr size_t kMaxRdmaPorts = 256;  // no host has a tenth of it
inline constexpr size_t kMaxGids = 4096;      // Soft-RoCE has the largest table, 1024

// One entry of a port's GID table: an address of the port in the fabric.
struct RdmaGid {
  uint32_t index = 0;
  LinkKind link = LinkKind::kUnknown;  // of connections that use it
  std::string type;                    // the kernel's word: "RoCE v2", "IB/RoCE v1"
  std::string text;                    // "fe80:0000:...": 8 groups of 4 digits
  std::string interface;               // the network interface it belongs to; empty: none
};

// An IP address by which rdma_cm finds the port.
struct RdmaAddress {
  std::string host;  // numeric: "192.168.77.1", "fd77::1"
  uint32_t prefix_bits = 0;
  std::string interface;     // "eth0"
  bool interface_up = true;  // set up by the administrator; the link below may still be down
  // The entry of the GID table that connections from this address use. -1: there is none, and they
  // fail: on RoCE the table lacks the address with the type that rdma_cm asks for.
  int gid_index = -1;
  LinkKind link = LinkKind::kUnknown;  // of such connections
};

// A device file below /dev/infiniband, as this process finds it.
struct RdmaDeviceFile {
  std::string path;        // "/dev/infiniband/uverbs0"; empty: the kernel has none to offer
  bool exists = false;     // containers often lack what the kernel offers
  bool permitted = false;  // this process may open it for reading and writing
};

struct RdmaPort {
  std::string device;      // "mlx5_0"
  uint32_t port = 1;       // from 1
  std::string node_type;   // the kernel's word: "1: CA", "4: RNIC"
  std::string link_layer;  // "InfiniBand", "Ethernet"
  LinkKind link = LinkKind::kUnknown;
  std::string state;           // "ACTIVE", "DOWN", "INIT"
  std::string physical_state;  // "LinkUp", "Polling"
  std::string rate;            // "100 Gb/sec (4X EDR)"
  double gbit_per_s = 0;
  // Of the fabric: what one RDMA frame carries. 0: unknown. sysfs does not have it; see
  // port_mtu.h for what it is derived from.
  uint32_t mtu_bytes = 0;
  int numa_node = -1;  // -1: unknown, or the machine has one
  std::string driver;  // of the hardware: "mlx5_core"; empty: the device is software (rxe, siw)
  std::string firmware;
  RdmaDeviceFile uverbs;      // commands to the device; empty path: module ib_uverbs is not loaded
  RdmaDeviceFile rdma_cm;     // connections, for all devices; empty path: module rdma_ucm is not
  std::string roce_mode;      // what configfs says of rdma_cm: "RoCE v2"; empty: not set there
  std::vector<RdmaGid> gids;  // entries that are in use
  std::vector<std::string> interfaces;  // network interfaces that belong to the port
  std::vector<RdmaAddress> addresses;   // of these interfaces, in their order

  std::string name() const;  // "mlx5_0:1"
  // The type of the GIDs that rdma_cm uses here, "RoCE v2" or "IB/RoCE v1": what configfs says,
  // else the kernel's own preference, v2 where the port has it. Empty where this is not RoCE.
  std::string cm_gid_type() const;
};

inline constexpr char kTypeRoceV2[] = "RoCE v2";
inline constexpr char kTypeRoceV1[] = "IB/RoCE v1";

// "192.168.77.1" and "fd77::1" as the kernel writes GIDs: 8 groups of 4 digits, IPv4 behind ::ffff.
// Empty if `host` is no numeric address.
std::string GidText(std::string_view host);

// An address of a network interface.
struct InterfaceAddress {
  std::string interface;
  std::string host;
  uint32_t prefix_bits = 0;
  bool up = false;  // the interface is
};

// Where to read. The defaults are the running system; tests have recorded trees.
struct RdmaSources {
  std::string sysfs = "/sys";
  std::string configfs = "/sys/kernel/config";
  std::string dev = "/dev";
  std::vector<InterfaceAddress> interfaces;
};

// The running system's interface addresses, without loopback and IPv6 link-local ones (rdma_cm
// needs a scope for those, which does not travel to a peer).
std::vector<InterfaceAddress> ReadInterfaceAddresses();

// Every port, by device name and number. Empty where there is no RDMA.
std::vector<RdmaPort> ReadRdmaPorts(const RdmaSources& sources);

}  // namespace weft
