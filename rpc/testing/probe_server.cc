// A server of the test services in a process of its own: prints its address, serves until killed or
// until its standard input ends.
//
//   probe_server [ADDRESS [ID PEER PEERS_ADDRESS]]   with ID: it dials the peer of that name
//   probe_server ADDRESS --register TARGET           it is in etcd, for two seconds at a time
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <string_view>

#include "rpc/client/channel.h"
#include "rpc/server/server.h"
#include "rpc/testing/probe_service.h"
#include "rpc/testing/retry_service.weft.h"

namespace {

using weft::test::Data;

// The same data back.
class EchoStore final : public weft::test::Store::Service {
  absl::Status Look(weft::ServerContext&, const Data& request, Data* reply) override {
    *reply = request;
    return absl::OkStatus();
  }
  absl::Status Add(weft::ServerContext&, const Data& request, Data* reply) override {
    *reply = request;
    return absl::OkStatus();
  }
};

}  // namespace

int main(int argc, char** argv) {
  weft::test::ProbeService probe;
  EchoStore store;
  weft::ServerOptions options;
  const bool registers = argc == 4 && std::string_view(argv[2]) == "--register";
  if (argc > 2 && !registers) options.peer_id = argv[2];
  auto server = weft::Server::Create(options);
  if (!server.ok()) return 1;
  if (!(*server)->AddService(&probe).ok()) return 1;
  if (!(*server)->AddService(&store).ok()) return 1;
  if (!(*server)->Listen(argc > 1 ? argv[1] : "127.0.0.1:0").ok()) return 1;
  std::unique_ptr<weft::Channel> channel;
  if (argc > 4) {
    auto peer = (*server)->OpenPeer(argv[3], argv[4], {});
    if (!peer.ok()) return 1;
    channel = *std::move(peer);
  }
  if (registers && !(*server)->Register(argv[3], {.lease_us = 2'000'000}).ok()) return 1;
  std::printf("%s\n", (*server)->address().c_str());
  std::fflush(stdout);
  char byte;
  while (read(STDIN_FILENO, &byte, 1) > 0) {
  }
  return 0;
}
