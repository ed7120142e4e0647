// What this process knows about the host that it runs on: read once, told in every hello.
//
// Threads: any.
#pragma once

#include "transport/control/hello.h"

namespace weft {

// The kernel's boot id, this process's effective user and number. What cannot be read stays
// empty or 0, and shared memory is then ruled out with that reason.
// Read anew at each call: the process may have forked.
HostFacts ReadHostFacts();

}  // namespace weft
