// From the command line to a connected channel, or to a group of servers.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "examples/kv/client/cluster.h"
#include "examples/kv/client/command_line.h"
#include "weft/channel.h"
#include "weft/engine.h"

namespace kv::client {

// Connects to line.server; the error says what was tried. The channel drives an engine of its own
// while this thread waits.
absl::StatusOr<std::unique_ptr<weft::Channel>> Connect(const CommandLine& line);

// Whether line.server names several servers.
bool IsCluster(const CommandLine& line);
// Finds their leader, with the calls' deadline, as above. REQUIRES: `engine` is caller-driven.
absl::StatusOr<std::unique_ptr<Cluster>> ConnectCluster(weft::Engine& engine,
                                                        const CommandLine& line);

}  // namespace kv::client
