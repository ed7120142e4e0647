// What the programs that measure calls open: a server whose engine they poll themselves, and links
// that are patient.
//
// Threads: one, which polls. Lifetime: the service outlives the server.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "rpc/server/server.h"
#include "transport/engine.h"
#include "transport/path.h"
#include "transport/transport.h"

namespace weft::bench {

// A port that the kernel chooses: measured is what stays on this machine.
inline constexpr char kAnyPort[] = "127.0.0.1:0";

// Connections over `path` only. There is nothing to gain from giving up early: on a busy machine,
// or an emulated one, each step of a connection may take seconds.
LinkOptions OnlyPath(PathKind path);

struct PolledServer {
  // Listens, with `service`.
  static absl::StatusOr<PolledServer> Open(Service* service, const ServerOptions& options);

  int Poll() { return engine->Poll(); }
  std::string address() const { return server->address(); }

  std::unique_ptr<Engine> engine;
  std::unique_ptr<Server> server;  // goes first
};

}  // namespace weft::bench
