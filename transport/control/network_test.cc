// Connections on the real network, between two engines of this process: which path they take, and
// what they say about it.

#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "core/strings.h"
#include "gtest/gtest.h"
#include "transport/control/testing/network_world.h"
#include "transport/descriptor.h"
#include "transport/sockets/address.h"
#include "transport/sockets/socket.h"
#include "transport/sockets/unix_listener.h"

namespace weft {
namespace {

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Sets a variable for one test.
class ScopedVariable {
 public:
  ScopedVariable(const char* name, const char* value) : name_(name) {
    setenv(name, value, /*overwrite=*/1);
  }
  ~ScopedVariable() { unsetenv(name_); }

 private:
  const char* const name_;
};

TEST_F(NetworkTest, TakesTheBestPathAndSaysWhyOnBothSides) {
  Listen("127.0.0.1:0");
  NetworkEnd* const end = Dial();
  ASSERT_TRUE(RunUntilDecided(*end));
  ASSERT_TRUE(end->opened()) << end->why();
  ASSERT_TRUE(Run([&] { return acceptor_.ends[0]->opened(); }));
  for (const NetworkEnd* side : {end, acceptor_.ends[0].get()}) {
    EXPECT_EQ(side->path(), "shm");
    EXPECT_TRUE(Contains(side->explained(), "same host (kernel ")) << side->explained();
    EXPECT_TRUE(Contains(side->explained(), "pid " + std::to_string(getpid())))
        << side->explained();
    EXPECT_TRUE(Contains(side->explained(), "tcp   not tried")) << side->explained();
  }
}

TEST_F(NetworkTest, CarriesMessagesBothWaysOnEachPath) {
  acceptor_.echo = true;
  Listen("127.0.0.1:0");
  for (const PathKind kind : {PathKind::kShm, PathKind::kTcp}) {
    NetworkEnd* const end = Dial(Over({kind}));
    ASSERT_TRUE(RunUntilDecided(*end));
    ASSERT_TRUE(end->opened()) << end->why();
    EXPECT_EQ(end->path(), PathKindName(kind));
    ASSERT_TRUE(end->Send("there and back"));
    ASSERT_TRUE(Run([&] { return !end->received.empty(); })) << PathKindName(kind);
    EXPECT_EQ(end->received[0], "there and back");
    end->connection().Close("enough");
    ASSERT_TRUE(Run([&] { return end->closed() && acceptor_.ends.back()->closed(); }));
    EXPECT_EQ(end->why().code(), absl::StatusCode::kCancelled);
    EXPECT_EQ(acceptor_.ends.back()->why(), absl::UnavailableError("peer closed: enough"));
  }
}

TEST_F(NetworkTest, AnEmptyReasonIsAnOrderlyEndToo) {
  Listen("127.0.0.1:0");
  NetworkEnd* const end = Dial();
  ASSERT_TRUE(RunUntilDecided(*end));
  ASSERT_TRUE(Run([&] { return acceptor_.ends[0]->opened(); }));
  end->connection().Close("");
  ASSERT_TRUE(Run([&] { return acceptor_.ends[0]->closed(); }));
  EXPECT_EQ(acceptor_.ends[0]->why(), absl::UnavailableError("peer closed: "));
}

TEST_F(NetworkTest, ReasonsFromUsersNeedNotBeText) {
  Listen("127.0.0.1:0");
  NetworkEnd* const end = Dial();
  ASSERT_TRUE(RunUntilDecided(*end));
  ASSERT_TRUE(Run([&] { return acceptor_.ends[0]->opened(); }));
  end->connection().Close(std::string("\xff\x1b[2J") + std::string(100'000, 'x'));
  ASSERT_TRUE(Run([&] { return acceptor_.ends[0]->closed(); }));
  const std::string why(acceptor_.ends[0]->why().message());
  EXPECT_TRUE(Contains(why, "peer closed: ??[2Jxxx")) << why;
  EXPECT_LT(why.size(), 2'000u);
}

// --- addresses -----------------------------------------------------------------------------------

TEST_F(NetworkTest, IsReachedByNameAndOverIpv6AndUnixSockets) {
  std::string folder = "/tmp/weft_network_XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  for (const std::string& address :
       {std::string("localhost:0"), std::string("[::1]:0"), "unix:" + folder + "/server"}) {
    Listen(address);
    for (const PathKind kind : {PathKind::kShm, PathKind::kTcp}) {
      NetworkEnd* const end = Dial(Over({kind}));
      ASSERT_TRUE(RunUntilDecided(*end));
      EXPECT_TRUE(end->opened()) << address << ": " << end->why();
      EXPECT_EQ(end->path(), PathKindName(kind)) << address;
    }
  }
  listener_.reset();
  EXPECT_EQ(rmdir(folder.c_str()), 0) << "the socket's file was left behind";
}

// As a process does that takes the place of another one.
TEST_F(NetworkTest, AnotherProcessesSocketIsTakenWhereItListens) {
  std::string folder = "/tmp/weft_network_XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const std::string path = folder + "/server";
  auto unix_listener = *UnixListener::Open(path);
  const Descriptor tcp = *ListenInternet(Resolve(*ParseServerAddress("127.0.0.1:0"))->front());
  const std::string tcp_address = LocalAddress(tcp.get())->text();
  const Descriptor nameless(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr family{AF_UNIX, {}};  // the kernel makes up a name that is no path
  ASSERT_EQ(::bind(nameless.get(), &family, sizeof(family.sa_family)), 0);
  ASSERT_EQ(::listen(nameless.get(), 1), 0);
  const struct {
    std::string address;
    int socket;
    std::string words;
  } cases[] = {
      {"unix:" + path, tcp.get(), "with another process's socket: it listens on " + tcp_address},
      {"127.0.0.1:1", tcp.get(), "with another process's socket: it listens on " + tcp_address},
      {"127.0.0.1:0", unix_listener->fd(),
       "with another process's socket: it listens on unix:" + path},
      {"unix:" + path + "2", unix_listener->fd(),
       "with another process's socket: it listens on unix:" + path},
      {"systemd:server", nameless.get(), "where no client of Weft's can come"},
  };
  for (const auto& test : cases) {
    ListenOptions options;
    options.socket = test.socket;
    const absl::Status status =
        server_->transport().Listen(test.address, options, &acceptor_).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_TRUE(Contains(std::string(status.message()), "listen on " + test.address)) << status;
    EXPECT_TRUE(Contains(std::string(status.message()), test.words)) << status;
  }
  // Nobody is accepted before the former process has gone.
  for (const auto& [address, socket] :
       {std::pair{tcp_address, tcp.get()}, std::pair{"unix:" + path, unix_listener->fd()}}) {
    ListenOptions options;
    options.socket = socket;
    Listen(address, options);
    EXPECT_EQ(listener_->address(), address);
    NetworkEnd* const end = Dial();
    const size_t before = acceptor_.ends.size();
    client_->Poll();
    server_->Poll();
    EXPECT_EQ(acceptor_.ends.size(), before);
    ASSERT_TRUE(listener_->Resume().ok());
    ASSERT_TRUE(RunUntilDecided(*end));
    EXPECT_TRUE(end->opened()) << end->why();
  }
  // And the file is the last one's.
  unix_listener->LeaveFile();
  unix_listener.reset();
  EXPECT_EQ(::access(path.c_str(), F_OK), 0);
  listener_.reset();
  EXPECT_EQ(rmdir(folder.c_str()), 0) << "the socket's file was left behind";
}

// A client that reaches the server by IPv6 may have nothing else.
TEST_F(NetworkTest, TcpPathsTakeTheFamilyOfTheControlAddress) {
  const struct {
    const char* listen;
    const char* peer;
  } kCases[] = {{"[::1]:0", "[::1]:"}, {"127.0.0.1:0", "127.0.0.1:"}};
  for (const auto& c : kCases) {
    Listen(c.listen);
    NetworkEnd* const end = Dial(Over({PathKind::kTcp}));
    ASSERT_TRUE(RunUntilDecided(*end));
    ASSERT_TRUE(end->opened()) << end->why();
    EXPECT_EQ(end->connection().path().peer.find(c.peer), 0u) << end->connection().path().peer;
    EXPECT_EQ(end->connection().path().link, LinkKind::kIp);
  }
}

TEST_F(NetworkTest, BadAddressesAreRefusedAtOnce) {
  NetworkEnd never;
  for (const char* address : {"", "nowhere", "127.0.0.1:0", "unix:relative", "sim:x"}) {
    const auto connection = client_->transport().Connect(address, {}, &never);
    EXPECT_EQ(connection.status().code(), absl::StatusCode::kInvalidArgument) << address;
  }
  EXPECT_EQ(server_->transport().Listen("nonsense", {}, &acceptor_).status().code(),
            absl::StatusCode::kInvalidArgument);
}

// --- policies ------------------------------------------------------------------------------------

TEST_F(NetworkTest, FallsThroughToTcpWhenOneSideDeniesShm) {
  Listen("127.0.0.1:0", Allowing({PathKind::kTcp}));
  NetworkEnd* const end = Dial();
  ASSERT_TRUE(RunUntilDecided(*end));
  ASSERT_TRUE(end->opened()) << end->why();
  EXPECT_EQ(end->path(), "tcp");
  EXPECT_TRUE(Contains(end->explained(), "server: denied by its options (paths = tcp)"))
      << end->explained();
  ASSERT_TRUE(Run([&] { return acceptor_.ends[0]->opened(); }));
  EXPECT_TRUE(Contains(acceptor_.ends[0]->explained(), "shm   rejected")) << "the server knows too";
}

TEST_F(NetworkTest, TakesTheClientsOrder) {
  Listen("127.0.0.1:0");
  NetworkEnd* const end = Dial(Over({PathKind::kTcp, PathKind::kShm}));
  ASSERT_TRUE(RunUntilDecided(*end));
  EXPECT_EQ(end->path(), "tcp");
}

TEST_F(NetworkTest, WithoutACommonPathBothReasonsAreTold) {
  Listen("127.0.0.1:0", Allowing({PathKind::kTcp}));
  NetworkEnd* const end = Dial(Over({PathKind::kShm}));
  ASSERT_TRUE(RunUntilDecided(*end));
  ASSERT_TRUE(end->closed());
  EXPECT_EQ(end->why().code(), absl::StatusCode::kFailedPrecondition) << end->why();
  const std::string why(end->why().message());
  EXPECT_TRUE(Contains(why, "client: denied by its options (paths = shm)")) << why;
  EXPECT_TRUE(Contains(why, "server: denied by its options (paths = tcp)")) << why;
  EXPECT_TRUE(acceptor_.ends.empty());
  // Not in one line only: every candidate is there.
  for (const PathCandidate& candidate : end->candidates()) {
    EXPECT_EQ(candidate.outcome, PathCandidate::Outcome::kRejected) << CandidateName(candidate);
  }
  EXPECT_GE(end->candidates().size(), 3u);
}

TEST_F(NetworkTest, TheEnvironmentDecidesWhereOptionsDoNot) {
  const ScopedVariable paths("WEFT_PATHS", "tcp");
  Listen("127.0.0.1:0");
  NetworkEnd* const silent = Dial();
  ASSERT_TRUE(RunUntilDecided(*silent));
  EXPECT_EQ(silent->path(), "tcp");
  EXPECT_TRUE(Contains(silent->explained(), "denied by WEFT_PATHS=tcp")) << silent->explained();
}

TEST_F(NetworkTest, AnUnusableEnvironmentIsAClearError) {
  const struct {
    const char* value;
    const char* why;
  } kCases[] = {{"shm,,tcp", "is not known"}, {"ib", "\"ib\" is not known"},
                {"^", "is not known"},        {"^shm,verbs,tcp", "no path is left"},
                {"tcp,tcp", "twice"},         {"sim", "does not lead to other processes"}};
  for (const auto& c : kCases) {
    const ScopedVariable paths("WEFT_PATHS", c.value);
    const absl::Status status = OpenNetworkEngine({}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.value;
    EXPECT_TRUE(Contains(std::string(status.message()), "WEFT_PATHS=")) << status;
    EXPECT_TRUE(Contains(std::string(status.message()), c.why)) << status;
  }
}

TEST_F(NetworkTest, OptionsOutOfBoundsAreNamed) {
  NetworkOptions options;
  options.slot_bytes = 1000;
  EXPECT_TRUE(Contains(OpenNetworkEngine({}, options).status().ToString(), "slot_bytes is 1000"));
  options = {};
  options.max_large_bytes = 1;
  EXPECT_TRUE(Contains(OpenNetworkEngine({}, options).status().ToString(), "max_large_bytes is 1"));
  options = {};
  options.max_pool_bytes = 1;
  EXPECT_TRUE(Contains(OpenNetworkEngine({}, options).status().ToString(), "max_pool_bytes is 1"));
}

// libfabric's tcp provider is for trusted networks: nobody gets it who has not asked for it.
TEST_F(NetworkTest, OfiTcpIsForThoseWhoBothNameIt) {
  const std::vector<PathKind> unnamed = {PathKind::kTcp};
  const std::vector<PathKind> named = {PathKind::kOfiTcp, PathKind::kTcp};
  for (const auto& [client, server, path, why] :
       {std::tuple{std::vector<PathKind>(), std::vector<PathKind>(), "shm", ""},
        {unnamed, unnamed, "tcp", ""},
        {named, unnamed, "tcp", "the server does not name it"},
        {unnamed, named, "tcp", "the client does not name it"},
        {named, named, "ofi_tcp", ""}}) {
    Listen("127.0.0.1:0", Allowing(server));
    NetworkEnd* const end = Dial(Over(client));
    ASSERT_TRUE(RunUntilDecided(*end));
    ASSERT_TRUE(end->opened()) << end->why();
    EXPECT_EQ(end->path(), path);
    std::string reason;
    for (const PathCandidate& candidate : end->candidates()) {
      if (candidate.kind == PathKind::kOfiTcp && std::string_view(path) != "ofi_tcp") {
        reason = candidate.reason;
      }
    }
    EXPECT_EQ(reason.substr(0, std::string(why).size()), why) << end->explained();
    EXPECT_EQ(reason.empty(), std::string(why).empty()) << end->explained();
  }
}

// It listened on all interfaces, also for a server on 127.0.0.1, and so did its clients.
TEST_F(NetworkTest, OfiTcpListensWhereTheClientHasCome) {
  const auto only = std::vector<PathKind>{PathKind::kOfiTcp};
  acceptor_.echo = true;
  std::string folder = "/tmp/weft_network_XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const std::string at_path = "unix:" + folder + "/server";
  for (const auto& [listen, host] : {std::pair{std::string("[::1]:0"), "[::1]:"},
                                     {"127.0.0.1:0", "127.0.0.1:"},
                                     {"0.0.0.0:0", "127.0.0.1:"},
                                     {"[::]:0", "127.0.0.1:"},
                                     {at_path, "127.0.0.1:"}}) {
    Listen(listen, Allowing(only));
    std::string address = listener_->address();
    if (address.front() != 'u') address = StrCat(host, address.substr(address.rfind(':') + 1));
    NetworkEnd* const end = DialAt(address, Over(only));
    ASSERT_TRUE(RunUntilDecided(*end));
    ASSERT_TRUE(end->opened()) << listen << end->why();
    EXPECT_TRUE(Contains(end->explained(), StrCat("(TCP/IP), to ", address))) << end->explained();
    ASSERT_TRUE(end->Send("there and back"));
    ASSERT_TRUE(Run([&] { return !end->received.empty(); }));
    EXPECT_TRUE(Contains(acceptor_.ends.back()->explained(), StrCat("from ", host)))
        << acceptor_.ends.back()->explained();
  }
  listener_.reset();
  rmdir(folder.c_str());
}

TEST_F(NetworkTest, CountsWhatBecameOfPathsOnBothSides) {
  Listen("127.0.0.1:0");
  for (const PathKind kind : {PathKind::kTcp, PathKind::kTcp, PathKind::kShm}) {
    NetworkEnd* const end = Dial(Over({kind}));
    ASSERT_TRUE(RunUntilDecided(*end));
    ASSERT_TRUE(end->opened()) << end->why();
  }
  ASSERT_TRUE(Run([&] {
    for (const auto& end : acceptor_.ends) {
      if (!end->opened()) return false;
    }
    return acceptor_.ends.size() == 3;
  }));
  for (const Engine* engine : {client_.get(), server_.get()}) {
    std::map<std::string, uint64_t> counts;
    for (const auto& [name, value] : engine->counters().Snapshot()) counts[name] = value;
    EXPECT_EQ(counts["path.opened.tcp"], 2u);
    EXPECT_EQ(counts["path.opened.shm"], 1u);
    EXPECT_EQ(counts["path.rejected.shm"], 2u) << "denied by the client's options";
    EXPECT_EQ(counts["path.rejected.tcp"], 1u);
  }
}

TEST_F(NetworkTest, WhatTheApplicationRegistersIsCountedAndBoundedByName) {
  NetworkOptions options;
  options.max_region_bytes = uint64_t{1} << 20;
  client_ = NewNetworkEngine(options);
  Listen("127.0.0.1:0");
  NetworkEnd* const end = Dial();
  ASSERT_TRUE(RunUntilDecided(*end));
  ASSERT_TRUE(end->opened()) << end->why();
  std::vector<std::byte> memory(size_t{1} << 20);
  const auto register_bytes = [&](size_t bytes) {
    return end->connection().memory().Register({memory.data(), bytes}, Access::kLocalOnly);
  };
  const auto count = [&](const std::string& wanted) {
    uint64_t sum = 0;
    for (const auto& [name, value] : client_->counters().Snapshot())
      sum += name == wanted ? value : 0;
    return sum;
  };
  auto most = register_bytes(memory.size() - 4096);
  ASSERT_TRUE(most.ok()) << most.status();
  const absl::Status refused = register_bytes(4097).status();
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  EXPECT_TRUE(Contains(std::string(refused.message()), "max_region_bytes")) << refused;
  EXPECT_TRUE(register_bytes(4096).ok());
  EXPECT_EQ(count("memory.registrations"), 2u);
  EXPECT_EQ(count("memory.registered_bytes"), memory.size() - 4096);
  most->reset();
  EXPECT_EQ(count("memory.registered_bytes"), 0u);
}

TEST_F(NetworkTest, VerbsAloneWorksWhereThereIsRdmaAndElseSaysWhyNot) {
  Listen("127.0.0.1:0");
  NetworkEnd* const end = Dial(Over({PathKind::kVerbs}));
  ASSERT_TRUE(RunUntilDecided(*end));
  if (end->opened()) {
    EXPECT_EQ(end->path(), "verbs");
    return;
  }
  EXPECT_EQ(end->why().code(), absl::StatusCode::kFailedPrecondition) << end->why();
  EXPECT_TRUE(Contains(std::string(end->why().message()), "verbs")) << end->why();
  EXPECT_TRUE(Contains(std::string(end->why().message()), ": client: ")) << end->why();
}

// --- life ----------------------------------------------------------------------------------------

TEST_F(NetworkTest, AServerThatEndsSaysSo) {
  Listen("127.0.0.1:0");
  NetworkEnd* const end = Dial();
  ASSERT_TRUE(RunUntilDecided(*end));
  ASSERT_TRUE(end->opened()) << end->why();
  listener_.reset();
  server_.reset();
  ASSERT_TRUE(RunEngines({client_.get()}, [&] { return end->closed(); }));
  EXPECT_EQ(end->why(), absl::UnavailableError("peer closed: its engine ends"));
}

TEST_F(NetworkTest, AListenerMayOutliveItsEngine) {
  Listen("127.0.0.1:0");
  server_.reset();
  listener_.reset();
}

TEST_F(NetworkTest, AnEngineCanBeItsOwnPeer) {
  acceptor_.echo = true;
  Listen("127.0.0.1:0");
  for (const PathKind kind : {PathKind::kShm, PathKind::kTcp}) {
    dialed_.push_back(std::make_unique<NetworkEnd>());
    NetworkEnd* const end = dialed_.back().get();
    ASSERT_TRUE(server_->transport().Connect(listener_->address(), Over({kind}), end).ok());
    ASSERT_TRUE(RunUntilDecided(*end));
    ASSERT_TRUE(end->opened()) << end->why();
    ASSERT_TRUE(end->Send("to myself"));
    ASSERT_TRUE(Run([&] { return !end->received.empty(); })) << PathKindName(kind);
  }
}

TEST_F(NetworkTest, SixtyFourClientsAtOnceAreAllServed) {
  acceptor_.echo = true;
  Listen("127.0.0.1:0");
  for (int i = 0; i < 64; ++i) Dial();
  ASSERT_TRUE(Run([&] {
    for (const auto& end : dialed_) {
      if (!end->opened()) return false;
    }
    return true;
  }));
  for (const auto& end : dialed_) EXPECT_EQ(end->path(), "shm") << end->explained();
}

TEST(ExplainNetwork, NamesLibraryAndEnvironment) {
  const std::string text = ExplainNetwork();
  EXPECT_TRUE(Contains(text, "libfabric ")) << text;
  EXPECT_TRUE(Contains(text, "tcp")) << text;
  EXPECT_TRUE(Contains(text, "WEFT_PATHS is not set")) << text;
}

}  // namespace
}  // namespace weft
