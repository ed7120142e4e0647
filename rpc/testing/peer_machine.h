// Servers of the test services that are peers of each other, on machines of a simulated network.
#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "rpc/client/channel.h"
#include "rpc/client/channel_watch.h"
#include "rpc/client/client_connection.h"
#include "rpc/server/server.h"
#include "rpc/testing/payload_service.h"
#include "rpc/testing/probe_service.h"
#include "rpc/testing/rpc_test.h"
#include "rpc/testing/signal_service.h"
#include "rpc/testing/stream_service.h"
#include "transport/sim/sim_fabric.h"
#include "transport/sim/sim_network.h"

namespace weft::test {

// The server `id` on the machine `node`, with its channels to others. It listens at "sim:ID".
class PeerMachine {
 public:
  PeerMachine(SimNetwork& network, std::string id, std::string node, ServerOptions options = {})
      : id_(std::move(id)), node_(std::move(node)), engine_(network.Node(node_)) {
    options.peer_id = id_;
    server_ = *Server::Create(engine_, options);
    EXPECT_TRUE(server_->AddService(&probe).ok());
    EXPECT_TRUE(server_->AddService(&streams).ok());
    EXPECT_TRUE(server_->AddService(&signals).ok());
    EXPECT_TRUE(server_->AddService(&payloads).ok());
  }
  ~PeerMachine() {
    probe.held.clear();
    signals.held.clear();
    streams.talks.clear();
    payloads.held.clear();
    payloads.carried.clear();
    channels_.clear();
    server_.reset();
  }
  PeerMachine(const PeerMachine&) = delete;
  PeerMachine& operator=(const PeerMachine&) = delete;

  void Listen() {
    const absl::Status listening = server_->Listen("sim:" + id_);
    ASSERT_TRUE(listening.ok()) << listening;
  }
  // A channel to `peer` that dials "sim:PEER".
  Channel& Open(const std::string& peer) { return OpenAt(peer, "sim:" + peer); }
  Channel& OpenAt(const std::string& peer, const std::string& address,
                  const ChannelOptions& options = {}) {
    auto channel = server_->OpenPeer(peer, address, options);
    EXPECT_TRUE(channel.ok()) << channel.status();
    return *(channels_[peer] = *std::move(channel));
  }
  void Close(const std::string& peer) { channels_.erase(peer); }
  bool has(const std::string& peer) const { return channels_.count(peer) > 0; }

  Channel& to(const std::string& peer) { return *channels_.at(peer); }
  bool IsReady(const std::string& peer) { return to(peer).state() == ChannelState::kReady; }
  Server& server() { return *server_; }
  Engine& engine() { return engine_; }
  const std::string& id() const { return id_; }
  const std::string& node() const { return node_; }

  ProbeService probe;
  SignalService signals;
  StreamService streams;
  PayloadService payloads{64 << 10};

 private:
  const std::string id_;
  const std::string node_;
  Engine& engine_;
  std::unique_ptr<Server> server_;
  std::map<std::string, std::unique_ptr<Channel>> channels_;
};

class PeerTest : public testing::Test {
 protected:
  explicit PeerTest(uint64_t seed = 1, const SimOptions& options = {}) : network_(seed, options) {}

  // It listens. A second one of an id is on another machine.
  PeerMachine& Start(const std::string& id, const ServerOptions& options = {}) {
    machines_.push_back(std::make_unique<PeerMachine>(
        network_, id, id + std::to_string(machines_.size()), options));
    machines_.back()->Listen();
    return *machines_.back();
  }
  // The machine dies, and gives its address free.
  void Kill(PeerMachine& machine) {
    network_.Kill(machine.node());
    network_.fabric().RemoveListener(machine.id(), network_.fabric().IdOf(machine.node()));
  }

  bool RunUntil(Function<bool()> done, uint64_t limit_ns = 100 * kNsPerSec) {
    const bool result = network_.RunUntil(std::move(done), limit_ns);
    network_.CheckInvariants();
    return result;
  }
  void RunFor(uint64_t ns) { network_.RunFor(ns); }
  // Both channels are ready, and stay so.
  bool BothReady(PeerMachine& a, PeerMachine& b) {
    return RunUntil([&] { return a.IsReady(b.id()) && b.IsReady(a.id()); });
  }

  absl::Status Echo(PeerMachine& from, const std::string& to, uint64_t number = 7) {
    Outcome outcome;
    Probe::Stub(from.to(to)).Echo(MakeData(number, 10), &outcome.reply, {}, outcome.Callback());
    EXPECT_TRUE(RunUntil([&] { return outcome.done(); }));
    if (outcome.status->ok()) {
      EXPECT_EQ(outcome.reply.number(), number);
    }
    return *outcome.status;
  }

  SimNetwork network_;
  std::vector<std::unique_ptr<PeerMachine>> machines_;
};

}  // namespace weft::test
