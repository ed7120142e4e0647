#include "transport/connection_quota.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>

#include "core/strings.h"
#include "transport/identity.h"

namespace weft {
namespace {

bool IsProved(const PeerIdentity& identity) {
  return identity.authentication == Authentication::kCertificate ||
         identity.authentication == Authentication::kPreSharedKey;
}

// What is left of PathInfo::peer without what is of one connection alone, or of one process.
std::string HostOf(std::string_view peer) {
  if (const size_t user = peer.rfind(" of user "); user != peer.npos) {
    return std::string(peer.substr(user));
  }
  std::string host(peer.substr(0, peer.rfind(':')));
  if (!host.empty() && host.front() == '[') {
    const std::string address = host.substr(1, host.find_first_of("%]") - 1);
    in6_addr parsed = {};
    if (inet_pton(AF_INET6, address.c_str(), &parsed) != 1) return host;
    if (!IN6_IS_ADDR_V4MAPPED(&parsed)) {
      uint64_t network = 0;
      std::memcpy(&network, &parsed, sizeof(network));
      return network == 0 ? "127." : StrCat("network ", network);
    }
    // An IPv4 peer of an IPv6 socket has its address at the end.
    char text[INET_ADDRSTRLEN] = {};
    inet_ntop(AF_INET, &parsed.s6_addr[12], text, sizeof(text));
    host = text;
  }
  return host.substr(0, 4) == "127." ? "127." : host;
}

}  // namespace

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

bool AreOneClient(const PathInfo& a, const PathInfo& b) {
  if (!IsProved(a.identity) && !IsProved(b.identity)) {
    return a.peer == b.peer || HostOf(a.peer) == HostOf(b.peer);
  }
  return a.identity.authentication == b.identity.authentication &&
         a.identity.subject == b.identity.subject && a.identity.psk_name == b.identity.psk_name &&
         a.identity.dns_names == b.identity.dns_names && a.identity.uris == b.identity.uris;
}

}  // namespace weft
