#include "examples/verify/history/operation.h"

#include <string>

#include "absl/strings/str_format.h"
#include "core/strings.h"

namespace verify {
namespace {

std::string What(const Operation& operation) {
  switch (operation.kind) {
    case Kind::kGet:
      return operation.value == kAbsent ? "Get -> none" : weft::StrCat("Get -> ", operation.value);
    case Kind::kPut:
      return weft::StrCat("Put ", operation.value);
    case Kind::kDelete:
      return "Delete";
  }
  return "?";
}

std::string Said(const Operation& operation) {
  if (operation.before == Before::kNotSaid) return "";
  return operation.before == Before::kThere ? " (there was one)" : " (there was none)";
}

double Us(uint64_t ns) { return static_cast<double>(ns) / weft::kNsPerUs; }

std::string End(const Operation& operation, uint64_t start_ns) {
  if (!operation.returned()) return "never returned";
  return absl::StrFormat("%.3f us", Us(operation.returned_ns - start_ns));
}

}  // namespace

std::string Describe(const Operation& operation, uint64_t start_ns) {
  return absl::StrFormat("lane %-3d %-34s %.3f .. %s", operation.lane,
                         What(operation) + Said(operation), Us(operation.invoked_ns - start_ns),
                         End(operation, start_ns));
}

}  // namespace verify
