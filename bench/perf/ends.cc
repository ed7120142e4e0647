#include "bench/perf/ends.h"

#include "bench/perf/weft_ends.h"
#include "bench/raw/raw_ends.h"
#include "core/strings.h"

namespace weft::bench {
namespace {

absl::Status NoSuchKind(const std::string& kind) {
  return absl::InvalidArgumentError(StrCat("no kind of leg is called \"", kind, "\""));
}

}  // namespace

absl::StatusOr<std::unique_ptr<ClientEnd>> OpenClientEnd(const std::string& kind,
                                                         const WorkloadOptions& options) {
  if (kind == "raw") return OpenRawClient(options);
  if (kind == "weft") return OpenWeftClient(options);
  return NoSuchKind(kind);
}

absl::StatusOr<std::unique_ptr<ServerEnd>> OpenServerEnd(const std::string& kind,
                                                         const WorkloadOptions& options) {
  if (kind == "raw") return OpenRawServer(options);
  if (kind == "weft") return OpenWeftServer(options);
  return NoSuchKind(kind);
}

}  // namespace weft::bench
