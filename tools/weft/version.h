// `weft version`: this program's version, and what libfabric brings.
#pragma once

#include <string>
#include <vector>

namespace weft::tools {

int RunVersion(const std::vector<std::string>& arguments);

}  // namespace weft::tools
