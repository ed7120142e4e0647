#include "bench/hostile/sockets.h"

#include <arpa/inet.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdlib>

namespace weft::bench {

sockaddr_in ParseAddress(const std::string& text) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos) return address;
  if (inet_pton(AF_INET, text.substr(0, colon).c_str(), &address.sin_addr) != 1) return address;
  address.sin_port = htons(static_cast<uint16_t>(std::atoi(text.c_str() + colon + 1)));
  return address;
}

std::string AddressText(const sockaddr_in& address) {
  char host[INET_ADDRSTRLEN] = "";
  inet_ntop(AF_INET, &address.sin_addr, host, sizeof(host));
  return std::string(host) + ":" + std::to_string(ntohs(address.sin_port));
}

Descriptor StartConnect(const sockaddr_in& to, uint32_t from) {
  Descriptor made(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!made.valid()) return made;
  if (from != 0) {
    // The port is chosen when the connection is made: one may serve for several targets.
    const int late = 1;
    setsockopt(made.get(), IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &late, sizeof(late));
    sockaddr_in source = {};
    source.sin_family = AF_INET;
    source.sin_addr.s_addr = htonl(from);
    if (::bind(made.get(), reinterpret_cast<sockaddr*>(&source), sizeof(source)) != 0) return {};
  }
  const int status = ::connect(made.get(), reinterpret_cast<const sockaddr*>(&to), sizeof(to));
  if (status != 0 && errno != EINPROGRESS) return {};
  return made;
}

void CloseByReset(const Descriptor& socket) {
  const linger at_once = {1, 0};
  setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
}

}  // namespace weft::bench
