#include "transport/devices/net_interface.h"

#include <algorithm>

#include "transport/devices/numa.h"
#include "transport/devices/sysfs.h"

namespace weft {
namespace {

constexpr double kMegabitsInGigabit = 1000;

NetInterface ReadInterface(const SysfsFolder& folder, const std::string& name) {
  NetInterface interface;
  interface.name = name;
  interface.state = folder.Line("operstate");
  interface.driver = folder.LinkName("device/driver");
  interface.mtu_bytes =
      static_cast<uint32_t>(std::max<int64_t>(folder.Number("mtu").value_or(0), 0));
  const int64_t speed = folder.Number("speed").value_or(0);  // -1: unknown
  interface.gbit_per_s = static_cast<double>(std::max<int64_t>(speed, 0)) / kMegabitsInGigabit;
  return interface;
}

}  // namespace

std::vector<NetInterface> ReadNetInterfaces(const RdmaSources& sources) {
  std::vector<NetInterface> interfaces;
  const SysfsFolder all = SysfsFolder(sources.sysfs) / "class/net";
  for (const std::string& name : all.Names()) {
    NetInterface interface = ReadInterface(all / name, name);
    interface.numa_node = NodeOfInterface(sources.sysfs, name);
    for (const InterfaceAddress& address : sources.interfaces) {
      if (address.interface == name) interface.addresses.push_back(address);
    }
    if (interface.addresses.empty() && interface.driver.empty()) continue;
    interfaces.push_back(std::move(interface));
  }
  return interfaces;
}

}  // namespace weft
