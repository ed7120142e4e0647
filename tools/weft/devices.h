// `weft devices [--json]`: every path that this host offers.
#pragma once

#include <string>
#include <vector>

namespace weft::tools {

extern const char kDevicesDetails[];  // for `weft help devices`

int RunDevices(const std::vector<std::string>& arguments);

}  // namespace weft::tools
