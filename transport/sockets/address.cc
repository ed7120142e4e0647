#include "transport/sockets/address.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/un.h>

#include <cstddef>
#include <cstring>
#include <memory>

#include "absl/status/status.h"
#include "core/check.h"
#include "core/status.h"
#include "core/strings.h"

namespace weft {
namespace {

constexpr std::string_view kUnixScheme = "unix:";
constexpr size_t kMaxUnixPath = sizeof(sockaddr_un::sun_path) - 1;
constexpr size_t kMaxHostBytes = 255;  // of a DNS name

absl::Status Malformed(std::string_view text, const std::string& why) {
  // What a person typed comes back in the error, but not a megabyte of it.
  const std::string shown(text.substr(0, 200));
  return absl::InvalidArgumentError(
      StrCat("address \"", shown, "\": ", why,
             "; write host:port, [v6-address]:port or unix:/absolute/path"));
}

absl::StatusOr<ServerAddress> ParseUnix(std::string_view text) {
  ServerAddress address;
  address.kind = ServerAddress::Kind::kUnix;
  address.path = std::string(text.substr(kUnixScheme.size()));
  if (address.path.empty() || address.path[0] != '/') {
    return Malformed(text, "the socket's path is not absolute");
  }
  if (address.path.size() > kMaxUnixPath) {
    return Malformed(text, StrCat("the socket's path has ", address.path.size(),
                                  " bytes; the kernel takes ", kMaxUnixPath));
  }
  if (address.path.find('\0') != std::string::npos) {
    return Malformed(text, "the socket's path contains a zero byte");
  }
  return address;
}

bool ParsePort(std::string_view digits, uint16_t* port) {
  if (digits.empty() || digits.size() > 5) return false;
  uint32_t value = 0;
  for (const char digit : digits) {
    if (digit < '0' || digit > '9') return false;
    value = value * 10 + static_cast<uint32_t>(digit - '0');
  }
  if (value > 65535) return false;
  *port = static_cast<uint16_t>(value);
  return true;
}

bool HasBadHostByte(std::string_view host) {
  for (const char c : host) {
    if (c <= ' ' || c == '/' || c == '[' || c == ']' || c == 0x7f) return true;
  }
  return false;
}

absl::StatusOr<ServerAddress> ParseInternet(std::string_view text) {
  const bool bracketed = !text.empty() && text[0] == '[';
  std::string_view host;
  std::string_view rest;
  if (bracketed) {
    const size_t end = text.find(']');
    if (end == std::string_view::npos) return Malformed(text, "\"[\" without \"]\"");
    host = text.substr(1, end - 1);
    rest = text.substr(end + 1);
    if (rest.empty() || rest[0] != ':') return Malformed(text, "the port is missing");
  } else {
    const size_t colon = text.rfind(':');
    if (colon == std::string_view::npos) return Malformed(text, "the port is missing");
    host = text.substr(0, colon);
    rest = text.substr(colon);
    if (host.find(':') != std::string_view::npos) {
      return Malformed(text, "an IPv6 address needs brackets");
    }
  }
  if (host.empty()) return Malformed(text, "the host is missing");
  if (host.size() > kMaxHostBytes) return Malformed(text, "the host's name is too long");
  if (HasBadHostByte(host)) return Malformed(text, "the host's name has a byte that no name has");

  ServerAddress address;
  address.host = std::string(host);
  if (bracketed && address.host.find(':') == std::string::npos) {
    return Malformed(text, "only an IPv6 address goes into brackets");
  }
  if (!ParsePort(rest.substr(1), &address.port)) {
    return Malformed(text, "the port is not a number from 0 to 65535");
  }
  return address;
}

KernelAddress UnixAddress(const std::string& path) {
  KernelAddress result;
  auto* unix_address = reinterpret_cast<sockaddr_un*>(&result.storage);
  unix_address->sun_family = AF_UNIX;
  WEFT_CHECK(path.size() <= kMaxUnixPath);  // Ours: ParseServerAddress() has refused longer ones
  std::memcpy(unix_address->sun_path, path.data(), path.size());
  result.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size() + 1);
  return result;
}

absl::Status ResolverError(const std::string& host, int code) {
  const std::string text = StrCat("look up host \"", host, "\": ", gai_strerror(code));
  if (code == EAI_AGAIN || code == EAI_SYSTEM) return absl::UnavailableError(text);
  if (code == EAI_MEMORY) return absl::ResourceExhaustedError(text);
  return absl::NotFoundError(text);
}

std::string UnixText(const KernelAddress& address) {
  const auto* unix_address = reinterpret_cast<const sockaddr_un*>(&address.storage);
  const size_t header = offsetof(sockaddr_un, sun_path);
  if (address.length <= header) return "unix:(unnamed)";
  const size_t bytes = address.length - header;
  if (unix_address->sun_path[0] == '\0') {
    return StrCat("unix:@", std::string(unix_address->sun_path + 1, bytes - 1));
  }
  return StrCat("unix:",
                std::string(unix_address->sun_path, strnlen(unix_address->sun_path, bytes)));
}

}  // namespace

std::string ServerAddress::text() const {
  if (kind == Kind::kUnix) return StrCat("unix:", path);
  if (host.find(':') != std::string::npos) return StrCat("[", host, "]:", port);
  return StrCat(host, ":", port);
}

absl::StatusOr<ServerAddress> ParseServerAddress(std::string_view text) {
  if (text.substr(0, kUnixScheme.size()) == kUnixScheme) return ParseUnix(text);
  return ParseInternet(text);
}

bool KernelAddress::is_loopback() const {
  const auto in_127 = [](uint32_t address) { return ntohl(address) >> 24 == 127; };
  if (family() == AF_INET) {
    return in_127(reinterpret_cast<const sockaddr_in*>(&storage)->sin_addr.s_addr);
  }
  if (family() != AF_INET6) return false;
  const in6_addr& host = reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_addr;
  if (!IN6_IS_ADDR_V4MAPPED(&host)) return IN6_IS_ADDR_LOOPBACK(&host);
  uint32_t mapped = 0;
  std::memcpy(&mapped, &host.s6_addr[12], sizeof(mapped));
  return in_127(mapped);
}

std::string KernelAddress::text() const {
  if (family() == AF_UNIX) return UnixText(*this);
  char host[NI_MAXHOST];
  char port[NI_MAXSERV];
  const int code = getnameinfo(get(), length, host, sizeof(host), port, sizeof(port),
                               NI_NUMERICHOST | NI_NUMERICSERV);
  if (code != 0) return "(unknown address)";
  if (family() == AF_INET6) return StrCat("[", host, "]:", port);
  return StrCat(host, ":", port);
}

absl::StatusOr<std::vector<KernelAddress>> Resolve(const ServerAddress& address) {
  if (address.kind == ServerAddress::Kind::kUnix) {
    return std::vector<KernelAddress>{UnixAddress(address.path)};
  }
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | AI_NUMERICHOST;  // the fast path: no resolver
  const std::string port = StrCat(address.port);
  addrinfo* found = nullptr;
  int code = getaddrinfo(address.host.c_str(), port.c_str(), &hints, &found);
  if (code == EAI_NONAME) {
    hints.ai_flags = AI_NUMERICSERV;
    code = getaddrinfo(address.host.c_str(), port.c_str(), &hints, &found);
  }
  if (code != 0) return ResolverError(address.host, code);
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, freeaddrinfo);

  std::vector<KernelAddress> results;
  for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next) {
    if (results.size() == kMaxResolved) break;
    if (entry->ai_addrlen > sizeof(sockaddr_storage)) continue;
    KernelAddress result;
    std::memcpy(&result.storage, entry->ai_addr, entry->ai_addrlen);
    result.length = entry->ai_addrlen;
    results.push_back(result);
  }
  if (results.empty()) {
    return absl::NotFoundError(StrCat("look up host \"", address.host, "\": no address"));
  }
  return results;
}

absl::StatusOr<KernelAddress> ParseNumericAddress(std::string_view text) {
  WEFT_ASSIGN_OR_RETURN(const ServerAddress address, ParseServerAddress(text));
  if (address.kind == ServerAddress::Kind::kUnix) return UnixAddress(address.path);
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | AI_NUMERICHOST;
  addrinfo* found = nullptr;
  if (getaddrinfo(address.host.c_str(), StrCat(address.port).c_str(), &hints, &found) != 0) {
    return absl::InvalidArgumentError(StrCat("\"", std::string(text), "\" is no numeric address"));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, freeaddrinfo);
  KernelAddress result;
  std::memcpy(&result.storage, found->ai_addr, found->ai_addrlen);
  result.length = found->ai_addrlen;
  return result;
}

KernelAddress AbstractAddress(std::string_view name) {
  // Ours: the hello's decoder has refused longer ones, and callers empty ones
  WEFT_CHECK(!name.empty() && name.size() <= kMaxUnixPath);
  KernelAddress result;
  auto* unix_address = reinterpret_cast<sockaddr_un*>(&result.storage);
  unix_address->sun_family = AF_UNIX;
  std::memcpy(unix_address->sun_path + 1, name.data(), name.size());
  result.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return result;
}

}  // namespace weft
