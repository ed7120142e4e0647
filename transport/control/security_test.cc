// Control connections with security: who is let in, and what the others are told.

#include <sys/socket.h>

#include <cerrno>
#include <string>

#include "gtest/gtest.h"
#include "transport/control/control_frame.h"
#include "transport/control/handshake.h"
#include "transport/control/testing/network_world.h"
#include "transport/sockets/join.h"
#include "transport/sockets/socket.h"
#include "transport/tls/testing/certificates.h"

namespace weft {
namespace {

class SecurityTest : public NetworkTest {
 protected:
  SecurityOptions Certified(const std::string& name) {
    LeafOptions leaf;
    leaf.common_name = name;
    const CertificateAndKey made = authority_.Sign(leaf);
    SecurityOptions options;
    options.certificate_pem = made.certificate_pem;
    options.key_pem = made.key_pem;
    options.roots_pem = authority_.certificate_pem();
    return options;
  }
  static SecurityOptions WithPsk(char secret) {
    SecurityOptions options;
    options.psk_name = "fleet";
    options.psk_secret = std::string(kMinPskBytes, secret);
    return options;
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
  offer.kind = PathKind::kOfiTcp;
  WithdrawIfUnsealed(&offer);
  EXPECT_EQ(offer.unavailable, "security is on, and this path is not sealed");
  offer.unavailable = "denied by WEFT_PATHS=tcp";
  WithdrawIfUnsealed(&offer);
  EXPECT_EQ(offer.unavailable, "denied by WEFT_PATHS=tcp");
  for (const PathKind kind : {PathKind::kShm, PathKind::kTcp}) {
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

}  // namespace
}  // namespace weft
