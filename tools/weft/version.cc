#include "tools/weft/version.h"

#include <cstdio>

#include "tools/weft/command.h"
#include "transport/network.h"

namespace weft::tools {

int RunVersion(const std::vector<std::string>& arguments) {
  if (!arguments.empty()) {
    std::fprintf(stderr, "weft version: takes no arguments\n");
    return kUsage;
  }
  std::printf("weft %s\n%s", WEFT_VERSION, ExplainNetwork().c_str());
  return kDone;
}

}  // namespace weft::tools
