#include "transport/network.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "core/status.h"
#include "core/strings.h"
#include "transport/control/network_transport.h"
#include "transport/control/path_policy.h"
#include "transport/control/rdma_offers.h"
#include "transport/descriptor.h"
#include "transport/ofi/ofi.h"
#include "transport/shm/shm.h"
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

bool IsNumericHost(const std::string& text) {
  in6_addr ignored;
  return inet_pton(AF_INET, text.c_str(), &ignored) == 1 ||
         inet_pton(AF_INET6, text.c_str(), &ignored) == 1;
}

// The first address of the interface, IPv4 before IPv6.
absl::StatusOr<std::string> AddressOfInterface(const std::string& name) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return StatusFromErrno(errno, "list the network interfaces");
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, freeifaddrs);
  std::string known;
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
      if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != family) continue;
      if (name != entry->ifa_name) {
        known = StrCat(known, known.empty() ? "" : ", ", entry->ifa_name);
        continue;
      }
      char text[INET6_ADDRSTRLEN] = {};
      const void* bytes =
          family == AF_INET
              ? static_cast<const void*>(&reinterpret_cast<sockaddr_in*>(entry->ifa_addr)->sin_addr)
              : &reinterpret_cast<sockaddr_in6*>(entry->ifa_addr)->sin6_addr;
      inet_ntop(family, bytes, text, sizeof(text));
      return std::string(text);
    }
  }
  return absl::InvalidArgumentError(StrCat("NetworkOptions::bind_interface is \"", name,
                                           "\", which is no interface with an address here (",
                                           known, ") and no numeric address"));
}

// Whether one socket here takes connections of both families in: IPv6 is not switched off, nor IPv4
// kept out of it (net.ipv6.bindv6only).
bool HasDualStack() {
  const Descriptor socket(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket.valid()) return false;
  int v6_only = 1;
  socklen_t bytes = sizeof(v6_only);
  if (getsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &v6_only, &bytes) != 0) return false;
  sockaddr_in6 any = {};
  any.sin6_family = AF_INET6;
  return v6_only == 0 &&
         bind(socket.get(), reinterpret_cast<const sockaddr*>(&any), sizeof(any)) == 0;
}

// Where tcp paths listen: a client comes by the family by which it reached the control address.
absl::StatusOr<std::string> BindAddress(const std::string& interface) {
  if (interface.empty()) return std::string(HasDualStack() ? "::" : "");
  if (IsNumericHost(interface)) return interface;
  return AddressOfInterface(interface);
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

PathProvider ShmProvider(const NetworkOptions& options) {
  PathProvider shm;
  shm.kind = PathKind::kShm;
  shm.link = LinkKind::kSharedMemory;
  shm.provider = "shm";
  shm.open = [options](const PathOffer&, BatchSink* sink) {
    ShmOptions shm_options;
    shm_options.sink = sink;
    shm_options.slot_bytes = std::min(options.slot_bytes, kMaxShmSlotBytes);
    shm_options.max_pool_bytes = options.max_pool_bytes;
    shm_options.copies = {options.shm_mappings, options.shm_system_calls};
    return OpenShmDomain(shm_options);
  };
  return shm;
}

PathProvider VerbsProvider(const NetworkOptions& options, bool may_start_threads) {
  PathProvider verbs;
  verbs.kind = PathKind::kVerbs;
  verbs.provider = "verbs";
  const uint64_t wanted_lock_bytes =
      WantedLockBytes(LinkOptions().window_slots, options.slot_bytes);
  auto offers =
      std::make_shared<RdmaOffers>([wanted_lock_bytes] { return ReadRdmaView(wanted_lock_bytes); });
  verbs.offers = [offers](const RdmaFilter& filter, uint64_t now_ns) {
    return offers->Choose(filter, now_ns);
  };
  verbs.open = [options, may_start_threads](const PathOffer& offer, BatchSink* sink) {
    OfiOptions ofi = ForDomain(options, options.slot_bytes, offer.host, sink);
    ofi.device = offer.device;
    ofi.link = offer.link;
    ofi.may_start_threads = may_start_threads;
    return OpenVerbsDomain(ofi);
  };
  return verbs;
}

PathProvider TcpProvider(const NetworkOptions& options, int sleep_epoll,
                         const std::string& bind_address) {
  PathProvider tcp;
  tcp.kind = PathKind::kTcp;
  tcp.link = LinkKind::kIp;
  tcp.provider = "tcp";
  tcp.open = [options, sleep_epoll, bind_address](const PathOffer&, BatchSink* sink) {
    OfiOptions ofi = ForDomain(options, options.slot_bytes, bind_address, sink);
    ofi.sleep_epoll = sleep_epoll;
    if (options.max_pool_bytes >= kLeastPoolForWide) {
      ofi.wide_slot_bytes = TransfersOf(PathKind::kTcp).widest_bytes;
    }
    return OpenTcpDomain(ofi);
  };
  tcp.with_host = [](const std::string& address, const std::string& host) {
    return WithHost(address, host);
  };
  return tcp;
}

// In default order of preference.
std::vector<PathProvider> Providers(const NetworkOptions& options, const EngineContext& engine,
                                    const std::string& bind_address) {
  std::vector<PathProvider> providers;
  providers.push_back(ShmProvider(options));
  providers.push_back(VerbsProvider(options, engine.may_start_threads));
  providers.push_back(TcpProvider(options, engine.poller->descriptor(), bind_address));
  for (PathProvider& provider : providers) {
    if (provider.kind != PathKind::kShm) provider.fabric_version = FabricLibraryVersion();
  }
  return providers;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Transport>> MakeNetworkTransport(const EngineContext& engine,
                                                                const NetworkOptions& options) {
  WEFT_RETURN_IF_ERROR(CheckOptions(options));
  // An unusable environment is better known now than at the first connect.
  WEFT_RETURN_IF_ERROR(ReadPathPolicy({}).status());
  WEFT_ASSIGN_OR_RETURN(const std::string bind_address, BindAddress(options.bind_interface));
  // Later it would count against the limits of the first handshake, here and at the peer.
  StartProviders();
  NetworkTransportOptions network;
  network.providers = Providers(options, engine, bind_address);
  network.framing.large_send_bytes = network.framing.large_receive_bytes = options.max_large_bytes;
  network.framing.max_region_bytes = options.max_region_bytes;
  network.max_exported_bytes = options.max_exported_bytes;
  return std::unique_ptr<Transport>(std::make_unique<NetworkTransport>(engine, std::move(network)));
}

absl::StatusOr<std::unique_ptr<Engine>> OpenNetworkEngine(const EngineOptions& engine_options,
                                                          const NetworkOptions& options) {
  return EngineCore::Create(engine_options, [options](const EngineContext& engine) {
    return MakeNetworkTransport(engine, options);
  });
}

std::string ExplainConnection(const Connection& connection) {
  const PathInfo& path = connection.path();
  std::string text;
  if (connection.state() != Connection::State::kConnecting) {
    text =
        StrCat("path ", PathKindName(path.kind), " over ", path.provider, ", device ", path.device,
               " (", LinkKindName(path.link), "), from ", path.local, " to ", path.peer, "\n");
  }
  return text + ExplainPaths(connection.candidates());
}

std::string ExplainNetwork() { return StrCat(DescribeProviders(), "\n", DescribeEnvironment()); }

}  // namespace weft
