#include "examples/kv/client/connect.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "core/clock.h"
#include "weft/path.h"

namespace kv::client {

namespace {

weft::ChannelOptions OptionsOf(const CommandLine& line) {
  weft::ChannelOptions options;
  options.link.paths = line.paths;
  options.security = line.security;
  // Who gives calls longer waits longer for a connection, too, and for each path that may be tried.
  options.link.connect_timeout_ns =
      std::max(options.link.connect_timeout_ns, line.timeout_us * weft::kNsPerUs);
  options.link.path_timeout_ns =
      std::max(options.link.path_timeout_ns, options.link.connect_timeout_ns / 5);
  options.max_outstanding_calls = line.outstanding;
  return options;
}

}  // namespace

absl::StatusOr<std::unique_ptr<weft::Channel>> Connect(const CommandLine& line) {
  return weft::Channel::Open(line.server, OptionsOf(line));
}

bool IsCluster(const CommandLine& line) { return line.server.find(',') != std::string::npos; }

absl::StatusOr<std::unique_ptr<Cluster>> ConnectCluster(weft::Engine& engine,
                                                        const CommandLine& line) {
  const std::vector<std::string> addresses = absl::StrSplit(line.server, ',', absl::SkipEmpty());
  weft::CallOptions call;
  call.timeout_us = line.timeout_us;
  return Cluster::Open(engine, addresses, OptionsOf(line), call, line.outstanding);
}

}  // namespace kv::client
