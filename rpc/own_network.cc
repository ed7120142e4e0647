// Channels and servers that bring an engine and a network of their own. Apart from the rest, so
// that a program on engines of another kind (the simulated network) does not link libfabric.
#include <utility>
#include <vector>

#include "core/status.h"
#include "core/strings.h"
#include "rpc/client/balancing.h"
#include "rpc/client/channel.h"
#include "rpc/client/channel_parts.h"
#include "rpc/naming/targets.h"
#include "rpc/server/server.h"
#include "rpc/server/server_core.h"
#include "transport/network.h"

namespace weft {

namespace {

absl::StatusOr<std::unique_ptr<Engine>> OpenClientEngine(const ChannelOptions& options) {
  EngineOptions engine_options;
  engine_options.drive = EngineOptions::Drive::kCaller;
  engine_options.name = "weft-client";
  engine_options.spin_ns = options.spin_ns;
  return OpenNetworkEngine(engine_options);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Channel>> Channel::Open(const std::string& address,
                                                       const ChannelOptions& options) {
  return internal::MakeChannel({.make_engine = [&] { return OpenClientEngine(options); },
                                .address = address,
                                .options = options});
}

absl::StatusOr<std::unique_ptr<Channel>> OpenBalanced(const std::string& target,
                                                      const ChannelOptions& options,
                                                      const BalancingOptions& balancing) {
  return internal::MakeChannel(
      {.make_engine = [&] { return OpenClientEngine(options); },
       .address = target,
       .options = options,
       .make_source = [&] { return MakeAddressSource(target, balancing.etcd); },
       .balancing = balancing});
}

absl::StatusOr<std::unique_ptr<Server>> Server::Create(const ServerOptions& options) {
  WEFT_RETURN_IF_ERROR(Check(options));
  Engines engines;
  // A buffer of the server's has a place for each of them (local_memory.h).
  const uint32_t first = NewEngineNumbers(options.engines);
  while (engines.size() < options.engines) {
    const size_t number = engines.size();
    EngineOptions engine_options;
    engine_options.drive = EngineOptions::Drive::kOwnThread;
    engine_options.name = number == 0 ? "weft-server" : StrCat("weft-server-", number);
    engine_options.log = options.log;
    engine_options.spin_ns = options.spin_ns;
    engine_options.cpu = options.cpus.empty() ? options.cpu : options.cpus[number];
    WEFT_ASSIGN_OR_RETURN(
        std::unique_ptr<Engine> engine,
        OpenNumberedEngine(engine_options, first + static_cast<uint32_t>(number)));
    engines.push_back(std::move(engine));
  }
  return Make(std::move(engines), options);
}

}  // namespace weft
