// Several engines take the clients of one address: each gets as many as the others, a link's socket
// finds the engine that waits for it, and strangers get no further than with one engine.

#include "transport/control/shared_listener.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/counters.h"
#include "gtest/gtest.h"
#include "transport/control/newcomers.h"
#include "transport/control/testing/network_world.h"
#include "transport/control/testing/stranger.h"
#include "transport/options.h"
#include "transport/sockets/join.h"
#include "transport/sockets/socket.h"

namespace weft {
namespace {

// --- by itself ----------------------------------------------------------------------------------

Descriptor ASocket() { return Descriptor(::open("/dev/null", O_RDONLY | O_CLOEXEC)); }

bool IsOpen(int fd) { return ::fcntl(fd, F_GETFD) >= 0; }

TEST(SharedListenerAloneTest, AnEngineTakesWhatIsPostedInItsOrder) {
  Counter loads[2];
  SharedListener shared(&loads[0]);
  EXPECT_FALSE(shared.is_shared());
  ASSERT_EQ(shared.Join(&loads[1]).value(), 1u);
  EXPECT_TRUE(shared.is_shared());
  std::vector<int> posted;
  for (int i = 0; i < 3; ++i) {
    Descriptor socket = ASocket();
    posted.push_back(socket.get());
    ASSERT_TRUE(shared.Post(1, &socket));
    EXPECT_FALSE(socket.valid());
  }
  for (const int fd : posted) EXPECT_EQ(shared.Take(1).get(), fd);
  EXPECT_FALSE(shared.Take(1).valid());
}

TEST(SharedListenerAloneTest, WhatAnEngineHasNoRoomForStaysThePosters) {
  Counter loads[2];
  SharedListener shared(&loads[0]);
  ASSERT_EQ(shared.Join(&loads[1]).value(), 1u);
  for (size_t i = 0; i < SharedListener::kMaxWaitingClients; ++i) {
    Descriptor socket = ASocket();
    ASSERT_TRUE(shared.Post(1, &socket, SharedListener::kMaxWaitingClients));
  }
  Descriptor client = ASocket();
  EXPECT_FALSE(shared.Post(1, &client, SharedListener::kMaxWaitingClients));
  EXPECT_TRUE(IsOpen(client.get()));
  EXPECT_EQ(shared.LeastLoaded(), 0u);
  for (size_t i = SharedListener::kMaxWaitingClients; i < SharedListener::kMaxWaiting; ++i) {
    Descriptor socket = ASocket();
    ASSERT_TRUE(shared.Post(1, &socket));
  }
  Descriptor one_more = ASocket();
  EXPECT_FALSE(shared.Post(1, &one_more));
  EXPECT_TRUE(IsOpen(one_more.get()));
  EXPECT_TRUE(shared.Take(1).valid());
  EXPECT_TRUE(shared.Post(1, &one_more));
}

TEST(SharedListenerAloneTest, AnEngineThatLeavesGetsNothingAndClosesWhatWaits) {
  Counter loads[2];
  SharedListener shared(&loads[0]);
  ASSERT_EQ(shared.Join(&loads[1]).value(), 1u);
  Descriptor waiting = ASocket();
  const int fd = waiting.get();
  ASSERT_TRUE(shared.Post(1, &waiting));
  shared.Leave(1);
  EXPECT_FALSE(IsOpen(fd));
  Descriptor late = ASocket();
  EXPECT_FALSE(shared.Post(1, &late));
  EXPECT_TRUE(late.valid());
  loads[0].Set(1000);
  EXPECT_EQ(shared.LeastLoaded(), 0u) << "the only one that is left";
}

TEST(SharedListenerAloneTest, TheLeastLoadedHasTheFewestWithThoseThatItHasStillToTake) {
  Counter loads[3];
  SharedListener shared(&loads[0]);
  ASSERT_EQ(shared.Join(&loads[1]).value(), 1u);
  ASSERT_EQ(shared.Join(&loads[2]).value(), 2u);
  EXPECT_EQ(shared.LeastLoaded(), 0u);
  loads[0].Set(2);
  EXPECT_EQ(shared.LeastLoaded(), 1u);
  Descriptor socket = ASocket();
  ASSERT_TRUE(shared.Post(1, &socket));
  EXPECT_EQ(shared.LeastLoaded(), 2u);
  loads[2].Set(5);
  EXPECT_EQ(shared.LeastLoaded(), 1u);
}

TEST(SharedListenerAloneTest, ATokenNamesAnEngineWhateverElseIsInIt) {
  Counter load;
  SharedListener shared(&load);
  for (uint32_t number = 1; number < SharedListener::kMaxEngines; ++number) {
    ASSERT_EQ(shared.Join(&load).value(), number);
  }
  EXPECT_EQ(shared.Join(&load).status().code(), absl::StatusCode::kResourceExhausted);
  for (uint32_t number = 0; number < SharedListener::kMaxEngines; ++number) {
    for (const uint64_t random : {uint64_t{0}, ~uint64_t{0}, uint64_t{0x123456789abcdef}}) {
      EXPECT_EQ(shared.NumberIn({SharedListener::WithNumber(random, number), random}), number);
    }
  }
}

TEST(SharedListenerAloneTest, ATokenOfNoEngineIsTheFirstOnesToRefuse) {
  Counter load;
  SharedListener shared(&load);
  ASSERT_EQ(shared.Join(&load).value(), 1u);
  EXPECT_EQ(shared.NumberIn({SharedListener::WithNumber(7, 2), 7}), 0u);
  EXPECT_EQ(shared.NumberIn({~uint64_t{0}, 7}), 0u);
}

TEST(SharedListenerAloneTest, AClientIsWhomItHasProvedToBeOrItsUserOrItsHost) {
  PeerIdentity nobody;
  EXPECT_EQ(SharedListener::KeyOf(nobody, 1), SharedListener::KeyOf(nobody, 1));
  EXPECT_FALSE(SharedListener::KeyOf(nobody, 1) == SharedListener::KeyOf(nobody, 2));
  EXPECT_EQ(SharedListener::KeyOf(nobody, 0x0100007F), SharedListener::KeyOf(nobody, 0x0B00007F))
      << "127.0.0.1 and 127.0.0.11 are one host, which has sixteen million such addresses";
  EXPECT_EQ(SharedListener::KeyOf(nobody, 0x0100007F), SharedListener::KeyOf(nobody, 0))
      << "and ::1, of whose first half nothing is left";
  PeerIdentity user;
  user.authentication = Authentication::kKernelCredentials;
  user.user_id = 1;
  PeerIdentity secret;
  secret.authentication = Authentication::kPreSharedKey;
  secret.psk_name = "1";
  PeerIdentity named;
  named.authentication = Authentication::kCertificate;
  named.subject = "CN=1";
  named.dns_names = {"a", "b"};
  std::vector<PeerIdentity> all = {nobody, user, secret, named};
  user.user_id = 2;
  secret.psk_name = "2";
  all.insert(all.end(), {user, secret});
  named.dns_names = {"a b"};
  all.push_back(named);
  named.dns_names = {"a"};
  named.uris = {"b"};
  all.push_back(named);
  for (size_t i = 0; i < all.size(); ++i) {
    for (size_t j = 0; j < all.size(); ++j) {
      EXPECT_EQ(SharedListener::KeyOf(all[i], 1) == SharedListener::KeyOf(all[j], 1), i == j)
          << i << ", " << j;
    }
    EXPECT_EQ(SharedListener::KeyOf(all[i], 1) == SharedListener::KeyOf(all[i], 2), i > 0) << i;
  }
  // Another process of its user's is the same client.
  user.process_id = 7;
  user.group_id = 7;
  EXPECT_EQ(SharedListener::KeyOf(user, 1), SharedListener::KeyOf(all[4], 1));
}

TEST(SharedListenerAloneTest, AClientHasItsConnectionsUntilTheyEnd) {
  Counter load;
  SharedListener shared(&load);
  ListenOptions options;
  options.max_connections = 3;
  options.max_connections_of_one = 2;
  constexpr uint64_t kOne = 1;
  constexpr uint64_t kOther = 2;
  EXPECT_TRUE(shared.TakeConnection(options, kOne).ok());
  EXPECT_TRUE(shared.TakeConnection(options, kOne).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(shared.TakeConnection(options, kOne)));
  EXPECT_TRUE(shared.CheckRoom(options, kOther).ok());
  EXPECT_TRUE(shared.TakeConnection(options, kOther).ok());
  EXPECT_EQ(shared.connections(), 3u);
  shared.EndConnection(kOne);
  EXPECT_TRUE(shared.TakeConnection(options, kOne).ok());
  for (const uint64_t client : {kOne, kOne, kOther}) shared.EndConnection(client);
  EXPECT_EQ(shared.connections(), 0u);
}

// --- with engines -------------------------------------------------------------------------------

class SharedListenerTest : public NetworkTest {
 protected:
  struct Other {
    OpenDoor door;
    std::unique_ptr<Engine> engine;
    std::unique_ptr<Listener> listener;
  };

  // server_ is the first of so many.
  void Serve(size_t engines, const std::string& address = "127.0.0.1:0",
             ListenOptions options = {}) {
    options.link.connect_timeout_ns = Patient().link.connect_timeout_ns;
    acceptor_.echo = true;
    Listen(address, options);
    JoinUntil(engines, options);
  }
  void JoinUntil(size_t engines, const ListenOptions& options) {
    while (others_.size() + 1 < engines) {
      others_.push_back(std::make_unique<Other>());
      Other& other = *others_.back();
      other.door.echo = true;
      other.engine = NewNetworkEngine();
      auto joined =
          other.engine->transport().JoinListener(listener_->shared(), options, &other.door);
      ASSERT_TRUE(joined.ok()) << joined.status();
      other.listener = *std::move(joined);
      EXPECT_EQ(other.listener->address(), listener_->address());
    }
  }
  Engine& EngineOf(size_t number) { return number == 0 ? *server_ : *others_[number - 1]->engine; }
  OpenDoor& DoorOf(size_t number) { return number == 0 ? acceptor_ : others_[number - 1]->door; }
  // The open connections of each engine.
  std::vector<size_t> Clients() {
    std::vector<size_t> counts;
    for (size_t number = 0; number <= others_.size(); ++number) {
      const auto& ends = DoorOf(number).ends;
      counts.push_back(
          static_cast<size_t>(std::count_if(ends.begin(), ends.end(), [](const auto& end) {
            return end->opened() && !end->closed();
          })));
    }
    return counts;
  }
  uint64_t Counted(size_t number, const std::string& name) {
    for (const auto& [found, value] : EngineOf(number).counters().Snapshot()) {
      if (found == name) return value;
    }
    return 0;
  }
  uint64_t CountedByAll(const std::string& name) {
    uint64_t sum = 0;
    for (size_t number = 0; number <= others_.size(); ++number) sum += Counted(number, name);
    return sum;
  }

  // Engines whose number is `stuck` are not driven.
  template <class Done>
  bool RunAll(Done done) {
    std::vector<Engine*> engines = {client_.get()};
    for (size_t number = 0; number <= others_.size(); ++number) {
      if (number != stuck_) engines.push_back(&EngineOf(number));
    }
    return RunEngines(engines, done);
  }
  NetworkEnd* Open(const ConnectOptions& options) {
    NetworkEnd* const end = Dial(options);
    EXPECT_TRUE(RunAll([&] { return end->opened() || end->closed(); }));
    return end;
  }
  // One after the other, so that each finds the counts of those before it.
  void OpenMany(size_t count, PathKind path) {
    for (size_t i = 0; i < count; ++i) {
      NetworkEnd* const end = Open(Over({path}));
      ASSERT_TRUE(end->opened()) << end->why();
      EXPECT_EQ(end->path(), PathKindName(path));
    }
  }
  void ExpectService(PathKind path = PathKind::kTcp) {
    NetworkEnd* const end = Open(Over({path}));
    ASSERT_TRUE(end->opened()) << end->why();
    ASSERT_TRUE(end->Send("still here?"));
    ASSERT_TRUE(RunAll([&] { return !end->received.empty(); }));
  }

  Stranger NewStranger() { return Stranger(listener_->address()); }
  bool RunUntilHungUp(Stranger& stranger) {
    return RunAll([&] { return stranger.Listen(); });
  }
  bool RunUntilHeard(Stranger& stranger, ControlType type) {
    return RunAll([&] { return stranger.Listen() || !stranger.Body(type).empty(); });
  }
  // A stranger whose handshake tries tcp, and the token that its socket joins by.
  struct Waiting {
    Stranger control;
    Nonce128 token;
    size_t number() const { return token.high >> (64 - SharedListener::kNumberBits); }
  };
  Waiting NewWaiting() {
    Waiting waiting{NewStranger(), {}};
    waiting.control.Say(Preamble() + Frame(ControlType::kClientHello, Encode(GoodHello())));
    EXPECT_TRUE(RunUntilHeard(waiting.control, ControlType::kServerHello));
    waiting.control.Say(Frame(ControlType::kPathTry, Encode(PathTry{1, "x", 4096})));
    EXPECT_TRUE(RunUntilHeard(waiting.control, ControlType::kPathReady));
    const auto ready = DecodePathReady(AsBytes(waiting.control.Body(ControlType::kPathReady)));
    EXPECT_TRUE(ready.ok()) << ready.status();
    if (ready.ok()) waiting.token = ready->nonce;
    return waiting;
  }
  static std::string Join(const Nonce128& token) {
    return std::string(AsStringView(EncodeJoin(token)));
  }
  void ExpectOpens(Waiting& waiting, Stranger& socket) {
    ASSERT_TRUE(RunAll([&] { return socket.Listen() || !socket.heard().empty(); }));
    EXPECT_FALSE(socket.heard().empty()) << "it was not taken";
    waiting.control.Say(Frame(ControlType::kPathUp, EncodePathUp(1)));
    ASSERT_TRUE(RunUntilHeard(waiting.control, ControlType::kOpen));
    EXPECT_FALSE(waiting.control.Body(ControlType::kOpen).empty());
  }

  static constexpr size_t kNoEngine = ~size_t{0};
  size_t stuck_ = kNoEngine;
  std::vector<std::unique_ptr<Other>> others_;
};

using Counts = std::vector<size_t>;

class SharedListenerPathTest : public SharedListenerTest,
                               public testing::WithParamInterface<PathKind> {};

INSTANTIATE_TEST_SUITE_P(Paths, SharedListenerPathTest,
                         testing::Values(PathKind::kShm, PathKind::kTcp),
                         [](const auto& path) { return std::string(PathKindName(path.param)); });

TEST_P(SharedListenerPathTest, ClientsAreSpreadEvenly) {
  Serve(4);
  OpenMany(12, GetParam());
  EXPECT_EQ(Clients(), Counts({3, 3, 3, 3}));
  for (const auto& end : dialed_) {
    ASSERT_TRUE(end->Send("there and back"));
    ASSERT_TRUE(RunAll([&] { return !end->received.empty(); }));
  }
  EXPECT_EQ(CountedByAll("listener.joins_refused"), 0u);
  EXPECT_EQ(CountedByAll("listener.handovers_refused"), 0u);
}

TEST_P(SharedListenerPathTest, NewClientsFillTheEngineThatOthersHaveLeft) {
  Serve(3);
  OpenMany(9, GetParam());
  ASSERT_EQ(Clients(), Counts({3, 3, 3}));
  for (const size_t leaves : {1u, 4u, 7u}) dialed_[leaves]->connection().Close("enough");
  ASSERT_TRUE(RunAll([&] {
    return Clients() == Counts({3, 0, 3}) && Counted(1, "listener.accepted") == 0;
  }));
  OpenMany(2, GetParam());
  EXPECT_EQ(Clients(), Counts({3, 2, 3}));
}

TEST_P(SharedListenerPathTest, AllEnginesTogetherHaveTheConnectionsOfOneListener) {
  ListenOptions options;
  options.max_connections = 4;
  Serve(3, "127.0.0.1:0", options);
  OpenMany(4, GetParam());
  NetworkEnd* const fifth = Open(Over({GetParam()}));
  ASSERT_TRUE(fifth->closed());
  EXPECT_EQ(fifth->why().code(), absl::StatusCode::kResourceExhausted) << fifth->why();
  dialed_[2]->connection().Close("enough");
  ASSERT_TRUE(RunAll([&] { return Clients() == Counts({2, 1, 0}); }));
  OpenMany(1, GetParam());
}

// However they are spread.
TEST_P(SharedListenerPathTest, AllEnginesTogetherHaveTheConnectionsOfOneClient) {
  ListenOptions options;
  options.max_connections_of_one = 3;
  Serve(3, "127.0.0.1:0", options);
  OpenMany(3, GetParam());
  NetworkEnd* const fourth = Open(Over({GetParam()}));
  EXPECT_TRUE(fourth->closed());
  dialed_[2]->connection().Close("enough");
  ASSERT_TRUE(RunAll([&] { return Clients() == Counts({1, 1, 0}); }));
  OpenMany(1, GetParam());
}

TEST_F(SharedListenerTest, ClientsOfAUnixSocketAreSpreadToo) {
  std::string folder = "/tmp/weft_shared_XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  Serve(3, "unix:" + folder + "/server");
  OpenMany(6, PathKind::kTcp);
  EXPECT_EQ(Clients(), Counts({2, 2, 2}));
  listener_.reset();
  EXPECT_EQ(rmdir(folder.c_str()), 0);
}

TEST_F(SharedListenerTest, AnEngineThatStopsListeningKeepsItsClientsAndGetsNoMore) {
  Serve(3);
  OpenMany(3, PathKind::kTcp);
  others_[0]->listener.reset();
  OpenMany(4, PathKind::kTcp);
  EXPECT_EQ(Clients(), Counts({3, 1, 3}));
  ASSERT_TRUE(dialed_[1]->Send("still here?"));
  ASSERT_TRUE(RunAll([&] { return !dialed_[1]->received.empty(); }));
}

// An engine and its listener go in any order.
TEST_F(SharedListenerTest, AnEngineThatIsGoneGetsNoMore) {
  Serve(3);
  others_[1]->engine.reset();
  others_[1]->engine = NewNetworkEngine();
  OpenMany(4, PathKind::kTcp);
  EXPECT_EQ(Clients(), Counts({2, 2, 0}));
}

TEST_F(SharedListenerTest, WithoutItsFirstListenerTheOthersKeepTheirClients) {
  Serve(3);
  OpenMany(3, PathKind::kTcp);
  listener_.reset();
  for (const auto& end : dialed_) {
    ASSERT_TRUE(end->Send("still here?"));
    ASSERT_TRUE(RunAll([&] { return !end->received.empty(); }));
  }
}

// --- clients that ask for an engine -------------------------------------------------------------

ConnectOptions Asking(PathKind path, uint32_t engine) {
  ConnectOptions options = Over({path});
  options.link.server_engine = engine;
  return options;
}

TEST_P(SharedListenerPathTest, AClientGetsTheEngineThatItAsksFor) {
  Serve(3);
  for (const uint32_t wanted : {2u, 2u, 1u, 2u, 0u, 1u}) {
    NetworkEnd* const end = Open(Asking(GetParam(), wanted));
    ASSERT_TRUE(end->opened()) << end->why();
    EXPECT_EQ(end->connection().path().server_engine, wanted);
    EXPECT_EQ(end->connection().path().server_engines, 3u);
    ASSERT_TRUE(end->Send("there and back"));
    ASSERT_TRUE(RunAll([&] { return !end->received.empty(); }));
    const Connection& there = DoorOf(wanted).ends.back()->connection();
    EXPECT_EQ(there.path().server_engine, wanted);
    EXPECT_TRUE(there.engine_wanted());
  }
  EXPECT_EQ(Clients(), Counts({1, 2, 3}));
  OpenMany(3, GetParam());
  EXPECT_EQ(Clients(), Counts({3, 3, 3})) << "others still go where the fewest are";
  EXPECT_FALSE(DoorOf(0).ends.back()->connection().engine_wanted());
}

TEST_P(SharedListenerPathTest, WithTlsAsWithout) {
  SecurityOptions security;
  security.psk_name = "tests";
  security.psk_secret = std::string(32, 'k');
  ListenOptions listen;
  listen.security = security;
  Serve(3, "127.0.0.1:0", listen);
  for (const uint32_t wanted : {2u, 2u, 1u}) {
    ConnectOptions options = Asking(GetParam(), wanted);
    options.security = security;
    NetworkEnd* const end = Open(options);
    ASSERT_TRUE(end->opened()) << end->why();
    EXPECT_EQ(end->connection().path().server_engine, wanted);
    EXPECT_EQ(end->connection().path().identity.authentication, Authentication::kPreSharedKey);
  }
  EXPECT_EQ(Clients(), Counts({0, 1, 2}));
}

TEST_F(SharedListenerTest, ANumberBeyondTheEnginesIsOneOfThem) {
  Serve(3);
  NetworkEnd* const end = Open(Asking(PathKind::kTcp, kMaxEngines - 1));
  ASSERT_TRUE(end->opened()) << end->why();
  EXPECT_EQ(end->connection().path().server_engine, (kMaxEngines - 1) % 3);
  // Whoever keeps no rule may say any.
  for (const uint32_t wanted : {64u, 4711u, kAnyEngine - 2, kAnyEngine - 1}) {
    ClientHello hello = GoodHello();
    hello.wanted_engine = wanted;
    Stranger stranger = NewStranger();
    stranger.Say(Preamble() + Frame(ControlType::kClientHello, Encode(hello)));
    ASSERT_TRUE(RunUntilHeard(stranger, ControlType::kServerHello));
    const auto answer = DecodeServerHello(AsBytes(stranger.Body(ControlType::kServerHello)));
    ASSERT_TRUE(answer.ok()) << answer.status();
    EXPECT_EQ(answer->engine, wanted % 3);
    EXPECT_EQ(answer->engines, 3u);
  }
}

TEST_F(SharedListenerTest, AServerWithOneEngineTakesEveryWish) {
  Serve(1);
  NetworkEnd* const end = Open(Asking(PathKind::kTcp, 5));
  ASSERT_TRUE(end->opened()) << end->why();
  EXPECT_EQ(end->connection().path().server_engine, 0u);
  EXPECT_EQ(end->connection().path().server_engines, 1u);
}

TEST_F(SharedListenerTest, AHelloThatAsksMayComeInPieces) {
  Serve(3);
  ClientHello hello = GoodHello();
  hello.wanted_engine = 2;
  const std::string all = Preamble() + Frame(ControlType::kClientHello, Encode(hello));
  for (const size_t cut : {1u, 4u, 8u, 15u, 17u, 20u}) {
    Stranger stranger = NewStranger();
    stranger.Say(all.substr(0, cut));
    ExpectService();  // the server has been there meanwhile
    EXPECT_FALSE(stranger.Listen());
    stranger.Say(all.substr(cut));
    ASSERT_TRUE(RunUntilHeard(stranger, ControlType::kServerHello)) << cut;
    const auto answer = DecodeServerHello(AsBytes(stranger.Body(ControlType::kServerHello)));
    ASSERT_TRUE(answer.ok()) << answer.status();
    EXPECT_EQ(answer->engine, 2u) << cut;
  }
}

TEST_F(SharedListenerTest, WhoAsksForABusyEngineWaitsForItAndForNoOther) {
  Serve(3);
  stuck_ = 2;
  NetworkEnd* const end = Dial(Asking(PathKind::kTcp, 2));
  for (int i = 0; i < 2; ++i) ExpectService();
  EXPECT_FALSE(end->opened() || end->closed());
  stuck_ = kNoEngine;
  ASSERT_TRUE(RunAll([&] { return end->opened() || end->closed(); }));
  ASSERT_TRUE(end->opened()) << end->why();
  EXPECT_EQ(end->connection().path().server_engine, 2u);
}

// One that has as many clients to take as may wait is asked for by more. Others are served, and it
// is when it is there; links' sockets have room left in its line.
TEST_F(SharedListenerTest, ManyWhoAskForABusyEngineDisturbNoOther) {
  Serve(2);
  stuck_ = 1;
  ClientHello hello = GoodHello();
  hello.wanted_engine = 1;
  constexpr size_t kMore = 20;
  std::vector<Stranger> strangers;
  for (size_t i = 0; i < SharedListener::kMaxWaitingClients + kMore; ++i) {
    strangers.push_back(NewStranger());
    strangers.back().Say(Preamble() + Frame(ControlType::kClientHello, Encode(hello)));
  }
  ASSERT_TRUE(RunAll([&] { return Counted(0, "listener.handovers_refused") == kMore; }));
  ExpectService();
  EXPECT_EQ(Clients(), Counts({1, 0}));
  strangers.clear();
  stuck_ = kNoEngine;
  ASSERT_TRUE(RunAll(
      [&] { return !listener_->shared()->HasWaiting(1) && Counted(1, "listener.accepted") == 0; }));
  NetworkEnd* const end = Open(Asking(PathKind::kTcp, 1));
  ASSERT_TRUE(end->opened()) << end->why();
  EXPECT_EQ(end->connection().path().server_engine, 1u);
}

// While they joined one after the other, who came early was placed among those that were there.
TEST_F(SharedListenerTest, NobodyIsAcceptedBeforeAllHaveJoined) {
  ListenOptions options;
  options.engines = 3;
  Serve(1, "127.0.0.1:0", options);
  NetworkEnd* const early = Dial(Asking(PathKind::kTcp, 2));
  for (int turns = 0; turns < 200; ++turns) {
    client_->Poll();
    server_->Poll();
  }
  EXPECT_EQ(Counted(0, "listener.accepted"), 0u);
  options.link.connect_timeout_ns = Patient().link.connect_timeout_ns;
  JoinUntil(3, options);
  ASSERT_TRUE(RunAll([&] { return early->opened() || early->closed(); }));
  ASSERT_TRUE(early->opened()) << early->why();
  EXPECT_EQ(early->connection().path().server_engine, 2u);
  EXPECT_EQ(Clients(), Counts({0, 0, 1}));
}

TEST_F(SharedListenerTest, ANumberThatNoServerHasIsRefusedAtOnce) {
  Serve(2);
  NetworkEnd end;
  for (const uint32_t wanted : {kMaxEngines, kSameEngine}) {
    const absl::Status status =
        client_->transport()
            .Connect(listener_->address(), Asking(PathKind::kTcp, wanted), &end)
            .status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_NE(status.message().find("server_engine"), absl::string_view::npos) << status;
  }
}

// --- links' sockets -----------------------------------------------------------------------------

TEST_F(SharedListenerTest, ATokenIsGoodAtItsOwnEngineAlone) {
  Serve(3);
  OpenMany(1, PathKind::kTcp);
  Waiting waiting = NewWaiting();
  EXPECT_EQ(waiting.number(), 1u);
  const uint64_t low_bits = ~uint64_t{0} >> SharedListener::kNumberBits;
  uint64_t guesses = 0;
  for (uint32_t number = 0; number < SharedListener::kMaxEngines; ++number) {
    if (number == waiting.number()) continue;
    Stranger guess = NewStranger();
    guess.Say(Join({SharedListener::WithNumber(
                        (waiting.token.high & low_bits) << SharedListener::kNumberBits, number),
                    waiting.token.low}));
    ASSERT_TRUE(RunUntilHungUp(guess));
    EXPECT_TRUE(guess.heard().empty()) << "who guesses is told nothing";
    EXPECT_EQ(CountedByAll("listener.joins_refused"), ++guesses);
  }
  Stranger socket = NewStranger();
  socket.Say(Join(waiting.token));
  ExpectOpens(waiting, socket);
}

TEST_F(SharedListenerTest, AWrongTokenForTheRightEngineIsRefused) {
  Serve(2);
  OpenMany(1, PathKind::kTcp);
  Waiting waiting = NewWaiting();
  for (int bit = 0; bit < 128 - SharedListener::kNumberBits; ++bit) {
    Nonce128 wrong = waiting.token;
    (bit < 64 ? wrong.low : wrong.high) ^= uint64_t{1} << (bit % 64);
    Stranger guess = NewStranger();
    guess.Say(Join(wrong));
    ASSERT_TRUE(RunUntilHungUp(guess));
    EXPECT_TRUE(guess.heard().empty());
  }
  EXPECT_EQ(Counted(1, "listener.joins_refused"), 122u);
  Stranger socket = NewStranger();
  socket.Say(Join(waiting.token));
  ExpectOpens(waiting, socket);
}

TEST_F(SharedListenerTest, AJoinMayComeInPieces) {
  Serve(2);
  OpenMany(1, PathKind::kTcp);
  for (const size_t cut : {1u, 7u, 8u, 23u}) {
    Waiting waiting = NewWaiting();
    const std::string join = Join(waiting.token);
    Stranger socket = NewStranger();
    socket.Say(join.substr(0, cut));
    ExpectService();  // the server has been there meanwhile
    EXPECT_FALSE(socket.Listen());
    socket.Say(join.substr(cut));
    ExpectOpens(waiting, socket);
  }
}

TEST_F(SharedListenerTest, WhoHangsUpWithinItsJoinIsForgotten) {
  Serve(2);
  Stranger socket = NewStranger();
  socket.Say(Join({1, 2}).substr(0, 10));
  ExpectService();
  socket.HangUp();
  Stranger at_once = NewStranger();
  at_once.HangUp();
  ExpectService();
  EXPECT_EQ(CountedByAll("listener.joins_refused"), 0u);
}

// --- strangers ----------------------------------------------------------------------------------

TEST_F(SharedListenerTest, OtherProtocolsGetTheirAnswers) {
  Serve(3);
  for (int i = 0; i < 6; ++i) {
    Stranger browser = NewStranger();
    browser.Say("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    ASSERT_TRUE(RunUntilHungUp(browser));
    EXPECT_EQ(browser.heard().substr(0, 24), "HTTP/1.1 400 Bad Request");
  }
  ExpectService();
}

TEST_F(SharedListenerTest, WhoHasHungUpBeforeHeIsLookedAtIsNobodysStranger) {
  Serve(2);
  std::vector<Stranger> gone;
  for (int i = 0; i < 20; ++i) {
    gone.push_back(NewStranger());
    gone.back().CloseItsHalf();
  }
  for (Stranger& stranger : gone) {
    ASSERT_TRUE(RunUntilHungUp(stranger));
    EXPECT_TRUE(stranger.was_reset());
  }
  EXPECT_EQ(Counted(0, "listener.hung_up"), gone.size());
  EXPECT_EQ(Counted(1, "listener.hung_up"), 0u);
  ExpectService();
}

TEST_F(SharedListenerTest, SilentStrangersMakeRoomForOthers) {
  Serve(2);
  std::vector<Stranger> silent;
  for (size_t i = 0; i < 2 * Newcomers::kMaxStrangers; ++i) silent.push_back(NewStranger());
  ExpectService();
  EXPECT_GE(Counted(0, "listener.strangers_put_out"), Newcomers::kMaxStrangers / 2);
}

// The sockets that the stuck engine would have to take are the first engine's no more, and there
// are so many of them and no more.
TEST_F(SharedListenerTest, ABusyEngineTakesNobodyElsesPlaces) {
  Serve(3);
  stuck_ = 2;
  constexpr size_t kMore = 40;
  std::vector<Stranger> guesses;
  for (size_t i = 0; i < SharedListener::kMaxWaiting + kMore; ++i) {
    guesses.push_back(NewStranger());
    guesses.back().Say(Join({SharedListener::WithNumber(i, stuck_), i}));
  }
  ASSERT_TRUE(RunAll([&] { return Counted(0, "listener.handovers_refused") == kMore; }));
  EXPECT_EQ(Counted(0, "listener.strangers_put_out"), 0u);
  OpenMany(6, PathKind::kTcp);
  EXPECT_EQ(Clients(), Counts({3, 3, 0}));
  stuck_ = kNoEngine;
  for (Stranger& guess : guesses) {
    ASSERT_TRUE(RunUntilHungUp(guess));
    EXPECT_TRUE(guess.heard().empty());
  }
  EXPECT_EQ(Counted(2, "listener.joins_refused"), SharedListener::kMaxWaiting);
  OpenMany(3, PathKind::kTcp);
  EXPECT_EQ(Clients(), Counts({3, 3, 3}));
}

// As with one engine, where only the kernel's queue brings them: the next process has just taken
// over, and is to make room already.
TEST_F(SharedListenerTest, NoMoreAreKeptAsideThanTheLimitHoweverManyWereTakenOver) {
  constexpr size_t kMost = Newcomers::kMaxStrangers;  // NetworkListener::kMaxHeld
  constexpr size_t kMore = 40;
  Serve(2);
  std::vector<Descriptor> clients;
  for (size_t i = 0; i < kMost + kMore; ++i) {
    int ends[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
    clients.emplace_back(ends[0]);
    listener_->TakeClient(Descriptor(ends[1]));
  }
  listener_->HoldClients();
  EXPECT_EQ(listener_->StopAccepting().size(), kMost);
  ASSERT_TRUE(listener_->Resume().ok());
  ExpectService();
}

// As with one engine: who has come already is told.
TEST_F(SharedListenerTest, WhoIsOnTheWayWhenAListenerStopsIsToldSo) {
  Serve(2);
  OpenMany(1, PathKind::kTcp);
  stuck_ = 1;
  Stranger handed_over = NewStranger();
  handed_over.Say(Preamble() + Frame(ControlType::kClientHello, Encode(GoodHello())));
  Stranger silent = NewStranger();
  ExpectService();  // engine 0 has accepted both, and engine 1 has one of them to take
  EXPECT_EQ(Clients(), Counts({2, 0}));
  stuck_ = kNoEngine;
  listener_.reset();
  others_[0]->listener.reset();
  silent.Say(Preamble() + Frame(ControlType::kClientHello, Encode(GoodHello())));
  for (Stranger* const stranger : {&handed_over, &silent}) {
    ASSERT_TRUE(RunUntilHungUp(*stranger));
    const absl::Status why = DecodeRefusal(AsBytes(stranger->Body(ControlType::kRefusal)));
    EXPECT_EQ(why.code(), absl::StatusCode::kUnavailable) << why;
  }
}

TEST_F(SharedListenerTest, EnginesThatEndTakeTheirStrangersWithThem) {
  Serve(3);
  stuck_ = 1;
  std::vector<Stranger> strangers;
  for (int i = 0; i < 12; ++i) {
    strangers.push_back(NewStranger());
    if (i % 2 == 0) strangers.back().Say(Preamble());
  }
  OpenMany(1, PathKind::kTcp);
  listener_.reset();
  server_ = NewNetworkEngine();
  others_.clear();
  stuck_ = kNoEngine;
  for (Stranger& stranger : strangers) ASSERT_TRUE(RunUntilHungUp(stranger));
}

}  // namespace
}  // namespace weft
