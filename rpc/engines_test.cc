// A server with several engines: one address, clients spread over the engines, and everything that
// a server with one of them does. The engines are more than this machine has processors.

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "core/clock.h"
#include "core/testing/descriptors.h"
#include "rpc/client/channel.h"
#include "rpc/client/client_context.h"
#include "rpc/memory/remote_memory.h"
#include "rpc/server/exported_memory.h"
#include "rpc/server/server.h"
#include "rpc/testing/fabric_paths.h"
#include "rpc/testing/stream_service.h"
#include "transport/buffer.h"
#include "transport/network.h"
#include "weft/status.h"

namespace weft::test {
namespace {

// Handlers of several engines run at the same time: what they share is atomic.
class SharedService final : public Probe::Service {
 public:
  absl::Status Echo(ServerContext&, const Data& request, Data* reply) override {
    ++echoes;
    if (on_echo) on_echo();
    *reply = request;
    return absl::OkStatus();
  }
  absl::Status Make(ServerContext&, const Size& request, Data* reply) override {
    reply->mutable_payload()->assign(request.bytes(), 'm');
    return absl::OkStatus();
  }
  void StartHold(UnaryCall<Data, Data> call) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    held_.push_back(std::move(call));
  }

  size_t held() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return held_.size();
  }
  void ReleaseAll() {
    std::vector<UnaryCall<Data, Data>> held;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      held.swap(held_);
    }
    for (UnaryCall<Data, Data>& call : held) call.Finish(absl::OkStatus());
  }

  Function<void()> on_echo;  // set before the first call
  std::atomic<uint64_t> echoes = 0;

 private:
  std::mutex mutex_;
  std::vector<UnaryCall<Data, Data>> held_;  // guarded by mutex_
};

// Neither side gives the other up for its silence, and a path may take its time: the machine may be
// busy, and one of the lab stands still for seconds. Only hangs take so long.
void BePatient(LinkOptions* link) {
  link->peer_timeout_ns = 0;
  link->connect_timeout_ns = 60 * kNsPerSec;
  link->path_timeout_ns = 20 * kNsPerSec;
}

ServerOptions WithEngines(uint32_t engines) {
  ServerOptions options;
  options.engines = engines;
  options.max_sessions = 0;
  BePatient(&options.link);
  // Nobody waits for the processor longer than he has to.
  options.spin_ns = 0;
  return options;
}

bool IsInternet(int socket) {
  int domain = 0;
  socklen_t bytes = sizeof(domain);
  return getsockopt(socket, SOL_SOCKET, SO_DOMAIN, &domain, &bytes) == 0 && domain != AF_UNIX;
}

// At internet addresses, in this process.
int CountListening() {
  const std::vector<int> sockets = ListeningSockets();
  return static_cast<int>(std::count_if(sockets.begin(), sockets.end(), IsInternet));
}

// Where it may run, ascending.
std::vector<int> CpusOfThisThread() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  EXPECT_EQ(sched_getaffinity(0, sizeof(allowed), &allowed), 0);
  std::vector<int> cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &allowed)) cpus.push_back(cpu);
  }
  return cpus;
}

class EnginesTest : public testing::Test {
 protected:
  void Serve(const ServerOptions& options) {
    auto server = Server::Create(options);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    ASSERT_TRUE(server_->AddService(&service_).ok());
    ASSERT_TRUE(server_->AddService(&streams_).ok());
    const absl::Status listening = server_->Listen("127.0.0.1:0");
    ASSERT_TRUE(listening.ok()) << listening;
  }
  std::unique_ptr<Channel> Open(PathKind path, ChannelOptions options = {}) {
    options.link.paths = {path};
    BePatient(&options.link);
    auto channel = Channel::Open(server_->address(), options);
    EXPECT_TRUE(channel.ok()) << channel.status();
    return channel.ok() ? *std::move(channel) : nullptr;
  }
  void ExpectEcho(Channel& channel, size_t bytes) {
    Probe::Stub stub(channel);
    const Data request = MakeData(bytes, bytes);
    Data reply;
    const absl::Status status = stub.Echo(request, &reply);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(reply.payload(), request.payload());
  }
  void ExpectStream(Channel& channel) {
    Size count;
    count.set_bytes(300);
    ClientReader<Data> reader = Streams::Stub(channel).Count(count);
    Data data;
    uint64_t next = 0;
    while (reader.Read(&data)) EXPECT_EQ(data.number(), next++);
    EXPECT_TRUE(reader.Finish().ok());
    EXPECT_EQ(next, 300u);
  }
  std::vector<uint32_t> Connections() {
    std::vector<uint32_t> counts;
    for (const ServerStats& stats : server_->stats_by_engine()) counts.push_back(stats.connections);
    return counts;
  }
  void WaitForConnections(const std::vector<uint32_t>& counts) {
    while (Connections() != counts) std::this_thread::yield();
  }

  // Every call ends once: with its reply, or with the word that it was not run.
  void DrainDuringLoad(PathKind path) {
    constexpr int kClients = 6;
    std::atomic<int> busy{0};
    std::atomic<uint64_t> answered{0};
    std::vector<std::thread> clients;
    for (int i = 0; i < kClients; ++i) {
      clients.emplace_back([&] {
        const auto channel = Open(path);
        Probe::Stub stub(*channel);
        absl::Status status;
        Data reply;
        for (int calls = 0; status.ok(); ++calls) {
          status = stub.Echo(MakeData(1, 100), &reply);
          if (status.ok()) ++answered;
          if (calls == 10) ++busy;
        }
        EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
        EXPECT_NE(DeliveryOf(status), Delivery::kUnknown) << status;
      });
    }
    // Its figures may be read meanwhile.
    std::atomic<bool> over{false};
    std::thread reader([&] {
      while (!over) EXPECT_LE(server_->stats().connections, static_cast<uint32_t>(kClients));
    });
    while (busy < kClients) std::this_thread::yield();
    server_->Shutdown(/*grace_us=*/60'000'000);
    for (std::thread& client : clients) client.join();
    over = true;
    reader.join();
    EXPECT_EQ(server_->stats().replies_ok, answered.load());
    EXPECT_EQ(service_.echoes.load(), answered.load());
    EXPECT_EQ(server_->stats().connections, 0u);
  }

  SharedService service_;
  StreamService streams_;
  std::unique_ptr<Server> server_;
};

class EnginesPathTest : public EnginesTest,
                        public testing::WithParamInterface<std::tuple<PathKind, uint32_t>> {
 protected:
  void SetUp() override { Serve(WithEngines(engines())); }
  PathKind path() const { return std::get<0>(GetParam()); }
  uint32_t engines() const { return std::get<1>(GetParam()); }
  // Two for each engine, one after the other.
  std::vector<std::unique_ptr<Channel>> OpenTwoEach() {
    std::vector<std::unique_ptr<Channel>> channels;
    for (uint32_t i = 0; i < 2 * engines(); ++i) channels.push_back(Open(path()));
    return channels;
  }
};

INSTANTIATE_TEST_SUITE_P(Paths, EnginesPathTest,
                         testing::Combine(testing::Values(PathKind::kShm, PathKind::kTcp),
                                          testing::Values(1u, 2u, 5u)),
                         [](const auto& info) {
                           return std::string(PathKindName(std::get<0>(info.param))) + "_" +
                                  std::to_string(std::get<1>(info.param));
                         });

TEST_P(EnginesPathTest, ClientsAreSpreadEvenlyAndServed) {
  const auto channels = OpenTwoEach();
  EXPECT_EQ(Connections(), std::vector<uint32_t>(engines(), 2));
  for (const auto& channel : channels) {
    EXPECT_EQ(channel->path()->kind, path());
    for (const size_t bytes : {0u, 100u, 10'000u, 1'000'000u}) ExpectEcho(*channel, bytes);
  }
  for (const ServerStats& stats : server_->stats_by_engine()) EXPECT_EQ(stats.requests, 8u);
  const ServerStats stats = server_->stats();
  EXPECT_EQ(stats.requests, 8u * engines());
  EXPECT_EQ(stats.replies_ok, 8u * engines());
  EXPECT_EQ(stats.connections, 2 * engines());
  EXPECT_EQ(stats.running, 0u);
  EXPECT_EQ(stats.running_bytes, 0u);
}

TEST_P(EnginesPathTest, ThereIsOneSocketThatListens) {
  const auto channels = OpenTwoEach();
  EXPECT_EQ(CountListening(), 1);
}

TEST_P(EnginesPathTest, StreamsRunOnTheEngineOfTheirClient) {
  for (const auto& channel : OpenTwoEach()) {
    ExpectStream(*channel);
    Streams::Stub stub(*channel);
    Data sum;
    ClientWriter<Data> writer = stub.Sum(&sum);
    for (uint64_t i = 0; i < 100; ++i) ASSERT_TRUE(writer.Write(MakeData(i, 10)));
    EXPECT_TRUE(writer.Finish().ok());
    EXPECT_EQ(sum.number(), 100u);
  }
  EXPECT_EQ(server_->stats().replies_ok, 4u * engines());
}

TEST_P(EnginesPathTest, ClientsThatComeAgainAreSpreadAgain) {
  auto channels = OpenTwoEach();
  // All of one engine's leave.
  for (size_t i = 0; i < channels.size(); i += engines()) channels[i].reset();
  std::vector<uint32_t> counts(engines(), 2);
  counts[0] = 0;
  WaitForConnections(counts);
  // The server has let go of them when their control connections have ended, too, soon after.
  const auto taken = [&] {
    for (const auto& [name, value] : server_->engine(0).counters().Snapshot()) {
      if (name == "listener.accepted") return value;
    }
    return uint64_t{0};
  };
  while (taken() > 0) std::this_thread::yield();
  for (int i = 0; i < 2; ++i) {
    channels.push_back(Open(path()));
    ExpectEcho(*channels.back(), 100);
  }
  EXPECT_EQ(Connections(), std::vector<uint32_t>(engines(), 2));
}

TEST_P(EnginesPathTest, ADrainDuringLoadLosesNoCall) {
  DrainDuringLoad(path());
  EXPECT_EQ(CountListening(), 0);
}

TEST_P(EnginesPathTest, ADestroyedServerEndsItsClientsCalls) {
  const auto channels = OpenTwoEach();
  for (const auto& channel : channels) ExpectEcho(*channel, 100);
  server_.reset();
  for (const auto& channel : channels) {
    Data reply;
    const absl::Status status =
        Probe::Stub(*channel).Echo(MakeData(1, 1), &reply, {.timeout_us = 100'000});
    EXPECT_FALSE(status.ok());
  }
}

// Two handlers on two engines, each of which asks for the figures of both: they waited for each
// other's engine.
TEST_F(EnginesTest, HandlersOfTwoEnginesMayReadTheFiguresAtTheSameTime) {
  std::atomic<int> inside{0};
  std::atomic<uint64_t> seen{0};
  service_.on_echo = [&] {
    ++inside;
    while (inside < 2) std::this_thread::yield();
    for (int i = 0; i < 1000; ++i) seen += server_->stats().requests;
  };
  Serve(WithEngines(2));
  std::vector<std::thread> clients;
  std::vector<std::unique_ptr<Channel>> channels;
  for (int i = 0; i < 2; ++i) channels.push_back(Open(PathKind::kShm));
  EXPECT_EQ(Connections(), std::vector<uint32_t>({1, 1}));
  for (const auto& channel : channels) {
    clients.emplace_back([&] { ExpectEcho(*channel, 10); });
  }
  for (std::thread& client : clients) client.join();
  // Each has seen its own call at least, and the other's from some moment on.
  EXPECT_GE(seen.load(), 2000u);
  EXPECT_LE(seen.load(), 4000u);
}

// A shutdown waited for each engine's turn before it began on the next one: while one was in a long
// handler, the others went on serving, and nobody told their clients to leave.
TEST_F(EnginesTest, AShutdownBeginsOnAllEnginesWhateverOneOfThemDoes) {
  std::atomic<bool> inside{false};
  std::atomic<bool> released{false};
  service_.on_echo = [&] {
    if (!server_->engine(0).OnEngine() || inside.exchange(true)) return;
    while (!released) std::this_thread::yield();
  };
  Serve(WithEngines(3));
  std::vector<std::unique_ptr<Channel>> channels;
  for (int i = 0; i < 3; ++i) channels.push_back(Open(PathKind::kTcp));
  ASSERT_EQ(Connections(), std::vector<uint32_t>({1, 1, 1}));
  std::thread held([&] { ExpectEcho(*channels[0], 10); });
  while (!inside) std::this_thread::yield();
  std::thread shutdown([&] { server_->Shutdown(/*grace_us=*/60'000'000); });
  for (const size_t other : {1, 2}) {
    // For half a minute, lest it go on for ever.
    const uint64_t give_up_ns = Clock::Real().NowNs() + 30 * kNsPerSec;
    absl::Status status;
    Data reply;
    // One that is not refused waits for a connection, which engine 0 does not take now.
    while (DeliveryOf(status) != Delivery::kNotSent && Clock::Real().NowNs() < give_up_ns) {
      status =
          Probe::Stub(*channels[other]).Echo(MakeData(1, 1), &reply, {.timeout_us = 1'000'000});
    }
    EXPECT_EQ(DeliveryOf(status), Delivery::kNotSent) << "it is served as before: " << status;
  }
  released = true;
  held.join();
  shutdown.join();
  EXPECT_EQ(server_->stats().connections, 0u);
}

TEST_F(EnginesTest, SeveralAddressesAreServedByAllEngines) {
  Serve(WithEngines(3));
  std::string folder = "/tmp/weft_engines_XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const std::string unix_address = "unix:" + folder + "/server";
  ASSERT_TRUE(server_->Listen(unix_address).ok());
  std::vector<std::unique_ptr<Channel>> channels;
  for (int i = 0; i < 6; ++i) {
    ChannelOptions options;
    options.link.paths = {PathKind::kTcp};
    options.link.peer_timeout_ns = 0;
    auto channel = Channel::Open(i % 2 == 0 ? server_->address() : unix_address, options);
    ASSERT_TRUE(channel.ok()) << channel.status();
    channels.push_back(*std::move(channel));
    ExpectEcho(*channels.back(), 100);
  }
  // An engine's clients count whichever address they have come by.
  EXPECT_EQ(Connections(), std::vector<uint32_t>({2, 2, 2}));
  server_.reset();
  EXPECT_EQ(rmdir(folder.c_str()), 0);
}

TEST_F(EnginesTest, ALimitOfConnectionsIsTheServersAndNotTheEngines) {
  ServerOptions options = WithEngines(3);
  options.max_connections = 4;
  Serve(options);
  std::vector<std::unique_ptr<Channel>> channels;
  for (int i = 0; i < 4; ++i) channels.push_back(Open(PathKind::kTcp));
  ChannelOptions fifth;
  fifth.link.paths = {PathKind::kTcp};
  fifth.connect_at_once = false;
  auto channel = Channel::Open(server_->address(), fifth);
  ASSERT_TRUE(channel.ok()) << channel.status();
  Data reply;
  const absl::Status status =
      Probe::Stub(**channel).Echo(MakeData(1, 1), &reply, {.timeout_us = 300'000});
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(server_->stats().connections, 4u);
}

TEST_F(EnginesTest, AnAddressThatCannotBeHadLeavesTheServerAsItWas) {
  auto made = Server::Create(WithEngines(3));
  ASSERT_TRUE(made.ok()) << made.status();
  server_ = *std::move(made);
  EXPECT_FALSE(server_->Listen("127.0.0.1:notaport").ok());
  EXPECT_EQ(server_->address(), "");
  ASSERT_TRUE(server_->AddService(&service_).ok()) << "it does not listen yet";
  ASSERT_TRUE(server_->Listen("127.0.0.1:0").ok());
  for (int i = 0; i < 3; ++i) ExpectEcho(*Open(PathKind::kTcp), 100);
}

TEST_F(EnginesTest, AsManyEnginesAsThereMayBe) {
  Serve(WithEngines(kMaxEngines));
  std::vector<std::unique_ptr<Channel>> channels;
  for (int i = 0; i < 8; ++i) {
    channels.push_back(Open(PathKind::kTcp));
    ExpectEcho(*channels.back(), 100);
  }
  const std::vector<uint32_t> counts = Connections();
  EXPECT_EQ(counts.size(), kMaxEngines);
  EXPECT_EQ(std::count(counts.begin(), counts.end(), 1u), 8);
}

TEST_F(EnginesTest, OptionsThatSeveralEnginesCannotHaveAreRefused) {
  const auto refused = [](const ServerOptions& options) {
    const absl::Status status = Server::Create(options).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  };
  EXPECT_NE(refused(WithEngines(0)).find("ServerOptions::engines is 0; 1 to 64"),
            std::string::npos);
  EXPECT_NE(refused(WithEngines(65)).find("ServerOptions::engines is 65"), std::string::npos);
  ServerOptions options = WithEngines(2);
  options.max_sessions = 10;
  EXPECT_NE(refused(options).find("max_sessions is 10 beside 2 engines"), std::string::npos);
  options = WithEngines(2);
  options.peer_id = "db1";
  EXPECT_NE(refused(options).find("peer_id is \"db1\" beside 2 engines"), std::string::npos);
  options = WithEngines(2);
  options.cpus = {0};
  EXPECT_NE(refused(options).find("ServerOptions::cpus are 1"), std::string::npos);
  options = WithEngines(2);
  options.cpu = 0;
  EXPECT_NE(refused(options).find("ServerOptions::cpu is 0"), std::string::npos);
  for (const uint64_t rebalance_us : {uint64_t{1}, uint64_t{999}, uint64_t{3'600'000'001}}) {
    options = WithEngines(2);
    options.rebalance_us = rebalance_us;
    EXPECT_NE(refused(options).find("ServerOptions::rebalance_us is"), std::string::npos);
  }
  options = WithEngines(2);
  options.limits.adaptive = true;
  options.limits.adaptive_most = 1;
  EXPECT_NE(refused(options).find("adaptive_most is 1 beside 2 engines"), std::string::npos);
  auto engine = OpenNetworkEngine({.drive = EngineOptions::Drive::kCaller});
  ASSERT_TRUE(engine.ok()) << engine.status();
  EXPECT_EQ(Server::Create(**engine, WithEngines(2)).status().code(),
            absl::StatusCode::kInvalidArgument);
}

// --- limits -------------------------------------------------------------------------------------

// Calls that are held, by several engines at a time, and what the next one meets.
class EnginesLimitsTest : public EnginesTest {
 protected:
  ~EnginesLimitsTest() override { EndHeld(); }
  // A channel to each of the three engines.
  void ServeAndOpen(ServerOptions options, const ChannelOptions& channel = {}) {
    Serve(options);
    for (int i = 0; i < 3; ++i) channels_.push_back(Open(PathKind::kTcp, channel));
    ASSERT_EQ(Connections(), std::vector<uint32_t>({1, 1, 1}));
  }
  // Its handler has it when this returns.
  void Hold(size_t engine, size_t bytes = 1) {
    const size_t before = service_.held();
    const int ended_before = ended_;
    callers_.emplace_back([this, engine, bytes] {
      Data reply;
      const absl::Status status = Probe::Stub(*channels_[engine]).Hold(MakeData(1, bytes), &reply);
      EXPECT_TRUE(status.ok()) << status;
      ++ended_;
    });
    while (service_.held() == before && ended_ == ended_before) std::this_thread::yield();
  }
  void ExpectRefused(size_t engine, const char* why, size_t bytes = 1) {
    Data reply;
    const absl::Status status = Probe::Stub(*channels_[engine]).Hold(MakeData(1, bytes), &reply);
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
    EXPECT_EQ(DeliveryOf(status), Delivery::kNotSent) << status;
    EXPECT_NE(status.message().find(why), std::string::npos) << status;
  }
  void EndHeld() {
    service_.ReleaseAll();
    for (std::thread& caller : callers_) caller.join();
    callers_.clear();
  }

  std::vector<std::unique_ptr<Channel>> channels_;
  std::vector<std::thread> callers_;
  std::atomic<int> ended_ = 0;  // of callers_
};

TEST_F(EnginesLimitsTest, AMethodsLimitIsTheServersAndNotTheEngines) {
  ServerOptions options = WithEngines(3);
  options.limits.per_method = {{"weft.test.Probe/Hold", 4}};
  ASSERT_NO_FATAL_FAILURE(ServeAndOpen(options));
  constexpr char kWhy[] = "method weft.test.Probe/Hold has 4 calls running, as many as";
  for (const size_t engine : {0, 1, 2, 1}) Hold(engine);
  for (const size_t engine : {0, 1, 2}) ExpectRefused(engine, kWhy);
  ExpectEcho(*channels_[0], 10);
  EndHeld();
  for (int i = 0; i < 4; ++i) Hold(2);
  for (const size_t engine : {0, 1, 2}) ExpectRefused(engine, kWhy);
  EXPECT_EQ(server_->stats().refused_by_method_limit, 6u);
}

TEST_F(EnginesLimitsTest, AClientsLimitIsTheServersAndNotTheEngines) {
  ServerOptions options = WithEngines(3);
  options.limits.per_client = 2;
  SecurityOptions security;
  security.psk_name = "tests";
  security.psk_secret = std::string(32, 'k');
  options.security = security;
  ChannelOptions channel;
  channel.security = security;
  ASSERT_NO_FATAL_FAILURE(ServeAndOpen(options, channel));
  Hold(0);
  Hold(1);
  for (const size_t engine : {0, 1, 2}) {
    ExpectRefused(engine, "this client has 2 calls running, as many as");
  }
  EndHeld();
  Hold(2);
  Hold(2);
  ExpectRefused(0, "this client has 2 calls running, as many as");
}

// Who has proved nothing is a connection: each has the whole limit.
TEST_F(EnginesLimitsTest, ConnectionsOfNobodyHaveALimitEach) {
  ServerOptions options = WithEngines(3);
  options.limits.per_client = 1;
  ASSERT_NO_FATAL_FAILURE(ServeAndOpen(options));
  for (const size_t engine : {0, 1, 2}) Hold(engine);
  for (const size_t engine : {0, 1, 2}) {
    ExpectRefused(engine, "this client has 1 calls running, as many as");
  }
}

TEST_F(EnginesLimitsTest, EachEngineHasItsPartOfTheAdaptiveLimit) {
  ServerOptions options = WithEngines(3);
  options.limits.adaptive = true;
  options.limits.adaptive_most = 4;
  ASSERT_NO_FATAL_FAILURE(ServeAndOpen(options));
  EXPECT_EQ(server_->stats().adaptive_limit, 4u);
  std::vector<uint32_t> parts;
  for (const ServerStats& stats : server_->stats_by_engine()) parts.push_back(stats.adaptive_limit);
  EXPECT_EQ(parts, std::vector<uint32_t>({2, 1, 1}));
  Hold(1);
  ExpectRefused(1, "the server is overloaded: 1 calls are running, and ServerLimits::adaptive");
  Hold(0);
  Hold(0);
  Hold(2);
}

TEST_F(EnginesLimitsTest, EachEngineHasItsPartOfTheRunningBytes) {
  ServerOptions options = WithEngines(3);
  options.max_running_bytes = 30'000;
  options.max_request_bytes = 5000;
  ASSERT_NO_FATAL_FAILURE(ServeAndOpen(options));
  for (const size_t engine : {0, 1, 2}) {
    Hold(engine, 4000);
    Hold(engine, 4000);
    ExpectRefused(engine, "this server takes 10000 on each engine at most", 4000);
  }
  EXPECT_LE(server_->stats().running_bytes, 30'000u);
}

// With many engines an equal part would be less than a request, and no engine would take one.
TEST_F(EnginesLimitsTest, EachEngineHasRoomForTheLargestRequest) {
  ServerOptions options = WithEngines(3);
  options.max_running_bytes = 300'000;
  options.max_request_bytes = 150'000;
  ASSERT_NO_FATAL_FAILURE(ServeAndOpen(options));
  for (const auto& channel : channels_) ExpectEcho(*channel, 140'000);
}

// Handlers run on their engine's thread, and see where that may run.
TEST_F(EnginesTest, EnginesMayBePinned) {
  const std::vector<int> all = CpusOfThisThread();
  ServerOptions options = WithEngines(4);
  options.cpus = {all.front(), -1, all.back(), all.front()};
  std::vector<int> seen;  // written by a handler for which this thread waits
  service_.on_echo = [&seen] { seen = CpusOfThisThread(); };
  Serve(options);
  for (uint32_t engine = 0; engine < 4; ++engine) {
    ChannelOptions channel;
    channel.link.server_engine = engine;
    ExpectEcho(*Open(PathKind::kShm, channel), 100);
    const int cpu = options.cpus[engine];
    EXPECT_EQ(seen, cpu < 0 ? all : std::vector<int>({cpu})) << "engine " << engine;
  }
}

TEST_F(EnginesTest, ClientsProveThemselvesToEachEngine) {
  ServerOptions options = WithEngines(3);
  SecurityOptions security;
  security.psk_name = "tests";
  security.psk_secret = std::string(32, 'k');
  options.security = security;
  Serve(options);
  std::vector<std::unique_ptr<Channel>> channels;
  ChannelOptions channel;
  channel.security = security;
  for (int i = 0; i < 6; ++i) {
    channels.push_back(Open(i % 2 == 0 ? PathKind::kTcp : PathKind::kShm, channel));
    ExpectEcho(*channels.back(), 1000);
  }
  EXPECT_EQ(Connections(), std::vector<uint32_t>({2, 2, 2}));
  channel.link.server_engine = 1;
  for (const PathKind path : {PathKind::kTcp, PathKind::kShm}) {
    channels.push_back(Open(path, channel));
    ExpectEcho(*channels.back(), 1000);
    EXPECT_EQ(channels.back()->path()->server_engine, 1u);
  }
  EXPECT_EQ(Connections(), std::vector<uint32_t>({2, 4, 2}));
}

// --- over libfabric -----------------------------------------------------------------------------

// There an engine has endpoints and a port of its own, and the socket that all engines share is the
// control connections'. ofi_tcp stands for the cards where there are none. In the lab, by hand:
// ./dev lab --device rxe --memory 3072 -- 'bazel-bin/rpc/engines_test --gtest_filter=*verbs*'
class EnginesFabricTest : public EnginesTest, public testing::WithParamInterface<PathKind> {
 protected:
  void SetUp() override {
    if (const std::string why = WhyNot(GetParam()); !why.empty()) GTEST_SKIP() << why;
    ServerOptions options = WithEngines(3);
    options.link.paths = {GetParam()};
    Serve(options);
  }
  std::vector<std::unique_ptr<Channel>> OpenOneEach() {
    std::vector<std::unique_ptr<Channel>> channels;
    for (int i = 0; i < 3; ++i) channels.push_back(Open(GetParam()));
    return channels;
  }
};

INSTANTIATE_TEST_SUITE_P(Paths, EnginesFabricTest, testing::ValuesIn(FabricPaths()),
                         [](const auto& info) { return std::string(PathKindName(info.param)); });

TEST_P(EnginesFabricTest, EachEngineServesItsClients) {
  const auto channels = OpenOneEach();
  ASSERT_EQ(Connections(), std::vector<uint32_t>({1, 1, 1}));
  for (uint32_t engine = 0; engine < 3; ++engine) {
    Channel& channel = *channels[engine];
    const auto path = channel.path();
    ASSERT_TRUE(path.ok()) << path.status();
    EXPECT_EQ(path->kind, GetParam());
    EXPECT_EQ(path->server_engine, engine);
    EXPECT_EQ(path->server_engines, 3u);
    for (const size_t bytes : {0u, 100u, 10'000u, 1'000'000u}) ExpectEcho(channel, bytes);
    ExpectStream(channel);
  }
  for (const ServerStats& stats : server_->stats_by_engine()) EXPECT_EQ(stats.requests, 5u);
}

TEST_P(EnginesFabricTest, AClientHasTheEngineThatItAsksFor) {
  ChannelOptions options;
  options.link.server_engine = 2;
  std::vector<std::unique_ptr<Channel>> channels;
  for (int i = 0; i < 2; ++i) {
    channels.push_back(Open(GetParam(), options));
    ExpectEcho(*channels.back(), 1000);
    EXPECT_EQ(channels.back()->path()->server_engine, 2u);
  }
  EXPECT_EQ(Connections(), std::vector<uint32_t>({0, 0, 2}));
}

TEST_P(EnginesFabricTest, AnExportIsGoodAtEachEngine) {
  const auto exported = server_->AllocateExport(4096, {.rights = kAllRights});
  ASSERT_TRUE(exported.ok()) << exported.status();
  const auto channels = OpenOneEach();
  for (size_t client = 0; client < channels.size(); ++client) {
    auto memory = RemoteMemory::Open(*channels[client], (*exported)->handle());
    ASSERT_TRUE(memory.ok()) << memory.status();
    auto buffer = channels[client]->AllocateBuffer(8);
    ASSERT_TRUE(buffer.ok()) << buffer.status();
    const std::string word = "client " + std::to_string(client);
    std::memcpy((*buffer)->bytes().data(), word.data(), 8);
    const size_t place = 8 * (1 + client);
    ASSERT_EQ((*memory)->Write(place, (*buffer)->slice(0, 8)), absl::OkStatus());
    const absl::StatusOr<uint64_t> before = (*memory)->FetchAdd(0, 1);
    ASSERT_TRUE(before.ok()) << before.status();
    EXPECT_EQ(*before, client) << "they count in one word";
    std::memset((*buffer)->bytes().data(), 0, 8);
    ASSERT_EQ((*memory)->Read(place, (*buffer)->slice(0, 8)), absl::OkStatus());
    EXPECT_EQ(std::memcmp((*buffer)->bytes().data(), word.data(), 8), 0);
  }
}

TEST_P(EnginesFabricTest, AChannelWithSeveralEnginesHasAConnectionToEach) {
  ChannelOptions options;
  options.engines = 3;
  const auto channel = Open(GetParam(), options);
  EXPECT_EQ(Connections(), std::vector<uint32_t>({1, 1, 1}));
  // One thread after the other, each by an engine of its own.
  for (int i = 0; i < 3; ++i) std::thread([&] { ExpectEcho(*channel, 1000); }).join();
  for (const ServerStats& stats : server_->stats_by_engine()) EXPECT_EQ(stats.requests, 1u);
}

TEST_P(EnginesFabricTest, ADrainDuringLoadLosesNoCall) { DrainDuringLoad(GetParam()); }

}  // namespace
}  // namespace weft::test
