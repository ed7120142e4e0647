#include "examples/kv/client/connect.h"

#include <algorithm>

#include "core/clock.h"
#include "weft/path.h"

namespace kv::client {

absl::StatusOr<std::unique_ptr<weft::Channel>> Connect(const CommandLine& line) {
  weft::ChannelOptions options;
  options.link.paths = line.paths;
  options.security = line.security;
  // Who gives calls longer waits longer for a connection, too, and for each path that may be tried.
  options.link.connect_timeout_ns =
      std::max(options.link.connect_timeout_ns, line.timeout_us * weft::kNsPerUs);
  options.link.path_timeout_ns =
      std::max(options.link.path_timeout_ns, options.link.connect_timeout_ns / 5);
  options.max_outstanding_calls = line.outstanding;
  return weft::Channel::Open(line.server, options);
}

}  // namespace kv::client
