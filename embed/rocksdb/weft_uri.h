// Where a server is and how to reach it, as one word for RocksDB's tools:
//
//   weft://HOST:PORT[/FOLDER][?KEY:VALUE[&KEY:VALUE]...]
//   weft-cache://HOST:PORT[?KEY:VALUE[&KEY:VALUE]...]
//   weft-compactor://HOST:PORT[?KEY:VALUE[&KEY:VALUE]...]
//
// (A "=" would do as well, but RocksDB takes a word that has one for something else.)
//
//   key        value
//   paths      shm, verbs, tcp, separated by commas: these only, in this order
//   patience   seconds that an operation goes on without its server, 1 to 3600; 30
//   crc32c     0: no checksums of large payloads
//   tls-NAME   Weft's flags for TLS: tls-key:FILE ...; tls-any-client:1 for those without a value
//   and those of who asks (`own`): one_sided, mib, deadline.
//
// Threads: pure. Errors: INVALID_ARGUMENT, with the part of the URI that is wrong.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "weft/channel.h"

namespace weft::embed {

struct WeftUri {
  std::string address;  // host:port
  std::string folder;   // without slashes around; may be empty
  ChannelOptions channel;
  uint64_t patience_us = 30'000'000;
  bool crc32c = true;
  std::map<std::string, std::string> own;
};

// `scheme`: "weft". `own`: keys that who asks understands.
absl::StatusOr<WeftUri> ParseWeftUri(std::string_view scheme, std::string_view uri,
                                     const std::vector<std::string>& own);

}  // namespace weft::embed
