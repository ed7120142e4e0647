// What we ask of each provider.
//
// Both: messages and one-sided operations, sends ordered after sends and after writes, and no
// FI_CONTEXT mode bit: that is what allows integers as contexts. mr_mode is 0: offsets from 0,
// our own 64-bit keys, no local registration needed. (FI_MR_VIRT_ADDR must not be offered to shm:
// it then ignores the key.)
//
// Threads: any.
#pragma once

#include "transport/ofi/fabric.h"

namespace weft {

InfoPtr ShmHints();
InfoPtr TcpHints();

}  // namespace weft
