#include "transport/host_paths.h"

#include <sys/sysinfo.h>

#include "core/status.h"
#include "transport/control/path_policy.h"
#include "transport/control/rdma_offers.h"
#include "transport/inventory/inventory.h"
#include "transport/network.h"
#include "transport/ofi/ofi.h"

namespace weft {
namespace {

// What libfabric drives, and its name of it.
struct FabricKind {
  PathKind kind;
  const char* provider;
};
constexpr FabricKind kFabricKinds[] = {{PathKind::kVerbs, "verbs"}, {PathKind::kOfiTcp, "tcp"}};

// What the kernel could hand out; without its caches, which it could give up.
uint64_t FreeMemoryBytes() {
  struct sysinfo facts {};
  return ::sysinfo(&facts) == 0 ? uint64_t{facts.freeram} * facts.mem_unit : 0;
}

KindFacts AskFabric(const char* provider) {
  KindFacts facts;
  absl::StatusOr<std::vector<FabricDevice>> devices = ListFabricDevices(provider);
  if (devices.ok()) {
    facts.devices = *std::move(devices);
  } else {
    facts.missing = std::string(devices.status().message());
  }
  return facts;
}

}  // namespace

absl::StatusOr<HostPaths> ListHostPaths(const LinkOptions& options) {
  WEFT_ASSIGN_OR_RETURN(const PathPolicy policy, ReadPathPolicy(options));
  RdmaSources sources;
  sources.interfaces = ReadInterfaceAddresses();
  InventoryFacts facts;
  facts.ports = ReadRdmaPorts(sources);
  facts.interfaces = ReadNetInterfaces(sources);
  facts.available_memory_bytes = FreeMemoryBytes();
  facts.process =
      ReadRdmaProcessFacts(WantedLockBytes(options.window_slots, NetworkOptions().slot_bytes));
  for (const auto& [kind, provider] : kFabricKinds) {
    if (kind == PathKind::kVerbs && facts.ports.empty()) continue;
    if (kind == PathKind::kOfiTcp && !policy.Allows(kind)) continue;
    facts.kinds[kind] = AskFabric(provider);
  }
  facts.order = policy.allowed;
  facts.filter = policy.rdma;
  for (const PathPolicy::Denial& denial : policy.denied) {
    facts.kinds[denial.kind].denied = denial.why;
  }

  HostPaths host;
  host.paths = DescribeHost(facts);
  if (facts.ports.empty()) host.no_rdma = WhyNoRdma(sources);
  host.fabric = DescribeProviders();
  host.memlock_bytes = facts.process.memlock_bytes;
  host.may_lock_any = facts.process.may_lock_any;
  host.wanted_lock_bytes = facts.process.wanted_lock_bytes;
  return host;
}

}  // namespace weft
