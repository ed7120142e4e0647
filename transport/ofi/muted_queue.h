// A completion queue of libfabric 1.17's tcp provider that does not signal to itself.
//
// A queue that can be waited on has a socket pair. The provider writes a byte there with each
// completion, if there is none yet, and takes it back with a later read of the queue: two system
// calls for each message, of 0.4 to 1.3 us each, before the message is handed out. They are for
// those who sleep in the provider. Weft's engines sleep on the sockets themselves.
//
// Threads: the engine's.
#pragma once

#include <poll.h>

#include "transport/ofi/fabric.h"

namespace weft {

// Takes the signal's byte in the provider's place, for good. The provider, which has written it and
// not read it, writes no other; and as nothing is there to be read, it does not try. That holds as
// long as nobody calls fi_trywait() or fi_cq_sread() for this queue, which wait for the byte: 10
// seconds. To sleep, read the queue until it is empty, and then wait for its descriptors
// (FI_GETWAIT). False: the queue is as it was, and costs more.
// REQUIRES: opened with FI_WAIT_POLLFD; no endpoint has the queue yet.
bool Mute(fid_cq* queue);

// Whether a descriptor that the provider waits on is such a signal. It may stay set, so that only
// news of it count.
bool IsSignal(int fd);

}  // namespace weft
