// What this process knows about the host that it runs on, told in every hello to who is on it, too.
//
// Threads: any.
#pragma once

#include "transport/control/hello.h"

namespace weft {

// The kernel's boot id, this process's effective user and number. What cannot be read stays
// empty or 0, and shared memory is then ruled out with that reason.
// All but the boot id is read anew at each call: the process may have forked.
HostFacts ReadHostFacts();

}  // namespace weft
