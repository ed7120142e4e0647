// Control connections with security: who is let in, and what the others are told.

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <list>
#include <memory>
#include <string>

#include "core/strings.h"
#include "gtest/gtest.h"
#include "transport/control/control_frame.h"
#include "transport/control/handshake.h"
#include "transport/control/testing/network_world.h"
#include "transport/sockets/join.h"
#include "transport/sockets/socket.h"
#include "transport/tls/kernel_tls.h"
#include "transport/tls/testing/certificates.h"
#include "transport/tls/testing/security_options.h"
#include "transport/tls/tls_stream.h"

namespace weft {
namespace {

class SecurityTest : public NetworkTest {
 protected:
  SecurityOptions Certified(const std::string& name) {
    LeafOptions leaf;
    leaf.common_name = name;
    return weft::Certified(authority_, leaf);
  }
  void ListenWith(const SecurityOptions& security, ListenOptions options = {}) {
    options.security = security;
    acceptor_.echo = true;
    Listen("127.0.0.1:0", options);
  }
  NetworkEnd* DialWith(const SecurityOptions& security, ConnectOptions options = Patient()) {
    options.security = security;
    NetworkEnd* const end = Dial(options);
    EXPECT_TRUE(RunUntilDecided(*end));
    return end;
  }
  void ExpectClosed(const NetworkEnd& end, absl::StatusCode code, const std::string& words) {
    ASSERT_TRUE(end.closed());
    EXPECT_EQ(end.why().code(), code) << end.why();
    EXPECT_NE(end.why().ToString().find(words), std::string::npos) << end.why();
    EXPECT_TRUE(acceptor_.ends.empty());
  }

  const TestAuthority authority_;
};

TEST_F(SecurityTest, PeersThatProveWhoTheyAreMeet) {
  ListenWith(Certified("server"));
  NetworkEnd* const end = DialWith(Certified("client"));
  ASSERT_TRUE(end->opened()) << end->why();
  ASSERT_TRUE(end->Send("hello"));
  EXPECT_TRUE(Run([&] { return !end->received.empty(); }));
  EXPECT_EQ(end->path(), "shm");
  end->connection().Close("enough");
  EXPECT_TRUE(Run([&] { return acceptor_.ends[0]->closed(); }));
  EXPECT_NE(acceptor_.ends[0]->why().ToString().find("enough"), std::string::npos)
      << acceptor_.ends[0]->why();
}

TEST_F(SecurityTest, LargestHellosPassThroughTls) {
  ListenOptions options;
  options.hello = std::string(kMaxHelloBytes, 's');
  ListenWith(WithPsk('x'), options);
  ConnectOptions connect = Patient();
  connect.hello = std::string(kMaxHelloBytes, 'c');
  NetworkEnd* const end = DialWith(WithPsk('x'), connect);
  ASSERT_TRUE(end->opened()) << end->why();
  EXPECT_EQ(end->peer_hello(), options.hello);
  ASSERT_TRUE(Run([&] { return !acceptor_.ends.empty() && acceptor_.ends[0]->opened(); }));
  EXPECT_EQ(acceptor_.ends[0]->peer_hello(), connect.hello);
}

// Each side's own choice, and what has come of it is said. On the wire it is the same.
TEST_F(SecurityTest, EitherSideMayWishForTheKernelsTls) {
  const absl::Status offer = AskKernelForTls();
  const std::string by =
      offer.ok() ? "records by the kernel" : StrCat("records by Weft: ", ToStd(offer.message()));
  SecurityOptions server = WithPsk('x');
  server.kernel_tls = true;
  ListenWith(server, Allowing({PathKind::kTcp}));
  for (const bool wishes : {true, false}) {
    SecurityOptions client = WithPsk('x');
    client.kernel_tls = wishes;
    NetworkEnd* const end = DialWith(client, Over({PathKind::kTcp}));
    ASSERT_TRUE(end->opened()) << end->why();
    ASSERT_TRUE(end->Send("hello"));
    ASSERT_TRUE(Run([&] { return !end->received.empty(); }));
    const PathInfo& path = end->connection().path();
    EXPECT_TRUE(path.is_encrypted);
    EXPECT_EQ(path.kernel_tls, wishes ? by : "");
    EXPECT_EQ(SecurityText(path).find(by) != std::string::npos, wishes) << SecurityText(path);
    EXPECT_EQ(acceptor_.ends.back()->connection().path().kernel_tls, by);
  }
}

TEST_F(SecurityTest, WrongSecretIsRefused) {
  ListenWith(WithPsk('x'));
  ExpectClosed(*DialWith(WithPsk('y')), absl::StatusCode::kUnauthenticated, "TLS");
}

TEST_F(SecurityTest, ClientWithoutACertificateIsRefused) {
  ListenWith(Certified("server"));
  SecurityOptions client;
  client.roots_pem = authority_.certificate_pem();
  ExpectClosed(*DialWith(client), absl::StatusCode::kUnauthenticated, "certificate");
}

TEST_F(SecurityTest, ClientWithoutSecurityIsToldWhatToDo) {
  ListenWith(Certified("server"));
  NetworkEnd* const end = Dial();
  ASSERT_TRUE(RunUntilDecided(*end));
  ExpectClosed(*end, absl::StatusCode::kFailedPrecondition, "the server requires TLS");
}

TEST_F(SecurityTest, ServerWithoutSecurityIsNotTrusted) {
  Listen("127.0.0.1:0");
  ExpectClosed(*DialWith(Certified("client")), absl::StatusCode::kFailedPrecondition,
               "does not speak TLS");
}

TEST_F(SecurityTest, TcpRunsInsideTls) {
  ListenWith(WithPsk('x'));
  NetworkEnd* const end = DialWith(WithPsk('x'), Over({PathKind::kTcp}));
  ASSERT_TRUE(end->opened()) << end->why();
  EXPECT_EQ(end->path(), "tcp");
  EXPECT_TRUE(end->connection().path().is_encrypted);
  ASSERT_TRUE(Run([&] { return !acceptor_.ends.empty() && acceptor_.ends[0]->opened(); }));
  EXPECT_TRUE(acceptor_.ends[0]->connection().path().is_encrypted);
  for (const size_t bytes : {size_t{5}, size_t{7'000}}) {
    const std::string text(bytes, 't');
    end->received.clear();
    ASSERT_TRUE(end->Send(text));
    ASSERT_TRUE(Run([&] { return !end->received.empty(); }));
    EXPECT_EQ(end->received[0], text);
  }
}

TEST_F(SecurityTest, WithoutSecurityNothingIsEncrypted) {
  Listen("127.0.0.1:0");
  NetworkEnd* const end = Dial(Over({PathKind::kTcp}));
  ASSERT_TRUE(RunUntilDecided(*end));
  ASSERT_TRUE(end->opened()) << end->why();
  EXPECT_FALSE(end->connection().path().is_encrypted);
}

// Security took the place of the reason why a path was not there in any case.
TEST_F(SecurityTest, UnsealedPathIsNotTakenAndTheFirstReasonStays) {
  PathOffer offer;
  offer.kind = static_cast<PathKind>(77);  // of a later release
  WithdrawIfUnsealed(&offer);
  EXPECT_EQ(offer.unavailable, "security is on, and this path is not sealed");
  offer.unavailable = "denied by WEFT_PATHS=tcp";
  WithdrawIfUnsealed(&offer);
  EXPECT_EQ(offer.unavailable, "denied by WEFT_PATHS=tcp");
  for (const PathKind kind :
       {PathKind::kShm, PathKind::kTcp, PathKind::kVerbs, PathKind::kOfiTcp}) {
    PathOffer sealed;
    sealed.kind = kind;
    WithdrawIfUnsealed(&sealed);
    EXPECT_EQ(sealed.unavailable, "");
  }
}

// A listener with security leaves in the socket what comes right behind a join: a link's TLS.
TEST_F(SecurityTest, JoinWithoutALinkIsClosedWhateverComesBehind) {
  ListenWith(WithPsk('x'));
  const auto address = ParseNumericAddress(listener_->address());
  ASSERT_TRUE(address.ok());
  const auto stranger = StartDial(*address);
  ASSERT_TRUE(stranger.ok());
  std::string bytes(AsStringView(EncodeJoin({1, 2})));
  bytes += std::string("\x16\x03\x01\x00\x05hello", 10);
  ASSERT_TRUE(Run([&] { return ::send(stranger->get(), bytes.data(), bytes.size(), 0) > 0; }));
  ASSERT_TRUE(Run([&] {
    char byte;
    const ssize_t count = ::recv(stranger->get(), &byte, 1, MSG_DONTWAIT);
    return count == 0 || (count < 0 && errno != EAGAIN);
  }));
  EXPECT_TRUE(acceptor_.ends.empty());
}

TEST_F(SecurityTest, WrongOptionsAreNamedAtOnce) {
  ListenOptions options;
  options.security.emplace();
  const auto listener = server_->transport().Listen("127.0.0.1:0", options, &acceptor_);
  EXPECT_TRUE(absl::IsInvalidArgument(listener.status())) << listener.status();
}

TEST_F(SecurityTest, SilentAndNoisyStrangersEndAlone) {
  ListenWith(WithPsk('x'));
  const auto address = ParseNumericAddress(listener_->address());
  ASSERT_TRUE(address.ok());
  const auto silent = StartDial(*address);
  const auto noisy = StartDial(*address);
  ASSERT_TRUE(silent.ok() && noisy.ok());
  const std::string noise = std::string("\x16\x03\x01\x02\x00\x01", 6) + std::string(600, 'n');
  ssize_t sent = -1;
  ASSERT_TRUE(Run([&] {
    sent = ::send(noisy->get(), noise.data(), noise.size(), MSG_NOSIGNAL);
    return sent > 0;
  }));
  ASSERT_TRUE(Run([&] {  // ended by an alert, and the end of the stream
    char bytes[100];
    const ssize_t count = ::recv(noisy->get(), bytes, sizeof(bytes), MSG_DONTWAIT);
    return count == 0 || (count < 0 && errno != EAGAIN);
  }));
  NetworkEnd* const end = DialWith(WithPsk('x'));
  EXPECT_TRUE(end->opened()) << end->why();
}

// By whatever address it comes, and whoever else comes from there.
TEST_F(SecurityTest, OneIdentityHasNoMoreConnectionsThanItsNumber) {
  ListenOptions options;
  options.max_connections_of_one = 2;
  ListenWith(Certified("server"), options);
  const SecurityOptions greedy = Certified("greedy");
  NetworkEnd* const first = DialWith(greedy);
  ASSERT_TRUE(first->opened()) << first->why();
  ASSERT_TRUE(DialWith(greedy, Over({PathKind::kTcp}))->opened());
  NetworkEnd* const refused = DialWith(greedy);
  ASSERT_TRUE(refused->closed());
  EXPECT_TRUE(absl::IsResourceExhausted(refused->why())) << refused->why();
  NetworkEnd* const other = DialWith(Certified("other"));
  EXPECT_TRUE(other->opened()) << other->why();
  first->connection().Close("enough");
  ASSERT_TRUE(Run([&] { return acceptor_.ends[0]->closed(); }));
  NetworkEnd* const again = DialWith(greedy);
  EXPECT_TRUE(again->opened()) << again->why();
}

TEST_F(SecurityTest, NumbersOfConnectionsThatMakeNoSenseAreNamed) {
  ListenOptions options;
  options.max_connections = 4;
  options.max_connections_of_one = 5;
  const auto listener = server_->transport().Listen("127.0.0.1:0", options, &acceptor_);
  EXPECT_TRUE(absl::IsInvalidArgument(listener.status())) << listener.status();
  EXPECT_NE(listener.status().ToString().find("max_connections_of_one"), std::string::npos);
}

// --- what connections share ----------------------------------------------------------------------

class SharedSecurityTest : public SecurityTest {
 protected:
  static uint64_t Counted(const Engine& engine, const std::string& name) {
    for (const auto& [known, value] : engine.counters().Snapshot()) {
      if (known == name) return value;
    }
    return 0;
  }
};

TEST_F(SharedSecurityTest, ASecondConnectionResumesByTicket) {
  ListenWith(Certified("server"));
  const SecurityOptions client = Certified("client");
  for (uint64_t count = 1; count <= 3; ++count) {
    NetworkEnd* const end = DialWith(client);
    ASSERT_TRUE(end->opened()) << end->why();
    EXPECT_EQ(end->connection().path().identity.subject, "CN=server");
    ASSERT_EQ(acceptor_.ends.size(), count);
    ASSERT_TRUE(Run([&] { return acceptor_.ends.back()->opened(); }));
    EXPECT_EQ(acceptor_.ends.back()->connection().path().identity.subject, "CN=client");
    for (const Engine* engine : {client_.get(), server_.get()}) {
      EXPECT_EQ(Counted(*engine, "tls.handshakes"), count);
      EXPECT_EQ(Counted(*engine, "tls.resumed"), count - 1);
      EXPECT_EQ(Counted(*engine, "tls.refused"), 0u);
    }
  }
}

// Two servers at one host used to take each other's tickets away.
TEST_F(SharedSecurityTest, TicketsAreKnownByTheWholeAddress) {
  const SecurityOptions client = Certified("client");
  ListenWith(Certified("server"));
  const std::string first = listener_->address();
  const std::unique_ptr<Listener> kept = std::move(listener_);
  ListenWith(Certified("another"));
  ConnectOptions options = Patient();
  options.security = client;
  for (const std::string& address : {first, listener_->address(), first, listener_->address()}) {
    NetworkEnd* const end = DialAt(address, options);
    ASSERT_TRUE(RunUntilDecided(*end));
    ASSERT_TRUE(end->opened()) << end->why();
  }
  EXPECT_EQ(Counted(*client_, "tls.handshakes"), 4u);
  EXPECT_EQ(Counted(*client_, "tls.resumed"), 2u);
}

// Each dial read the files again.
TEST_F(SharedSecurityTest, CredentialsAreReadOnce) {
  ListenWith(Certified("server"));
  SecurityOptions client = Certified("client");
  client.certificate_file = ::testing::TempDir() + "/client.pem";
  client.key_file = ::testing::TempDir() + "/client.key";
  std::ofstream(client.certificate_file) << client.certificate_pem;
  std::ofstream(client.key_file) << client.key_pem;
  client.certificate_pem.clear();
  client.key_pem.clear();
  ASSERT_TRUE(DialWith(client)->opened());
  ASSERT_EQ(::unlink(client.key_file.c_str()), 0);
  NetworkEnd* const end = DialWith(client);
  EXPECT_TRUE(end->opened()) << end->why();
}

// --- floods --------------------------------------------------------------------------------------

// A stranger that has sent TLS's hello, and no more.
class Hello {
 public:
  Hello(const std::string& address, TlsCredentials* credentials, TlsScratch* scratch)
      : socket_(*StartDial(*ParseNumericAddress(address))), stream_(socket_.get()) {
    EXPECT_TRUE(stream_.Start(credentials, scratch, /*now_ns=*/0, "localhost").ok());
  }
  // Whether the hello is on its way.
  bool Sent() { return stream_.Flush(); }
  bool Answered() const {
    char byte = 0;
    return ::recv(socket_.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 1;
  }

 private:
  const Descriptor socket_;
  TlsStream stream_;
};

// A flood of hellos held everybody up for as long as all of their signatures took.
TEST_F(SharedSecurityTest, HandshakesTakeTurnsAndConnectionsThatAreUpDoNotWait) {
  ListenWith(Certified("server"));
  NetworkEnd* const end = DialWith(Certified("client"));
  ASSERT_TRUE(end->opened()) << end->why();
  ASSERT_TRUE(Run([&] { return acceptor_.ends[0]->opened(); }));

  const auto credentials = TlsCredentials::Create(TlsRole::kClient, Certified("stranger"));
  ASSERT_TRUE(credentials.ok()) << credentials.status();
  TlsScratch scratch;
  std::list<Hello> flood;
  for (int i = 0; i < 16; ++i)
    flood.emplace_back(listener_->address(), credentials->get(), &scratch);
  for (Hello& hello : flood) {
    ASSERT_TRUE(RunEngines({}, [&hello] { return hello.Sent(); }));
  }
  const auto answered = [&flood] {
    return std::count_if(flood.begin(), flood.end(), [](const Hello& h) { return h.Answered(); });
  };
  size_t messages = 0;
  for (long before = answered(); before < 16; before = answered()) {
    const bool sent = end->Send("one");
    client_->Poll();
    server_->Poll();
    ASSERT_LE(answered(), before + 1) << "in one turn";
    if (sent) {
      EXPECT_EQ(acceptor_.ends[0]->received.size(), ++messages);
    }
  }
}

}  // namespace
}  // namespace weft
