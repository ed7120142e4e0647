// The scenarios of gRPC's "Interoperability Test Case Descriptions" that Weft has the means for,
// under their names there. Not among them: those of compression, of credentials and of caches.
//
// Threads: one at a time, which blocks, so not a callback of the channel's engine.
// Lifetime: a scenario has ended its calls when it returns.
// REQUIRES: the channel has a default timeout, or a scenario that goes wrong may not end.
#pragma once

#include <span>

#include "examples/interop/expectations.h"
#include "weft/channel.h"

namespace interop {

struct Scenario {
  const char* name;
  void (*run)(weft::Channel& channel, Expectations& expect);
};

std::span<const Scenario> Scenarios();

}  // namespace interop
