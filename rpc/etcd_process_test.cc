// A service in etcd itself: servers register, are killed, drain and come; clients call them all the
// time; etcd goes and comes back.
#include "rpc/testing/etcd_process.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "rpc/client/balancing.h"
#include "rpc/server/server.h"
#include "rpc/testing/fabric_paths.h"
#include "rpc/testing/retry_service.weft.h"
#include "rpc/testing/server_process.h"
#include "transport/network.h"
#include "transport/tls/testing/certificates.h"

namespace weft::test {
namespace {

class EtcdProcessTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = EtcdProcess::WhyNot(); !why.empty()) GTEST_SKIP() << why;
  }

  class LookService final : public Store::Service {
    absl::Status Look(ServerContext&, const Data& request, Data* reply) override {
      *reply = request;
      return absl::OkStatus();
    }
  };

  std::string target() const { return "etcd:" + etcd_.address() + "/services/store"; }

  std::unique_ptr<Server> StartServer(const EtcdOptions& etcd = {}) {
    ServerOptions options;
    options.link.paths = paths_;
    options.link.peer_timeout_ns = 0;
    options.spin_ns = 0;
    auto server = *Server::Create(options);
    EXPECT_TRUE(server->AddService(&service_).ok());
    EXPECT_TRUE(server->Listen("127.0.0.1:0").ok());
    const absl::Status registered = server->Register(target(), {.etcd = etcd});
    EXPECT_TRUE(registered.ok()) << registered;
    return server;
  }

  void Open(const EtcdOptions& etcd = {}) {
    EngineOptions engine;
    engine.spin_ns = 0;
    engine_ = *OpenNetworkEngine(engine);
    ChannelOptions options;
    options.retry.max_attempts = 4;
    options.link.paths = paths_;
    options.link.peer_timeout_ns = 0;
    options.connect_at_once = false;
    BalancingOptions balancing;
    balancing.policy = BalancingPolicy::kRoundRobin;
    balancing.etcd = etcd;
    auto channel = OpenBalanced(*engine_, target(), options, balancing);
    ASSERT_TRUE(channel.ok()) << channel.status();
    channel_ = *std::move(channel);
  }

  // Any server will do, and no call may be lost.
  void Call() {
    Data request;
    Data reply;
    request.set_number(++calls_);
    const absl::Status status = Store::Stub(*channel_).Look(
        request, &reply, {.timeout_us = 60'000'000, .wait_for_server = true});
    EXPECT_TRUE(status.ok()) << status << "\n" << channel_->Explain();
    EXPECT_EQ(reply.number(), calls_);
  }

  // Calls until the channel has these servers, all of them ready, and no others.
  bool CallUntilServersAre(std::vector<std::string> addresses) {
    std::sort(addresses.begin(), addresses.end());
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(120);
    std::vector<std::string> found;
    while (found != addresses) {
      if (HasFailure() || std::chrono::steady_clock::now() > deadline) return false;
      Call();
      found.clear();
      for (const ServerFacts& facts : ServersOf(*channel_)) {
        if (facts.draining) continue;
        found.push_back(facts.state == ChannelState::kReady ? facts.server.address : "");
      }
      std::sort(found.begin(), found.end());
    }
    return true;
  }

  EtcdProcess etcd_{testing::TempDir() + "/etcd"};
  std::vector<PathKind> paths_;  // of both sides; none: docs/paths.md
  LookService service_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Channel> channel_;
  uint64_t calls_ = 0;
};

TEST_F(EtcdProcessTest, ServersComeAndGoAndEtcdToo) {
  ASSERT_TRUE(etcd_.Start());
  auto first = StartServer();
  ServerProcess killed("127.0.0.1:0", {"--register", target()});
  ASSERT_FALSE(killed.address().empty());
  Open();
  ASSERT_TRUE(CallUntilServersAre({first->address(), killed.address()})) << channel_->Explain();

  // Its key goes with its lease.
  killed.Kill();
  ASSERT_TRUE(CallUntilServersAre({first->address()})) << channel_->Explain();

  // A rolling restart: one comes, and the other one leaves the list before it refuses anybody.
  auto second = StartServer();
  ASSERT_TRUE(CallUntilServersAre({first->address(), second->address()})) << channel_->Explain();
  std::atomic<bool> ended = false;
  std::thread ending([&] {
    first->Shutdown(/*grace_us=*/60'000'000);
    ended = true;
  });
  while (!ended) Call();
  ending.join();
  ASSERT_TRUE(CallUntilServersAre({second->address()})) << channel_->Explain();

  // What was known last is good while etcd is away.
  etcd_.Stop();
  for (int i = 0; i < 1000; ++i) Call();
  ASSERT_TRUE(CallUntilServersAre({second->address()})) << channel_->Explain();

  ASSERT_TRUE(etcd_.Start());
  auto third = StartServer();
  ASSERT_TRUE(CallUntilServersAre({second->address(), third->address()})) << channel_->Explain();
}

class EtcdPathTest : public EtcdProcessTest, public testing::WithParamInterface<PathKind> {
 protected:
  void SetUp() override {
    if (const std::string why = WhyNot(GetParam()); !why.empty()) GTEST_SKIP() << why;
    EtcdProcessTest::SetUp();
  }
};

INSTANTIATE_TEST_SUITE_P(Paths, EtcdPathTest, testing::ValuesIn(FabricPaths()),
                         [](const auto& info) { return std::string(PathKindName(info.param)); });

TEST_P(EtcdPathTest, RegisteredServersAreFoundAndLeave) {
  paths_ = {GetParam()};
  ASSERT_TRUE(etcd_.Start());
  auto first = StartServer();
  const auto second = StartServer();
  Open();
  ASSERT_TRUE(CallUntilServersAre({first->address(), second->address()})) << channel_->Explain();
  EXPECT_EQ(channel_->path()->kind, GetParam());
  first.reset();
  ASSERT_TRUE(CallUntilServersAre({second->address()})) << channel_->Explain();
  EXPECT_EQ(channel_->path()->kind, GetParam());
}

// Both sides show certificates. Who trusts another authority learns nothing.
TEST_F(EtcdProcessTest, TlsProvesWhoEtcdIs) {
  const TestAuthority authority;
  const auto write = [](const std::string& name, const std::string& pem) {
    std::ofstream(testing::TempDir() + "/" + name) << pem;
    return testing::TempDir() + "/" + name;
  };
  const std::string ca = write("ca.pem", authority.certificate_pem());
  const CertificateAndKey pair = authority.Sign({.alternative_names = "IP:" + etcd_.host()});
  EtcdOptions options;
  options.ca_file = ca;
  options.certificate_file = write("pair.pem", pair.certificate_pem);
  options.key_file = write("pair.key", pair.key_pem);
  ASSERT_TRUE(etcd_.Start({"--cert-file", options.certificate_file, "--key-file", options.key_file,
                           "--trusted-ca-file", ca, "--client-cert-auth"},
                          /*tls=*/true));
  auto server = StartServer(options);
  Open(options);
  ASSERT_TRUE(CallUntilServersAre({server->address()})) << channel_->Explain();
  BalancingOptions mistaken;
  mistaken.etcd = options;
  mistaken.etcd.ca_file = write("other.pem", TestAuthority("another").certificate_pem());
  const auto refused = OpenBalanced(*engine_, target(), {}, mistaken);
  EXPECT_TRUE(absl::IsUnavailable(refused.status())) << refused.status();
  EXPECT_NE(refused.status().message().find("certificate"), absl::string_view::npos)
      << refused.status();
}

}  // namespace
}  // namespace weft::test
