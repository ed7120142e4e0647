// A client and a server of the test service on a simulated network.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rpc/client/channel.h"
#include "rpc/client/client_connection.h"
#include "rpc/server/server.h"
#include "rpc/testing/probe_service.h"
#include "transport/sim/sim_fabric.h"
#include "transport/sim/sim_network.h"

namespace weft::test {

// A callback call that remembers how it ended. It must stay until then: a test that ends earlier
// destroys its channel first.
struct Outcome {
  Data reply;
  int completions = 0;
  std::optional<absl::Status> status;

  bool done() const { return completions > 0; }
  Function<void(absl::Status)> Callback() {
    return [this](absl::Status result) {
      ++completions;
      status = std::move(result);
    };
  }
};

// "server" serves ProbeService at "sim:server"; "client" has a channel to it.
class RpcTest : public testing::Test {
 protected:
  explicit RpcTest(uint64_t seed = 1, const SimOptions& options = {}) : network_(seed, options) {}

  ~RpcTest() override {
    service_.held.clear();
    lost_calls_.clear();
    stub_.reset();
    channel_.reset();
    server_.reset();
    killed_servers_.clear();
  }

  EngineCore& client() { return CoreOf(network_.Node("client")); }
  EngineCore& server_engine() { return CoreOf(network_.Node(server_node_)); }

  void StartServer(const ServerOptions& options = {}) {
    server_ = *Server::Create(server_engine(), options);
    ASSERT_TRUE(server_->AddService(&service_).ok());
    const absl::Status listening = server_->Listen("sim:server");
    ASSERT_TRUE(listening.ok()) << listening;
  }

  // The server's machine dies, with what its handlers hold. StartServer() then uses another one,
  // under the same address.
  void KillServer() {
    network_.Kill(server_node_);
    network_.fabric().RemoveListener("server", network_.fabric().IdOf(server_node_));
    server_node_ += "'";
    killed_servers_.push_back(std::move(server_));
    for (ProbeService::HeldCall& call : service_.held) lost_calls_.push_back(std::move(call));
    service_.held.clear();
  }

  void OpenChannel(const ChannelOptions& options = {}) {
    auto channel = Channel::Open(client(), "sim:server", options);
    ASSERT_TRUE(channel.ok()) << channel.status();
    channel_ = *std::move(channel);
    stub_.emplace(*channel_);
  }

  void Start(const ChannelOptions& channel = {}, const ServerOptions& server = {}) {
    StartServer(server);
    OpenChannel(channel);
  }

  bool RunUntil(Function<bool()> done) {
    const bool result = network_.RunUntil(std::move(done), 100 * kNsPerSec);
    network_.CheckInvariants();
    if (channel_ != nullptr) internal::ConnectionOf(*channel_).calls().CheckInvariants();
    return result;
  }

  SimNetwork network_;
  std::string server_node_ = "server";
  ProbeService service_;
  std::vector<std::unique_ptr<Server>> killed_servers_;
  std::deque<ProbeService::HeldCall> lost_calls_;
  std::unique_ptr<Server> server_;
  std::unique_ptr<Channel> channel_;
  std::optional<Probe::Stub> stub_;
};

}  // namespace weft::test
