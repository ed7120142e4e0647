// How many connections a listener takes, and of whom: what one client can have of
// ListenOptions::max_connections. For networks, which count.
//
// As of all things that are shared (client_shares.h) an eighth is kept for those who have less than
// others, and one client has at most max_connections_of_one, if that is not 0. Without a number of
// its own one client has all but the reserve: proxies, and hosts on which all clients are one, are
// not to notice it before the server is nearly full. A server whose clients have all proved who
// they are, or come from hosts of their own, sets a number. Who sets it to max_connections says
// that one client may have everything: nothing is reserved.
//
// A client is what the network can tell from others without believing it (SharedListener::KeyOf();
// in the simulated network a node). One that connects anew while its old connection is still taken
// to be alive has two of them meanwhile.
//
// Threads: plain functions. Errors: RESOURCE_EXHAUSTED, for the client, with what it can do.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "core/client_shares.h"
#include "transport/transport.h"

namespace weft {

// INVALID_ARGUMENT: a number out of bounds, by its name.
absl::Status CheckConnectionQuota(const ListenOptions& options);

// Whether this client can have one more of the connections that `options` permit; `up` are those
// that count now.
absl::Status CheckRoomForClient(const ListenOptions& options, const ClientShares& up,
                                uint64_t client);

}  // namespace weft
