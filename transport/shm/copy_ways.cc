#include "transport/shm/copy_ways.h"

#include <cstdlib>
#include <string_view>

namespace weft {

CopyWays CopyWays::FromEnvironment() {
  const char* const value = std::getenv("WEFT_SHM_COPIES");
  const std::string_view told = value == nullptr ? "" : value;
  CopyWays ways;
  ways.mappings = told != "calls" && told != "asked";
  ways.system_calls = told != "asked";
  return ways;
}

}  // namespace weft
