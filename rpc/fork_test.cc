// A process with channels and servers that forks and goes on on both sides, as databases do for
// their snapshots. In the child what is the parent's ends at once, and says nothing to anybody; the
// child opens channels and servers of its own; and the parent goes on as if nothing had been.

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/clock.h"
#include "core/testing/descriptors.h"
#include "rpc/client/bulk_call.h"
#include "rpc/client/call_awaiter.h"
#include "rpc/client/channel.h"
#include "rpc/client/channel_watch.h"
#include "rpc/client/client_context.h"
#include "rpc/coroutine/await.h"
#include "rpc/generated_streams.h"
#include "rpc/memory/remote_memory.h"
#include "rpc/operation/alarm.h"
#include "rpc/operation/executor.h"
#include "rpc/server/exported_memory.h"
#include "rpc/server/server.h"
#include "rpc/testing/fabric_paths.h"
#include "rpc/testing/stream_service.h"
#include "transport/buffer.h"
#include "transport/network.h"
#include "weft/status.h"

namespace weft::test {
namespace {

constexpr unsigned kPatienceS = 60;  // of a child that hangs
const pid_t first_process = getpid();

class EchoService final : public Probe::Service {
 public:
  absl::Status Echo(ServerContext&, const Data& request, Data* reply) override {
    *reply = request;
    return absl::OkStatus();
  }
};

absl::Status Echo(Channel& channel) {
  Data reply;
  return Probe::Stub(channel).Echo(MakeData(7, 100), &reply);
}

// Runs handlers when the test says so, in the order in which they came.
class LateExecutor final : public Executor {
 public:
  bool Run(Function<void()> task) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    tasks_.push_back(std::move(task));
    return true;
  }
  size_t waiting() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return tasks_.size();
  }
  // The oldest. Unrun: its call ends with an error.
  Function<void()> Take() {
    const std::lock_guard<std::mutex> lock(mutex_);
    Function<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    return task;
  }

 private:
  std::mutex mutex_;
  std::deque<Function<void()>> tasks_;  // guarded by mutex_
};

void ExpectForked(const absl::Status& status) {
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_NE(status.message().find("child of fork()"), absl::string_view::npos) << status;
}

// The machine may be busy, and one of the lab stands still for seconds.
void BePatient(LinkOptions* link) {
  link->peer_timeout_ns = 0;
  link->connect_timeout_ns = 40 * kNsPerSec;
  link->path_timeout_ns = 20 * kNsPerSec;
}

bool IsOfLibfabric(PathKind path) { return path == PathKind::kOfiTcp || path == PathKind::kVerbs; }

// A server, a channel to it, and everything that a channel can have, in this process.
class ForkTest : public testing::TestWithParam<PathKind> {
 protected:
  void SetUp() override {
    if (const std::string why = WhyNot(GetParam()); !why.empty()) GTEST_SKIP() << why;
    server_ = Serve();
    channel_ = Open(server_->address());
    auto exported = server_->AllocateExport(4096, {.rights = kAllRights});
    ASSERT_TRUE(exported.ok()) << exported.status();
    exported_ = *std::move(exported);
    auto memory = RemoteMemory::Open(*channel_, exported_->handle());
    ASSERT_TRUE(memory.ok()) << memory.status();
    memory_ = *std::move(memory);
    auto buffer = channel_->AllocateBuffer(64);
    ASSERT_TRUE(buffer.ok()) << buffer.status();
    buffer_ = *std::move(buffer);
    talk_.emplace(Streams::Stub(*channel_).Talk());
    ASSERT_TRUE(talk_->Write(MakeData(1, 10)));
    ASSERT_EQ(Echo(*channel_), absl::OkStatus());  // behind the beginning of the stream
  }
  void TearDown() override { DestroyAll(); }

  std::unique_ptr<Server> Serve(const std::string& handover_path = "",
                                Executor* executor = nullptr) {
    ServerOptions options;
    options.executor = executor;
    options.handover_path = handover_path;
    if (!handover_path.empty()) options.max_sessions = 0;
    options.link.paths = {GetParam()};
    if (IsOfLibfabric(GetParam())) options.link.paths.push_back(PathInChild());
    BePatient(&options.link);
    options.spin_ns = 0;
    auto server = Server::Create(options);
    EXPECT_TRUE(server.ok()) << server.status();
    EXPECT_TRUE((*server)->AddService(&echo_).ok());
    EXPECT_TRUE((*server)->AddService(&streams_).ok());
    const absl::Status listening = (*server)->Listen("127.0.0.1:0");
    EXPECT_TRUE(listening.ok()) << listening;
    return *std::move(server);
  }
  static std::unique_ptr<Channel> Open(const std::string& address, uint32_t engines = 1) {
    ChannelOptions options;
    options.engines = engines;
    options.link.paths = {getpid() == first_process ? GetParam() : PathInChild()};
    BePatient(&options.link);
    options.spin_ns = 0;
    auto channel = Channel::Open(address, options);
    EXPECT_TRUE(channel.ok()) << channel.status();
    return channel.ok() ? *std::move(channel) : nullptr;
  }

  // What children open goes by it: they have no libfabric.
  static PathKind PathInChild() { return IsOfLibfabric(GetParam()) ? PathKind::kTcp : GetParam(); }

  // Starts a child that runs `body`, and then `end`.
  template <class F>
  static pid_t Fork(F body, void (*end)(int) = &_exit) {
    std::fflush(nullptr);
    const pid_t child = fork();
    if (child != 0) return child;
    alarm(kPatienceS);
    body();
    std::fflush(nullptr);
    end(HasFailure() ? 1 : 0);
    return 0;
  }
  static void ExpectEndsWell(pid_t child) {
    int status = -1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status)) << "by signal " << WTERMSIG(status);
    EXPECT_EQ(WEXITSTATUS(status), 0) << "see what it has printed";
  }
  template <class F>
  static void ExpectInChild(F body) {
    ExpectEndsWell(Fork(std::move(body)));
  }

  // The channel has the connection that it had from the beginning, and all works.
  void ExpectParentGoesOn() {
    EXPECT_EQ(Echo(*channel_), absl::OkStatus());
    Data data;
    EXPECT_TRUE(talk_->Write(MakeData(2, 20)));
    EXPECT_EQ(memory_->Read(0, buffer_->slice()), absl::OkStatus());
    EXPECT_EQ(channel_->stats().connects, 1u);
    EXPECT_EQ(server_->stats().connections, 1u);
  }
  void DestroyAll() {
    talk_.reset();
    buffer_.reset();
    memory_.reset();
    channel_.reset();
    exported_.reset();
    streams_.talks.clear();  // the server waits for its handlers
    server_.reset();
  }

  EchoService echo_;
  StreamService streams_;
  std::unique_ptr<Server> server_;
  std::unique_ptr<Channel> channel_;
  std::unique_ptr<ExportedMemory> exported_;
  std::unique_ptr<RemoteMemory> memory_;
  std::unique_ptr<Buffer> buffer_;
  std::optional<ClientReaderWriter<Data, Data>> talk_;
};

INSTANTIATE_TEST_SUITE_P(Paths, ForkTest, testing::ValuesIn(AllPaths()),
                         [](const auto& info) { return std::string(PathKindName(info.param)); });

TEST_P(ForkTest, CallsOfTheParentsChannelEndAtOnceInTheChild) {
  ExpectInChild([&] {
    ExpectForked(Echo(*channel_));
    Data reply;
    int ends = 0;
    Probe::Stub(*channel_).Echo(MakeData(1, 1), &reply, {}, [&](const absl::Status& status) {
      ExpectForked(status);
      ++ends;
    });
    EXPECT_EQ(ends, 1);
    ExpectForked(channel_->path().status());
    ExpectForked(channel_->AllocateBuffer(10).status());
    ExpectForked(channel_->WatchState([](ChannelState) {}).status());
    channel_->WhenWritable([&](const absl::Status& status) {
      ExpectForked(status);
      ++ends;
    });
    EXPECT_EQ(ends, 2);
    EXPECT_NE(channel_->Explain().find("child of fork()"), std::string::npos);
    EXPECT_EQ(channel_->stats().calls_started, 0u);
  });
  ExpectParentGoesOn();
}

TEST_P(ForkTest, ItsStreamsEndAtOnceInTheChild) {
  ExpectInChild([&] {
    Data data;
    EXPECT_FALSE(talk_->Write(MakeData(1, 1)));
    EXPECT_FALSE(talk_->Read(&data));
    ExpectForked(talk_->Finish());
    Size size;
    size.set_bytes(3);
    auto count = Streams::Stub(*channel_).Count(size);
    EXPECT_FALSE(count.Read(&data));
    ExpectForked(count.Finish());
  });
  ExpectParentGoesOn();
}

TEST_P(ForkTest, ItsMemoryIsOutOfReachInTheChild) {
  ExpectInChild([&] {
    ExpectForked(memory_->Read(0, buffer_->slice()));
    ExpectForked(memory_->Write(0, buffer_->slice()));
    ExpectForked(memory_->FetchAdd(0, 1).status());
    int ends = 0;
    memory_->Read(0, buffer_->slice(), [&](const absl::Status& status) {
      ExpectForked(status);
      ++ends;
    });
    EXPECT_EQ(ends, 1);
    ExpectForked(RemoteMemory::Open(*channel_, exported_->handle()).status());
    ExpectForked(exported_->Derive({}).status());
    EXPECT_EQ(exported_->leases(), 0u);
    BulkCall bulk(*channel_);
    Data reply;
    ExpectForked(Probe::Stub(*channel_).Echo(MakeData(1, 1), &reply, {.bulk = &bulk}));
  });
  ExpectParentGoesOn();
}

TEST_P(ForkTest, ItsServersAndEnginesDoNothingInTheChild) {
  auto external = OpenNetworkEngine({.drive = EngineOptions::Drive::kExternal});
  ASSERT_TRUE(external.ok()) << external.status();
  ExpectInChild([&] {
    ExpectForked(server_->Listen("127.0.0.1:0"));
    ExpectForked(server_->AddService(&echo_));
    ExpectForked(server_->Export({}, {}).status());
    ExpectForked(server_->AllocateBuffer(10).status());
    EXPECT_EQ(server_->stats().connections, 0u);
    server_->Wait();
    server_->Shutdown(1'000'000);
    for (Engine* const engine : {external->get(), &channel_->engine(), &server_->engine()}) {
      EXPECT_FALSE(engine->Post([] { FAIL() << "ran in the child"; }));
      EXPECT_EQ(engine->Poll(), 0);
      EXPECT_TRUE(engine->counters().Snapshot().empty());
      EXPECT_FALSE(engine->OnEngine());
      EXPECT_FALSE(engine->RunUntil([] { return false; }));
      ExpectForked(Channel::Open(*engine, "127.0.0.1:1").status());
    }
    EXPECT_TRUE((*external)->Arm()) << "it may sleep: nothing will come";
    EXPECT_EQ((*external)->NextTimerNs(), kNever);
    Alarm alarm(channel_->engine());
    alarm.Set(1, [] { FAIL() << "rang in the child"; });
    EXPECT_FALSE(alarm.Cancel());
  });
  ExpectParentGoesOn();
}

Task<int> OneCall(Channel& channel) {
  Data reply;
  const Data request = MakeData(1, 1);
  ExpectForked(co_await Probe::Stub(channel).CoEcho(request, &reply));
  co_return 5;
}

TEST_P(ForkTest, CoroutinesEndInTheChild) {
  ExpectInChild([&] { EXPECT_EQ(Wait(channel_->engine(), OneCall(*channel_)), 5); });
  ExpectParentGoesOn();
}

TEST_P(ForkTest, DestructorsInTheChildSayNothing) {
  ExpectInChild([&] { DestroyAll(); });
  ExpectParentGoesOn();
}

// What a program has in static objects goes when it ends.
TEST_P(ForkTest, AChildMayEndWithExit) {
  static std::unique_ptr<Channel> at_exit;
  ExpectEndsWell(Fork([&] { at_exit = std::move(channel_); }, &std::exit));
  ExpectParentGoesOn();
}

TEST_P(ForkTest, AChildHasChannelsAndServersOfItsOwn) {
  const std::string address = server_->address();
  ExpectInChild([&] {
    const auto to_parent = Open(address);
    EXPECT_EQ(Echo(*to_parent), absl::OkStatus());
    EXPECT_EQ(to_parent->path()->kind, PathInChild());
    const auto own_server = Serve();
    const auto to_own = Open(own_server->address());
    for (int i = 0; i < 10; ++i) EXPECT_EQ(Echo(*to_own), absl::OkStatus());
    // And children of its own.
    ExpectInChild([&] {
      ExpectForked(Echo(*to_own));
      ExpectForked(Echo(*channel_));
    });
    EXPECT_EQ(Echo(*to_own), absl::OkStatus());
  });
  EXPECT_EQ(Echo(*channel_), absl::OkStatus());
}

class ForkFabricTest : public ForkTest {};

INSTANTIATE_TEST_SUITE_P(Paths, ForkFabricTest, testing::ValuesIn(FabricPaths()),
                         [](const auto& info) { return std::string(PathKindName(info.param)); });

// A child waited for a lock that another thread had at the fork.
TEST_P(ForkFabricTest, AChildHasNoPathOfLibfabrics) {
  const std::string address = server_->address();
  ExpectInChild([&] {
    ChannelOptions options;
    options.link.paths = {GetParam()};
    const absl::Status refused = Channel::Open(address, options).status();
    EXPECT_TRUE(absl::IsUnavailable(refused)) << refused;
    EXPECT_NE(refused.message().find("libfabric was started before this process was forked"),
              absl::string_view::npos)
        << refused;
  });
  ExpectParentGoesOn();
}

// A child held its parent's sockets: the server did not hear that the parent was gone.
TEST_P(ForkTest, TheParentsDeathIsSeenThroughAChildThatLives) {
  int lifeline[2];  // of the grandchild
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, lifeline), 0);
  const std::string address = server_->address();
  ExpectInChild([&] {
    const auto channel = Open(address);
    EXPECT_EQ(Echo(*channel), absl::OkStatus());
    Fork([&] {
      close(lifeline[0]);
      char byte;
      EXPECT_EQ(read(lifeline[1], &byte, 1), 0);
    });
    _exit(HasFailure() ? 1 : 0);  // without a word to the server
  });
  while (server_->stats().connections > 1) std::this_thread::yield();
  ExpectParentGoesOn();
  close(lifeline[0]);
  close(lifeline[1]);
}

TEST_P(ForkTest, AChannelOfSeveralEnginesEndsInTheChildToo) {
  auto channel = Open(server_->address(), /*engines=*/3);
  EXPECT_EQ(Echo(*channel), absl::OkStatus());
  ExpectInChild([&] {
    ExpectForked(Echo(*channel));
    ExpectForked(channel->path().status());
    ExpectForked(channel->AllocateBuffer(10).status());
    EXPECT_EQ(channel->stats().calls_started, 0u);
    channel.reset();
  });
  EXPECT_EQ(Echo(*channel), absl::OkStatus());
  EXPECT_EQ(channel->stats().connects, 3u);
}

TEST_P(ForkTest, AServerWhoseHandlersRunElsewhereEndsInTheChildToo) {
  auto elsewhere = OpenNetworkEngine({.drive = EngineOptions::Drive::kOwnThread, .spin_ns = 0});
  ASSERT_TRUE(elsewhere.ok()) << elsewhere.status();
  EngineExecutor executor(**elsewhere);
  auto server = Serve(/*handover_path=*/"", &executor);
  auto channel = Open(server->address());
  EXPECT_EQ(Echo(*channel), absl::OkStatus());
  ExpectInChild([&] {
    ExpectForked(Echo(*channel));
    EXPECT_FALSE(executor.Run([] { FAIL() << "ran in the child"; }));
    channel.reset();
    server.reset();
    elsewhere->reset();
  });
  EXPECT_EQ(Echo(*channel), absl::OkStatus());
}

// Not even of a server that has a socket of the one before it, and does not accept yet.
TEST_P(ForkTest, AChildHasNoSocketThatListens) {
  std::string folder = "/tmp/weft_fork_XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  auto before = Serve(folder + "/upgrade");
  ASSERT_EQ(before->Ready(), absl::OkStatus());
  auto next = Serve(folder + "/upgrade");
  EXPECT_EQ(next->address(), before->address());
  EXPECT_FALSE(ListeningSockets().empty());
  // libfabric's own is in the child as well, which docs/guide.md says.
  if (!IsOfLibfabric(GetParam())) ExpectInChild([&] { EXPECT_TRUE(ListeningSockets().empty()); });
  EXPECT_EQ(next->Ready(), absl::OkStatus());
  before.reset();
  EXPECT_EQ(Echo(*Open(next->address())), absl::OkStatus());
  next.reset();
  EXPECT_EQ(rmdir(folder.c_str()), 0);
}

// A child had the socket at the path: whoever came next asked there, waited, and failed.
TEST_P(ForkTest, AServerThatHasDiedHandsNothingOverThoughItsChildLives) {
  int lifeline[2];  // of the grandchild
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, lifeline), 0);
  std::string folder = "/tmp/weft_fork_XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  ExpectInChild([&] {
    const auto server = Serve(folder + "/upgrade");
    EXPECT_EQ(server->Ready(), absl::OkStatus());
    Fork([&] {
      close(lifeline[0]);
      char byte;
      EXPECT_EQ(read(lifeline[1], &byte, 1), 0);
    });
    _exit(HasFailure() ? 1 : 0);  // its file stays
  });
  auto next = Serve(folder + "/upgrade");
  EXPECT_EQ(next->Ready(), absl::OkStatus());
  EXPECT_EQ(Echo(*Open(next->address())), absl::OkStatus());
  next.reset();
  close(lifeline[0]);
  close(lifeline[1]);
  EXPECT_EQ(rmdir(folder.c_str()), 0);
}

// Threads in the middle of anything, their locks and their lists, are not in the child.
TEST_P(ForkTest, ForksAmongThreadsThatCallAndConnect) {
  std::atomic<bool> over{false};
  std::atomic<int> started{0};
  std::vector<std::thread> threads;
  threads.emplace_back([&] {
    for (bool first = true; !over; first = false) {
      EXPECT_EQ(Echo(*channel_), absl::OkStatus());
      if (first) ++started;
    }
  });
  threads.emplace_back([&] {
    for (bool first = true; !over; first = false) {
      EXPECT_EQ(Echo(*Open(server_->address())), absl::OkStatus());
      if (first) ++started;
    }
  });
  while (started < 2) std::this_thread::yield();
  const std::string address = server_->address();
  for (int i = 0; i < 8; ++i) {
    ExpectInChild([&] {
      ExpectForked(Echo(*channel_));
      EXPECT_EQ(Echo(*Open(address)), absl::OkStatus());
      DestroyAll();
    });
  }
  over = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(Echo(*channel_), absl::OkStatus());
  EXPECT_EQ(channel_->stats().connects, 1u);
}

// Handlers that wait on an executor at the fork are in both processes: in the child they may run or
// be dropped, and say nothing; the parent's end their calls.
TEST_P(ForkTest, HandlersOnAnExecutorEndTheirCallsInTheParentAlone) {
  LateExecutor executor;
  std::unique_ptr<Server> server = Serve("", &executor);
  std::unique_ptr<Channel> channel = Open(server->address());
  constexpr size_t kCalls = 2;
  Data replies[kCalls];
  std::vector<absl::Status> ends;
  for (Data& reply : replies) {
    Probe::Stub(*channel).Echo(MakeData(7, 100), &reply, {},
                               [&](const absl::Status& status) { ends.push_back(status); });
  }
  while (executor.waiting() < kCalls) {
    channel->engine().Poll();
    std::this_thread::yield();
  }
  ExpectInChild([&] {
    executor.Take()();
    executor.Take();
    channel.reset();
    server.reset();
  });
  EXPECT_TRUE(ends.empty());
  while (executor.waiting() > 0) executor.Take()();
  EXPECT_TRUE(channel->engine().RunUntil([&] { return ends.size() == kCalls; }));
  for (const absl::Status& end : ends) EXPECT_EQ(end, absl::OkStatus());
  for (const Data& reply : replies) EXPECT_EQ(reply.number(), 7u);
  channel.reset();
  server.reset();
  ExpectParentGoesOn();
}

// Which then ends without returning from it.
TEST_P(ForkTest, ACallbackMayFork) {
  pid_t child = -1;
  Data reply;
  bool done = false;
  Probe::Stub(*channel_).Echo(MakeData(1, 1), &reply, {}, [&](const absl::Status& status) {
    EXPECT_EQ(status, absl::OkStatus());
    child = Fork([&] {
      EXPECT_FALSE(channel_->engine().OnEngine());
      ExpectForked(Echo(*channel_));
      DestroyAll();
    });
    done = true;
  });
  EXPECT_TRUE(channel_->engine().RunUntil([&] { return done; }));
  ExpectEndsWell(child);
  ExpectParentGoesOn();
}

}  // namespace
}  // namespace weft::test
