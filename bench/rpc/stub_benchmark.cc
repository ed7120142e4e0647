// What stub, channel, server and protobuf add to a round trip: the same payload there and back over
// the same simulated wire without delay, once as a call and once as a bare message of the
// transport. The difference is the price of a call; what both have in common is the simulation.
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bench/counted.h"
#include "bench/rpc/echo.pb.h"
#include "bench/rpc/echo.weft.h"
#include "bench/rpc/echo_service.h"
#include "benchmark/benchmark.h"
#include "core/bytes.h"
#include "rpc/client/channel.h"
#include "rpc/server/server.h"
#include "transport/sim/sim_network.h"
#include "transport/transport.h"

namespace weft {
namespace {

using bench::rpc::Echo;
using bench::rpc::EchoMessage;
using bench::rpc::EchoRecordLayout;
using bench::rpc::EchoService;

constexpr uint64_t kLimitNs = 1'000'000'000;  // of simulated time: ends a run that hangs

SimOptions NoDelay() {
  SimOptions options;
  options.wire.delay_ns = 0;
  options.wire.jitter_ns = 0;
  options.wire.bytes_per_s = 0;
  return options;
}

// --- as a call ----------------------------------------------------------------------------------

// What `call` does with a stub, again and again.
template <class Call>
void CallEcho(benchmark::State& state, Call call) {
  SimNetwork network(1, NoDelay());
  EchoService service;
  auto server = Server::Create(network.Node("server"));
  if (!(*server)->AddService(&service).ok() || !(*server)->Listen("sim:server").ok()) {
    return state.SkipWithError("no server");
  }
  auto channel = Channel::Open(network.Node("client"), "sim:server");
  if (!channel.ok()) return state.SkipWithError("no channel");
  const Echo::Stub stub(**channel);
  const Counted counted(state);
  for (auto _ : state) {
    if (!call(stub).ok()) state.SkipWithError("a call failed");
  }
  channel->reset();
  server->reset();
}

void UnaryCall(benchmark::State& state) {
  EchoMessage request, reply;
  request.set_payload(std::string(static_cast<size_t>(state.range(0)), 'x'));
  CallEcho(state, [&](const Echo::Stub& stub) { return stub.Call(request, &reply); });
}
BENCHMARK(UnaryCall)->Arg(64)->Arg(1024)->Arg(4096);

// Without protobuf.
void UnaryCallWithStructs(benchmark::State& state) {
  EchoRecordLayout request, reply;
  CallEcho(state, [&](const Echo::Stub& stub) { return stub.CallStruct(request, &reply); });
}
BENCHMARK(UnaryCallWithStructs)->Arg(sizeof(EchoRecordLayout));

// --- as a bare message --------------------------------------------------------------------------

bool Send(Connection& connection, ByteSpan message) {
  const absl::StatusOr<std::byte*> space = connection.Reserve(message.size());
  if (!space.ok()) return false;
  std::memcpy(*space, message.data(), message.size());
  connection.Commit(message.size());
  connection.Flush();
  return true;
}

class Echoer final : public Acceptor, public ConnectionHandler {
 public:
  absl::StatusOr<ConnectionHandler*> OnIncoming(Connection&) override { return this; }
  void OnOpen(Connection&) override {}
  void OnMessage(Connection& connection, ByteSpan message) override { Send(connection, message); }
  void OnClosed(Connection&, const absl::Status&) override {}
};

class Asker final : public ConnectionHandler {
 public:
  void OnOpen(Connection& opened) override { connection = &opened; }
  void OnMessage(Connection&, ByteSpan) override { ++replies; }
  void OnClosed(Connection&, const absl::Status&) override { connection = nullptr; }

  Connection* connection = nullptr;
  uint64_t replies = 0;
};

void BareMessage(benchmark::State& state) {
  Echoer echoer;
  Asker asker;
  SimNetwork network(1, NoDelay());
  const auto listener = network.Node("server").transport().Listen("sim:server", {}, &echoer);
  if (!listener.ok() ||
      !network.Node("client").transport().Connect("sim:server", {}, &asker).ok() ||
      !network.RunUntil([&] { return asker.connection != nullptr; }, kLimitNs)) {
    return state.SkipWithError("no connection");
  }
  const std::vector<std::byte> message(static_cast<size_t>(state.range(0)), std::byte{1});
  const Counted counted(state);
  for (auto _ : state) {
    const uint64_t wanted = asker.replies + 1;
    if (!Send(*asker.connection, message) ||
        !network.RunUntil([&] { return asker.replies == wanted; }, kLimitNs)) {
      state.SkipWithError("no reply");
    }
  }
}
BENCHMARK(BareMessage)->Arg(64)->Arg(1024)->Arg(4096);

}  // namespace
}  // namespace weft
