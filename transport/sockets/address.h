// The addresses that people write, and what the kernel makes of them.
//
//   host:port     a name or an IPv4 address; the port in decimal, 0..65535
//   [v6]:port     an IPv6 address, with an optional scope: [fe80::1%eth0]:4711
//   unix:/path    a Unix socket on this host, at most 107 bytes of absolute path
//
// Threads: pure functions and plain values; Resolve() may block on a name server.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace weft {

// A parsed address; nothing has been looked up yet.
struct ServerAddress {
  enum class Kind : uint8_t { kInternet = 1, kUnix = 2 };

  Kind kind = Kind::kInternet;
  std::string host;   // kInternet: name or numeric address, without brackets
  uint16_t port = 0;  // kInternet
  std::string path;   // kUnix: absolute

  // As it was written: ParseServerAddress(address.text()) yields the same address.
  std::string text() const;
};

// INVALID_ARGUMENT says what is wrong with `text` and how it should look.
absl::StatusOr<ServerAddress> ParseServerAddress(std::string_view text);

// What bind(2) and connect(2) take.
struct KernelAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  int family() const { return storage.ss_family; }
  // In 127.0.0.0/8, or [::1], or an IPv4 address of that kind in IPv6: of this host alone.
  bool is_loopback() const;
  // Numeric, in the form that ParseServerAddress() reads; "unix:@name" for an abstract name.
  std::string text() const;
};

// Every socket address that `address` stands for, in the system's order of preference, at most
// kMaxResolved. Numeric hosts and Unix paths are answered at once; a name asks the system's
// resolver, which can BLOCK for seconds when a name server does not answer: use numeric addresses
// (or resolve on another thread first) where the engine must not stall.
// NOT_FOUND: the name is unknown; UNAVAILABLE: the resolver gave no answer now.
absl::StatusOr<std::vector<KernelAddress>> Resolve(const ServerAddress& address);

// The address that `text` is, where it names no host that would have to be looked up: what a peer
// has told must not keep this process waiting. INVALID_ARGUMENT.
absl::StatusOr<KernelAddress> ParseNumericAddress(std::string_view text);

// A name with more addresses than this is cut short; nobody waits for the seventeenth.
inline constexpr size_t kMaxResolved = 16;

// The address in Linux's abstract namespace: no file, gone with its socket.
// REQUIRES: 1..107 bytes.
KernelAddress AbstractAddress(std::string_view name);

}  // namespace weft
