// A channel on several engines: a connection on each, and every thread's calls by one of them.

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <latch>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "rpc/client/balancing.h"
#include "rpc/client/bulk_call.h"
#include "rpc/client/channel.h"
#include "rpc/client/channel_lanes.h"
#include "rpc/client/client_connection.h"
#include "rpc/memory/remote_memory.h"
#include "rpc/server/exported_memory.h"
#include "rpc/server/server.h"
#include "rpc/testing/stream_service.h"
#include "transport/buffer.h"
#include "transport/network.h"
#include "weft/status.h"

namespace weft::test {
namespace {

constexpr uint32_t kEngines = 3;

class WhereService final : public Probe::Service {
 public:
  // The number of the server's engine on which it runs.
  absl::Status Echo(ServerContext& context, const Data& request, Data* reply) override {
    *reply = request;
    for (uint32_t i = 0; i < kEngines; ++i) {
      if (server->engine(i).OnEngine()) reply->set_number(i);
    }
    EXPECT_EQ(context.path().server_engine, reply->number());
    EXPECT_EQ(context.path().server_engines, kEngines);
    return absl::OkStatus();
  }

  Server* server = nullptr;  // set before the first call
};

class ChannelEnginesTest : public testing::TestWithParam<PathKind> {
 protected:
  void SetUp() override {
    ServerOptions options;
    options.engines = kEngines;
    options.max_sessions = 0;
    options.link.peer_timeout_ns = 0;  // the machine may be busy
    options.spin_ns = 0;
    auto server = Server::Create(options);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    where_.server = server_.get();
    ASSERT_TRUE(server_->AddService(&where_).ok());
    ASSERT_TRUE(server_->AddService(&streams_).ok());
    ASSERT_TRUE(server_->Listen("127.0.0.1:0").ok());
  }
  static ChannelOptions Options(uint32_t engines = kEngines) {
    ChannelOptions options;
    options.link.paths = {GetParam()};
    options.link.peer_timeout_ns = 0;
    options.spin_ns = 0;
    options.engines = engines;
    return options;
  }
  void Open() {
    auto channel = Channel::Open(server_->address(), Options());
    ASSERT_TRUE(channel.ok()) << channel.status();
    channel_ = *std::move(channel);
  }
  // On engines with threads of their own.
  void OpenOnThreads(uint32_t server_engine = kAnyEngine) {
    MakeEngines();
    std::vector<Engine*> engines;
    for (const auto& engine : engines_) engines.push_back(engine.get());
    auto channel = Channel::Open(engines, server_->address(), Asking(server_engine));
    ASSERT_TRUE(channel.ok()) << channel.status();
    channel_ = *std::move(channel);
  }
  void MakeEngines() {
    for (uint32_t i = 0; i < kEngines; ++i) {
      auto engine = OpenNetworkEngine({.drive = EngineOptions::Drive::kOwnThread, .spin_ns = 0});
      ASSERT_TRUE(engine.ok()) << engine.status();
      engines_.push_back(*std::move(engine));
    }
  }
  static ChannelOptions Asking(uint32_t server_engine) {
    ChannelOptions options = Options(/*engines=*/1);
    options.link.server_engine = server_engine;
    return options;
  }
  // Each of so many new threads, one after the other.
  template <class F>
  static void OnThreads(uint32_t count, F what) {
    for (uint32_t i = 0; i < count; ++i) std::thread(what).join();
  }
  // The engine of the server where a call of this thread runs.
  uint64_t Where() { return WhereBy(*channel_); }
  static uint64_t WhereBy(Channel& channel) {
    Data reply;
    const absl::Status status = Probe::Stub(channel).Echo(MakeData(99, 10), &reply);
    EXPECT_EQ(status, absl::OkStatus());
    return reply.number();
  }
  std::vector<uint32_t> Connections() {
    std::vector<uint32_t> counts;
    for (const ServerStats& stats : server_->stats_by_engine()) counts.push_back(stats.connections);
    return counts;
  }

  WhereService where_;
  StreamService streams_;
  std::unique_ptr<Server> server_;
  std::vector<std::unique_ptr<Engine>> engines_;
  std::unique_ptr<Channel> channel_;
};

INSTANTIATE_TEST_SUITE_P(Paths, ChannelEnginesTest, testing::Values(PathKind::kShm, PathKind::kTcp),
                         [](const auto& info) { return std::string(PathKindName(info.param)); });

TEST_P(ChannelEnginesTest, EachEngineHasAConnectionAndTheServersEnginesHaveOneEach) {
  Open();
  for (const ServerStats& stats : server_->stats_by_engine()) EXPECT_EQ(stats.connections, 1u);
  EXPECT_EQ(channel_->stats().connects, kEngines);
}

TEST_P(ChannelEnginesTest, AThreadsCallsGoByOneEngineAndThreadsAreSpreadOverAll) {
  Open();
  std::map<const Channel*, std::set<uint64_t>> places;
  OnThreads(2 * kEngines, [&] {
    Channel* const lane = &channel_->here();
    for (int i = 0; i < 5; ++i) places[lane].insert(Where());
    EXPECT_EQ(&channel_->here(), lane);
    EXPECT_EQ(&channel_->engine(), &lane->engine());
    EXPECT_EQ(channel_->path()->kind, GetParam());
    EXPECT_EQ(channel_->state(), ChannelState::kReady);
  });
  EXPECT_EQ(places.size(), kEngines);
  std::set<uint64_t> all;
  for (const auto& [lane, engines] : places) {
    EXPECT_EQ(engines.size(), 1u) << "a connection has one engine at the server";
    all.insert(engines.begin(), engines.end());
  }
  EXPECT_EQ(all.size(), kEngines);
  for (const ServerStats& stats : server_->stats_by_engine()) EXPECT_EQ(stats.requests, 10u);
  EXPECT_EQ(channel_->stats().calls_ok, 10u * kEngines);
}

TEST_P(ChannelEnginesTest, ThreadsCallAtTheSameTime) {
  Open();
  Probe::Stub stub(*channel_);
  std::vector<std::thread> threads;
  for (uint32_t i = 0; i < 2 * kEngines; ++i) {
    threads.emplace_back([&, i] {
      for (int calls = 0; calls < 200; ++calls) {
        const Data request = MakeData(i, 100 + i);
        Data reply;
        ASSERT_EQ(stub.Echo(request, &reply), absl::OkStatus());
        ASSERT_EQ(reply.payload(), request.payload());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(channel_->stats().calls_ok, 400u * kEngines);
}

// Services are bound once for all engines, in whichever order their threads come.
TEST_P(ChannelEnginesTest, StubsOfSeveralServicesMayBeMadeOnAnyThread) {
  Open();
  std::vector<std::thread> threads;
  for (uint32_t i = 0; i < 2 * kEngines; ++i) {
    threads.emplace_back([&, i] {
      const auto call = [&] { EXPECT_LT(Where(), kEngines); };
      if (i % 2 == 0) call();
      Data sum;
      ClientWriter<Data> writer = Streams::Stub(*channel_).Sum(&sum);
      for (uint64_t n = 0; n < 10; ++n) ASSERT_TRUE(writer.Write(MakeData(n, 10)));
      EXPECT_EQ(writer.Finish(), absl::OkStatus());
      EXPECT_EQ(sum.number(), 10u);
      if (i % 2 == 1) call();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_P(ChannelEnginesTest, RemoteMemoryIsUsedOnItsEngineFromAnyThread) {
  Open();
  auto exported = server_->AllocateExport(4096, {.rights = kAllRights});
  ASSERT_TRUE(exported.ok()) << exported.status();
  OnThreads(kEngines, [&] {
    auto memory = RemoteMemory::Open(*channel_, (*exported)->handle());
    ASSERT_TRUE(memory.ok()) << memory.status();
    auto buffer = channel_->AllocateBuffer(8);
    ASSERT_TRUE(buffer.ok()) << buffer.status();
    EXPECT_EQ(&(*memory)->channel(), &channel_->here());
    EXPECT_TRUE((*memory)->FetchAdd(0, 1).ok());
    OnThreads(kEngines, [&] {
      EXPECT_EQ((*memory)->Read(0, (*buffer)->slice()), absl::OkStatus());
      EXPECT_TRUE((*memory)->FetchAdd(0, 1).ok());
    });
  });
  uint64_t sum = 0;
  std::memcpy(&sum, (*exported)->bytes().data(), sizeof(sum));
  EXPECT_EQ(sum, kEngines * (1 + kEngines));
}

// By the registration with another engine's provider it reached what was not meant, or failed.
TEST_P(ChannelEnginesTest, ABufferOfAnotherEngineIsRefused) {
  OpenOnThreads();
  auto exported = server_->AllocateExport(4096, {.rights = kAllRights});
  ASSERT_TRUE(exported.ok()) << exported.status();
  std::set<Channel*> lanes;
  OnThreads(kEngines, [&] { lanes.insert(&channel_->here()); });
  ASSERT_EQ(lanes.size(), kEngines);
  for (Channel* const lane : lanes) {
    auto memory = RemoteMemory::Open(*lane, (*exported)->handle());
    ASSERT_TRUE(memory.ok()) << memory.status();
    for (Channel* const other : lanes) {
      auto buffer = other->AllocateBuffer(8);
      ASSERT_TRUE(buffer.ok()) << buffer.status();
      for (int i = 0; i < 2; ++i) {
        const absl::Status status = (*memory)->Read(0, (*buffer)->slice());
        if (other == lane) {
          EXPECT_EQ(status, absl::OkStatus());
        } else {
          EXPECT_TRUE(absl::IsInternal(status)) << status;
          EXPECT_NE(status.message().find("is of one engine"), absl::string_view::npos) << status;
        }
      }
    }
  }
}

// Each callback waited until the other one's engine had a turn.
TEST_P(ChannelEnginesTest, CallbacksAskWhetherOtherEnginesMemoryIsReclaimedWithoutWaiting) {
  OpenOnThreads();
  auto exported = server_->AllocateExport(4096, {.rights = kAllRights});
  ASSERT_TRUE(exported.ok()) << exported.status();
  const auto& lanes = internal::LanesOf(*channel_)->all();
  std::vector<std::unique_ptr<RemoteMemory>> memories;
  for (size_t i = 0; i < 2; ++i) {
    auto memory = RemoteMemory::Open(*lanes[i], (*exported)->handle());
    ASSERT_TRUE(memory.ok()) << memory.status();
    memories.push_back(*std::move(memory));
  }
  std::latch in_callbacks(2);
  std::latch over(2);
  std::atomic<int> reclaimed{0};
  for (size_t i = 0; i < 2; ++i) {
    ASSERT_TRUE(lanes[i]->engine().Post([&, i] {
      in_callbacks.arrive_and_wait();
      memories[1 - i]->WhenReclaimed([&] { ++reclaimed; });
      over.count_down();
    }));
  }
  over.wait();
  EXPECT_EQ(reclaimed.load(), 2);
}

// A memory that is lent is one engine's.
TEST_P(ChannelEnginesTest, ACallWithMemoryOfAnotherThreadsEngineIsRefused) {
  Open();
  BulkCall bulk(*channel_);
  int refused = 0;
  OnThreads(kEngines, [&] {
    Data reply;
    const absl::Status status =
        Probe::Stub(*channel_).Echo(MakeData(1, 1), &reply, {.bulk = &bulk});
    refused += absl::IsInvalidArgument(status) ? 1 : 0;
  });
  EXPECT_EQ(refused, static_cast<int>(kEngines) - 1);
}

TEST_P(ChannelEnginesTest, CallsFromAnEnginesThreadGoByThatEngine) {
  OpenOnThreads();
  std::atomic<uint32_t> done{0};
  std::array<Data, kEngines> replies;
  for (uint32_t i = 0; i < kEngines; ++i) {
    Engine* const engine = engines_[i].get();
    ASSERT_TRUE(engine->Post([&, i, engine] {
      EXPECT_EQ(&channel_->engine(), engine);
      Probe::Stub(*channel_).Echo(MakeData(1, 1), &replies[i], {},
                                  [&, engine](const absl::Status& status) {
                                    EXPECT_EQ(status, absl::OkStatus());
                                    EXPECT_TRUE(engine->OnEngine());
                                    ++done;
                                  });
    }));
  }
  while (done < kEngines) std::this_thread::yield();
  std::set<uint64_t> places;
  for (const Data& reply : replies) places.insert(reply.number());
  EXPECT_EQ(places.size(), kEngines);
  // And of threads that are no engine's.
  OnThreads(kEngines, [&] { EXPECT_LT(Where(), kEngines); });
  for (const ServerStats& stats : server_->stats_by_engine()) EXPECT_EQ(stats.requests, 2u);
}

TEST_P(ChannelEnginesTest, TheEndOfAChannelEndsTheCallsOfAllItsEngines) {
  OpenOnThreads();
  std::atomic<uint32_t> cancelled{0};
  std::array<Data, kEngines> replies;
  server_->Shutdown(0);
  // A call whose own connection is lost would go by another one that is not lost yet.
  const auto some_lane_is_ready = [&] {
    const LaneStates& states = internal::LanesOf(*channel_)->states();
    for (uint32_t lane = 0; lane < kEngines; ++lane) {
      if (states.IsReady(lane)) return true;
    }
    return false;
  };
  OnThreads(kEngines, [&] {
    static std::atomic<uint32_t> next{0};
    while (channel_->state() == ChannelState::kReady) std::this_thread::yield();
    while (some_lane_is_ready()) std::this_thread::yield();
    Probe::Stub(*channel_).Echo(MakeData(1, 1), &replies[next++ % kEngines],
                                {.wait_for_server = true}, [&](const absl::Status& status) {
                                  EXPECT_TRUE(absl::IsCancelled(status)) << status;
                                  ++cancelled;
                                });
  });
  channel_.reset();
  EXPECT_EQ(cancelled, kEngines);
}

// One lane was destroyed before the calls of the next one ended, whose callbacks used it.
TEST_P(ChannelEnginesTest, CallbacksOfAChannelThatEndsMayUseIt) {
  Open();
  Channel& channel = *channel_;
  Probe::Stub stub(channel);
  int cancelled = 0;
  int refused = 0;
  std::array<Data, kEngines> replies;
  uint32_t started = 0;
  OnThreads(kEngines, [&] {
    Data* const reply = &replies[started++];
    stub.Echo(MakeData(1, 1), reply, {},  // whose reply nobody takes
              [&, reply](const absl::Status& status) {
                EXPECT_TRUE(absl::IsCancelled(status)) << status;
                ++cancelled;
                channel.stats();
                Probe::Stub again(channel);
                again.Echo(MakeData(1, 1), reply, {}, [&](const absl::Status& second) {
                  EXPECT_TRUE(absl::IsFailedPrecondition(second)) << second;
                  ++refused;
                });
              });
  });
  channel_.reset();
  EXPECT_EQ(cancelled, static_cast<int>(kEngines));
  EXPECT_EQ(refused, static_cast<int>(kEngines));
}

// A thread may drive an engine that is not its own. Its callbacks went to the thread's.
TEST_P(ChannelEnginesTest, InACallbackTheChannelIsThatOfItsEngineWhoeverDrivesIt) {
  Open();
  std::set<Channel*> lanes;
  OnThreads(kEngines, [&] { lanes.insert(&channel_->here()); });
  ASSERT_EQ(lanes.size(), kEngines);
  for (Channel* const lane : lanes) {
    Engine& engine = lane->engine();
    bool done = false;
    ASSERT_TRUE(engine.Post([&] {
      EXPECT_EQ(&channel_->here(), lane);
      EXPECT_EQ(channel_->state(), ChannelState::kReady);  // without waiting for another engine
      done = true;
    }));
    EXPECT_TRUE(engine.RunUntil([&] { return done; }));
  }
}

// Each drove the engine on which the other one's callback waited for its own.
TEST_P(ChannelEnginesTest, ThreadsThatDriveEachOthersEnginesDoNotWaitForEachOther) {
  Open();
  std::atomic<uint64_t> changes{0};
  std::vector<std::thread> threads;
  for (uint32_t i = 0; i < kEngines; ++i) {
    threads.emplace_back([&] {
      for (int looks = 0; looks < 100; ++looks) {
        const auto watch = channel_->WatchState([&](ChannelState) {
          EXPECT_EQ(channel_->state(), ChannelState::kReady);
          ++changes;
        });
        EXPECT_TRUE(watch.ok()) << watch.status();
        EXPECT_EQ(channel_->stats().connects, kEngines);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(changes.load(), 0u);
}

// --- which engine of the server -----------------------------------------------------------------

// By the fewest connections the first one's would have gone to another than the first.
TEST_P(ChannelEnginesTest, EachEngineMayBeConnectedToTheServersOfTheSameNumber) {
  const auto before = Channel::Open(server_->address(), Options(/*engines=*/1));
  ASSERT_TRUE(before.ok()) << before.status();
  ASSERT_EQ(Connections(), (std::vector<uint32_t>{1, 0, 0}));
  OpenOnThreads(kSameEngine);
  EXPECT_EQ(Connections(), (std::vector<uint32_t>{2, 1, 1}));
  std::atomic<uint32_t> done{0};
  std::array<Data, kEngines> replies;
  for (uint32_t i = 0; i < kEngines; ++i) {
    ASSERT_TRUE(engines_[i]->Post([&, i] {
      EXPECT_EQ(channel_->path()->server_engine, i);
      Probe::Stub(*channel_).Echo(MakeData(99, 1), &replies[i], {},
                                  [&](const absl::Status& status) {
                                    EXPECT_EQ(status, absl::OkStatus());
                                    ++done;
                                  });
    }));
  }
  while (done < kEngines) std::this_thread::yield();
  for (uint32_t i = 0; i < kEngines; ++i) EXPECT_EQ(replies[i].number(), i);
}

TEST_P(ChannelEnginesTest, OwnEnginesHaveTheServersOfTheSameNumberEachTimeTheyConnect) {
  ChannelOptions options = Options();
  options.link.server_engine = kSameEngine;
  for (int times = 0; times < 3; ++times) {
    auto channel = Channel::Open(server_->address(), options);
    ASSERT_TRUE(channel.ok()) << channel.status();
    channel_ = *std::move(channel);
    std::map<Channel*, uint64_t> places;
    OnThreads(kEngines, [&] { places[&channel_->here()] = Where(); });
    std::set<uint64_t> all;
    for (const auto& [lane, place] : places) {
      EXPECT_EQ(lane->path()->server_engine, place);
      EXPECT_EQ(lane->path()->server_engines, kEngines);
      all.insert(place);
    }
    EXPECT_EQ(all.size(), kEngines);
  }
}

// A connection for each pair of engines: a program with a thread for each part of its data has a
// row of channels on each, and a call goes by the one to the engine that has its part.
TEST_P(ChannelEnginesTest, EachPairOfEnginesMayHaveAConnection) {
  MakeEngines();
  std::vector<std::vector<std::unique_ptr<Channel>>> rows(kEngines);
  for (uint32_t own = 0; own < kEngines; ++own) {
    for (uint32_t server = 0; server < kEngines; ++server) {
      auto channel = Channel::Open(*engines_[own], server_->address(), Asking(server));
      ASSERT_TRUE(channel.ok()) << channel.status();
      rows[own].push_back(*std::move(channel));
    }
  }
  EXPECT_EQ(Connections(), std::vector<uint32_t>(kEngines, kEngines));
  for (uint32_t own = 0; own < kEngines; ++own) {
    for (uint32_t server = 0; server < kEngines; ++server) {
      EXPECT_EQ(rows[own][server]->path()->server_engine, server);
      EXPECT_EQ(WhereBy(*rows[own][server]), server);
    }
  }
}

TEST_P(ChannelEnginesTest, ANumberIsTakenModuloTheServersEngines) {
  const auto channel = Channel::Open(server_->address(), Asking(kEngines + 2));
  ASSERT_TRUE(channel.ok()) << channel.status();
  EXPECT_EQ(WhereBy(**channel), 2u);
  const auto same = Channel::Open(server_->address(), Asking(kSameEngine));
  ASSERT_TRUE(same.ok()) << same.status();
  EXPECT_EQ(WhereBy(**same), 0u) << "of one engine, whose number is 0";
  const auto balanced = OpenBalanced("list:" + server_->address(), Asking(1));
  ASSERT_TRUE(balanced.ok()) << balanced.status();
  EXPECT_EQ(WhereBy(**balanced), 1u) << "of each server";
  const absl::Status status = Channel::Open(server_->address(), Asking(kMaxEngines)).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_NE(status.message().find("server_engine is 64"), absl::string_view::npos) << status;
}

TEST_P(ChannelEnginesTest, AChannelOverManyServersMayHaveSeveralEngines) {
  auto channel = OpenBalanced("list:" + server_->address(), Options());
  ASSERT_TRUE(channel.ok()) << channel.status();
  channel_ = *std::move(channel);
  EXPECT_EQ(server_->stats().connections, kEngines);
  std::set<uint64_t> seen;
  OnThreads(kEngines, [&] { seen.insert(Where()); });
  EXPECT_EQ(seen, (std::set<uint64_t>{0, 1, 2})) << "each thread by an engine of its own";
  for (const auto& lane : internal::LanesOf(*channel_)->all()) {
    EXPECT_EQ(lane->stats().calls_ok, 1u);
  }
  EXPECT_EQ(ServersOf(*channel_).size(), 1u);
  channel_.reset();
  // Each engine of the channel asks each server for the engine of its number.
  ChannelOptions asking = Options();
  asking.link.server_engine = kSameEngine;
  auto same = OpenBalanced("list:" + server_->address(), asking);
  ASSERT_TRUE(same.ok()) << same.status();
  uint64_t number = 0;
  for (const auto& lane : internal::LanesOf(**same)->all()) EXPECT_EQ(WhereBy(*lane), number++);
}

// Each thread told the lanes by itself, and some had the one's list in the end, and some the
// other's.
TEST_P(ChannelEnginesTest, OfListsThatThreadsNameAtTheSameTimeAllEnginesHaveOne) {
  auto channel = OpenBalanced("list:" + server_->address(), Options());
  ASSERT_TRUE(channel.ok()) << channel.status();
  channel_ = *std::move(channel);
  const std::vector<ListedServer> lists[] = {
      {ListedServer{server_->address()}},
      {ListedServer{server_->address()}, ListedServer{"unix:/nobody/listens/here"}}};
  std::vector<std::thread> threads;
  for (const std::vector<ListedServer>& list : lists) {
    threads.emplace_back([this, &list] {
      for (int i = 0; i < 50; ++i) EXPECT_EQ(SetServers(*channel_, list), absl::OkStatus());
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::set<size_t> sizes;
  for (const auto& lane : internal::LanesOf(*channel_)->all()) {
    // The list is applied in the next turn: two calls of the lane's own are behind it.
    for (int i = 0; i < 2; ++i) EXPECT_LT(WhereBy(*lane), kEngines);
    size_t count = 0;
    for (const ServerFacts& facts : ServersOf(*lane)) count += facts.draining ? 0 : 1;
    sizes.insert(count);
  }
  EXPECT_EQ(sizes.size(), 1u) << "they have different lists";
}

// Nobody else drives the engine whose connection was lost: the calls that go by others bring it
// back.
TEST_P(ChannelEnginesTest, CallsGoByAnotherEngineUntilTheirConnectionIsBack) {
  Open();
  Channel& lane = channel_->here();
  const uint64_t home = Where();
  ASSERT_TRUE(lane.engine().Post([&lane] {
    internal::ConnectionOf(lane).EndConnection(absl::UnavailableError("cut"), "cut");
  }));
  const auto is_lost = [&lane] {
    return internal::ConnectionOf(lane).open_connection() == nullptr;
  };
  ASSERT_TRUE(lane.engine().RunUntil(is_lost));
  ASSERT_TRUE(internal::LanesOf(*channel_)->states().IsAway(
      internal::LanesOf(*channel_)->NumberOfThisThread()));
  EXPECT_NE(Where(), home);
  const uint64_t calls_before = lane.stats().calls_ok;
  while (lane.stats().calls_ok == calls_before) ASSERT_LT(Where(), kEngines);
  EXPECT_EQ(lane.state(), ChannelState::kReady);
  EXPECT_EQ(channel_->stats().calls_failed, 0u);
}

TEST_P(ChannelEnginesTest, OptionsThatDoNotFitAreRefused) {
  for (const uint32_t engines : {0u, 65u}) {
    const absl::Status status = Channel::Open(server_->address(), Options(engines)).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_NE(status.message().find("ChannelOptions::engines"), absl::string_view::npos);
  }
  for (const uint32_t engines : {0u, 65u}) {
    EXPECT_TRUE(absl::IsInvalidArgument(
        OpenBalanced("list:" + server_->address(), Options(engines)).status()));
  }
  EXPECT_TRUE(absl::IsInvalidArgument(
      Channel::Open(std::vector<Engine*>(), server_->address(), Options(1)).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(
      Channel::Open({&server_->engine(0)}, server_->address(), Options()).status()));
  Engine* const one = &server_->engine(0);
  for (const std::vector<Engine*>& engines : {std::vector<Engine*>{one, nullptr}, {one, one}}) {
    const absl::Status status = Channel::Open(engines, server_->address(), Options(1)).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_NE(status.message().find("number 1"), absl::string_view::npos) << status;
  }
}

}  // namespace
}  // namespace weft::test
