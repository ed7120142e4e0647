// What strangers do to a server: each can end its own connection, and nothing else.

#include <poll.h>
#include <sys/socket.h>

#include <string>
#include <vector>

#include "core/random.h"
#include "gtest/gtest.h"
#include "transport/control/control_frame.h"
#include "transport/control/hello.h"
#include "transport/control/host_facts.h"
#include "transport/control/negotiate.h"
#include "transport/control/network_listener.h"
#include "transport/control/testing/network_world.h"
#include "transport/sockets/socket.h"

namespace weft {
namespace {

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::string Preamble() { return std::string(AsStringView(EncodePreamble())); }

std::string Frame(ControlType type, const std::string& body) {
  std::vector<std::byte> bytes;
  AppendControlFrame(type, 0, AsBytes(body), &bytes);
  return std::string(AsStringView(bytes));
}

ClientHello GoodHello() {
  ClientHello hello;
  hello.versions = kProtocolVersions;
  hello.paths = {{PathKind::kShm, "shm", 1u << 16 | 17, "", ""},
                 {PathKind::kTcp, "tcp", 1u << 16 | 17, "", ""}};
  hello.host = ReadHostFacts();
  return hello;
}

// A client without rules: raw bytes over a control connection.
class Stranger {
 public:
  // `from`: where it comes from.
  explicit Stranger(const std::string& address, const std::string& from = "127.0.0.1:0") {
    const KernelAddress source = *ParseNumericAddress(from);
    const KernelAddress target = *ParseNumericAddress(address);
    socket_ = Descriptor(::socket(target.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::bind(socket_.get(), source.get(), source.length), 0);
    EXPECT_TRUE(::connect(socket_.get(), target.get(), target.length) == 0 || errno == EINPROGRESS);
    pollfd watch{socket_.get(), POLLOUT, 0};
    EXPECT_EQ(::poll(&watch, 1, 10'000), 1);
  }

  void Say(const std::string& bytes) {
    // The server may have hung up already.
    [[maybe_unused]] const ssize_t sent =
        ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  // Takes what has come; true once the server has hung up.
  bool Listen() {
    char bytes[4096];
    const ssize_t count = ::recv(socket_.get(), bytes, sizeof(bytes), 0);
    if (count > 0) heard_.append(bytes, static_cast<size_t>(count));
    return count == 0 || (count < 0 && errno != EAGAIN);
  }
  const std::string& heard() const { return heard_; }
  void HangUp() { socket_.Reset(); }

  // The first frame of this type that has come, "" if there is none.
  std::string Body(ControlType type) const {
    ControlFrameReader reader;
    reader.Append(AsBytes(heard_));
    ControlFrame frame;
    while (reader.Next(&frame) == ControlFrameReader::Result::kFrame) {
      if (frame.type == type) return std::string(AsStringView(frame.body));
    }
    return "";
  }

 private:
  Descriptor socket_;
  std::string heard_;
};

class HostileClientTest : public NetworkTest {
 protected:
  void SetUp() override {
    NetworkTest::SetUp();
    acceptor_.echo = true;
    Listen("127.0.0.1:0");
  }
  Stranger NewStranger() { return Stranger(listener_->address()); }
  bool RunUntilHungUp(Stranger& stranger) {
    return Run([&] { return stranger.Listen(); });
  }
  bool RunUntilHeard(Stranger& stranger, ControlType type) {
    return Run([&] { return stranger.Listen() || !stranger.Body(type).empty(); });
  }
  // A good client is served, whatever has happened.
  void ExpectService() {
    NetworkEnd* const end = Dial();
    ASSERT_TRUE(RunUntilDecided(*end));
    ASSERT_TRUE(end->opened()) << end->why();
    ASSERT_TRUE(end->Send("still here?"));
    ASSERT_TRUE(Run([&] { return !end->received.empty(); }));
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

TEST_F(HostileClientTest, SilentClientsMakeRoomForOthers) {
  std::vector<Stranger> silent;
  for (size_t i = 0; i < 2 * Strangers::kMaxStrangers; ++i) silent.push_back(NewStranger());
  ExpectService();
}

// A host that filled all places with clients that said nothing had those of other hosts put out,
// too, for the oldest went first.
TEST_F(HostileClientTest, WhoFillsThePlacesLosesThem) {
  Stranger patient = NewStranger();
  std::vector<Stranger> silent;
  for (size_t i = 0; i < 2 * Strangers::kMaxStrangers; ++i) {
    silent.push_back(Stranger(listener_->address(), "127.0.0.2:0"));
  }
  ASSERT_TRUE(Run([&] {
    size_t put_out = 0;
    for (Stranger& stranger : silent) put_out += stranger.Listen();
    return put_out >= Strangers::kMaxStrangers;
  }));
  EXPECT_FALSE(patient.Listen());
  ExpectService();
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
