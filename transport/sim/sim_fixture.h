// A small language for tests on the simulated network: nodes that listen at their own name, and
// connections between them.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "transport/sim/sim_network.h"
#include "transport/testing/endpoint.h"

namespace weft {

class SimTest : public testing::Test {
 protected:
  static constexpr uint64_t kLongNs = 100 * kNsPerSec;  // virtual: bounds a hang

  explicit SimTest(const SimOptions& options = {}) { Reset(/*seed=*/1, options); }
  ~SimTest() override { Reset(0, {}); }

  // A new network; what belonged to the old one is gone.
  void Reset(uint64_t seed, const SimOptions& options) {
    listeners_.clear();
    network_ = std::make_unique<SimNetwork>(seed, options);
    acceptors_.clear();
    clients_.clear();
  }

  void Listen(const std::string& node, const ListenOptions& options = {}) {
    auto listener =
        network_->Node(node).transport().Listen("sim:" + node, options, &acceptors_[node]);
    ASSERT_TRUE(listener.ok()) << listener.status();
    listeners_[node] = *std::move(listener);
  }

  Endpoint& Connect(const std::string& from, const std::string& to,
                    const ConnectOptions& options = {}) {
    clients_.push_back(std::make_unique<Endpoint>());
    auto connection =
        network_->Node(from).transport().Connect("sim:" + to, options, clients_.back().get());
    EXPECT_TRUE(connection.ok()) << connection.status();
    if (connection.ok()) clients_.back()->set_connection(*connection);
    return *clients_.back();
  }

  // Connected on both sides: the client's end, and the server's.
  std::pair<Endpoint*, Endpoint*> Pair(const std::string& from, const std::string& to,
                                       const ConnectOptions& options = {}) {
    const size_t before = acceptors_[to].endpoints.size();
    Endpoint& client = Connect(from, to, options);
    EXPECT_TRUE(Run([&] { return client.opened() && acceptors_[to].endpoints.size() > before; }));
    Endpoint& server = *acceptors_[to].endpoints.back();
    EXPECT_TRUE(Run([&] { return server.opened(); }));
    return {&client, &server};
  }

  bool Run(Function<bool()> done) {
    const bool result = network_->RunUntil(std::move(done), kLongNs);
    network_->CheckInvariants();
    return result;
  }

  uint64_t now_ns() { return network_->clock().NowNs(); }

  std::map<std::string, TestAcceptor> acceptors_;
  std::vector<std::unique_ptr<Endpoint>> clients_;
  std::unique_ptr<SimNetwork> network_;
  std::map<std::string, std::unique_ptr<Listener>> listeners_;
};

}  // namespace weft
