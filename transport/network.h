// How engines on the real network are made, from the inside. weft/engine.h has what programs use:
// OpenNetworkEngine(), NetworkOptions, ExplainConnection(), ExplainNetwork().
//
// Threads: any.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "transport/engine.h"
#include "transport/transport.h"
#include "weft/engine.h"

namespace weft {

// The network for an engine: what OpenNetworkEngine() gives to EngineCore::Create().
// INVALID_ARGUMENT names the option or variable and its bounds.
absl::StatusOr<std::unique_ptr<Transport>> MakeNetworkTransport(const EngineContext& engine,
                                                                const NetworkOptions& options);

}  // namespace weft
