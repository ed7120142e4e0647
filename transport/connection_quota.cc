#include "transport/connection_quota.h"

#include "core/strings.h"

namespace weft {

absl::Status CheckConnectionQuota(const ListenOptions& options) {
  if (options.max_connections == 0) {
    return absl::InvalidArgumentError("ListenOptions::max_connections is 0; at least 1 is needed");
  }
  if (options.max_connections_of_one > options.max_connections) {
    return absl::InvalidArgumentError(
        StrCat("ListenOptions::max_connections_of_one is ", options.max_connections_of_one,
               "; 0 to ", options.max_connections, ", max_connections, are allowed"));
  }
  return absl::OkStatus();
}

absl::Status CheckRoomForClient(const ListenOptions& options, const ClientShares& up,
                                uint64_t client) {
  const uint32_t most = options.max_connections;
  const uint32_t of_one = options.max_connections_of_one;
  const uint64_t of_client = up.Of(client);
  if (up.all() >= most) {
    return absl::ResourceExhaustedError(
        StrCat("the server has all ", most, " connections (ListenOptions::max_connections)"));
  }
  if (of_one != 0 && of_client >= of_one) {
    return absl::ResourceExhaustedError(
        StrCat("the server has ", of_client, " connections of this client, and takes ", of_one,
               " (ListenOptions::max_connections_of_one): close some, or send more by each"));
  }
  if (of_one != most && !up.HasRoom(client, 1, most)) {
    return absl::ResourceExhaustedError(
        StrCat("the server has ", up.all(), " of its ", most, " connections, ", of_client,
               " of this client, and keeps the rest for clients with fewer than ", up.ShareOf(most),
               " (ListenOptions::max_connections_of_one): close some, or try again later"));
  }
  return absl::OkStatus();
}

}  // namespace weft
