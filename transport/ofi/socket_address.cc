#include "transport/ofi/socket_address.h"

#include <arpa/inet.h>
#include <rdma/fabric.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "core/strings.h"

namespace weft {
namespace {

constexpr size_t kMaxTextBytes = 64;  // "[" + 45 for IPv6 + "]:65535"

absl::Status BadAddress(std::string_view text) {
  return absl::InvalidArgumentError(StrCat("address \"", text.substr(0, kMaxTextBytes),
                                           "\" is not host:port with a numeric host"));
}

// "[host]:port" or "host:port" into its parts.
bool Split(std::string_view text, std::string* host, std::string_view* port) {
  const size_t colon = text.rfind(':');
  if (text.size() > kMaxTextBytes || colon == std::string_view::npos || colon == 0) return false;
  *port = text.substr(colon + 1);
  std::string_view name = text.substr(0, colon);
  if (name.front() == '[' && name.back() == ']' && name.size() > 2) {
    name = name.substr(1, name.size() - 2);
  }
  *host = std::string(name);
  return true;
}

}  // namespace

uint32_t SocketAddress::fabric_format() const {
  return family() == AF_INET6 ? FI_SOCKADDR_IN6 : FI_SOCKADDR_IN;
}

std::string FormatAddress(const SocketAddress& address) {
  char host[INET6_ADDRSTRLEN] = {};
  if (address.family() == AF_INET6) {
    const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&address.storage);
    const int port = ntohs(v6->sin6_port);
    inet_ntop(AF_INET6, &v6->sin6_addr, host, sizeof(host));
    return StrCat("[", std::string_view(host), "]:", port);
  }
  const auto* v4 = reinterpret_cast<const sockaddr_in*>(&address.storage);
  const int port = ntohs(v4->sin_port);
  inet_ntop(AF_INET, &v4->sin_addr, host, sizeof(host));
  return StrCat(std::string_view(host), ":", port);
}

absl::StatusOr<SocketAddress> ParseAddress(std::string_view text) {
  std::string host;
  std::string_view port_text;
  uint32_t port = 0;
  if (!Split(text, &host, &port_text) || !absl::SimpleAtoi(ToAbsl(port_text), &port) || port == 0 ||
      port > 65535) {
    return BadAddress(text);
  }
  SocketAddress address;
  auto* v4 = reinterpret_cast<sockaddr_in*>(&address.storage);
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&address.storage);
  if (inet_pton(AF_INET, host.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(static_cast<uint16_t>(port));
  } else if (inet_pton(AF_INET6, host.c_str(), &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(static_cast<uint16_t>(port));
  } else {
    return BadAddress(text);
  }
  return address;
}

}  // namespace weft
