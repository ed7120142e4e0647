// A process to be killed: listens at the address that it is given, says where on its first line of
// output, and sends every message back. Ends when its input does.
//
//   network_peer ADDRESS

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <vector>

#include "transport/network.h"

namespace weft {
namespace {

class Echo final : public ConnectionHandler {
  void OnOpen(Connection&) override {}
  void OnMessage(Connection& connection, ByteSpan message) override {
    const absl::StatusOr<std::byte*> space = connection.Reserve(message.size());
    if (!space.ok()) return connection.Close(space.status().ToString());
    std::copy(message.begin(), message.end(), *space);
    connection.Commit(message.size());
  }
  void OnClosed(Connection&, const absl::Status&) override {}
};

class Door final : public Acceptor {
  absl::StatusOr<ConnectionHandler*> OnIncoming(Connection&) override { return &echo_; }
  Echo echo_;
};

int Run(const char* address) {
  Door door;
  EngineOptions options;
  options.drive = EngineOptions::Drive::kExternal;
  auto engine = OpenNetworkEngine(options);
  if (!engine.ok()) return std::fprintf(stderr, "%s\n", engine.status().ToString().c_str()), 1;
  auto listener = (*engine)->transport().Listen(address, {}, &door);
  if (!listener.ok()) return std::fprintf(stderr, "%s\n", listener.status().ToString().c_str()), 1;
  std::printf("%s\n", (*listener)->address().c_str());
  std::fflush(stdout);
  // The parent's end of the pipe closes when it is done, or dead.
  for (uint64_t turn = 1;; ++turn) {
    (*engine)->Poll();
    if (turn % 4096 != 0) continue;
    fd_set input;
    FD_ZERO(&input);
    FD_SET(STDIN_FILENO, &input);
    timeval now{};
    if (select(STDIN_FILENO + 1, &input, nullptr, nullptr, &now) > 0) break;
  }
  listener->reset();
  engine->reset();
  return 0;
}

}  // namespace
}  // namespace weft

int main(int count, char** arguments) {
  if (count != 2) return std::fprintf(stderr, "usage: network_peer ADDRESS\n"), 2;
  return weft::Run(arguments[1]);
}
