// What strangers do to a server: each can end its own connection, and nothing else.

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/clock.h"
#include "core/log.h"
#include "core/random.h"
#include "gtest/gtest.h"
#include "transport/control/hello.h"
#include "transport/control/negotiate.h"
#include "transport/control/network_transport.h"
#include "transport/control/newcomers.h"
#include "transport/control/testing/network_world.h"
#include "transport/control/testing/stranger.h"

namespace weft {
namespace {

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

class HostileClientTest : public StrangerTest {
 protected:
  // Those that nobody has accepted yet.
  size_t WaitingInTheKernel() const {
    tcp_info facts = {};
    socklen_t length = sizeof(facts);
    EXPECT_EQ(::getsockopt(listener_->socket(), IPPROTO_TCP, TCP_INFO, &facts, &length), 0);
    return facts.tcpi_unacked;  // of a socket that listens
  }
  // So many have come, and nobody looks at them meanwhile.
  bool AwaitInTheKernel(size_t count) {
    return RunEngines({}, [&] { return WaitingInTheKernel() == count; });
  }
};

TEST_F(HostileClientTest, HttpGetsAnAnswerThatPeopleUnderstand) {
  Stranger browser = NewStranger();
  browser.Say("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
  ASSERT_TRUE(RunUntilHungUp(browser));
  EXPECT_EQ(browser.heard().substr(0, 24), "HTTP/1.1 400 Bad Request");
  EXPECT_TRUE(Contains(browser.heard(), "Weft's control protocol, not HTTP"));
  const size_t body = browser.heard().find("\r\n\r\n") + 4;
  EXPECT_TRUE(
      Contains(browser.heard(), "Content-Length: " + std::to_string(browser.heard().size() - body)))
      << browser.heard();
  ExpectService();
}

TEST_F(HostileClientTest, AnotherVersionLearnsOurs) {
  Stranger newer = NewStranger();
  std::string preamble = Preamble();
  preamble[6] = 2;
  newer.Say(preamble);
  ASSERT_TRUE(RunUntilHungUp(newer));
  EXPECT_EQ(newer.heard(), Preamble());
  ExpectService();
}

TEST_F(HostileClientTest, AnotherProtocolVersionIsRefusedInWords) {
  Stranger newer = NewStranger();
  ClientHello hello = GoodHello();
  hello.versions = {7, 9};
  newer.Say(Preamble() + Frame(ControlType::kClientHello, Encode(hello)));
  ASSERT_TRUE(RunUntilHungUp(newer));
  const absl::Status status = DecodeRefusal(AsBytes(newer.Body(ControlType::kRefusal)));
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(Contains(status.ToString(), "the client speaks 7 to 9, the server 1")) << status;
}

TEST_F(HostileClientTest, WrongBeginningsAreRefused) {
  const std::string beginnings[] = {
      Frame(ControlType::kPathTry, "x"),
      Frame(ControlType::kClientHello, "no protobuf \xff\xff\xff"),
      Frame(static_cast<ControlType>(777), ""),
      std::string("\xff\xff\xff\x7f\x01\0\0\0", 8),  // a hello of 2 GiB
  };
  for (const std::string& beginning : beginnings) {
    Stranger stranger = NewStranger();
    stranger.Say(Preamble() + beginning);
    ASSERT_TRUE(RunUntilHungUp(stranger));
    EXPECT_EQ(DecodeRefusal(AsBytes(stranger.Body(ControlType::kRefusal))).code(),
              absl::StatusCode::kDataLoss);
  }
  EXPECT_TRUE(acceptor_.ends.empty());
  ExpectService();
}

// After a right hello, what does not belong there ends the connection, and its handler hears of it.
TEST_F(HostileClientTest, BreakingTheRulesEndsOnesOwnConnection) {
  const std::string rude[] = {
      Frame(ControlType::kClientHello, Encode(GoodHello())),  // a second one
      Frame(ControlType::kOpen, EncodeOpen(1)),
      Frame(ControlType::kServerHello, ""),
      Frame(ControlType::kPathTry, Encode(PathTry{1, "x", 4096})) +  // tried twice
          Frame(ControlType::kPathTry, Encode(PathTry{1, "x", 4096})),
      Frame(ControlType::kPathTry, Encode(PathTry{1, "x", 4096})) +  // and in the wrong order
          Frame(ControlType::kPathTry, Encode(PathTry{0, "x", 4096})),
      Frame(ControlType::kPathTry, Encode(PathTry{2, "x", 4096})),
      Frame(ControlType::kPathTry, Encode(PathTry{1, "x", 1})),
      Frame(ControlType::kPathFailed, Encode(PathFailed{1, "no"})) +
          Frame(ControlType::kPathTry, Encode(PathTry{1, "x", 4096})),
      std::string("\xff\xff\xff\xff\xff\xff\xff\xff"),
  };
  for (const std::string& bytes : rude) {
    acceptor_.ends.clear();
    Stranger stranger = NewStranger();
    stranger.Say(Preamble() + Frame(ControlType::kClientHello, Encode(GoodHello())));
    ASSERT_TRUE(RunUntilHeard(stranger, ControlType::kServerHello));
    ASSERT_EQ(acceptor_.ends.size(), 1u);
    stranger.Say(bytes);
    ASSERT_TRUE(RunUntilHungUp(stranger));
    EXPECT_FALSE(stranger.Body(ControlType::kBye).empty());
    ASSERT_TRUE(acceptor_.ends[0]->closed());
    EXPECT_EQ(acceptor_.ends[0]->why().code(), absl::StatusCode::kDataLoss)
        << acceptor_.ends[0]->why();
    EXPECT_FALSE(acceptor_.ends[0]->opened());
  }
  ExpectService();
}

// Before its hello as well: a stranger has to prove nothing without security.
TEST_F(HostileClientTest, AFloodOfWhatIsSkippedEndsTheHandshake) {
  std::vector<std::byte> skipped;
  for (int i = 0; i < 1000; ++i) {
    AppendControlFrame(static_cast<ControlType>(31), kIgnorable, {}, &skipped);
  }
  for (const bool is_stranger : {true, false}) {
    Stranger stranger = NewStranger();
    if (is_stranger) {
      stranger.Say(Preamble());
    } else {
      ASSERT_TRUE(SayHello(stranger));
    }
    stranger.Say(std::string(AsStringView(skipped)));
    ASSERT_TRUE(RunUntilHungUp(stranger));
    EXPECT_NE(stranger.heard().find("does not know"), std::string::npos);
  }
  ExpectService();
}

TEST_F(HostileClientTest, SharedMemoryNeedsTheProof) {
  Stranger stranger = NewStranger();
  stranger.Say(Preamble() + Frame(ControlType::kClientHello, Encode(GoodHello())));
  ASSERT_TRUE(RunUntilHeard(stranger, ControlType::kServerHello));
  stranger.Say(Frame(ControlType::kPathTry, Encode(PathTry{0, "fi_shm://guess", 4096})));
  ASSERT_TRUE(RunUntilHeard(stranger, ControlType::kPathFailed));
  const auto failed = DecodePathFailed(AsBytes(stranger.Body(ControlType::kPathFailed)));
  ASSERT_TRUE(failed.ok()) << failed.status();
  EXPECT_TRUE(Contains(failed->reason, "has not shown")) << failed->reason;
}

// Each path that a client gives up was a line of the log with the client's reason in it, as long as
// the client liked, and a stranger may connect as often as he likes.
TEST_F(HostileClientTest, WhoGivesPathsUpAgainAndAgainFillsNoLog) {
  int lines = 0;
  SetLogSink([&lines](const LogRecord& record) {
    if (record.text.find("it is I who fills") != std::string_view::npos) ++lines;
  });
  const uint64_t begin_ns = Clock::Real().NowNs();
  constexpr int kTimes = 300;
  for (int i = 0; i < kTimes; ++i) {
    Stranger stranger = NewStranger();
    ASSERT_TRUE(SayHello(stranger));
    stranger.Say(Frame(ControlType::kPathFailed, Encode(PathFailed{1, "it is I who fills"})));
    stranger.HangUp();
    ASSERT_TRUE(Run([&] { return acceptor_.ends.back()->closed(); }));
  }
  const uint64_t seconds = (Clock::Real().NowNs() - begin_ns) / kNsPerSec;
  SetLogSink(nullptr);
  EXPECT_GE(lines, 1);
  EXPECT_LE(static_cast<uint64_t>(lines), 100 + 20 * (seconds + 1));
}

TEST_F(HostileClientTest, AClientThatLeavesInTheMiddleIsForgotten) {
  Stranger stranger = NewStranger();
  stranger.Say(Preamble() + Frame(ControlType::kClientHello, Encode(GoodHello())));
  ASSERT_TRUE(RunUntilHeard(stranger, ControlType::kServerHello));
  stranger.Say(Frame(ControlType::kPathTry, Encode(PathTry{1, "*:1", 4096})));
  ASSERT_TRUE(RunUntilHeard(stranger, ControlType::kPathReady));
  stranger.HangUp();
  ASSERT_TRUE(Run([&] { return acceptor_.ends[0]->closed(); }));
  EXPECT_EQ(acceptor_.ends[0]->why().code(), absl::StatusCode::kUnavailable);
  ExpectService();
}

// A hundred clients that talk nonsense, say nothing, or stop in the middle, all at once.
TEST_F(HostileClientTest, AHundredGarbageClientsDoNotDisturbAGoodOne) {
  NetworkEnd* const good = Dial();
  ASSERT_TRUE(RunUntilDecided(*good));
  ASSERT_TRUE(good->opened()) << good->why();
  constexpr uint64_t kSeed = 100;
  Random random(kSeed);
  std::vector<Stranger> strangers;
  size_t sent = 0;
  for (int i = 0; i < 100; ++i) {
    strangers.push_back(NewStranger());
    Stranger& stranger = strangers.back();
    std::string noise(random.Uniform(3'000), '\0');
    for (char& c : noise) c = static_cast<char>(random.Next64());
    const std::string hello = Preamble() + Frame(ControlType::kClientHello, Encode(GoodHello()));
    switch (i % 5) {
      case 0:
        stranger.Say(noise);
        break;
      case 1:
        stranger.Say(Preamble() + noise);
        break;
      case 2:
        stranger.Say(hello.substr(0, random.Uniform(hello.size())));
        break;
      case 3:
        stranger.Say(hello + noise);
        break;
      case 4:
        break;  // silence
    }
    if (i % 7 == 0) stranger.HangUp();
    ASSERT_TRUE(good->Send("and again"));
    ++sent;
    ASSERT_TRUE(Run([&] { return good->received.size() == sent; })) << "seed " << kSeed;
  }
  EXPECT_FALSE(good->closed());
  ExpectService();
}

// Of each who connected and hung up, 10,000 in a second, the server made a connection first, with
// fourteen system calls.
TEST_F(HostileClientTest, OfWhoHasHungUpBeforeHeIsLookedAtNothingIsMade) {
  NetworkEnd* const good = Dial();
  ASSERT_TRUE(RunUntilDecided(*good));
  ASSERT_TRUE(Run([&] { return Counted("listener.accepted") == 1; }));
  constexpr uint64_t kMany = 4 * Newcomers::kMaxStrangers;
  std::vector<Stranger> gone;
  for (uint64_t i = 0; i < kMany; ++i) {
    gone.push_back(NewStranger());
    gone.back().CloseItsHalf();
  }
  ASSERT_TRUE(Run([&] {
    EXPECT_EQ(Counted("listener.accepted"), 1u) << "the good one alone";
    return Counted("listener.hung_up") == kMany;
  }));
  for (Stranger& stranger : gone) {
    ASSERT_TRUE(RunUntilHungUp(stranger));
    EXPECT_TRUE(stranger.was_reset());
  }
  EXPECT_EQ(Counted("listener.strangers_put_out"), 0u);
  ExpectService();
}

// As `printf ... | nc` does.
TEST_F(HostileClientTest, WhoSaysAllAndClosesHisHalfIsAnswered) {
  Stranger browser = NewStranger();
  browser.Say("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
  browser.CloseItsHalf();
  ASSERT_TRUE(RunUntilHungUp(browser));
  EXPECT_EQ(browser.heard().substr(0, 24), "HTTP/1.1 400 Bad Request");
  EXPECT_FALSE(browser.was_reset());
  EXPECT_EQ(Counted("listener.hung_up"), 0u);
}

TEST_F(HostileClientTest, WhoHangsUpLaterWithoutAWordIsReset) {
  Stranger silent = NewStranger();
  ASSERT_TRUE(Run([&] { return Counted("listener.accepted") == 1; }));
  silent.CloseItsHalf();
  ASSERT_TRUE(RunUntilHungUp(silent));
  EXPECT_TRUE(silent.was_reset());
  EXPECT_EQ(Counted("listener.hung_up"), 0u);
}

TEST_F(HostileClientTest, SilentClientsMakeRoomForOthers) {
  std::vector<Stranger> silent;
  for (size_t i = 0; i < 2 * Newcomers::kMaxStrangers; ++i) silent.push_back(NewStranger());
  ExpectService();
}

// Before another process takes over. Who was on the way while there was room was kept aside as
// well, however many had been meanwhile: up to twice as many as the limit.
TEST_F(HostileClientTest, NoMoreAreKeptAsideThanTheLimitWhoeverIsOnTheWay) {
  constexpr size_t kMost = Newcomers::kMaxStrangers;  // NetworkListener::kMaxHeld
  constexpr size_t kSpeaking = 100;
  constexpr size_t kSilent = 100;
  constexpr size_t kTooMany = kSpeaking + kSilent - kMost;
  listener_->HoldClients();
  std::vector<Stranger> strangers;
  for (size_t i = 0; i < kSpeaking; ++i) {
    strangers.push_back(NewStranger());
    strangers.back().Say(Preamble() + Frame(ControlType::kClientHello, Encode(GoodHello())));
  }
  ASSERT_TRUE(AwaitInTheKernel(kSpeaking));
  ASSERT_TRUE(Run([&] { return WaitingInTheKernel() == 0; }));
  for (size_t i = 0; i < kSilent; ++i) strangers.push_back(NewStranger());
  ASSERT_TRUE(AwaitInTheKernel(kSilent));
  ASSERT_TRUE(Run([&] { return WaitingInTheKernel() <= kTooMany; }));
  EXPECT_EQ(listener_->StopAccepting().size(), kMost);
  EXPECT_EQ(WaitingInTheKernel(), kTooMany);
  ASSERT_TRUE(listener_->Resume().ok());
  ExpectService();
}

// One who had been kept aside was so for ever where it came to no handover.
TEST_F(HostileClientTest, WhoWasKeptAsideIsServedWhenTheListenerGoesOn) {
  listener_->HoldClients();
  Stranger stranger = NewStranger();
  stranger.Say(Preamble() + Frame(ControlType::kClientHello, Encode(GoodHello())));
  ASSERT_TRUE(AwaitInTheKernel(1));
  ASSERT_TRUE(Run([&] { return WaitingInTheKernel() == 0; }));
  for (int turn = 0; turn < 10; ++turn) server_->Poll();  // what it has said is looked at
  ASSERT_TRUE(listener_->Resume().ok());
  ASSERT_TRUE(RunUntilHeard(stranger, ControlType::kServerHello));
  EXPECT_FALSE(stranger.Body(ControlType::kServerHello).empty());
}

// A host that filled all places with clients that said nothing had those of other hosts put out,
// too, for the oldest went first.
TEST_F(HostileClientTest, WhoFillsThePlacesLosesThem) {
  Stranger patient = NewStranger();
  std::vector<Stranger> silent;
  for (size_t i = 0; i < 2 * Newcomers::kMaxStrangers; ++i) {
    silent.push_back(Stranger(listener_->address(), "127.0.0.2:0"));
  }
  ASSERT_TRUE(Run([&] {
    size_t put_out = 0;
    for (Stranger& stranger : silent) put_out += stranger.Listen();
    return put_out >= Newcomers::kMaxStrangers;
  }));
  EXPECT_FALSE(patient.Listen());
  ExpectService();
}

// A hello took a connection, and held it for the handshake's time: who said as many as there were
// and never went on denied everybody else.
TEST_F(HostileClientTest, AHelloTakesNoConnection) {
  ListenOptions options;
  options.max_connections = 1;
  Listen("127.0.0.1:0", options);
  std::vector<Stranger> idle;
  for (int i = 0; i < 20; ++i) {
    idle.push_back(NewStranger());
    ASSERT_TRUE(SayHello(idle.back()));
  }
  ExpectService();
}

// Two are on their way to the last connection: who comes second learns it, and nobody else.
TEST_F(HostileClientTest, TheLastConnectionIsTheFirstPathsThatIsUp) {
  ListenOptions options;
  options.max_connections = 1;
  Listen("127.0.0.1:0", options);
  Stranger second = NewStranger();
  ASSERT_TRUE(SayHello(second));
  const Nonce128 token = TryTcp(second);
  NetworkEnd* const first = Dial();
  ASSERT_TRUE(RunUntilDecided(*first));
  ASSERT_TRUE(first->opened()) << first->why();
  Stranger socket = NewStranger();
  socket.Say(Join(token));
  second.Say(Frame(ControlType::kPathUp, EncodePathUp(1)));
  ASSERT_TRUE(RunUntilHungUp(second));
  EXPECT_TRUE(second.Body(ControlType::kOpen).empty());
  EXPECT_EQ(Counted("path.opened.tcp") + Counted("path.opened.shm"), 1u) << "and it is not counted";
  const absl::Status why = DecodeRefusal(AsBytes(second.Body(ControlType::kRefusal)));
  EXPECT_TRUE(absl::IsResourceExhausted(why)) << why;
  EXPECT_TRUE(Contains(why.ToString(), "the server has all 1 connections")) << why;
  EXPECT_EQ(Counted("listener.connections_refused"), 1u);
  ASSERT_TRUE(first->Send("still here?"));
  ASSERT_TRUE(Run([&] { return !first->received.empty(); }));
}

// One host had all connections, for as long as it liked.
TEST_F(HostileClientTest, OneHostThatTakesAllItCanLeavesConnectionsToOthers) {
  ListenOptions options;
  options.max_connections = 16;
  Listen("127.0.0.1:0", options);
  const ConnectOptions by_tcp = Over({PathKind::kTcp});
  std::vector<NetworkEnd*> taken;
  for (int i = 0; i < 14; ++i) {
    taken.push_back(Dial(by_tcp));
    ASSERT_TRUE(RunUntilDecided(*taken.back()));
    ASSERT_TRUE(taken.back()->opened()) << taken.back()->why();
  }
  NetworkEnd* const refused = Dial(by_tcp);
  ASSERT_TRUE(RunUntilDecided(*refused));
  ASSERT_TRUE(refused->closed());
  EXPECT_TRUE(absl::IsResourceExhausted(refused->why())) << refused->why();
  EXPECT_TRUE(Contains(refused->why().ToString(), "14 of its 16 connections, 14 of this client"))
      << refused->why();
  EXPECT_EQ(Counted("listener.connections_refused"), 1u);

  // Of whom the kernel says which user he is: another than an address.
  NetworkEnd* const other = Dial(Over({PathKind::kShm}));
  ASSERT_TRUE(RunUntilDecided(*other));
  EXPECT_TRUE(other->opened()) << other->why();

  // Of 15 two end: one more is not of the reserve.
  for (const size_t i : {0u, 1u}) taken[i]->connection().Close("enough");
  ASSERT_TRUE(Run([&] { return acceptor_.ends[0]->closed() && acceptor_.ends[1]->closed(); }));
  NetworkEnd* const again = Dial(by_tcp);
  ASSERT_TRUE(RunUntilDecided(*again));
  EXPECT_TRUE(again->opened()) << again->why();
}

// Whom the server refused because those of its connections that had closed left calls running was
// not counted; and of nobody who was refused for want of room the log had a line.
TEST_F(HostileClientTest, WhoFindsNoRoomIsCountedAndNamedInTheLog) {
  std::string log;
  SetLogSink([&log](const LogRecord& record) { log.append(record.text).append("\n"); },
             LogLevel::kWarning);
  const auto expect_refused = [&](uint64_t times, const std::string& words) {
    NetworkEnd* const end = Dial();
    ASSERT_TRUE(RunUntilDecided(*end));
    EXPECT_TRUE(absl::IsResourceExhausted(end->why())) << end->why();
    EXPECT_EQ(Counted("listener.connections_refused"), times);
    EXPECT_TRUE(Contains(log, "a client is refused, 127.0.0.1:")) << log;
    EXPECT_TRUE(Contains(log, words)) << log;
    log.clear();
  };
  ListenOptions options;
  options.max_connections = 1;
  Listen("127.0.0.1:0", options);
  acceptor_.refusal = absl::ResourceExhaustedError("too many have left calls behind");
  expect_refused(1, "too many have left calls behind");
  acceptor_.refusal = absl::OkStatus();
  Listen("127.0.0.1:0", options);  // which has lines of its own
  NetworkEnd* const taken = Dial();
  ASSERT_TRUE(RunUntilDecided(*taken));
  expect_refused(2, "the server has all 1 connections");
  SetLogSink(nullptr);
}

// Behind a Unix socket a client is its user.
TEST_F(HostileClientTest, OneUserHasNoMoreConnectionsThanItsNumber) {
  std::string folder = "/tmp/weft_hostile_XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  ListenOptions options;
  options.max_connections_of_one = 2;
  Listen("unix:" + folder + "/server", options);
  std::vector<NetworkEnd*> taken;
  for (const PathKind path : {PathKind::kShm, PathKind::kTcp}) {
    taken.push_back(Dial(Over({path})));
    ASSERT_TRUE(RunUntilDecided(*taken.back()));
    ASSERT_TRUE(taken.back()->opened()) << taken.back()->why();
  }
  NetworkEnd* const refused = Dial();
  ASSERT_TRUE(RunUntilDecided(*refused));
  ASSERT_TRUE(refused->closed());
  EXPECT_TRUE(absl::IsResourceExhausted(refused->why())) << refused->why();
  EXPECT_TRUE(Contains(refused->why().ToString(), "2 connections of this client, and takes 2"))
      << refused->why();
  taken[0]->connection().Close("enough");
  ASSERT_TRUE(Run([&] { return acceptor_.ends[0]->closed(); }));
  NetworkEnd* const again = Dial();
  ASSERT_TRUE(RunUntilDecided(*again));
  EXPECT_TRUE(again->opened()) << again->why();
  listener_.reset();
  EXPECT_EQ(rmdir(folder.c_str()), 0);
}

// A host that says hellos and never goes on, many more than there are places, beside honest clients
// of another.
TEST_F(HostileClientTest, AFloodOfHellosKeepsNobodyOut) {
  std::vector<NetworkEnd*> honest;
  std::vector<Stranger> flood;
  const std::string hello = Preamble() + Frame(ControlType::kClientHello, Encode(GoodHello()));
  for (uint32_t i = 0; i < Newcomers::kPlaces + 300; ++i) {
    flood.push_back(Stranger(listener_->address(), "127.0.0.2:0"));
    flood.back().Say(hello);
    // (No more silent ones than there are places for: this is about those who speak.)
    ASSERT_TRUE(RunUntilHeard(flood.back(), ControlType::kServerHello));
    if (i % 128 == 0) honest.push_back(Dial());
  }
  for (NetworkEnd* end : honest) {
    ASSERT_TRUE(RunUntilDecided(*end));
    EXPECT_TRUE(end->opened()) << end->why();
  }
  size_t told = 0;
  ASSERT_TRUE(Run([&] {
    told = 0;
    for (Stranger& stranger : flood) told += stranger.Listen();
    return told >= 300;
  }));
  EXPECT_TRUE(Contains(flood[0].Body(ControlType::kBye), "too many handshakes"))
      << "the oldest goes";
  EXPECT_GE(Counted("listener.handshakes_put_out"), 300u);
  ExpectService();
}

// Time that passes while it is read: as if what a newcomer does took as long as all of them have in
// a turn, and everything else of a turn as long as a few of them.
class BusyClock final : public Clock {
 public:
  uint64_t NowNs() const override { return now_ns_ += NetworkTransport::kNewcomersTurnNs; }

 private:
  mutable uint64_t now_ns_ = 1;
};

// All hellos that were ready ran in one turn of the engine: a flood of them made the calls of
// clients wait for 3 to 5 ms, again and again.
TEST(NewcomersTurn, HellosThatAreReadyTogetherLetOthersHaveTheirTurns) {
  BusyClock clock;
  OpenDoor door;
  const std::unique_ptr<Engine> engine = NewNetworkEngine({}, &clock);
  ListenOptions options;
  options.link = Patient().link;
  auto listener = engine->transport().Listen("127.0.0.1:0", options, &door);
  ASSERT_TRUE(listener.ok()) << listener.status();
  std::vector<Stranger> flood;
  for (int i = 0; i < 16; ++i) {
    flood.emplace_back((*listener)->address());
    flood.back().Say(Preamble() + Frame(ControlType::kClientHello, Encode(GoodHello())));
  }
  const auto count_answered = [&] {
    return std::count_if(flood.begin(), flood.end(), [](Stranger& stranger) {
      stranger.Listen();
      return !stranger.Body(ControlType::kServerHello).empty();
    });
  };
  ptrdiff_t answered = 0;
  ASSERT_TRUE(RunEngines({engine.get()}, [&] {
    const ptrdiff_t before = std::exchange(answered, count_answered());
    EXPECT_LT(answered - before, 16) << "all in one turn";
    return answered == 16;
  }));
}

// What bounds floods leaves room for all clients of a server that was restarted.
TEST_F(HostileClientTest, AThousandHonestClientsOfOneHostGetInAtOnce) {
  ListenOptions options;
  options.max_connections_of_one = options.max_connections;  // they are one: nothing is kept
  Listen("127.0.0.1:0", options);
  std::vector<NetworkEnd*> clients;
  for (int i = 0; i < 1000; ++i) clients.push_back(Dial(Over({PathKind::kTcp})));
  for (NetworkEnd* client : clients) {
    ASSERT_TRUE(RunUntilDecided(*client));
    ASSERT_TRUE(client->opened()) << client->why();
  }
  EXPECT_EQ(Counted("listener.handshakes_put_out"), 0u);
}

// Whose a connection is, a server knew by what the client said of itself when it tried a path: one
// that said the address of another had that one's handles and records.
TEST_F(HostileClientTest, WhatAClientSaysOfItselfIsNotItsAddress) {
  Listen("127.0.0.1:0", Allowing({PathKind::kOfiTcp, PathKind::kTcp}));
  ClientHello hello = GoodHello();
  hello.paths = {{PathKind::kOfiTcp, "tcp", 1u << 16 | 17, "", ""},
                 {PathKind::kTcp, "tcp", 1u << 16 | 17, "", ""}};
  for (const uint32_t candidate : {0u, 1u}) {
    acceptor_.ends.clear();
    Stranger liar = NewStranger();
    liar.Say(Preamble() + Frame(ControlType::kClientHello, Encode(hello)));
    ASSERT_TRUE(RunUntilHeard(liar, ControlType::kServerHello));
    liar.Say(Frame(ControlType::kPathTry, Encode(PathTry{candidate, "10.1.2.3:4711", 4096})));
    ASSERT_TRUE(RunUntilHeard(liar, ControlType::kPathReady));
    liar.HangUp();
    ASSERT_TRUE(Run([&] { return acceptor_.ends[0]->closed(); }));
    const std::string& explained = acceptor_.ends[0]->explained();
    EXPECT_TRUE(Contains(explained, " to 127.0.0.1:")) << explained;
    EXPECT_FALSE(Contains(explained, "10.1.2.3")) << explained;
  }
}

TEST_F(HostileClientTest, OnEveryPathAClientIsWhereTheKernelSays) {
  for (const PathKind kind : {PathKind::kShm, PathKind::kTcp, PathKind::kOfiTcp}) {
    Listen("127.0.0.1:0", Allowing({kind}));
    uint64_t client = 0;
    for (int i = 0; i < 2; ++i) {
      NetworkEnd* const end = Dial(Over({kind}));
      ASSERT_TRUE(RunUntilDecided(*end));
      ASSERT_TRUE(end->opened()) << end->why();
      NetworkEnd& served = *acceptor_.ends.back();
      ASSERT_TRUE(Run([&] { return served.opened(); }));
      EXPECT_EQ(end->connection().path().peer, listener_->address());
      EXPECT_EQ(end->connection().path().client, 0u) << "this side has dialed";
      EXPECT_EQ(served.connection().path().peer.substr(0, 10), "127.0.0.1:");
      if (i == 0) client = served.connection().path().client;
      EXPECT_NE(client, 0u);
      EXPECT_EQ(served.connection().path().client, client) << "both come from this host";
    }
  }
}

// As a server that drains: when one of its clients has gone, all others are closed.
class DrainingServer final : public Acceptor, public ConnectionHandler {
 public:
  size_t closed() const { return closed_; }

 private:
  absl::StatusOr<ConnectionHandler*> OnIncoming(Connection& connection) override {
    connections_.push_back(&connection);
    return this;
  }
  void OnOpen(Connection&) override {}
  void OnMessage(Connection&, ByteSpan) override {}
  void OnClosed(Connection& gone, const absl::Status&) override {
    ++closed_;
    std::erase(connections_, &gone);
    for (Connection* connection : connections_) connection->Close("the server drains");
  }

  std::vector<Connection*> connections_;
  size_t closed_ = 0;
};

// A client that left a draining server had another one closed, whose PathTry was read in the same
// turn: its link was started for a connection that was closed already, and an assertion ended the
// process.
TEST_F(HostileClientTest, APathTryInTheTurnOfTheCloseHarmsNobody) {
  DrainingServer draining;
  auto listener = server_->transport().Listen("127.0.0.1:0", ListenOptions(), &draining);
  ASSERT_TRUE(listener.ok()) << listener.status();
  const std::string hello = Preamble() + Frame(ControlType::kClientHello, Encode(GoodHello()));
  Stranger leaves((*listener)->address());
  Stranger tries((*listener)->address());
  for (Stranger* stranger : {&tries, &leaves}) {
    stranger->Say(hello);
    ASSERT_TRUE(RunUntilHeard(*stranger, ControlType::kServerHello));
  }
  // Both are there before the server looks, in this order: it still has the socket on its list that
  // it has heard last.
  leaves.Say(Frame(ControlType::kBye, EncodeBye("done")));
  tries.Say(Frame(ControlType::kPathTry, Encode(PathTry{1, "*:1", 4096})));
  ASSERT_TRUE(RunUntilHungUp(tries));
  EXPECT_EQ(draining.closed(), 2u);
  EXPECT_TRUE(tries.Body(ControlType::kPathReady).empty());
  const auto bye = DecodeBye(AsBytes(tries.Body(ControlType::kBye)));
  EXPECT_EQ(bye.ok() ? *bye : "", "the server drains");
  ExpectService();
}

// Every hello with one byte changed: served, refused or hung up on, but never a reason to fall.
TEST_F(HostileClientTest, AHelloWithOneByteChangedHarmsNobody) {
  const std::string hello = Preamble() + Frame(ControlType::kClientHello, Encode(GoodHello()));
  constexpr uint64_t kSeed = 7;
  Random random(kSeed);
  for (size_t at = 0; at < hello.size(); ++at) {
    std::string changed = hello;
    changed[at] = static_cast<char>(changed[at] ^ (1 + random.Uniform(255)));
    Stranger stranger = NewStranger();
    stranger.Say(changed);
    stranger.HangUp();
    if (at % 64 == 0) {
      server_->Poll();
    }
  }
  ExpectService();
}

}  // namespace
}  // namespace weft
