#include "tools/weft/devices.h"

#include <cstdio>

#include "tools/weft/command.h"
#include "tools/weft/devices_report.h"
#include "transport/host_paths.h"

namespace weft::tools {

const char kDevicesDetails[] =
    "use   in which place connections would try the path; \"no\": not at all, the line below says\n"
    "      why and what to do\n"
    "node  the NUMA node of the card\n"
    "WEFT_PATHS, WEFT_DEVICES, WEFT_GID_INDEX and WEFT_SUBNETS count as they do for programs.\n"
    "--json prints the same for programs; docs/paths.md (installed:\n"
    "share/doc/weft/docs/paths.md) explains its members.\n";

int RunDevices(const std::vector<std::string>& arguments) {
  const bool as_json = arguments == std::vector<std::string>{"--json"};
  if (!arguments.empty() && !as_json) {
    std::fprintf(stderr, "weft devices: \"%s\" is not understood (weft help devices)\n",
                 arguments.back().c_str());
    return kUsage;
  }
  const absl::StatusOr<HostPaths> host = ListHostPaths({});
  if (!host.ok()) {
    std::fprintf(stderr, "weft devices: %s\n", std::string(host.status().message()).c_str());
    return kFailed;
  }
  std::fputs((as_json ? DevicesJson(*host) : DevicesTable(*host)).c_str(), stdout);
  return kDone;
}

}  // namespace weft::tools
