// On a machine with several NUMA nodes: what an engine uses lies on its node, wherever the thread
// ran that has opened it. By hand: ./dev lab --numa 2 --device rxe,rxe --
// bazel-bin/transport/numa_test

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/clock.h"
#include "core/function.h"
#include "core/testing/numa_nodes.h"
#include "transport/buffer.h"
#include "transport/buffer_pool.h"
#include "transport/engine.h"
#include "transport/host_paths.h"
#include "transport/network.h"
#include "transport/transport.h"

namespace weft {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsSubsetOf;

void OnEngine(Engine& engine, Function<void()> run) {
  Waiter waiter;
  ASSERT_TRUE(engine.Post([&] {
    run();
    CoreOf(engine).Finish(waiter);
  }));
  CoreOf(engine).Wait(waiter);
}

// One end of a connection: sends messages of many sizes and receives as many, and notes where they
// lie.
class NotingEnd final : public ConnectionHandler {
 public:
  static constexpr int kSmall = 300;
  static constexpr int kLarge = 4;

  NotingEnd() {
    for (int i = 0; i < kSmall; ++i) unsent_.push_back(size_t{40} * static_cast<size_t>(i % 75));
    for (int i = 0; i < kLarge; ++i) unsent_.push_back(size_t{1} << 20);
  }

  // On whose thread it is told of everything. It is destroyed first.
  void set_engine(Engine* engine) { engine_ = engine; }
  void Wait() { CoreOf(*engine_).Wait(done_); }

  // Engine thread only, and after Wait().
  Nodes threads;
  Nodes sent;
  Nodes received;
  Nodes large;  // both ways
  absl::Status why;
  std::string device;

 private:
  void OnOpen(Connection& connection) override {
    threads.insert(NodeOfThread());
    device = connection.path().device;
    Send(connection);
  }
  void OnWritable(Connection& connection) override { Send(connection); }
  void OnMessage(Connection& connection, ByteSpan message) override {
    threads.insert(NodeOfThread());
    Note(connection, message, &received);
    --missing_;
    FinishIf(IsDone());
  }
  void OnClosed(Connection&, const absl::Status& status) override {
    why = status;
    FinishIf(!IsDone());
  }

  bool IsDone() const { return missing_ == 0 && unsent_.empty(); }
  void FinishIf(bool ends) {
    if (ends && !std::exchange(finished_, true)) CoreOf(*engine_).Finish(done_);
  }

  void Send(Connection& connection) {
    while (!unsent_.empty()) {
      const size_t bytes = unsent_.front();
      auto space = connection.Reserve(bytes);
      if (!space.ok()) return;
      std::memset(*space, 's', bytes);
      Note(connection, {*space, bytes}, &sent);
      connection.Commit(bytes);
      unsent_.pop_front();
    }
    FinishIf(IsDone());
  }
  void Note(Connection& connection, ByteSpan message, Nodes* small) {
    if (message.empty()) return;
    (message.size() > connection.eager_bytes() ? large : *small)
        .merge(NodesOf(message.data(), message.size()));
  }

  Engine* engine_ = nullptr;
  std::deque<size_t> unsent_;
  int missing_ = kSmall + kLarge;
  bool finished_ = false;
  Waiter done_;
};

class NotingAcceptor final : public Acceptor {
 public:
  explicit NotingAcceptor(NotingEnd* end) : end_(end) {}

 private:
  absl::StatusOr<ConnectionHandler*> OnIncoming(Connection&) override { return end_; }

  NotingEnd* const end_;
};

std::vector<HostPath> FindPorts() {
  LinkOptions verbs;
  verbs.paths = {PathKind::kVerbs};
  std::vector<HostPath> usable;
  const auto host = ListHostPaths(verbs);
  if (!host.ok()) return usable;
  for (const HostPath& path : host->paths) {
    if (path.kind == PathKind::kVerbs && path.place > 0) usable.push_back(path);
  }
  return usable;
}

// RDMA ports that connections would use. Emulated, finding them takes seconds.
const std::vector<HostPath>& UsablePorts() {
  static const std::vector<HostPath> ports = FindPorts();
  return ports;
}

// What the heap gives a second time lies where it was touched first (docs/paths.md, "NUMA nodes"),
// and threads have the heaps of those that have ended: so engines are in a process of their own.
template <class Run>
void InAProcess(Run run) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    run();
    std::fflush(nullptr);
    _exit(testing::Test::HasFailure() ? 1 : 0);
  }
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0) << "see above";
}

class NumaTest : public testing::Test {
 protected:
  void SetUp() override {
    if (NodesOfMachine().size() < 2) GTEST_SKIP() << kOneNode;
    // Engines do not look for cards that they will not use.
    setenv("WEFT_PATHS", PathKindName(path()).data(), /*overwrite=*/1);
  }
  void TearDown() override { unsetenv("WEFT_PATHS"); }
  virtual PathKind path() const { return PathKind::kShm; }

  static std::unique_ptr<Engine> Open(const EngineOptions& options) {
    auto engine = OpenNetworkEngine(options);
    EXPECT_TRUE(engine.ok()) << engine.status();
    return engine.ok() ? *std::move(engine) : nullptr;
  }
  // Of this node, opened by a thread that runs on another one, and on no other than that. (So a
  // processor is named: `numa_node` alone lets an engine run where the thread may that opens it.)
  static std::unique_ptr<Engine> OpenFromAfar(int node) {
    EngineOptions options;
    options.cpu = ProcessorOf(node);
    options.spin_ns = 0;
    std::unique_ptr<Engine> engine;
    OnNode(FarFrom(node), [&] { engine = Open(options); });
    return engine;
  }
};

TEST_F(NumaTest, AnEngineRunsOnTheNodeThatItIsTold) {
  for (const int node : NodesOfMachine()) {
    InAProcess([&] {
      EngineOptions options;
      options.numa_node = node;
      const auto engine = Open(options);
      ASSERT_NE(engine, nullptr);
      OnEngine(*engine, [&] { EXPECT_EQ(NodeOfThread(), node); });
    });
  }
}

TEST_F(NumaTest, WhatIsMadeForAnEngineBeforeItsThreadRunsIsNear) {
  for (const int node : NodesOfMachine()) {
    InAProcess([&] {
      const auto engine = OpenFromAfar(node);
      ASSERT_NE(engine, nullptr);
      EXPECT_THAT(NodesOfFiles("weft-doorbell"), ElementsAre(Nodes{node}));
    });
  }
}

TEST_F(NumaTest, ABufferPoolIsNearWhoeverTouchesItFirst) {
  for (const int node : NodesOfMachine()) {
    InAProcess([&] {
      const auto engine = OpenFromAfar(node);
      ASSERT_NE(engine, nullptr);
      BufferPool pool(std::vector<EngineCore*>{&CoreOf(*engine)}, BufferPoolOptions());
      for (const size_t bytes : {size_t{4096}, size_t{5} << 20}) {
        const auto buffer = pool.Allocate(bytes);
        ASSERT_TRUE(buffer.ok()) << buffer.status();
        const MutableByteSpan memory = (*buffer)->bytes();
        OnNode(FarFrom(node), [&] { std::memset(memory.data(), 'b', memory.size()); });
        EXPECT_EQ(NodesOf(memory.data(), memory.size()), Nodes{node}) << bytes << " bytes";
      }
    });
  }
}

// Connections over one kind of path: of two engines of one node, and of two.
class NumaPathTest : public NumaTest, public testing::WithParamInterface<PathKind> {
 protected:
  PathKind path() const override { return GetParam(); }

  void Exchange(int client_node, int server_node) {
    // A child of a process that has looked for cards has none. Slots of verbs are not the heap's.
    if (GetParam() == PathKind::kVerbs) return ExchangeHere(client_node, server_node);
    InAProcess([&] { ExchangeHere(client_node, server_node); });
  }
  void ExchangeHere(int client_node, int server_node) {
    SCOPED_TRACE("client's node " + std::to_string(client_node) + ", server's " +
                 std::to_string(server_node));
    NotingEnd here;
    NotingEnd there;
    NotingAcceptor acceptor(&there);
    const auto server = OpenFromAfar(server_node);
    const auto client = OpenFromAfar(client_node);
    ASSERT_TRUE(server != nullptr && client != nullptr);
    here.set_engine(client.get());
    there.set_engine(server.get());
    std::unique_ptr<Listener> listener;
    ListenOptions listen;
    ConnectOptions connect;
    BePatient(&listen.link);
    BePatient(&connect.link);
    OnEngine(*server, [&] {
      auto listening = server->transport().Listen("127.0.0.1:0", listen, &acceptor);
      ASSERT_TRUE(listening.ok()) << listening.status();
      listener = *std::move(listening);
    });
    ASSERT_NE(listener, nullptr);
    OnEngine(*client, [&] {
      const auto dialed = client->transport().Connect(listener->address(), connect, &here);
      ASSERT_TRUE(dialed.ok()) << dialed.status();
    });
    here.Wait();
    ASSERT_TRUE(here.why.ok()) << here.why;
    there.Wait();
    ASSERT_TRUE(there.why.ok()) << there.why;
    EXPECT_EQ(here.threads, Nodes{client_node});
    EXPECT_EQ(there.threads, Nodes{server_node});
    // The heap's slots, of shm and tcp, are not always near then (docs/paths.md, "NUMA nodes").
    if (GetParam() == PathKind::kVerbs || client_node == server_node) {
      ExpectNear(here, client_node);
      ExpectNear(there, server_node);
    }
    // A ring lies where its sender runs: those of one link are near both ends where these are.
    if (GetParam() == PathKind::kShm) {
      EXPECT_THAT(NodesOfFiles("weft-link"), Each(Nodes{client_node, server_node}));
      EXPECT_THAT(NodesOfFiles("weft"), Each(IsSubsetOf({client_node, server_node})));
    }
    if (GetParam() == PathKind::kVerbs && client_node == server_node) {
      ExpectNearPort(here, client_node);
      ExpectNearPort(there, server_node);
    }
    OnEngine(*server, [&] { listener.reset(); });
  }

  // Machines of the lab stand still for seconds.
  static void BePatient(LinkOptions* link) {
    link->paths = {GetParam()};
    link->peer_timeout_ns = 0;
    link->connect_timeout_ns = 60 * kNsPerSec;
    link->path_timeout_ns = 20 * kNsPerSec;
  }
  static void ExpectNear(const NotingEnd& end, int node) {
    EXPECT_EQ(end.sent, Nodes{node});
    EXPECT_EQ(end.received, Nodes{node});
    EXPECT_EQ(end.large, Nodes{node});
  }
  // Where the node has one.
  static void ExpectNearPort(const NotingEnd& end, int node) {
    std::set<std::string> near;
    for (const HostPath& port : UsablePorts()) {
      if (port.numa_node == node) near.insert(port.device + ":" + std::to_string(port.port));
    }
    if (near.empty()) return;
    EXPECT_EQ(near.count(end.device), 1u) << end.device << " is not of node " << node;
  }
};

std::vector<PathKind> Paths() {
  std::vector<PathKind> paths = {PathKind::kShm, PathKind::kTcp};
  if (!UsablePorts().empty()) paths.push_back(PathKind::kVerbs);
  return paths;
}

INSTANTIATE_TEST_SUITE_P(Paths, NumaPathTest, testing::ValuesIn(Paths()),
                         [](const auto& info) { return std::string(PathKindName(info.param)); });

TEST_P(NumaPathTest, WhatAnEngineUsesIsNear) {
  for (const int node : NodesOfMachine()) Exchange(node, node);
}

TEST_P(NumaPathTest, EachOfTwoEnginesHasItsOwnNear) {
  const std::vector<int> nodes = NodesOfMachine();
  Exchange(nodes[0], nodes[1]);
  Exchange(nodes[1], nodes[0]);
}

}  // namespace
}  // namespace weft
