// A process to be killed: listens at the address that it is given, says where on its first line of
// output, and sends every message back. Each further line says why a connection has ended. Ends
// when its input does.
//
//   network_peer ADDRESS external|thread      how its engine is driven

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "transport/network.h"

namespace weft {
namespace {

void Say(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

class Echo final : public ConnectionHandler {
  void OnOpen(Connection&) override {}
  void OnMessage(Connection& connection, ByteSpan message) override {
    const absl::StatusOr<std::byte*> space = connection.Reserve(message.size());
    if (!space.ok()) return connection.Close(space.status().ToString());
    std::copy(message.begin(), message.end(), *space);
    connection.Commit(message.size());
  }
  void OnClosed(Connection&, const absl::Status& why) override { Say(why.ToString()); }
};

class Door final : public Acceptor {
  absl::StatusOr<ConnectionHandler*> OnIncoming(Connection&) override { return &echo_; }
  Echo echo_;
};

using Drive = EngineOptions::Drive;

int Run(const char* address, Drive drive) {
  Door door;
  EngineOptions options;
  options.drive = drive;
  auto engine = OpenNetworkEngine(options);
  if (!engine.ok()) return std::fprintf(stderr, "%s\n", engine.status().ToString().c_str()), 1;
  absl::StatusOr<std::unique_ptr<Listener>> listener = absl::UnknownError("");
  const auto on_engine = [&](Function<void()> task) {
    Waiter done;
    (*engine)->Post([&] {
      task();
      CoreOf(**engine).Finish(done);
    });
    CoreOf(**engine).Wait(done);
  };
  on_engine([&] { listener = (*engine)->transport().Listen(address, {}, &door); });
  if (!listener.ok()) return std::fprintf(stderr, "%s\n", listener.status().ToString().c_str()), 1;
  Say((*listener)->address());
  // The parent's end of the pipe closes when it is done, or dead.
  for (uint64_t turn = 1; drive == Drive::kExternal; ++turn) {
    (*engine)->Poll();
    if (turn % 4096 != 0) continue;
    fd_set input;
    FD_ZERO(&input);
    FD_SET(STDIN_FILENO, &input);
    timeval now{};
    if (select(STDIN_FILENO + 1, &input, nullptr, nullptr, &now) > 0) break;
  }
  char last;
  while (::read(STDIN_FILENO, &last, 1) > 0) {
  }
  on_engine([&] { listener->reset(); });
  engine->reset();
  return 0;
}

}  // namespace
}  // namespace weft

int main(int count, char** arguments) {
  if (count != 3) {
    return std::fprintf(stderr, "usage: network_peer ADDRESS external|thread\n"), 2;
  }
  return weft::Run(arguments[1], std::string_view(arguments[2]) == "thread"
                                     ? weft::Drive::kOwnThread
                                     : weft::Drive::kExternal);
}
