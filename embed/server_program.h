// What the server programs of embed/ have in common: their command line's flags, TLS and policy, an
// engine with a thread, a pool of buffers, the line that tells the address, and an end by a signal.
//
//   class Blocks final : public weft::embed::Served { ... };
//   int main(int argc, char** argv) {
//     return weft::embed::RunServerProgram(argc, argv, {.name = "weft_blockd", ...});
//   }
//
// Flags: --listen, --paths, --max_connections, --max_connections_of_one, --spin_us, --buffer_mib,
// --policy, and those of weft/security.h; a program's own stand beside them.
//
//   exit status   when
//   0             SIGINT or SIGTERM has stopped it
//   1             it could not start; why is on stderr
//   2             the command line is wrong; why is on stderr
//
// The first line on stdout is "listening on ADDRESS".
//
// Threads: the main one; signals are blocked before there is another one. Lifetime: what is served
//   goes before the engine and the buffers, and after the server.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transport/buffer_pool.h"
#include "weft/engine.h"
#include "weft/server.h"

namespace weft::embed {

// The services of one program.
class Served {
 public:
  virtual ~Served() = default;
  virtual absl::Status AddTo(Server& server) = 0;
  // Ends what lasts, streams above all, so that the server's Shutdown() need not wait for it.
  virtual void End() = 0;
};

struct ServerProgram {
  std::string name;   // told to clients, and on stderr
  std::string usage;  // for --help
  // The words of the command line that are no flags. Not OK: exit status 2.
  std::function<absl::Status(const std::vector<std::string>& words)> check;
  // What one connection may ask.
  std::function<void(ServerOptions* options)> limit;
  // After check(). Not OK: exit status 1.
  std::function<absl::StatusOr<std::unique_ptr<Served>>(const std::vector<std::string>& words,
                                                        Engine& engine, BufferPool& buffers)>
      open;
};

int RunServerProgram(int argc, char** argv, const ServerProgram& program);

}  // namespace weft::embed
