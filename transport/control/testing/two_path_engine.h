// An engine with two paths: one that the test makes up, tried first, and real tcp.
//
// Threads: the test's; it drives the engine.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "gtest/gtest.h"
#include "transport/control/network_transport.h"
#include "transport/engine.h"
#include "transport/tcp/tcp.h"

namespace weft {

inline PathProvider RealTcp() {
  PathProvider tcp;
  tcp.kind = PathKind::kTcp;
  tcp.link = LinkKind::kIp;
  tcp.open = [](const PathOffer&, BatchSink* sink) {
    TcpOptions options;
    options.sink = sink;
    return OpenTcpDomain(options);
  };
  return tcp;
}

// `make_first` gives the PathProvider that is tried before tcp.
template <class MakeProvider>
std::unique_ptr<Engine> TwoPathEngine(MakeProvider make_first) {
  const auto make = [make_first](const EngineContext& engine) {
    NetworkTransportOptions options;
    options.providers.push_back(make_first());
    options.providers.push_back(RealTcp());
    return absl::StatusOr<std::unique_ptr<Transport>>(
        std::make_unique<NetworkTransport>(engine, std::move(options)));
  };
  EngineOptions options;
  options.drive = EngineOptions::Drive::kExternal;
  auto engine = EngineCore::Create(options, make);
  EXPECT_TRUE(engine.ok()) << engine.status();
  return engine.ok() ? *std::move(engine) : nullptr;
}

}  // namespace weft
