#include "bench/perf/ends.h"

#include "absl/status/status.h"
#include "bench/perf/weft_ends.h"
#include "bench/raw/raw_ends.h"
#include "core/status.h"
#include "core/strings.h"

namespace weft::bench {
namespace {

std::string WhyNotRaw(const Cell& cell, const PerfPath&) {
  return cell.pattern == Pattern::kBulkChecked ? "raw transfers have no checksum" : "";
}

std::string WhyNotWeft(const Cell&, const PerfPath&) { return ""; }

absl::StatusOr<EndKind> Find(const std::string& name) {
  for (const EndKind& kind : EndKinds()) {
    if (kind.name == name) return kind;
  }
  return absl::InvalidArgumentError(StrCat("no kind of leg is called \"", name, "\""));
}

}  // namespace

const std::vector<EndKind>& EndKinds() {
  static const auto* kinds = new std::vector<EndKind>{
      {"raw", /*is_peer=*/false, WhyNotRaw, OpenRawClient, OpenRawServer},
      {"weft", /*is_peer=*/false, WhyNotWeft, OpenWeftClient, OpenWeftServer},
  };
  return *kinds;
}

absl::StatusOr<std::unique_ptr<ClientEnd>> OpenClientEnd(const std::string& kind,
                                                         const WorkloadOptions& options) {
  WEFT_ASSIGN_OR_RETURN(const EndKind found, Find(kind));
  return found.open_client(options);
}

absl::StatusOr<std::unique_ptr<ServerEnd>> OpenServerEnd(const std::string& kind,
                                                         const WorkloadOptions& options) {
  WEFT_ASSIGN_OR_RETURN(const EndKind found, Find(kind));
  return found.open_server(options);
}

}  // namespace weft::bench
