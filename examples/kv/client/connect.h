// From the command line to a connected channel.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "examples/kv/client/command_line.h"
#include "weft/channel.h"

namespace kv::client {

// Connects to line.server; the error says what was tried. The channel drives an engine of its own
// while this thread waits.
absl::StatusOr<std::unique_ptr<weft::Channel>> Connect(const CommandLine& line);

}  // namespace kv::client
