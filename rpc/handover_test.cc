// A server takes the place of another one, under load: no call is refused, and whatever goes wrong
// on the way leaves the one serving that has served before. Two servers of one process stand for
// two processes: what is handed over goes through the same socket.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <latch>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/strings.h"
#include "rpc/client/channel.h"
#include "rpc/server/server.h"
#include "rpc/testing/probe_service.h"
#include "rpc/testing/stream_service.weft.h"
#include "transport/handover_socket.h"
#include "transport/network.h"
#include "weft/status.h"

namespace weft::test {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kGraceUs = 60'000'000;
constexpr int kPatienceMs = 30'000;  // of a machine that stands still

class CountedEcho final : public Probe::Service {
 public:
  absl::Status Echo(ServerContext&, const Data& request, Data* reply) override {
    runs.fetch_add(1, std::memory_order_relaxed);
    *reply = request;
    return absl::OkStatus();
  }
  void StartHold(UnaryCall<Data, Data> call) override {
    held.emplace_back(std::move(call));
    holding.count_down();
  }
  std::atomic<uint64_t> runs = 0;
  std::vector<UnaryCall<Data, Data>> held;  // the engine's
  std::latch holding{1};
};

// Says back what it hears, until the client has said all.
class Repeater final : public Streams::Service {
 public:
  void StartTalk(ServerReaderWriter<Data, Data> stream) override {
    struct Talk {
      void Next() {
        stream.Read(&word, [this](bool ok) {
          if (!ok) return End();
          stream.Write(word, [this](bool written) { written ? Next() : End(); });
        });
      }
      void End() {
        stream.Finish(absl::OkStatus());
        delete this;
      }
      ServerReaderWriter<Data, Data> stream;
      Data word;
    };
    streams.fetch_add(1);
    (new Talk{std::move(stream), {}})->Next();
  }
  std::atomic<uint64_t> streams = 0;
};

// A server, as a process of its own would be it.
struct Generation {
  CountedEcho service;
  Repeater repeater;
  std::latch handed_over{1};
  std::unique_ptr<Server> server;
};

struct Kind {
  const char* name;
  PathKind path;
  uint32_t engines;
  bool unix_socket = false;
  bool tls = false;
};

class HandoverTest : public testing::TestWithParam<Kind> {
 protected:
  HandoverTest() {
    folder_ = "/tmp/weft-handover-XXXXXX";
    EXPECT_NE(::mkdtemp(folder_.data()), nullptr);
    path_ = folder_ + "/upgrade";
    listen_ = kind().unix_socket ? StrCat("unix:", folder_, "/kv") : "127.0.0.1:0";
  }
  ~HandoverTest() override {
    now_.reset();
    EXPECT_EQ(::rmdir(folder_.c_str()), 0) << "a file was left behind in " << folder_;
  }

  static Kind kind() {
    const auto* const info = testing::UnitTest::GetInstance()->current_test_info();
    return info->value_param() == nullptr ? Kind{"", PathKind::kTcp, 1} : GetParam();
  }

  static std::optional<SecurityOptions> Security() {
    if (!kind().tls) return std::nullopt;
    SecurityOptions security;
    security.psk_name = "tests";
    security.psk_secret = std::string(32, 'k');
    return security;
  }

  std::unique_ptr<Generation> Make() {
    auto generation = std::make_unique<Generation>();
    ServerOptions options;
    options.handover_path = path_;
    options.on_handed_over = [raw = generation.get()] { raw->handed_over.count_down(); };
    options.engines = kind().engines;
    options.max_sessions = 0;
    options.link.peer_timeout_ns = 0;
    options.spin_ns = 0;
    options.security = Security();
    generation->server = *Server::Create(options);
    EXPECT_TRUE(generation->server->AddService(&generation->service).ok());
    EXPECT_TRUE(generation->server->AddService(&generation->repeater).ok());
    return generation;
  }
  std::unique_ptr<Generation> Started() {
    std::unique_ptr<Generation> generation = Make();
    const absl::Status listening = generation->server->Listen(listen_);
    EXPECT_TRUE(listening.ok()) << listening;
    const absl::Status ready = generation->server->Ready();
    EXPECT_TRUE(ready.ok()) << ready;
    return generation;
  }
  void Start() {
    now_ = Started();
    address_ = now_->server->address();
  }
  // As a process that is told to end when the next one has taken over.
  static void End(Generation& generation) {
    generation.handed_over.wait();
    generation.server->Shutdown(kGraceUs);
  }
  uint64_t Upgrade() {
    std::unique_ptr<Generation> next = Started();
    EXPECT_EQ(next->server->address(), address_);
    End(*now_);
    const uint64_t runs = now_->service.runs;
    now_ = std::move(next);
    return runs;
  }

  ChannelOptions Options() const {
    ChannelOptions options;
    options.link.paths = {kind().path};
    options.link.peer_timeout_ns = 0;
    options.security = Security();
    return options;
  }
  std::unique_ptr<Channel> Open() const {
    auto channel = Channel::Open(address_, Options());
    EXPECT_TRUE(channel.ok()) << channel.status();
    return *std::move(channel);
  }
  void ExpectServing() const {
    const uint64_t before = now_->service.runs;
    const std::unique_ptr<Channel> channel = Open();
    Data reply;
    EXPECT_EQ(Probe::Stub(*channel).Echo(MakeData(1, 10), &reply), absl::OkStatus());
    EXPECT_EQ(now_->service.runs, before + 1);
  }

  std::string folder_;
  std::string path_;
  std::string listen_;
  std::string address_;
  std::unique_ptr<Generation> now_;
};

// What all clients have done.
struct Tally {
  void Count(const absl::Status& status, const char* who) {
    EXPECT_TRUE(status.ok()) << who << ": " << status;
    status.ok() ? ++ok : ++failed;
  }
  bool over() const { return stop || failed > 0; }

  std::atomic<uint64_t> ok = 0;
  std::atomic<uint64_t> failed = 0;
  std::atomic<bool> stop = false;
};

// --- under load ----------------------------------------------------------------------------------

// Calls one after the other by callbacks, on an engine with a thread.
class Loop {
 public:
  Loop(Tally& tally, Channel& channel, std::latch& over)
      : tally_(tally), stub_(channel), over_(over) {}
  void Next() {
    if (tally_.over()) return over_.count_down();
    request_ = MakeData(calls, calls % 97 == 7 ? 200'000 : calls % 300);
    stub_.Echo(request_, &reply_, {}, [this](absl::Status status) {
      tally_.Count(status, "a callback");
      ++calls;
      Next();
    });
  }
  std::atomic<uint64_t> calls = 0;

 private:
  Tally& tally_;
  Probe::Stub stub_;
  std::latch& over_;
  Data request_;
  Data reply_;
};

TEST_P(HandoverTest, NoCallIsRefusedWhileServersFollowOneAnother) {
  constexpr int kUpgrades = 4;
  constexpr size_t kLanes = 8;
  Start();
  Tally tally;
  EngineOptions own_thread;
  own_thread.drive = EngineOptions::Drive::kOwnThread;
  own_thread.spin_ns = 0;
  const auto engine = *OpenNetworkEngine(own_thread);
  const auto driven = *Channel::Open(*engine, address_, Options());
  std::latch over(kLanes);
  std::vector<std::unique_ptr<Loop>> loops;
  for (size_t i = 0; i < kLanes; ++i) {
    loops.push_back(std::make_unique<Loop>(tally, *driven, over));
    loops.back()->Next();
  }
  // One that blocks in calls and drives its channel only then, and one that comes anew each time.
  std::atomic<uint64_t> blocking = 0;
  std::atomic<uint64_t> newcomers = 0;
  std::thread caller([&] {
    const std::unique_ptr<Channel> channel = Open();
    Probe::Stub stub(*channel);
    Data reply;
    for (; !tally.over(); ++blocking) {
      tally.Count(stub.Echo(MakeData(blocking, 100), &reply), "a blocking call");
    }
  });
  std::thread newcomer([&] {
    Data reply;
    for (; !tally.over(); ++newcomers) {
      const std::unique_ptr<Channel> channel = Open();
      tally.Count(Probe::Stub(*channel).Echo(MakeData(1, 1), &reply), "a new channel");
    }
  });
  const auto await_progress = [&] {
    std::vector<const std::atomic<uint64_t>*> counts = {&blocking, &newcomers};
    for (const auto& loop : loops) counts.push_back(&loop->calls);
    for (const auto* count : counts) {
      const uint64_t until = *count + 10;
      while (*count < until && !tally.over()) std::this_thread::yield();
    }
  };
  uint64_t runs = 0;
  for (int i = 0; i < kUpgrades; ++i) {
    await_progress();
    const uint64_t of_this = Upgrade();
    EXPECT_GT(of_this, 0u);
    runs += of_this;
  }
  await_progress();
  tally.stop = true;
  over.wait();
  caller.join();
  newcomer.join();
  EXPECT_EQ(tally.failed, 0u);
  EXPECT_EQ(runs + now_->service.runs, tally.ok) << "a handler ran twice, or for nothing";
}

// --- one step after the other --------------------------------------------------------------------

TEST_P(HandoverTest, ACallThatRunsEndsInTheOldProcessAndNewOnesDoNotWaitForIt) {
  Start();
  const std::unique_ptr<Channel> channel = Open();
  Probe::Stub stub(*channel);
  Data reply;
  Data other;
  std::thread caller([&] { EXPECT_EQ(stub.Hold(MakeData(7, 10), &reply), absl::OkStatus()); });
  now_->service.holding.wait();
  std::unique_ptr<Generation> next = Started();
  now_->handed_over.wait();
  std::thread ends([&] { now_->server->Shutdown(kGraceUs); });
  while (next->service.runs == 0 && !HasFailure()) {
    EXPECT_EQ(stub.Echo(MakeData(1, 10), &other), absl::OkStatus());
  }
  // The handler has not returned, and the old process goes on with it.
  for (auto& call : std::exchange(now_->service.held, {})) {
    *call.reply() = call.request();
    call.Finish(absl::OkStatus());
  }
  caller.join();
  EXPECT_EQ(reply.number(), 7u);
  ends.join();
  now_ = std::move(next);
  EXPECT_EQ(stub.Echo(MakeData(8, 10), &reply), absl::OkStatus());
  EXPECT_GE(now_->service.runs, 2u);
}

TEST_P(HandoverTest, AStreamEndsInTheOldProcessAndNewOnesGoToTheNext) {
  Start();
  const std::unique_ptr<Channel> channel = Open();
  Streams::Stub stub(*channel);
  Data heard;
  auto old = stub.Talk();
  const auto expect_repeated = [&](auto& stream, uint64_t number) {
    EXPECT_TRUE(stream.Write(MakeData(number, 100)));
    EXPECT_TRUE(stream.Read(&heard));
    EXPECT_EQ(heard.number(), number);
  };
  expect_repeated(old, 1);
  std::unique_ptr<Generation> next = Started();
  now_->handed_over.wait();
  std::thread ends([&] { now_->server->Shutdown(kGraceUs); });
  for (uint64_t number = 2; next->repeater.streams == 0 && !HasFailure(); ++number) {
    auto other = stub.Talk();
    expect_repeated(other, number);
    expect_repeated(old, number);
    other.WritesDone();
    EXPECT_FALSE(other.Read(&heard));
    EXPECT_EQ(other.Finish(), absl::OkStatus());
  }
  expect_repeated(old, 1'000'000);
  old.WritesDone();
  EXPECT_FALSE(old.Read(&heard));
  EXPECT_EQ(old.Finish(), absl::OkStatus());
  ends.join();
  now_ = std::move(next);
  auto last = stub.Talk();
  expect_repeated(last, 3);
  last.WritesDone();
  EXPECT_FALSE(last.Read(&heard));
  EXPECT_EQ(last.Finish(), absl::OkStatus());
}

INSTANTIATE_TEST_SUITE_P(All, HandoverTest,
                         testing::Values(Kind{"shm", PathKind::kShm, 1},
                                         Kind{"tcp", PathKind::kTcp, 1},
                                         Kind{"tcp_tls", PathKind::kTcp, 1, false, true},
                                         Kind{"shm_tls", PathKind::kShm, 2, false, true},
                                         Kind{"three_engines", PathKind::kTcp, 3},
                                         Kind{"unix", PathKind::kTcp, 1, true}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(HandoverTest, AClientThatHasAskedForAnEngineHasItInTheNextProcessToo) {
  Start();
  EngineOptions own_thread;
  own_thread.drive = EngineOptions::Drive::kOwnThread;
  own_thread.spin_ns = 0;
  const auto engine = *OpenNetworkEngine(own_thread);
  ChannelOptions options = Options();
  const uint32_t wanted = kind().engines - 1;
  options.link.server_engine = wanted;
  const auto channel = *Channel::Open(*engine, address_, options);
  for (int i = 0; i < 2; ++i) {
    if (i > 0) Upgrade();
    Data reply;
    EXPECT_EQ(Probe::Stub(*channel).Echo(MakeData(1, 10), &reply), absl::OkStatus());
    EXPECT_EQ(now_->service.runs, 1u);
    EXPECT_EQ(now_->server->stats_by_engine()[wanted].requests, 1u);
  }
}

// --- what goes wrong -----------------------------------------------------------------------------

class HandoverFailureTest : public HandoverTest {
 protected:
  // A process that wants to take over, by hand.
  class Successor {
   public:
    explicit Successor(const std::string& path) : socket_(*ConnectToPredecessor(path)) {
      EXPECT_TRUE(socket_.valid());
    }
    std::string Ask(const std::string& line) {
      EXPECT_EQ(SendHandover(socket_.get(), line), absl::OkStatus());
      return Listen();
    }
    std::string Listen() {
      absl::StatusOr<HandoverMessage> message = ReceiveHandover(socket_.get(), kPatienceMs);
      if (!message.ok()) return StrCat("(", ToStd(message.status().message()), ")");
      got = std::move(message->descriptor);
      return message->text;
    }
    int socket() const { return socket_.get(); }
    Descriptor got;

   private:
    Descriptor socket_;
  };
};

TEST_F(HandoverFailureTest, ASuccessorThatGoesAtAnyMomentLeavesTheOldOneServing) {
  Start();
  const std::vector<std::vector<std::string>> stories = {
      {}, {"hello 1"}, {"hello 1", "take 127.0.0.1:0"}};
  for (const auto& story : stories) {
    {
      Successor successor(path_);
      for (const std::string& line : story) successor.Ask(line);
    }
    ExpectServing();
  }
  EXPECT_EQ(Upgrade(), stories.size());
  ExpectServing();
}

// A successor that had heard `go` and gave up left nobody who accepted: the old process believed
// that what it had sent was done.
TEST_F(HandoverFailureTest, ASuccessorThatDoesNotAcceptLeavesTheOldOneServing) {
  Start();
  for (const std::string last : {"", "go", "ready"}) {
    SCOPED_TRACE(last);
    {
      Successor successor(path_);
      for (const char* const line : {"hello 1", "take 127.0.0.1:0"}) successor.Ask(line);
      EXPECT_EQ(successor.Ask("ready"), "go");
      if (!last.empty()) {
        EXPECT_EQ(SendHandover(successor.socket(), last), absl::OkStatus());
      }
    }
    ExpectServing();
  }
  EXPECT_EQ(Upgrade(), 3u);
  ExpectServing();
}

// It had let the old process go before it looked whether it could listen there.
TEST_F(HandoverFailureTest, WhoCannotListenForTheNextOneDoesNotTakeOver) {
  Start();
  const std::string in_the_way = StrCat(path_, ".", ::getpid());
  ASSERT_EQ(::mkdir(in_the_way.c_str(), 0700), 0);
  std::unique_ptr<Generation> next = Make();
  ASSERT_EQ(next->server->Listen(listen_), absl::OkStatus());
  EXPECT_FALSE(next->server->Ready().ok());
  next->server.reset();
  ASSERT_EQ(::rmdir(in_the_way.c_str()), 0);
  ExpectServing();
  Upgrade();
  ExpectServing();
}

TEST_F(HandoverFailureTest, AServerThatIsShutDownMeanwhileIsNotReady) {
  Start();
  const std::unique_ptr<Generation> next = Make();
  ASSERT_EQ(next->server->Listen(listen_), absl::OkStatus());
  next->server->Shutdown(0);
  EXPECT_TRUE(absl::IsFailedPrecondition(next->server->Ready()));
  ExpectServing();
}

// It took the file of its socket with it: the next one listened where nobody could come.
TEST_F(HandoverFailureTest, WhoStopsBeforeItHasHandedOverLeavesTheFileOfItsSocket) {
  listen_ = "unix:" + path_ + ".address";
  Start();
  std::unique_ptr<Generation> next = Make();
  ASSERT_EQ(next->server->Listen(listen_), absl::OkStatus());
  now_->server.reset();
  EXPECT_EQ(next->server->Ready(), absl::OkStatus());
  now_ = std::move(next);
  ExpectServing();
}

TEST_F(HandoverFailureTest, AnEngineWithoutAThreadHandsNothingOver) {
  const auto engine = *OpenNetworkEngine({.drive = EngineOptions::Drive::kCaller});
  ServerOptions options;
  options.handover_path = path_;
  options.max_sessions = 0;
  const absl::Status refused = Server::Create(*engine, options).status();
  EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
  EXPECT_THAT(ToStd(refused.message()), HasSubstr("a thread of its own"));
}

// Both processes would have run a call of which either had an attempt.
TEST_F(HandoverFailureTest, AServerThatRemembersCallsHandsNothingOver) {
  ServerOptions options;
  options.handover_path = path_;
  const absl::Status refused = Server::Create(options).status();
  EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
  EXPECT_THAT(ToStd(refused.message()),
              HasSubstr("ServerOptions::max_sessions is 65536 beside a handover_path"));
  options.max_sessions = 0;
  EXPECT_TRUE(Server::Create(options).ok());
}

TEST_F(HandoverFailureTest, WhatNoSuccessorSaysEndsItAlone) {
  Start();
  for (const std::string line :
       {"take", "take ", "hello 2", "go", "ready or not", "\x01\xff", "GET / HTTP/1.1"}) {
    SCOPED_TRACE(line);
    Successor successor(path_);
    const std::string answer = successor.Ask(line);
    if (line == "take ") {
      EXPECT_EQ(answer, "none ");
    } else {
      EXPECT_THAT(answer, HasSubstr("refused a line of "));
    }
    ExpectServing();
  }
  Successor successor(path_);
  std::string longest(kMaxHandoverText, 'x');
  EXPECT_THAT(successor.Ask(longest), HasSubstr("refused"));
  ExpectServing();
  Upgrade();
  ExpectServing();
}

TEST_F(HandoverFailureTest, DescriptorsThatNobodyAskedForAreClosed) {
  Start();
  int pipe_ends[2];
  ASSERT_EQ(::pipe(pipe_ends), 0);
  {
    Successor successor(path_);
    EXPECT_EQ(SendHandover(successor.socket(), "hello 1", pipe_ends[1]), absl::OkStatus());
    EXPECT_EQ(successor.Listen(), "hello 1");
    ::close(pipe_ends[1]);
    char byte;
    EXPECT_EQ(::read(pipe_ends[0], &byte, 1), 0) << "its other end is still open";
  }
  ::close(pipe_ends[0]);
  ExpectServing();
}

TEST_F(HandoverFailureTest, OfTwoSuccessorsTheSecondIsTold) {
  Start();
  Successor first(path_);
  EXPECT_EQ(first.Ask("hello 1"), "hello 1");
  const std::unique_ptr<Generation> second = Make();
  const absl::Status listening = second->server->Listen(listen_);
  EXPECT_TRUE(absl::IsFailedPrecondition(listening)) << listening;
  EXPECT_THAT(ToStd(listening.message()), HasSubstr("is about to take over"));
  ExpectServing();
}

TEST_F(HandoverFailureTest, ASuccessorThatIsGivenUpBeforeItIsReadyServesNobody) {
  Start();
  {
    const std::unique_ptr<Generation> next = Make();
    ASSERT_EQ(next->server->Listen(listen_), absl::OkStatus());
    ExpectServing();
  }
  ExpectServing();
  Upgrade();
  ExpectServing();
}

TEST_F(HandoverFailureTest, WithoutAPredecessorAServerStarts) {
  Start();
  ExpectServing();
  struct stat facts {};
  ASSERT_EQ(::stat(path_.c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0600u);
  now_.reset();
  EXPECT_NE(::stat(path_.c_str(), &facts), 0) << "it has left its file behind";
  Start();
  ExpectServing();
}

TEST_F(HandoverFailureTest, ReadyNeedsAPathAndComesOnce) {
  Start();
  EXPECT_TRUE(absl::IsFailedPrecondition(now_->server->Ready()));
  ExpectServing();
  const auto plain = *Server::Create();
  EXPECT_TRUE(absl::IsFailedPrecondition(plain->Ready()));
}

// A process that claims to serve there.
class FalsePredecessor {
 public:
  // Answers "hello", and then `answer` with `descriptor`, and ends.
  FalsePredecessor(const std::string& path, std::string answer, int descriptor)
      : listener_(*ListenForSuccessor(path)) {
    thread_ = std::thread([this, answer = std::move(answer), descriptor] {
      Descriptor socket;
      while (!socket.valid()) {
        socket = *AcceptSuccessor(listener_.socket.get());
        std::this_thread::yield();
      }
      EXPECT_TRUE(ReceiveHandover(socket.get(), kPatienceMs).ok());
      EXPECT_EQ(SendHandover(socket.get(), "hello 1"), absl::OkStatus());
      EXPECT_TRUE(ReceiveHandover(socket.get(), kPatienceMs).ok());
      EXPECT_EQ(SendHandover(socket.get(), answer, descriptor), absl::OkStatus());
      // What is said then is heard, and the end is the answer.
      static_cast<void>(ReceiveHandover(socket.get(), kPatienceMs));
    });
  }
  ~FalsePredecessor() {
    thread_.join();
    RemoveHandoverFile(listener_);
  }

 private:
  HandoverListener listener_;
  std::thread thread_;
};

TEST_F(HandoverFailureTest, WhatIsNoListenerOfThisAddressIsNotTaken) {
  const Descriptor plain(::socket(AF_INET, SOCK_STREAM, 0));
  struct Case {
    std::string answer;
    int descriptor;
    const char* error;
  };
  const Case cases[] = {
      {"socket 127.0.0.1:0", plain.get(), "no stream socket that listens"},
      {"socket 127.0.0.1:0", STDIN_FILENO, "as a socket that listens"},
      {"socket 127.0.0.1:0", -1, "none of a handover"},
      {"socket 127.0.0.1:1", plain.get(), "none of a handover"},
      {"refused for a reason", -1, "for a reason"},
  };
  for (const Case& test : cases) {
    SCOPED_TRACE(test.answer);
    FalsePredecessor predecessor(path_, test.answer, test.descriptor);
    const std::unique_ptr<Generation> next = Make();
    const absl::Status listening = next->server->Listen(listen_);
    EXPECT_FALSE(listening.ok());
    EXPECT_THAT(ToStd(listening.message()), HasSubstr(test.error));
    next->server.reset();
  }
}

TEST_F(HandoverFailureTest, AListenerOfAnotherAddressIsNotTaken) {
  const Descriptor other(::socket(AF_INET6, SOCK_STREAM, 0));
  ASSERT_EQ(::listen(other.get(), 1), 0);
  FalsePredecessor predecessor(path_, "socket 127.0.0.1:1", other.get());
  const std::unique_ptr<Generation> next = Make();
  const absl::Status listening = next->server->Listen("127.0.0.1:1");
  EXPECT_TRUE(absl::IsInvalidArgument(listening)) << listening;
  EXPECT_THAT(ToStd(listening.message()), HasSubstr("it listens on"));
  next->server.reset();
}

TEST_F(HandoverFailureTest, WhereTheOldOneEndsMeanwhileTheNewOneServes) {
  Start();
  Descriptor listener;
  {
    Successor successor(path_);
    EXPECT_EQ(successor.Ask("hello 1"), "hello 1");
    EXPECT_EQ(successor.Ask("take 127.0.0.1:0"), "socket 127.0.0.1:0");
    listener = std::move(successor.got);
  }
  now_->server.reset();
  {
    FalsePredecessor predecessor(path_, "socket 127.0.0.1:0", listener.get());
    now_ = Started();  // it is not told to go: the other one has ended
  }
  EXPECT_EQ(now_->server->address(), address_);
  ExpectServing();
}

// --- a build of 2026-11-28 -----------------------------------------------------------------------

// One of its processes, by its messages as they lay in its socket: a line without an end, and at
// most one descriptor.
class OlderProcess {
 public:
  explicit OlderProcess(Descriptor socket) : socket_(std::move(socket)) {}

  void Say(std::string line, int descriptor = -1) {
    iovec text{line.data(), line.size()};
    msghdr message{};
    message.msg_iov = &text;
    message.msg_iovlen = 1;
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    if (descriptor >= 0) {
      message.msg_control = control;
      message.msg_controllen = sizeof(control);
      cmsghdr* const rights = CMSG_FIRSTHDR(&message);
      rights->cmsg_level = SOL_SOCKET;
      rights->cmsg_type = SCM_RIGHTS;
      rights->cmsg_len = CMSG_LEN(sizeof(int));
      std::memcpy(CMSG_DATA(rights), &descriptor, sizeof(int));
    }
    EXPECT_EQ(::sendmsg(socket_.get(), &message, MSG_NOSIGNAL), static_cast<ssize_t>(line.size()));
  }
  std::string Hear() {
    pollfd waits{socket_.get(), POLLIN, 0};
    if (::poll(&waits, 1, kPatienceMs) != 1) return "(nothing)";
    std::string line(1024, '?');
    iovec text{line.data(), line.size()};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &text;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    const ssize_t bytes = ::recvmsg(socket_.get(), &message, MSG_CMSG_CLOEXEC);
    if (bytes <= 0) return "(the end)";
    got.Reset();
    if (const cmsghdr* const rights = CMSG_FIRSTHDR(&message); rights != nullptr) {
      int descriptor = -1;
      std::memcpy(&descriptor, CMSG_DATA(rights), sizeof(int));
      got.Reset(descriptor);
    }
    return line.substr(0, static_cast<size_t>(bytes));
  }

  Descriptor got;  // with the last line

 private:
  const Descriptor socket_;
};

// The one that connects there.
Descriptor AwaitSuccessor(const HandoverListener& listener) {
  Descriptor successor;
  while (!successor.valid()) {
    successor = *AcceptSuccessor(listener.socket.get());
    std::this_thread::yield();
  }
  return successor;
}

TEST_F(HandoverFailureTest, AnOlderBuildTakesOverFromThisOne) {
  Start();
  OlderProcess older(*ConnectToPredecessor(path_));
  older.Say("hello 1");
  EXPECT_EQ(older.Hear(), "hello 1");
  older.Say("take 127.0.0.1:1");
  EXPECT_EQ(older.Hear(), "none 127.0.0.1:1");
  EXPECT_FALSE(older.got.valid());
  older.Say("take 127.0.0.1:0");
  EXPECT_EQ(older.Hear(), "socket 127.0.0.1:0");
  EXPECT_TRUE(older.got.valid());
  older.Say("ready");
  EXPECT_EQ(older.Hear(), "go");
  older.Say("have");
  End(*now_);
  EXPECT_EQ(::unlink(path_.c_str()), 0) << "it is the older one's by now, as far as this one knows";
}

TEST_F(HandoverFailureTest, ThisBuildTakesOverFromAnOlderOne) {
  Descriptor listening(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof(at);
  ASSERT_EQ(::bind(listening.get(), reinterpret_cast<sockaddr*>(&at), bytes), 0);
  ASSERT_EQ(::listen(listening.get(), 8), 0);
  ASSERT_EQ(::getsockname(listening.get(), reinterpret_cast<sockaddr*>(&at), &bytes), 0);
  address_ = StrCat("127.0.0.1:", ntohs(at.sin_port));
  const HandoverListener path = *ListenForSuccessor(path_);
  // A client that the older one has accepted, and of which it has read nothing.
  std::thread caller([this] {
    Data reply;
    const std::unique_ptr<Channel> channel = Open();
    EXPECT_EQ(Probe::Stub(*channel).Echo(MakeData(1, 10), &reply), absl::OkStatus());
  });
  pollfd waits{listening.get(), POLLIN, 0};
  EXPECT_EQ(::poll(&waits, 1, kPatienceMs), 1);
  Descriptor client(::accept4(listening.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  EXPECT_TRUE(client.valid());
  std::thread next([this] { now_ = Started(); });
  OlderProcess older(AwaitSuccessor(path));
  EXPECT_EQ(older.Hear(), "hello 1");
  older.Say("hello 1");
  EXPECT_EQ(older.Hear(), "take 127.0.0.1:0");
  older.Say("socket 127.0.0.1:0", listening.get());
  EXPECT_EQ(older.Hear(), "ready");
  older.Say("client 127.0.0.1:0", client.get());
  older.Say("go");
  EXPECT_EQ(older.Hear(), "have");
  client.Reset();
  listening.Reset();
  next.join();
  caller.join();
  EXPECT_EQ(now_->server->address(), address_);
  EXPECT_EQ(now_->service.runs, 1u);
  ExpectServing();
}

TEST_F(HandoverFailureTest, AnOlderOneThatRefusesIsHeard) {
  const HandoverListener path = *ListenForSuccessor(path_);
  const std::unique_ptr<Generation> generation = Make();
  absl::Status listened;
  std::thread next([&] { listened = generation->server->Listen(listen_); });
  OlderProcess older(AwaitSuccessor(path));
  EXPECT_EQ(older.Hear(), "hello 1");
  older.Say("refused process 7 is about to take over");
  next.join();
  EXPECT_TRUE(absl::IsFailedPrecondition(listened)) << listened;
  EXPECT_THAT(ToStd(listened.message()), HasSubstr("process 7 is about to take over"));
  RemoveHandoverFile(path);
}

}  // namespace
}  // namespace weft::test
