#include "transport/network.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "core/status.h"
#include "core/strings.h"
#include "transport/control/network_transport.h"
#include "transport/control/path_policy.h"
#include "transport/control/rdma_offers.h"
#include "transport/ofi/ofi.h"
#include "transport/shm/shm.h"
#include "transport/tcp/tcp.h"
#include "transport/transfer_table.h"

namespace weft {
namespace {

// Bytes of a slot. Less would make batches of a few calls; more would hold, for each receive that
// waits, what a large message moves by one-sided transfer anyway.
constexpr uint32_t kMinSlotBytes = 1024;
constexpr uint32_t kMaxSlotBytes = 65536;
constexpr uint32_t kSlotStep = 64;  // bytes: slots begin with a cache line
// A quarter of the pool is for wide batches: this leaves room for the receives, and for a dozen
// connections that send as many as they may.
constexpr uint64_t kLeastPoolForWide = uint64_t{64} << 20;
// Slots for one connection of the default window, both ways.
constexpr uint64_t kMinPoolBytes = uint64_t{1} << 20;

absl::Status CheckOptions(const NetworkOptions& options) {
  if (options.slot_bytes < kMinSlotBytes || options.slot_bytes > kMaxSlotBytes ||
      options.slot_bytes % kSlotStep != 0) {
    return absl::InvalidArgumentError(StrCat("NetworkOptions::slot_bytes is ", options.slot_bytes,
                                             "; it must be ", kMinSlotBytes, "..", kMaxSlotBytes,
                                             " and a multiple of ", kSlotStep));
  }
  if (options.max_pool_bytes < kMinPoolBytes) {
    return absl::InvalidArgumentError(StrCat("NetworkOptions::max_pool_bytes is ",
                                             options.max_pool_bytes, "; it must be at least ",
                                             kMinPoolBytes));
  }
  if (options.max_region_bytes < kMinPoolBytes) {
    return absl::InvalidArgumentError(StrCat("NetworkOptions::max_region_bytes is ",
                                             options.max_region_bytes, "; it must be at least ",
                                             kMinPoolBytes));
  }
  if (options.max_large_bytes < kMaxMessageBytes) {
    return absl::InvalidArgumentError(StrCat("NetworkOptions::max_large_bytes is ",
                                             options.max_large_bytes, "; it must be at least ",
                                             kMaxMessageBytes, " (kMaxMessageBytes)"));
  }
  return absl::OkStatus();
}

OfiOptions ForDomain(const NetworkOptions& options, uint32_t slot_bytes,
                     const std::string& bind_address, BatchSink* sink) {
  OfiOptions ofi;
  ofi.sink = sink;
  ofi.bind_address = bind_address;
  ofi.slot_bytes = slot_bytes;
  ofi.max_pool_bytes = options.max_pool_bytes;
  return ofi;
}

PathProvider ShmProvider(const NetworkOptions& options, const EngineContext& engine) {
  PathProvider shm;
  shm.kind = PathKind::kShm;
  shm.link = LinkKind::kSharedMemory;
  shm.provider = "shm";
  shm.open = [options, may_start_threads = engine.may_start_threads, clock = engine.clock](
                 const PathOffer&, BatchSink* sink) {
    ShmOptions shm_options;
    shm_options.sink = sink;
    shm_options.slot_bytes = std::min(options.slot_bytes, kMaxShmSlotBytes);
    shm_options.max_pool_bytes = options.max_pool_bytes;
    shm_options.copies = {options.shm_mappings, options.shm_system_calls};
    shm_options.may_start_threads = may_start_threads;
    shm_options.clock = clock;
    return OpenShmDomain(shm_options);
  };
  return shm;
}

PathProvider VerbsProvider(const NetworkOptions& options, const EngineContext& engine) {
  PathProvider verbs;
  verbs.kind = PathKind::kVerbs;
  verbs.provider = "verbs";
  const uint64_t wanted_lock_bytes =
      WantedLockBytes(LinkOptions().window_slots, options.slot_bytes);
  auto offers = std::make_shared<RdmaOffers>([wanted_lock_bytes, numa_node = engine.numa_node] {
    return ReadRdmaView(wanted_lock_bytes, numa_node);
  });
  verbs.offers = [offers](const RdmaFilter& filter, uint64_t now_ns) {
    return offers->Choose(filter, now_ns);
  };
  verbs.open = [options, may_start_threads = engine.may_start_threads, clock = engine.clock,
                timers = engine.timers](const PathOffer& offer, BatchSink* sink) {
    OfiOptions ofi = ForDomain(options, options.slot_bytes, offer.host, sink);
    ofi.device = offer.device;
    ofi.link = offer.link;
    ofi.may_start_threads = may_start_threads;
    ofi.clock = clock;
    ofi.timers = timers;
    return OpenVerbsDomain(ofi);
  };
  return verbs;
}

PathProvider OfiTcpProvider(const NetworkOptions& options) {
  PathProvider tcp;
  tcp.kind = PathKind::kOfiTcp;
  tcp.link = LinkKind::kIp;
  tcp.provider = "tcp";
  tcp.is_bound_to_host = true;
  tcp.open = [options](const PathOffer& offer, BatchSink* sink) {
    return OpenOfiTcpDomain(ForDomain(options, options.slot_bytes, offer.host, sink));
  };
  return tcp;
}

PathProvider TcpProvider(const NetworkOptions& options) {
  PathProvider tcp;
  tcp.kind = PathKind::kTcp;
  tcp.link = LinkKind::kIp;
  tcp.provider = "sockets";
  tcp.open = [options](const PathOffer&, BatchSink* sink) {
    TcpOptions tcp_options;
    tcp_options.sink = sink;
    tcp_options.slot_bytes = options.slot_bytes;
    tcp_options.max_pool_bytes = options.max_pool_bytes;
    if (options.max_pool_bytes >= kLeastPoolForWide) {
      tcp_options.wide_slot_bytes = TransfersOf(PathKind::kTcp).widest_bytes;
    }
    return OpenTcpDomain(tcp_options);
  };
  return tcp;
}

// In default order of preference.
std::vector<PathProvider> Providers(const NetworkOptions& options, const EngineContext& engine) {
  std::vector<PathProvider> providers;
  providers.push_back(ShmProvider(options, engine));
  providers.push_back(VerbsProvider(options, engine));
  providers.push_back(TcpProvider(options));
  providers.push_back(OfiTcpProvider(options));
  for (PathProvider& provider : providers) {
    const bool ours = provider.kind == PathKind::kShm || provider.kind == PathKind::kTcp;
    if (!ours) provider.fabric_version = FabricLibraryVersion;
  }
  return providers;
}

// Whether connections that say nothing of their paths may take one of libfabric's: few hosts have a
// card, and what is never used is not loaded.
bool MayNeedFabric(const PathPolicy& policy) {
  if (policy.Allows(PathKind::kOfiTcp)) return true;
  return policy.Allows(PathKind::kVerbs) && !ReadRdmaView(/*wanted_lock_bytes=*/0).ports.empty();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Transport>> MakeNetworkTransport(const EngineContext& engine,
                                                                const NetworkOptions& options,
                                                                uint32_t number) {
  WEFT_RETURN_IF_ERROR(CheckOptions(options));
  // An unusable environment is better known now than at the first connect.
  WEFT_ASSIGN_OR_RETURN(const PathPolicy policy, ReadPathPolicy({}));
  // Later it would count against the limits of the first handshake, here and at the peer.
  if (MayNeedFabric(policy)) StartProviders();
  NetworkTransportOptions network;
  network.providers = Providers(options, engine);
  network.framing.large_send_bytes = network.framing.large_receive_bytes = options.max_large_bytes;
  network.framing.max_region_bytes = options.max_region_bytes;
  network.framing.first_path_number = number * kMaxPathNumbers;
  network.max_exported_bytes = options.max_exported_bytes;
  return std::unique_ptr<Transport>(std::make_unique<NetworkTransport>(engine, std::move(network)));
}

absl::StatusOr<std::unique_ptr<Engine>> OpenNetworkEngine(const EngineOptions& engine_options,
                                                          const NetworkOptions& options) {
  const uint32_t number = NewEngineNumbers(1);
  return EngineCore::Create(engine_options, [options, number](const EngineContext& engine) {
    return MakeNetworkTransport(engine, options, number);
  });
}

// They begin again behind 2^32 / kMaxPathNumbers of them: more than a process has at a time, or
// opens in a year at three a second.
uint32_t NewEngineNumbers(uint32_t count) {
  static std::atomic<uint32_t> next{0};
  return next.fetch_add(count, std::memory_order_relaxed);
}

absl::StatusOr<std::unique_ptr<Engine>> OpenNumberedEngine(const EngineOptions& engine_options,
                                                           uint32_t number) {
  return EngineCore::Create(engine_options, [number](const EngineContext& engine) {
    return MakeNetworkTransport(engine, NetworkOptions(), number);
  });
}

std::string ExplainConnection(const Connection& connection) {
  const PathInfo& path = connection.path();
  std::string text;
  if (connection.state() != Connection::State::kConnecting) {
    // A client of ofi_tcp has no address of its own.
    const std::string from = path.local.empty() ? "" : StrCat("from ", path.local, " ");
    text = StrCat("path ", PathKindName(path.kind), " over ", path.provider, ", device ",
                  path.device, " (", LinkKindName(path.link), "), ", from, "to ", path.peer, "\n");
  }
  return text + ExplainPaths(connection.candidates());
}

std::string ExplainNetwork() { return StrCat(DescribeProviders(), "\n", DescribeEnvironment()); }

}  // namespace weft
