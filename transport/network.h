// How engines on the real network are made, from the inside. weft/engine.h has what programs use:
// OpenNetworkEngine(), NetworkOptions, ExplainConnection(), ExplainNetwork().
//
// Threads: any.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "transport/engine.h"
#include "transport/transport.h"
#include "weft/engine.h"

namespace weft {

// The network for an engine: what OpenNetworkEngine() gives to EngineCore::Create(). `number`: of
// several engines that use the same buffers (LocalMemory), each has its own, from 0 on.
// INVALID_ARGUMENT names the option or variable and its bounds.
absl::StatusOr<std::unique_ptr<Transport>> MakeNetworkTransport(const EngineContext& engine,
                                                                const NetworkOptions& options,
                                                                uint32_t number = 0);

// The first of so many numbers, one after the other, that no other engine of this process has: by
// them it is told that memory is of another engine than a connection (local_memory.h). Any thread.
uint32_t NewEngineNumbers(uint32_t count);

// OpenNetworkEngine(), with one of these.
absl::StatusOr<std::unique_ptr<Engine>> OpenNumberedEngine(const EngineOptions& engine_options,
                                                           uint32_t number);

}  // namespace weft
