#include "examples/kv/client/connect.h"

namespace kv::client {

absl::StatusOr<std::unique_ptr<weft::Channel>> Connect(const CommandLine& line) {
  weft::ChannelOptions options;
  options.link.paths = line.paths;
  options.max_outstanding_calls = line.outstanding;
  return weft::Channel::Open(line.server, options);
}

}  // namespace kv::client
