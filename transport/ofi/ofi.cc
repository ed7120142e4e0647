#include "transport/ofi/ofi.h"

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "transport/ofi/fabric.h"
#include "transport/ofi/ofi_tcp_domain.h"
#include "transport/ofi/options.h"
#include "transport/ofi/verbs_domain.h"

namespace weft {

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

// That there is no library is said where a path is looked for.
void StartProviders() { LoadFabricLibrary().IgnoreError(); }

uint32_t FabricLibraryVersion() {
  return LoadFabricLibrary().ok() ? LoadedFabricLibrary().version() : 0;
}

std::string DescribeProviders() {
  return absl::StrCat("libfabric ", FabricVersionText(), ", providers: ", ListProviders());
}

}  // namespace weft
