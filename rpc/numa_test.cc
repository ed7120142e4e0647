// A server with an engine on each of several NUMA nodes: what each of them has lies on its node. By
// hand: ./dev lab --numa 2 --device rxe,rxe -- bazel-bin/rpc/numa_test

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/clock.h"
#include "core/testing/numa_nodes.h"
#include "rpc/client/channel.h"
#include "rpc/server/server.h"
#include "rpc/testing/probe_service.h"
#include "transport/host_paths.h"
#include "transport/network.h"

namespace weft::test {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::SizeIs;

// Replies with the node that it runs on.
class WhereService final : public ProbeService {
 public:
  absl::Status Echo(ServerContext&, const Data&, Data* reply) override {
    reply->set_number(static_cast<uint64_t>(NodeOfThread()));
    return absl::OkStatus();
  }
};

std::vector<PathKind> Paths() {
  std::vector<PathKind> paths = {PathKind::kShm, PathKind::kTcp};
  LinkOptions verbs;
  verbs.paths = {PathKind::kVerbs};
  const auto host = ListHostPaths(verbs);
  if (!host.ok()) return paths;
  for (const HostPath& path : host->paths) {
    if (path.kind != PathKind::kVerbs || path.place == 0) continue;
    paths.push_back(PathKind::kVerbs);
    break;
  }
  return paths;
}

class NumaServerTest : public testing::TestWithParam<PathKind> {
 protected:
  void SetUp() override {
    nodes_ = NodesOfMachine();
    if (nodes_.size() < 2) GTEST_SKIP() << kOneNode;
    ServerOptions options;
    options.engines = static_cast<uint32_t>(nodes_.size());
    for (const int node : nodes_) options.cpus.push_back(ProcessorOf(node));
    options.max_sessions = 0;
    options.spin_ns = 0;
    options.link = Patient();
    // Far from all of its engines but one.
    OnNode(nodes_.front(), [&] {
      auto server = Server::Create(options);
      ASSERT_TRUE(server.ok()) << server.status();
      server_ = *std::move(server);
      ASSERT_TRUE(server_->AddService(&where_).ok());
      const absl::Status listening = server_->Listen("127.0.0.1:0");
      ASSERT_TRUE(listening.ok()) << listening;
    });
  }

  // Machines of the lab stand still for seconds.
  static LinkOptions Patient() {
    LinkOptions link;
    link.paths = {GetParam()};
    link.peer_timeout_ns = 0;
    link.connect_timeout_ns = 60 * kNsPerSec;
    link.path_timeout_ns = 20 * kNsPerSec;
    return link;
  }

  std::vector<int> nodes_;
  WhereService where_;
  std::unique_ptr<Server> server_;
};

INSTANTIATE_TEST_SUITE_P(Paths, NumaServerTest, testing::ValuesIn(Paths()),
                         [](const auto& info) { return std::string(PathKindName(info.param)); });

// A client on each node asks for the server's engine there.
TEST_P(NumaServerTest, AClientCanHaveAllOfItsConnectionOnItsNode) {
  std::vector<std::unique_ptr<Engine>> engines;
  std::vector<std::unique_ptr<Channel>> channels;
  for (uint32_t i = 0; i < nodes_.size(); ++i) {
    EngineOptions on_node;
    on_node.numa_node = nodes_[i];
    on_node.spin_ns = 0;
    auto engine = OpenNetworkEngine(on_node);
    ASSERT_TRUE(engine.ok()) << engine.status();
    engines.push_back(*std::move(engine));
    ChannelOptions options;
    options.link = Patient();
    options.link.server_engine = i;
    auto channel = Channel::Open(*engines.back(), server_->address(), options);
    ASSERT_TRUE(channel.ok()) << channel.status();
    channels.push_back(*std::move(channel));
    const auto path = channels.back()->path();
    ASSERT_TRUE(path.ok()) << path.status();
    EXPECT_EQ(path->kind, GetParam());
    EXPECT_EQ(path->server_engine, i);
    for (int call = 0; call < 50; ++call) {
      Data reply;
      const absl::Status status = Probe::Stub(*channels.back()).Echo(MakeData(1, 1000), &reply);
      ASSERT_TRUE(status.ok()) << status;
      EXPECT_EQ(reply.number(), static_cast<uint64_t>(nodes_[i]));
    }
  }
  // Each link is mapped by both ends, and by nobody far away.
  const std::vector<Nodes> links = NodesOfFiles("weft-link");
  EXPECT_THAT(links, SizeIs(GetParam() == PathKind::kShm ? 2 * nodes_.size() : 0));
  EXPECT_THAT(links, Each(SizeIs(1)));
  for (const int node : nodes_) {
    if (GetParam() != PathKind::kShm) break;
    EXPECT_THAT(links, Contains(Nodes{node}));
  }
  // What domains show to their peers, and doorbells.
  EXPECT_THAT(NodesOfFiles("weft"), Each(SizeIs(1)));
}

}  // namespace
}  // namespace weft::test
