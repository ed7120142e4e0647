// Handlers that run where a key of their call says: on other engines than their connection's, or on
// executors of the application's.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "rpc/client/channel.h"
#include "rpc/client/client_context.h"
#include "rpc/generated_streams.h"
#include "rpc/operation/executor.h"
#include "rpc/server/incoming_call.h"
#include "rpc/server/server.h"
#include "rpc/server/server_interceptor.h"
#include "rpc/testing/rpc_test.h"
#include "rpc/testing/stream_service.h"
#include "weft/coroutine.h"
#include "weft/status.h"

namespace weft::test {
namespace {

// Chooses as the test says.
class Chooser final : public Executor {
 public:
  bool Run(Function<void()>) override {
    ADD_FAILURE() << "it only chooses";
    return false;
  }
  Executor* For(const IncomingCall& call) override {
    ++asked;
    return choose(call);
  }

  Function<Executor*(const IncomingCall&)> choose;
  int asked = 0;
};

// Runs tasks when the test says so.
class LateExecutor final : public Executor {
 public:
  bool Run(Function<void()> task) override {
    tasks.push_back(std::move(task));
    return true;
  }
  void RunAll() {
    for (Function<void()>& task : std::exchange(tasks, {})) task();
  }
  std::vector<Function<void()>> tasks;
};

class ExecutorByKeyTest : public RpcTest {
 protected:
  ExecutorByKeyTest() {
    by_number_.choose = [this](const IncomingCall& call) {
      return shards_[call.request<Data>()->number() % 2].For(call);
    };
  }

  EngineCore& shard(int number) { return CoreOf(network_.Node("shard" + std::to_string(number))); }
  void Serve(Service* service, const ServerOptions& options = {}) {
    server_ = *Server::Create(server_engine(), options);
    ASSERT_TRUE(server_->AddService(service, &by_number_).ok());
    ASSERT_TRUE(server_->Listen("sim:server").ok());
    OpenChannel();
  }
  // Before what the test itself has, which the server uses.
  void EndServer() {
    stub_.reset();
    channel_.reset();
    server_.reset();
  }
  // Tasks that do nothing, as many as there is room for.
  static void Fill(EngineCore& engine) {
    while (engine.Post([] {})) {
    }
  }

  std::array<EngineExecutor, 2> shards_{EngineExecutor(shard(0)), EngineExecutor(shard(1))};
  Chooser by_number_;
};

// --- where a handler runs ------------------------------------------------------------------------

TEST_F(ExecutorByKeyTest, AHandlerRunsOnTheEngineThatItsKeyNames) {
  std::vector<int> ran_on;
  service_.look = [&](ServerContext&) {
    ran_on.push_back(shard(0).InTurn() ? 0 : shard(1).InTurn() ? 1 : -1);
  };
  Serve(&service_);
  for (uint64_t number = 0; number < 6; ++number) {
    Data reply;
    ASSERT_TRUE(stub_->Echo(MakeData(number, 100), &reply).ok());
    EXPECT_EQ(reply.payload(), MakeData(number, 100).payload());
  }
  EXPECT_EQ(ran_on, (std::vector<int>{0, 1, 0, 1, 0, 1}));
  EXPECT_EQ(by_number_.asked, 6);
  EXPECT_EQ(server_->stats().replies_ok, 6u);
}

TEST_F(ExecutorByKeyTest, AHandlerForWhomNoneIsChosenStaysOnItsEngine) {
  by_number_.choose = [](const IncomingCall&) { return nullptr; };
  bool in_place = false;
  service_.look = [&](ServerContext&) { in_place = server_engine().InTurn(); };
  Serve(&service_);
  Data reply;
  ASSERT_TRUE(stub_->Echo(MakeData(1, 100), &reply).ok());
  EXPECT_TRUE(in_place);
  EXPECT_EQ(reply.payload(), MakeData(1, 100).payload());
}

TEST_F(ExecutorByKeyTest, TheEngineOfTheConnectionRunsItsOwnKeysAtOnce) {
  EngineExecutor own(server_engine());
  by_number_.choose = [&](const IncomingCall& call) {
    Fill(server_engine());  // the handler does not go through the inbox
    return own.For(call);
  };
  Serve(&service_);
  Data reply;
  EXPECT_TRUE(stub_->Echo(MakeData(1, 100), &reply).ok());
  EndServer();
}

TEST_F(ExecutorByKeyTest, TheChoiceSeesTheCallAndItsRequest) {
  std::string seen;
  by_number_.choose = [&](const IncomingCall& call) {
    const std::string* const tenant = call.context().metadata().Find("tenant");
    seen = std::string(call.service()) + "/" + std::string(call.method()) + " " +
           std::to_string(call.request<Data>()->number()) + " " +
           (tenant != nullptr ? *tenant : "nobody's");
    return nullptr;
  };
  Serve(&service_);
  ClientContext context;
  ASSERT_TRUE(context.AddMetadata("tenant", "anna").ok());
  Data reply;
  ASSERT_TRUE(stub_->Echo(MakeData(7, 10), &reply, {.context = &context}).ok());
  EXPECT_EQ(seen, "weft.test.Probe/Echo 7 anna");
  ASSERT_TRUE(stub_->Echo(MakeData(8, 10), &reply).ok());
  EXPECT_EQ(seen, "weft.test.Probe/Echo 8 nobody's");
}

TEST_F(ExecutorByKeyTest, InterceptorsRunWhereTheHandlerDoes) {
  struct Looks final : ServerInterceptor {
    absl::Status OnStart(IncomingCall& call) override {
      numbers.push_back(call.request<Data>()->number());
      on_shard.push_back(shard->InTurn());
      return absl::OkStatus();
    }
    EngineCore* shard = nullptr;
    std::vector<uint64_t> numbers;
    std::vector<bool> on_shard;
  } looks;
  looks.shard = &shard(1);
  by_number_.choose = [&](const IncomingCall& call) -> Executor* {
    return call.request<Data>()->number() == 1 ? &shards_[1] : nullptr;
  };
  ServerOptions options;
  options.interceptors = {&looks};
  Serve(&service_, options);
  Data reply;
  ASSERT_TRUE(stub_->Echo(MakeData(1, 10), &reply).ok());
  ASSERT_TRUE(stub_->Echo(MakeData(2, 10), &reply).ok());
  EXPECT_EQ(looks.numbers, (std::vector<uint64_t>{1, 2}));
  EXPECT_EQ(looks.on_shard, (std::vector<bool>{true, false}));
  EndServer();
}

TEST_F(ExecutorByKeyTest, StreamsAreChosenByTheirRequestAndThoseOfRequestsWithoutOne) {
  StreamService streams;
  std::vector<std::string> chosen;
  by_number_.choose = [&](const IncomingCall& call) -> Executor* {
    const Size* const size = call.request<Size>();
    chosen.push_back(std::string(call.method()) + (size != nullptr ? " by its request" : ""));
    return size != nullptr ? &shards_[size->bytes() % 2] : &shards_[0];
  };
  Serve(&streams);
  bool talk_on_shard = false;
  streams.look = [&](ServerContext&) { talk_on_shard = shard(0).InTurn(); };
  Streams::Stub stub(*channel_);
  Size count;
  count.set_bytes(301);
  {
    ClientReader<Data> reader = stub.Count(count);
    Data data;
    uint64_t next = 0;
    while (reader.Read(&data)) EXPECT_EQ(data.number(), next++);
    EXPECT_TRUE(reader.Finish().ok());
    EXPECT_EQ(next, 301u);
    ClientReaderWriter<Data, Data> talk = stub.Talk();
    ASSERT_TRUE(RunUntil([&] { return streams.talks.size() == 1; }));
    EXPECT_TRUE(talk_on_shard);
    streams.talks.front().Finish(absl::OkStatus());
    streams.talks.clear();
    EXPECT_TRUE(talk.Finish().ok());
  }
  EXPECT_EQ(chosen, (std::vector<std::string>{"Count by its request", "Talk"}));
  EndServer();
}

TEST_F(ExecutorByKeyTest, ACoroutineGoesOnAtItsKeysEngineAfterEachAwait) {
  struct Sleeper final : Probe::CoService {
    Task<absl::Status> CoEcho(ServerContext&, const Data& request, Data* reply) override {
      for (int i = 0; i < 3; ++i) {
        on_shard.push_back(shard->InTurn());
        co_await Sleep(*other, 100);
      }
      on_shard.push_back(shard->InTurn());
      *reply = request;
      co_return absl::OkStatus();
    }
    EngineCore* shard = nullptr;
    Engine* other = nullptr;
    std::vector<bool> on_shard;
  } service;
  service.shard = &shard(1);
  service.other = &server_engine();
  Serve(&service);
  Data reply;
  ASSERT_TRUE(stub_->Echo(MakeData(1, 100), &reply).ok());
  EXPECT_EQ(service.on_shard, (std::vector<bool>{true, true, true, true}));
  EXPECT_EQ(reply.number(), 1u);
  EndServer();
}

// A coroutine that began at once, on the engine of its connection, had no executor, and went on
// wherever what it awaited had ended: its shard's data was another thread's then.
TEST_F(ExecutorByKeyTest, ACoroutineThatBeganAtOnceGoesOnAtItsKeysEngineToo) {
  struct Sleeper final : Probe::CoService {
    Task<absl::Status> CoEcho(ServerContext&, const Data& request, Data* reply) override {
      on_shard.push_back(shard->InTurn());
      for (Engine* const engine : engines) {
        co_await Sleep(*engine, 100);
        on_shard.push_back(shard->InTurn());
      }
      *reply = request;
      co_return absl::OkStatus();
    }
    EngineCore* shard = nullptr;
    std::vector<Engine*> engines;
    std::vector<bool> on_shard;
  } service;
  service.shard = &server_engine();
  service.engines = {&shard(0), &server_engine(), &shard(1)};
  EngineExecutor own(server_engine());
  by_number_.choose = [&own](const IncomingCall& call) { return own.For(call); };
  Serve(&service);
  Data reply;
  ASSERT_TRUE(stub_->Echo(MakeData(1, 100), &reply).ok());
  EXPECT_EQ(service.on_shard, (std::vector<bool>{true, true, true, true}));
  EXPECT_EQ(reply.number(), 1u);
}

TEST_F(ExecutorByKeyTest, InterceptorsOfWhatRunsAtOnceRunOnceToo) {
  struct Counts final : ServerInterceptor {
    absl::Status OnStart(IncomingCall& call) override {
      ++starts;
      if (call.request<Data>()->number() == 2) return absl::PermissionDeniedError("not for two");
      return absl::OkStatus();
    }
    int starts = 0;
  } counts;
  EngineExecutor own(server_engine());
  by_number_.choose = [&own](const IncomingCall& call) { return own.For(call); };
  ServerOptions options;
  options.interceptors = {&counts};
  Serve(&service_, options);
  Data reply;
  EXPECT_TRUE(stub_->Echo(MakeData(1, 10), &reply).ok());
  EXPECT_TRUE(absl::IsPermissionDenied(stub_->Echo(MakeData(2, 10), &reply)));
  EXPECT_EQ(counts.starts, 2);
  EXPECT_EQ(service_.echoes, 1);
}

// --- limits, ends --------------------------------------------------------------------------------

TEST_F(ExecutorByKeyTest, AnEngineWithoutRoomRefusesTheCallAndNoOther) {
  by_number_.choose = [this](const IncomingCall& call) -> Executor* {
    const uint64_t number = call.request<Data>()->number();
    if (number == 1) Fill(shard(1));
    return &shards_[number % 2];
  };
  Serve(&service_);
  Data reply;
  const absl::Status refused = stub_->Echo(MakeData(1, 10), &reply);
  EXPECT_EQ(refused,
            WithDelivery(absl::ResourceExhaustedError("the server's executor has no room for "
                                                      "another call (not run, safe to retry)"),
                         Delivery::kNotSent));
  EXPECT_EQ(service_.echoes, 0);
  EXPECT_TRUE(stub_->Echo(MakeData(2, 10), &reply).ok());
  EXPECT_TRUE(stub_->Echo(MakeData(3, 10), &reply).ok()) << "there is room again";
}

TEST_F(ExecutorByKeyTest, ACallThatExpiresBeforeItsTurnDoesNotRun) {
  LateExecutor late;
  by_number_.choose = [&](const IncomingCall&) { return &late; };
  Serve(&service_);
  Outcome outcome;
  stub_->Echo(MakeData(1, 10), &outcome.reply, {.timeout_us = 1'000}, outcome.Callback());
  ASSERT_TRUE(RunUntil([&] { return outcome.done(); }));
  EXPECT_TRUE(absl::IsDeadlineExceeded(*outcome.status));
  ASSERT_EQ(late.tasks.size(), 1u);
  late.RunAll();
  EXPECT_EQ(service_.echoes, 0);
  ASSERT_TRUE(RunUntil([&] { return server_->stats().running == 0; }));
  EndServer();
}

TEST_F(ExecutorByKeyTest, ACancelReachesAHandlerOnAnotherEngine) {
  bool told = false;
  service_.look = [&](ServerContext& context) {
    EXPECT_TRUE(shard(1).InTurn());
    context.OnCancel([&] { told = server_engine().InTurn(); });
  };
  Serve(&service_);
  ClientContext context;
  Outcome outcome;
  stub_->Hold(MakeData(1, 10), &outcome.reply, {.context = &context}, outcome.Callback());
  ASSERT_TRUE(RunUntil([&] { return !service_.held.empty(); }));
  EXPECT_TRUE(context.Cancel().ok());
  ASSERT_TRUE(RunUntil([&] { return told && outcome.done(); }));
  EXPECT_TRUE(service_.held.front().context().cancelled());
  EXPECT_TRUE(absl::IsCancelled(*outcome.status));
  service_.Release();
}

TEST_F(ExecutorByKeyTest, AShutdownWaitsForHandlersOnOtherEngines) {
  Serve(&service_);
  Outcome outcome;
  stub_->Hold(MakeData(1, 10), &outcome.reply, {}, outcome.Callback());
  ASSERT_TRUE(RunUntil([&] { return !service_.held.empty(); }));
  // The shard ends the call while the server, whose engine this thread drives, waits for it.
  ASSERT_TRUE(
      server_engine().Post([&] { ASSERT_TRUE(shard(1).Post([&] { service_.Release(); })); }));
  server_->Shutdown(/*grace_us=*/10'000'000);
  ASSERT_TRUE(RunUntil([&] { return outcome.done(); }));
  EXPECT_TRUE(outcome.status->ok()) << *outcome.status;
}

// Where one thread drives both engines, nobody made room for the end of the call. (Engines with a
// thread each: rpc/operation/on_engine_test.cc.)
TEST_F(ExecutorByKeyTest, ACallEndsElsewhereThoughTheInboxOfItsEngineIsFull) {
  Serve(&service_);
  Outcome outcome;
  stub_->Hold(MakeData(1, 10), &outcome.reply, {}, outcome.Callback());
  ASSERT_TRUE(RunUntil([&] { return !service_.held.empty(); }));
  Fill(server_engine());
  service_.Release();  // on the thread that would have to make room
  ASSERT_TRUE(RunUntil([&] { return outcome.done(); }));
  EXPECT_TRUE(outcome.status->ok()) << *outcome.status;
  EXPECT_EQ(outcome.reply.number(), 1u);
}

// --- with threads --------------------------------------------------------------------------------

// What each shard has is its engine's, and has no lock: a sanitizer, or a wrong sum, would tell.
TEST(ExecutorByKeyThreadsTest, ShardsOfAServerWithSeveralEnginesNeedNoLock) {
  constexpr uint32_t kEngines = 3;
  constexpr uint64_t kCalls = 200;
  struct Shard {
    std::map<uint64_t, uint64_t> counts;
  };
  struct Sharded final : Probe::Service {
    absl::Status Echo(ServerContext&, const Data& request, Data* reply) override {
      const uint64_t number = request.number() % kEngines;
      if (!engines[number]->OnEngine()) return absl::InternalError("on another shard's thread");
      reply->set_number(++shards[number].counts[request.number()]);
      return absl::OkStatus();
    }
    std::array<Engine*, kEngines> engines;
    std::array<Shard, kEngines> shards;
  } service;
  std::vector<EngineExecutor> executors;
  std::atomic<int> asked{0};  // of all engines
  struct ByNumber final : Executor {
    bool Run(Function<void()>) override { return false; }
    Executor* For(const IncomingCall& call) override {
      asked->fetch_add(1, std::memory_order_relaxed);
      return (*executors)[call.request<Data>()->number() % kEngines].For(call);
    }
    std::atomic<int>* asked;
    std::vector<EngineExecutor>* executors;
  } choice;
  choice.asked = &asked;
  choice.executors = &executors;

  ServerOptions options;
  options.engines = kEngines;
  options.max_sessions = 0;
  options.link.peer_timeout_ns = 0;  // the machine may be busy
  options.spin_ns = 0;
  auto server = *Server::Create(options);
  for (uint32_t i = 0; i < kEngines; ++i) {
    service.engines[i] = &server->engine(i);
    executors.emplace_back(server->engine(i));
  }
  ASSERT_TRUE(server->AddService(&service, &choice).ok());
  ASSERT_TRUE(server->Listen("127.0.0.1:0").ok());
  std::vector<std::thread> clients;
  for (uint32_t client = 0; client < kEngines; ++client) {
    clients.emplace_back([&] {
      ChannelOptions channel_options;
      channel_options.link.peer_timeout_ns = 0;
      auto channel = *Channel::Open(server->address(), channel_options);
      Probe::Stub stub(*channel);
      for (uint64_t i = 0; i < kCalls; ++i) {
        Data reply;
        const absl::Status status = stub.Echo(MakeData(i % 10, 10), &reply);
        EXPECT_TRUE(status.ok()) << status;
      }
    });
  }
  for (std::thread& client : clients) client.join();
  server->Shutdown(/*grace_us=*/0);
  uint64_t sum = 0;
  for (const Shard& shard : service.shards) {
    for (const auto& [number, count] : shard.counts) {
      EXPECT_EQ(count, kEngines * kCalls / 10) << number;
      sum += count;
    }
  }
  EXPECT_EQ(sum, kEngines * kCalls);
  EXPECT_EQ(asked.load(), static_cast<int>(kEngines * kCalls));
}

}  // namespace
}  // namespace weft::test
