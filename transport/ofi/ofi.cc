#include "transport/ofi/ofi.h"

#include "absl/strings/str_cat.h"
#include "core/process_wide.h"
#include "core/status.h"
#include "transport/ofi/fabric.h"
#include "transport/ofi/ofi_tcp_domain.h"
#include "transport/ofi/options.h"
#include "transport/ofi/verbs_domain.h"

namespace weft {
namespace {

// Asked for once: the answer does not change.
const std::string& FoundProviders() {
  static constinit ProcessWide<std::string> found;
  return found.Get(ListProviders);
}

}  // namespace

absl::StatusOr<std::unique_ptr<LinkDomain>> OpenOfiTcpDomain(const OfiOptions& options) {
  WEFT_RETURN_IF_ERROR(CheckOptions(options));
  WEFT_RETURN_IF_ERROR(LoadFabricLibrary());
  return OfiTcpDomain::Open(options);
}

absl::StatusOr<std::unique_ptr<LinkDomain>> OpenVerbsDomain(const OfiOptions& options) {
  WEFT_RETURN_IF_ERROR(CheckOptions(options));
  WEFT_RETURN_IF_ERROR(LoadFabricLibrary());
  return VerbsDomain::Open(options);
}

void StartProviders() { FoundProviders(); }

uint32_t FabricLibraryVersion() {
  return LoadFabricLibrary().ok() ? LoadedFabricLibrary().version() : 0;
}

std::string DescribeProviders() {
  return absl::StrCat("libfabric ", FabricVersionText(), ", providers: ", FoundProviders());
}

}  // namespace weft
