// Sessions between servers on real engines with threads of their own, over every path of this
// machine.
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "rpc/client/channel.h"
#include "rpc/client/channel_watch.h"
#include "rpc/memory/remote_memory.h"
#include "rpc/server/exported_memory.h"
#include "rpc/server/server.h"
#include "rpc/server/server_call.h"
#include "rpc/server/server_connection.h"
#include "rpc/testing/stream_service.h"
#include "transport/network.h"

namespace weft::test {
namespace {

// A server, and who tells when its peers are there.
class Node {
 public:
  Node(std::string id, PathKind path, std::string listen_at = "127.0.0.1:0")
      : id_(std::move(id)), path_(path) {
    ServerOptions options;
    options.peer_id = id_;
    options.link.paths = {path};
    options.link.peer_timeout_ns = 0;
    server_ = *Server::Create(options);
    probe_.look = [this](ServerContext& context) {
      const auto& call = static_cast<ServerCall&>(context);
      size_t lines = 0;
      call.connection().connection()->prefetch().ForEachLine([&](const void*, bool) { ++lines; });
      lines_to_prefetch_ = lines;
    };
    EXPECT_TRUE(server_->AddService(&probe_).ok());
    EXPECT_TRUE(server_->AddService(&streams_).ok());
    const absl::Status listening = server_->Listen(listen_at);
    EXPECT_TRUE(listening.ok()) << listening;
  }
  ~Node() { Close(); }

  void Open(const std::string& peer, const std::string& address) {
    ChannelOptions options;
    options.link.paths = {path_};
    options.link.peer_timeout_ns = 0;
    ready_ = false;
    channel_ = *server_->OpenPeer(peer, address, options);
    watch_ = *channel_->WatchState([this](ChannelState state) {
      const std::lock_guard<std::mutex> lock(mutex_);
      ready_ = state == ChannelState::kReady;
      changed_.notify_all();
    });
  }
  void Close() {
    watch_ = ChannelWatch();
    channel_.reset();
  }
  void WaitUntilReady() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return ready_; });
  }

  Channel& channel() { return *channel_; }
  Server& server() { return *server_; }
  // Of the connection that the last Echo has come on.
  size_t lines_to_prefetch() const { return lines_to_prefetch_; }

 private:
  const std::string id_;
  const PathKind path_;
  ProbeService probe_;
  StreamService streams_;
  std::unique_ptr<Server> server_;
  std::unique_ptr<Channel> channel_;
  ChannelWatch watch_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ready_ = false;
  std::atomic<size_t> lines_to_prefetch_{0};
};

class PeerNetworkTest : public testing::TestWithParam<PathKind> {
 protected:
  static void CallMuch(Node& node) {
    Probe::Stub stub(node.channel());
    Data reply;
    for (uint64_t i = 0; i < 500; ++i) {
      const absl::Status status = stub.Echo(MakeData(i, i % 100 == 7 ? 100'000 : i % 300), &reply);
      ASSERT_TRUE(status.ok()) << status;
      ASSERT_EQ(reply.number(), i);
    }
    Streams::Stub streams(node.channel());
    ClientWriter<Data> sum = streams.Sum(&reply);
    for (uint64_t i = 0; i < 2000; ++i) ASSERT_TRUE(sum.Write(MakeData(1, 50)));
    const absl::Status status = sum.Finish();
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(reply.number(), 2000u);
  }
  static void CallFromBoth(Node& a, Node& b) {
    std::thread other([&] { CallMuch(b); });
    CallMuch(a);
    other.join();
  }
};

// What a channel had registered for prefetch stayed on the connection's list when the channel was
// gone, and was prefetched before each message; the next ones' found no room.
TEST_P(PeerNetworkTest, ChannelsThatComeAndGoLeaveNothingToPrefetch) {
  Node a("a", GetParam());
  Node b("b", GetParam());
  b.Open("a", "");
  std::pair<size_t, size_t> lines;
  for (int i = 0; i < 20; ++i) {
    a.Open("b", b.server().address());
    a.WaitUntilReady();
    b.WaitUntilReady();
    Data reply;
    ASSERT_TRUE(Probe::Stub(a.channel()).Echo(MakeData(1, 1), &reply).ok());
    ASSERT_TRUE(Probe::Stub(b.channel()).Echo(MakeData(1, 1), &reply).ok());
    if (i == 0) lines = {a.lines_to_prefetch(), b.lines_to_prefetch()};
    EXPECT_EQ(a.lines_to_prefetch(), lines.first) << "channel " << i;
    EXPECT_EQ(b.lines_to_prefetch(), lines.second) << "channel " << i;
    a.Close();
  }
}

TEST_P(PeerNetworkTest, BothDialBothCallAndThereIsOneConnection) {
  Node a("a", GetParam());
  Node b("b", GetParam());
  a.Open("b", b.server().address());
  b.Open("a", a.server().address());
  a.WaitUntilReady();
  b.WaitUntilReady();
  CallFromBoth(a, b);
  EXPECT_EQ(a.channel().path()->kind, GetParam());
  for (Node* node : {&a, &b}) {
    EXPECT_EQ(node->server().stats().peers, 1u);
    EXPECT_EQ(node->server().stats().connections, 1u);
  }
}

TEST_P(PeerNetworkTest, EachSideReadsAndWritesTheOthersMemory) {
  Node a("a", GetParam());
  Node b("b", GetParam());
  a.Open("b", "");
  b.Open("a", a.server().address());  // so b has dialed
  a.WaitUntilReady();
  b.WaitUntilReady();
  Node* const nodes[] = {&a, &b};
  for (int i = 0; i < 2; ++i) {
    SCOPED_TRACE(i == 0 ? "of who has accepted" : "of who has dialed");
    ExportOptions rights;
    rights.rights = kMayRead | kMayWrite;
    auto exported = nodes[i]->server().AllocateExport(4096, rights);
    ASSERT_TRUE(exported.ok()) << exported.status();
    (*exported)->bytes()[100] = std::byte{42};
    Channel& channel = nodes[1 - i]->channel();
    auto memory = RemoteMemory::Open(channel, (*exported)->handle());
    ASSERT_TRUE(memory.ok()) << memory.status();
    auto buffer = *channel.AllocateBuffer(4096);
    absl::Status status = (*memory)->Read(0, buffer->slice(0, 4096));
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(buffer->bytes()[100], std::byte{42});
    buffer->bytes()[0] = std::byte{43};
    const RemotePiece piece = {8, buffer->slice(0, 8)};
    status = (*memory)->WriteAcknowledged({&piece, 1});
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ((*exported)->bytes()[8], std::byte{43});
  }
}

TEST_P(PeerNetworkTest, AChannelComesAndGoesWhileThePeerCalls) {
  Node a("a", GetParam());
  Node b("b", GetParam());
  a.Open("b", b.server().address());
  b.Open("a", "");
  a.WaitUntilReady();
  b.WaitUntilReady();
  std::atomic<bool> enough = false;
  std::thread peer([&] {
    Probe::Stub stub(b.channel());
    Data reply;
    for (uint64_t i = 0; !enough; ++i) {
      const absl::Status status = stub.Echo(MakeData(i, i % 20 == 7 ? 100'000 : 100), &reply);
      ASSERT_TRUE(status.ok()) << status;
      ASSERT_EQ(reply.number(), i);
    }
  });
  for (uint64_t i = 0; i < 50; ++i) {
    Probe::Stub stub(a.channel());
    Data reply;
    const absl::Status status = stub.Echo(MakeData(i, 1000), &reply);
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(reply.number(), i);
    Data lost;  // its call is under way when the channel goes
    stub.Echo(MakeData(1, 200'000), &lost, {}, [](const absl::Status&) {});
    a.Close();
    a.Open("b", b.server().address());
    a.WaitUntilReady();
  }
  enough = true;
  peer.join();
  EXPECT_EQ(b.channel().stats().connects, 1u);
}

TEST_P(PeerNetworkTest, ARestartedPeerIsFoundFromEitherSide) {
  Node a("a", GetParam());
  auto b = std::make_unique<Node>("b", GetParam());
  const std::string address = b->server().address();
  a.Open("b", address);
  b->Open("a", "");  // waits for a
  a.WaitUntilReady();
  b->WaitUntilReady();
  CallFromBoth(a, *b);
  b->server().Shutdown(10'000'000);
  b.reset();
  b = std::make_unique<Node>("b", GetParam(), address);
  b->Open("a", a.server().address());
  b->WaitUntilReady();
  a.WaitUntilReady();
  CallFromBoth(a, *b);
  EXPECT_EQ(a.server().stats().peers, 1u);
}

INSTANTIATE_TEST_SUITE_P(EveryPath, PeerNetworkTest,
                         testing::Values(PathKind::kShm, PathKind::kTcp),
                         [](const testing::TestParamInfo<PathKind>& info) {
                           return std::string(PathKindName(info.param));
                         });

}  // namespace
}  // namespace weft::test
