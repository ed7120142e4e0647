#include "bench/perf/ends/polled_server.h"

#include "core/clock.h"
#include "core/status.h"
#include "transport/network.h"

namespace weft::bench {
namespace {

constexpr uint64_t kConnectWithinNs = 20 * kNsPerSec;

}  // namespace

LinkOptions OnlyPath(PathKind path) {
  LinkOptions link;
  link.paths = {path};
  link.connect_timeout_ns = kConnectWithinNs;
  link.path_timeout_ns = kConnectWithinNs / 2;
  return link;
}

absl::StatusOr<PolledServer> PolledServer::Open(Service* service, const ServerOptions& options) {
  PolledServer polled;
  WEFT_ASSIGN_OR_RETURN(polled.engine,
                        OpenNetworkEngine({.drive = EngineOptions::Drive::kExternal}));
  WEFT_ASSIGN_OR_RETURN(polled.server, Server::Create(*polled.engine, options));
  WEFT_RETURN_IF_ERROR(polled.server->AddService(service));
  WEFT_RETURN_IF_ERROR(polled.server->Listen(kAnyPort));
  return polled;
}

}  // namespace weft::bench
