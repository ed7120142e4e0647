#include "transport/connection_quota.h"

#include <algorithm>

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

absl::Status CheckRoomForClient(const ListenOptions& options, uint32_t all, uint32_t of_client,
                                size_t clients) {
  const uint32_t most = options.max_connections;
  const uint32_t of_one = options.max_connections_of_one;
  if (all >= most) {
    return absl::ResourceExhaustedError(
        StrCat("the server has all ", most, " connections (ListenOptions::max_connections)"));
  }
  if (of_one != 0 && of_client >= of_one) {
    return absl::ResourceExhaustedError(
        StrCat("the server has ", of_client, " connections of this client, and takes ", of_one,
               " (ListenOptions::max_connections_of_one): close some, or send more by each"));
  }
  const size_t share = std::max(size_t{1}, most / (clients + 1));
  if (of_client >= share && all >= PlacesForAll(most, of_one)) {
    return absl::ResourceExhaustedError(
        StrCat("the server has ", all, " of its ", most, " connections, ", of_client,
               " of this client, and keeps the rest for clients with fewer than ", share,
               " (ListenOptions::max_connections_of_one): close some, or try again later"));
  }
  return absl::OkStatus();
}

}  // namespace weft
