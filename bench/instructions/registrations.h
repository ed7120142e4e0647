// How often a network has registered memory with its providers.
//
// Threads: the engine's.
#pragma once

#include <cstdint>

#include "transport/transport.h"

namespace weft::bench {

// REQUIRES: `network` is MakeNetworkTransport()'s.
uint64_t RegistrationsOf(const Transport& network);

}  // namespace weft::bench
