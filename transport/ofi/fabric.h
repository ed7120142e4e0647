// libfabric's objects as C++ values, its errors as Status, and the search for a provider.
//
// Threads: discovery from any thread (libfabric locks it); objects belong to one engine.
// Lifetime: closing an object that others still use fails with -FI_EBUSY inside libfabric and would
//   leak it; the owners declare their members so that they are destroyed in the right order, and
//   a failed close is logged as a bug.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transport/ofi/fabric_library.h"

namespace weft {

void CloseFid(fid* object);

struct FidCloser {
  template <class T>
  void operator()(T* object) const {
    CloseFid(&object->fid);
  }
};
struct InfoFreer {
  void operator()(fi_info* info) const { LoadedFabricLibrary().freeinfo(info); }
};

using InfoPtr = std::unique_ptr<fi_info, InfoFreer>;
using FabricPtr = std::unique_ptr<fid_fabric, FidCloser>;
using DomainPtr = std::unique_ptr<fid_domain, FidCloser>;
using QueuePtr = std::unique_ptr<fid_cq, FidCloser>;
using EventQueuePtr = std::unique_ptr<fid_eq, FidCloser>;
using AddressVectorPtr = std::unique_ptr<fid_av, FidCloser>;
using EndpointPtr = std::unique_ptr<fid_ep, FidCloser>;
using PassiveEndpointPtr = std::unique_ptr<fid_pep, FidCloser>;
using RegistrationPtr = std::unique_ptr<fid_mr, FidCloser>;

// The status for a negative libfabric result: "<what>: <libfabric's words> (fi_errno <n>)".
absl::Status FabricStatus(int64_t result, std::string_view what);

// ", with 8388608 bytes that may be locked (ulimit -l)": for errors behind which the limit of
// registered memory may stand; empty where there is no limit.
std::string LockedMemoryHint();

// An empty one, to be filled with hints. REQUIRES: LoadFabricLibrary() was OK.
inline InfoPtr NewInfo() { return InfoPtr(LoadedFabricLibrary().dupinfo(nullptr)); }

// "1.17": the version of the library that this process runs with; "not installed".
std::string FabricVersionText();

// What to ask for. `node` is a numeric host to bind to, or empty.
struct DiscoveryQuery {
  std::string provider;  // "tcp", "verbs"
  std::string node;
};

// The first info that fits `hints`. UNAVAILABLE says in words why there is none: the provider is
// not built in, or excluded by the environment, or has no interface with that address.
absl::StatusOr<InfoPtr> Discover(const DiscoveryQuery& query, const fi_info* hints);

// Whether the provider finds a way from info->src_addr to info->dest_addr. May block for seconds.
absl::Status FindWay(const fi_info* info);

// Names of the providers in this libfabric, without the utility layers.
std::string ListProviders();

}  // namespace weft
