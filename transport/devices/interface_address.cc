#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <memory>

#include "transport/devices/rdma_port.h"

namespace weft {
namespace {

// Bytes of a socket address that hold the IP address; empty for other families.
std::string_view AddressBytes(const sockaddr* address) {
  if (address == nullptr) return {};
  if (address->sa_family == AF_INET) {
    return {reinterpret_cast<const char*>(&reinterpret_cast<const sockaddr_in*>(address)->sin_addr),
            sizeof(in_addr)};
  }
  if (address->sa_family == AF_INET6) {
    return {
        reinterpret_cast<const char*>(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr),
        sizeof(in6_addr)};
  }
  return {};
}

bool IsLinkLocalV6(const sockaddr* address) {
  return address->sa_family == AF_INET6 &&
         IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
}

uint32_t PrefixBits(std::string_view netmask) {
  uint32_t bits = 0;
  for (const char byte : netmask) {
    bits += static_cast<uint32_t>(__builtin_popcount(static_cast<unsigned char>(byte)));
  }
  return bits;
}

std::string NumericHost(int family, std::string_view bytes) {
  char text[INET6_ADDRSTRLEN] = {};
  inet_ntop(family, bytes.data(), text, sizeof(text));
  return text;
}

}  // namespace

std::vector<InterfaceAddress> ReadInterfaceAddresses() {
  std::vector<InterfaceAddress> addresses;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return addresses;
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, freeifaddrs);
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    const std::string_view bytes = AddressBytes(entry->ifa_addr);
    if (bytes.empty() || (entry->ifa_flags & IFF_LOOPBACK) != 0) continue;
    if (IsLinkLocalV6(entry->ifa_addr)) continue;
    InterfaceAddress address;
    address.interface = entry->ifa_name;
    address.host = NumericHost(entry->ifa_addr->sa_family, bytes);
    address.prefix_bits = PrefixBits(AddressBytes(entry->ifa_netmask));
    address.up = (entry->ifa_flags & IFF_UP) != 0;
    addresses.push_back(std::move(address));
  }
  return addresses;
}

}  // namespace weft
