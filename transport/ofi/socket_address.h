// Addresses of domains as text: "10.0.0.7:4711", "[fe80::1]:4711".
//
// Threads: any.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace weft {

struct SocketAddress {
  sockaddr_storage storage = {};

  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  int family() const { return storage.ss_family; }
  socklen_t length() const {
    return family() == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  }
  uint32_t fabric_format() const;  // FI_SOCKADDR_IN or FI_SOCKADDR_IN6
};

std::string FormatAddress(const SocketAddress& address);

// INVALID_ARGUMENT names what is wrong; the text came from a peer.
absl::StatusOr<SocketAddress> ParseAddress(std::string_view text);

}  // namespace weft
