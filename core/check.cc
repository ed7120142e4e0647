#include "core/check.h"

#include <cstdio>
#include <cstdlib>

namespace weft::internal {

void CheckFailed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "weft: check failed: %s, at %s:%d\n", condition, file, line);
  std::fflush(stderr);
  std::abort();  // Ours: what a check is
}

}  // namespace weft::internal
