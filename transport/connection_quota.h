// How many connections a listener takes, and of whom: what one client can have of
// ListenOptions::max_connections, and what is kept for others. For networks, which count.
//
//   how many of the connections are up         who gets the next one
//   fewer than PlacesForAll()                  whoever has fewer than max_connections_of_one, if
//                                              that is not 0
//   fewer than max_connections                 whoever has less than its share: max_connections
//                                              over the number of clients, and one more client
//   all                                        nobody
//
// The second line is a reserve, an eighth of all. It lets those in who have nothing yet, or less
// than others, while one client, or a few together, have taken all that they can get. So who makes
// connections without an end gets those that others give up down to their share, and no further.
// Without a number of its own (max_connections_of_one == 0) one client has all but the reserve:
// proxies, and hosts on which all clients are one, are not to notice it before the server is nearly
// full. A server whose clients have all proved who they are, or come from hosts of their own, sets
// a number. Who sets it to max_connections says that one client may have everything: nothing is
// reserved.
//
// A client is what the network can tell from others without believing it (SharedListener::KeyOf();
// in the simulated network a node). One that connects anew while its old connection is still taken
// to be alive has two of them meanwhile.
//
// Threads: plain functions. Errors: RESOURCE_EXHAUSTED, for the client, with what it can do.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "transport/path.h"
#include "transport/transport.h"

namespace weft {

// One place in so many is for clients that have none: as for handshakes (Newcomers), of 1,024 it is
// 128. None where there are fewer than 8: of few connections each is wanted.
inline constexpr uint32_t kPlacesForEachReserved = 8;

// The connections for which it does not matter whether their client has others.
constexpr uint32_t PlacesForAll(uint32_t max_connections, uint32_t max_connections_of_one) {
  return max_connections_of_one == max_connections
             ? max_connections
             : max_connections - max_connections / kPlacesForEachReserved;
}

// INVALID_ARGUMENT: a number out of bounds, by its name.
absl::Status CheckConnectionQuota(const ListenOptions& options);

// Of the listener's connections so many are up, and among them so many of this client. OK: it can
// have one more. `clients`: so many have any.
absl::Status CheckRoomForClient(const ListenOptions& options, uint32_t all, uint32_t of_client,
                                size_t clients);

// Whether the two are one client by what is known before a path is up: who TLS has proved them to
// be; else a user of a Unix socket; else an address (of IPv6 the first 64 bits).
bool AreOneClient(const PathInfo& a, const PathInfo& b);

}  // namespace weft
