#include "transport/tls/tls_stream.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "core/random.h"
#include "transport/descriptor.h"
#include "transport/tls/kernel_tls.h"
#include "transport/tls/testing/certificates.h"
#include "transport/tls/testing/security_options.h"

namespace weft {
namespace {

using RecordsBy = TlsStream::RecordsBy;

const TestAuthority& Authority() {
  static const TestAuthority* const authority = new TestAuthority;
  return *authority;
}

SecurityOptions Certified(const LeafOptions& leaf = {}, const TestAuthority& roots = Authority(),
                          const TestAuthority& signer = Authority()) {
  SecurityOptions options = weft::Certified(signer, leaf);
  options.roots_pem = roots.certificate_pem();
  return options;
}

void MakePair(Descriptor* left, Descriptor* right) {
  int fds[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
  left->Reset(fds[0]);
  right->Reset(fds[1]);
}

std::string Bytes(size_t count) {
  Random random(7);
  std::string bytes(count, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random.Next64());
  return bytes;
}

ssize_t WriteTo(TlsStream* stream, std::string_view text) {
  const iovec piece{const_cast<char*>(text.data()), text.size()};
  return stream->Write(&piece, 1);
}

// All that is there now.
std::string ReadFrom(TlsStream* stream) {
  std::string all;
  for (;;) {
    char bytes[5000];
    const iovec piece{bytes, sizeof(bytes)};
    const ssize_t count = stream->Read(&piece, 1);
    if (count <= 0) return all;
    all.append(bytes, static_cast<size_t>(count));
  }
}

// A client and a server with a socket between them.
class TlsPair {
 public:
  TlsPair(TlsCredentials* client, TlsCredentials* server, const std::string& host = "localhost") {
    Connect(host, client, server);
  }
  TlsPair(const SecurityOptions& client, const SecurityOptions& server,
          const std::string& host = "localhost") {
    auto client_made = TlsCredentials::Create(TlsRole::kClient, client);
    auto server_made = TlsCredentials::Create(TlsRole::kServer, server);
    EXPECT_TRUE(client_made.ok()) << client_made.status();
    EXPECT_TRUE(server_made.ok()) << server_made.status();
    client_credentials_ = *std::move(client_made);
    server_credentials_ = *std::move(server_made);
    Connect(host, client_credentials_.get(), server_credentials_.get());
  }

  // Until nobody has anything to say any more.
  void Run() {
    for (int i = 0; i < 20; ++i) {
      client().Flush();
      server().Flush();
    }
  }
  // The handshake is over for both, also for a client whose certificate has come last.
  void Settle() {
    Run();
    ReadFrom(client_.get());
    ReadFrom(server_.get());
  }
  TlsStream& client() { return *client_; }
  TlsStream& server() { return *server_; }
  int client_fd() const { return client_fd_.get(); }
  int server_fd() const { return server_fd_.get(); }
  void CloseClientSocket() { ::shutdown(client_fd_.get(), SHUT_RDWR); }

 private:
  void Connect(const std::string& host, TlsCredentials* client, TlsCredentials* server) {
    MakePair(&client_fd_, &server_fd_);
    client_ = std::make_unique<TlsStream>(client_fd_.get());
    server_ = std::make_unique<TlsStream>(server_fd_.get());
    EXPECT_TRUE(client_->Start(client, &client_scratch_, 0, host).ok());
    EXPECT_TRUE(server_->Start(server, &server_scratch_, 0).ok());
  }

  TlsScratch client_scratch_;
  TlsScratch server_scratch_;
  std::unique_ptr<TlsCredentials> client_credentials_;
  std::unique_ptr<TlsCredentials> server_credentials_;
  Descriptor client_fd_;
  Descriptor server_fd_;
  std::unique_ptr<TlsStream> client_;
  std::unique_ptr<TlsStream> server_;
};

void ExpectRefused(const TlsStream& stream, absl::StatusCode code, const std::string& words) {
  EXPECT_EQ(stream.state(), TlsStream::State::kFailed);
  EXPECT_EQ(stream.error().code(), code) << stream.error();
  EXPECT_NE(stream.error().ToString().find(words), std::string::npos) << stream.error();
}

// Of streams whose records OpenSSL makes, and of those that make them by themselves.
enum class Proof { kCertificate, kPsk };

class TlsDataTest : public ::testing::TestWithParam<Proof> {
 protected:
  static SecurityOptions Options() {
    return GetParam() == Proof::kCertificate ? Certified() : WithPsk();
  }
};

INSTANTIATE_TEST_SUITE_P(Proofs, TlsDataTest, ::testing::Values(Proof::kCertificate, Proof::kPsk),
                         [](const auto& info) {
                           return std::string(info.param == Proof::kPsk ? "Psk" : "Certificate");
                         });

TEST(TlsStreamTest, PlainStreamIsTheSocket) {
  Descriptor left_fd, right_fd;
  MakePair(&left_fd, &right_fd);
  TlsStream left(left_fd.get()), right(right_fd.get());
  EXPECT_EQ(ReadFrom(&right), "");
  EXPECT_EQ(errno, EAGAIN);
  EXPECT_EQ(WriteTo(&left, "plain"), 5);
  EXPECT_EQ(ReadFrom(&right), "plain");
  EXPECT_FALSE(right.has_pending());
  EXPECT_TRUE(left.Flush());
}

TEST(TlsStreamTest, BothSidesKnowWhoTheOtherIs) {
  LeafOptions server_leaf, client_leaf;
  server_leaf.common_name = "the server";
  client_leaf.common_name = "the client";
  client_leaf.alternative_names = "DNS:one.example,DNS:two.example,URI:spiffe://example/client";
  TlsPair pair(Certified(client_leaf), Certified(server_leaf));
  pair.Run();
  ASSERT_EQ(pair.client().state(), TlsStream::State::kUp) << pair.client().error();
  ASSERT_EQ(pair.server().state(), TlsStream::State::kUp) << pair.server().error();
  EXPECT_EQ(pair.client().identity().subject, "CN=the server");
  const PeerIdentity client = pair.server().identity();
  EXPECT_EQ(client.authentication, Authentication::kCertificate);
  EXPECT_EQ(client.subject, "CN=the client");
  EXPECT_EQ(client.dns_names, (std::vector<std::string>{"one.example", "two.example"}));
  EXPECT_EQ(client.uris, std::vector<std::string>{"spiffe://example/client"});
}

TEST_P(TlsDataTest, BytesGoBothWaysAndNotInTheClear) {
  TlsPair pair(Options(), Options());
  pair.Run();
  EXPECT_EQ(WriteTo(&pair.client(), "to the server"), 13);
  char wire[200] = {};
  const ssize_t seen = ::recv(pair.server_fd(), wire, sizeof(wire), MSG_PEEK);
  ASSERT_GT(seen, 13);
  EXPECT_EQ(std::string(wire, static_cast<size_t>(seen)).find("server"), std::string::npos);
  EXPECT_EQ(ReadFrom(&pair.server()), "to the server");
  EXPECT_EQ(WriteTo(&pair.server(), "to the client"), 13);
  EXPECT_EQ(ReadFrom(&pair.client()), "to the client");
}

// One byte at a time is every split of the handshake.
TEST_P(TlsDataTest, HandshakeArrivesByteByByte) {
  auto client = *TlsCredentials::Create(TlsRole::kClient, Options());
  auto server = *TlsCredentials::Create(TlsRole::kServer, Options());
  Descriptor client_fd, client_wire, server_fd, server_wire;
  MakePair(&client_fd, &client_wire);
  MakePair(&server_fd, &server_wire);
  TlsScratch scratch;  // all streams of an engine share it
  TlsStream dialed(client_fd.get()), accepted(server_fd.get());
  ASSERT_TRUE(dialed.Start(client.get(), &scratch, 0, "localhost").ok());
  ASSERT_TRUE(accepted.Start(server.get(), &scratch, 0).ok());
  int carried = 0;
  for (bool moved = true; moved;) {
    moved = false;
    dialed.Flush();
    for (auto [from, to] : {std::pair(client_wire.get(), server_wire.get()),
                            std::pair(server_wire.get(), client_wire.get())}) {
      char byte;
      if (::recv(from, &byte, 1, 0) != 1) continue;
      ASSERT_EQ(::send(to, &byte, 1, 0), 1);
      moved = true;
      ++carried;
      ReadFrom(&dialed);
      ReadFrom(&accepted);
    }
  }
  EXPECT_GT(carried, 500);
  EXPECT_EQ(dialed.state(), TlsStream::State::kUp) << dialed.error();
  EXPECT_EQ(accepted.state(), TlsStream::State::kUp) << accepted.error();
}

TEST_P(TlsDataTest, MegabytesArriveWholeThroughASlowReader) {
  TlsPair pair(Options(), Options());
  pair.Run();
  const std::string sent = Bytes(3'000'001);
  std::string received;
  size_t at = 0;
  Random random(11);
  bool waited = false;
  while (received.size() < sent.size()) {
    // Pieces of all sizes in one call.
    const std::string_view rest = std::string_view(sent).substr(at);
    const std::string_view first = rest.substr(0, random.Next64() % 40'000);
    const std::string_view second = rest.substr(first.size(), random.Next64() % 400'000);
    const iovec pieces[] = {{const_cast<char*>(first.data()), first.size()},
                            {const_cast<char*>(second.data()), second.size()}};
    const ssize_t taken = first.size() + second.size() == 0 ? 0 : pair.client().Write(pieces, 2);
    if (taken > 0) at += static_cast<size_t>(taken);
    waited = waited || (taken < 0 && errno == EAGAIN);
    EXPECT_LE(pair.client().unsent(), TlsStream::kMaxUnsentBytes);
    pair.client().Flush();
    std::string room(1 + random.Next64() % 50'000, '\0');
    const iovec piece{room.data(), room.size()};
    const ssize_t count = pair.server().Read(&piece, 1);
    if (count > 0) received.append(room, 0, static_cast<size_t>(count));
    ASSERT_NE(pair.server().state(), TlsStream::State::kFailed) << pair.server().error();
  }
  EXPECT_TRUE(waited);
  EXPECT_TRUE(received == sent);
}

TEST_P(TlsDataTest, BytesThatWaitInsideAreTold) {
  TlsPair pair(Options(), Options());
  pair.Run();
  ASSERT_EQ(WriteTo(&pair.client(), std::string(40'000, 'x')), 40'000);
  char byte;
  const iovec piece{&byte, 1};
  ASSERT_EQ(pair.server().Read(&piece, 1), 1);
  EXPECT_TRUE(pair.server().has_pending());
  EXPECT_EQ(ReadFrom(&pair.server()).size(), 39'999u);
  EXPECT_FALSE(pair.server().has_pending());
}

// A peer that sent its bytes in records of their own held up a Read() for as long as they came: 16
// KiB of them cost 25 ms, in which the engine did nothing else.
TEST(TlsStreamTest, AReadOpensSoManyRecordsAndLeavesTheRest) {
  TlsPair pair(Certified(), Certified());
  pair.Settle();
  constexpr int kRecords = 3 * TlsStream::kMaxReadRecords + 1;
  for (int i = 0; i < kRecords; ++i) ASSERT_EQ(WriteTo(&pair.client(), "x"), 1);
  char bytes[5000];
  const iovec piece{bytes, sizeof(bytes)};
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(pair.server().Read(&piece, 1), TlsStream::kMaxReadRecords);
    EXPECT_TRUE(pair.server().has_pending()) << "nobody else tells that there is more";
  }
  EXPECT_EQ(pair.server().Read(&piece, 1), 1);
  EXPECT_FALSE(pair.server().has_pending());
}

// Of each stream that had ever read ahead, a record's memory stayed for as long as it was open.
TEST_P(TlsDataTest, AStillStreamHoldsNoMemoryOfWhatItReadAhead) {
  TlsPair pair(Options(), Options());
  pair.Settle();
  ASSERT_EQ(WriteTo(&pair.client(), "small"), 5);
  ASSERT_EQ(WriteTo(&pair.client(), std::string(TlsStream::kRecordBytes, 'x')),
            static_cast<ssize_t>(TlsStream::kRecordBytes));
  char byte;
  const iovec piece{&byte, 1};
  ASSERT_EQ(pair.server().Read(&piece, 1), 1);
  EXPECT_GT(pair.server().reserved(), TlsStream::kMaxIdleBytes) << "the test reads nothing ahead";
  EXPECT_EQ(ReadFrom(&pair.server()).size(), 4 + TlsStream::kRecordBytes);
  EXPECT_LE(pair.server().reserved(), TlsStream::kMaxIdleBytes);
}

// A partial record is inside, and a reader that is told of it would spin.
TEST_P(TlsDataTest, HalfARecordIsNotPending) {
  TlsPair pair(Options(), Options());
  pair.Run();
  ASSERT_EQ(WriteTo(&pair.client(), "0123456789"), 10);
  char wire[100];
  const ssize_t bytes = ::recv(pair.server_fd(), wire, sizeof(wire), 0);
  ASSERT_GT(bytes, 10);
  ASSERT_EQ(::send(pair.client_fd(), wire, 12, 0), 12);
  EXPECT_EQ(ReadFrom(&pair.server()), "");
  EXPECT_EQ(errno, EAGAIN);
  EXPECT_FALSE(pair.server().has_pending());
  ASSERT_EQ(::send(pair.client_fd(), wire + 12, static_cast<size_t>(bytes) - 12, 0), bytes - 12);
  EXPECT_EQ(ReadFrom(&pair.server()), "0123456789");
}

TEST_P(TlsDataTest, EndInGoodOrderIsZero) {
  TlsPair pair(Options(), Options());
  pair.Run();
  WriteTo(&pair.client(), "last words");
  pair.client().End();
  EXPECT_EQ(ReadFrom(&pair.server()), "last words");
  char byte;
  const iovec piece{&byte, 1};
  EXPECT_EQ(pair.server().Read(&piece, 1), 0);
  EXPECT_EQ(pair.server().state(), TlsStream::State::kUp);
}

// Anybody on the way can end a TCP stream; what was sent before would look complete.
TEST_P(TlsDataTest, CutStreamIsAnError) {
  TlsPair pair(Options(), Options());
  pair.Run();
  WriteTo(&pair.client(), "half of it");
  pair.CloseClientSocket();
  EXPECT_EQ(ReadFrom(&pair.server()), "half of it");
  EXPECT_EQ(errno, EPROTO);
  ExpectRefused(pair.server(), absl::StatusCode::kUnavailable, "cut");
}

TEST_P(TlsDataTest, TamperedRecordIsDataLoss) {
  TlsPair pair(Options(), Options());
  pair.Run();
  ASSERT_EQ(WriteTo(&pair.client(), "0123456789"), 10);
  char wire[100];
  const ssize_t bytes = ::recv(pair.server_fd(), wire, sizeof(wire), 0);
  ASSERT_GT(bytes, 10);
  wire[8] ^= 1;
  ASSERT_EQ(::send(pair.client_fd(), wire, static_cast<size_t>(bytes), 0), bytes);
  EXPECT_EQ(ReadFrom(&pair.server()), "");
  ExpectRefused(pair.server(), absl::StatusCode::kDataLoss, "a record is wrong");
}

// --- peers that are not accepted -----------------------------------------------------------------

TEST(TlsStreamTest, ServerOfAnotherAuthorityIsRefused) {
  const TestAuthority other("another one");
  TlsPair pair(Certified(), Certified({}, Authority(), other));
  pair.Settle();
  ExpectRefused(pair.client(), absl::StatusCode::kUnauthenticated, "not accepted");
  ExpectRefused(pair.server(), absl::StatusCode::kUnauthenticated, "the peer refuses");
}

TEST(TlsStreamTest, ClientOfAnotherAuthorityIsRefused) {
  const TestAuthority other("another one");
  TlsPair pair(Certified({}, Authority(), other), Certified());
  pair.Settle();
  ExpectRefused(pair.server(), absl::StatusCode::kUnauthenticated, "not accepted");
  ExpectRefused(pair.client(), absl::StatusCode::kUnauthenticated, "the peer refuses");
}

TEST(TlsStreamTest, ExpiredCertificateIsRefused) {
  LeafOptions expired;
  expired.valid_until = -60;
  TlsPair pair(Certified(), Certified(expired));
  pair.Settle();
  ExpectRefused(pair.client(), absl::StatusCode::kUnauthenticated, "expired");
}

TEST(TlsStreamTest, WrongNameIsRefused) {
  TlsPair pair(Certified(), Certified(), "store.example");
  pair.Settle();
  ExpectRefused(pair.client(), absl::StatusCode::kUnauthenticated, "\"store.example\"");
}

TEST(TlsStreamTest, SubjectIsNoName) {
  LeafOptions leaf;
  leaf.common_name = "store.example";
  leaf.alternative_names = "";
  TlsPair pair(Certified(), Certified(leaf), "store.example");
  pair.Settle();
  ExpectRefused(pair.client(), absl::StatusCode::kUnauthenticated, "\"store.example\"");
}

TEST(TlsStreamTest, AddressesAreNames) {
  TlsPair right(Certified(), Certified(), "127.0.0.1");
  right.Run();
  EXPECT_EQ(right.client().state(), TlsStream::State::kUp) << right.client().error();
  TlsPair wrong(Certified(), Certified(), "127.0.0.2");
  wrong.Settle();
  ExpectRefused(wrong.client(), absl::StatusCode::kUnauthenticated, "\"127.0.0.2\"");
}

TEST(TlsStreamTest, NameCanBeAnotherThanTheHost) {
  SecurityOptions client = Certified();
  client.server_name = "localhost";
  TlsPair pair(client, Certified(), "10.1.2.3");
  pair.Run();
  EXPECT_EQ(pair.client().state(), TlsStream::State::kUp) << pair.client().error();
}

TEST(TlsStreamTest, ExpectedUriTakesThePlaceOfTheHost) {
  LeafOptions leaf;
  leaf.alternative_names = "URI:spiffe://example/store";
  SecurityOptions client = Certified();
  client.expected_uri = "spiffe://example/store";
  TlsPair right(client, Certified(leaf), "10.1.2.3");
  right.Run();
  EXPECT_EQ(right.client().state(), TlsStream::State::kUp) << right.client().error();
  client.expected_uri = "spiffe://example/stor";
  TlsPair wrong(client, Certified(leaf), "10.1.2.3");
  wrong.Settle();
  ExpectRefused(wrong.client(), absl::StatusCode::kUnauthenticated, "expected URI");
}

TEST(TlsStreamTest, ServerCanExpectTheClientsUri) {
  SecurityOptions server = Certified();
  server.expected_uri = "spiffe://example/client";
  TlsPair pair(Certified(), server);
  pair.Settle();
  ExpectRefused(pair.server(), absl::StatusCode::kUnauthenticated, "expected URI");
}

TEST(TlsStreamTest, ClientWithoutACertificateIsRefusedUnlessItMayBe) {
  SecurityOptions client;
  client.roots_pem = Authority().certificate_pem();
  TlsPair refused(client, Certified());
  refused.Settle();
  ExpectRefused(refused.server(), absl::StatusCode::kUnauthenticated, "certificate");
  ExpectRefused(refused.client(), absl::StatusCode::kUnauthenticated, "the peer refuses");
  SecurityOptions server = Certified();
  server.require_client_certificate = false;
  TlsPair allowed(client, server);
  allowed.Run();
  ASSERT_EQ(allowed.server().state(), TlsStream::State::kUp) << allowed.server().error();
  EXPECT_EQ(allowed.server().identity().authentication, Authentication::kNone);
}

// --- pre-shared keys -----------------------------------------------------------------------------

TEST(TlsStreamTest, SecretThatBothHaveIsEnough) {
  TlsPair pair(WithPsk(), WithPsk());
  pair.Run();
  ASSERT_EQ(pair.client().state(), TlsStream::State::kUp) << pair.client().error();
  ASSERT_EQ(pair.server().state(), TlsStream::State::kUp) << pair.server().error();
  EXPECT_EQ(pair.server().identity().authentication, Authentication::kPreSharedKey);
  EXPECT_EQ(pair.server().identity().psk_name, "fleet");
  EXPECT_EQ(WriteTo(&pair.client(), "hello"), 5);
  EXPECT_EQ(ReadFrom(&pair.server()), "hello");
  EXPECT_EQ(pair.client().records_by(), RecordsBy::kWeft);
  EXPECT_EQ(pair.server().records_by(), RecordsBy::kWeft);
}

// --- who makes the records -----------------------------------------------------------------------

void ExpectToCarry(TlsPair* pair) {
  pair->Settle();
  ASSERT_EQ(pair->client().state(), TlsStream::State::kUp) << pair->client().error();
  ASSERT_EQ(pair->server().state(), TlsStream::State::kUp) << pair->server().error();
  const std::string sent = Bytes(50'000);
  EXPECT_EQ(WriteTo(&pair->client(), sent), 50'000);
  EXPECT_TRUE(ReadFrom(&pair->server()) == sent);
  EXPECT_EQ(WriteTo(&pair->server(), sent), 50'000);
  EXPECT_TRUE(ReadFrom(&pair->client()) == sent);
}

TEST(TlsStreamTest, WithoutItsSecretsAStreamStaysWithOpenSsl) {
  auto client = *TlsCredentials::Create(TlsRole::kClient, WithPsk());
  auto server = *TlsCredentials::Create(TlsRole::kServer, WithPsk());
  TlsPair pair(client.get(), server.get());
  SSL_CTX_set_keylog_callback(client->Context(0), nullptr);
  ExpectToCarry(&pair);
  EXPECT_EQ(pair.client().records_by(), RecordsBy::kOpenssl);
  EXPECT_EQ(pair.server().records_by(), RecordsBy::kWeft);
}

// With certificates, which leave the suite open, and all else as with a pre-shared key.
void MeetWith(const char* suite, size_t tickets, RecordsBy client_by, RecordsBy server_by) {
  auto with_psk = *TlsCredentials::Create(TlsRole::kClient, WithPsk());
  TlsPair unused(with_psk.get(), with_psk.get());
  auto client = *TlsCredentials::Create(TlsRole::kClient, Certified());
  auto server = *TlsCredentials::Create(TlsRole::kServer, Certified());
  for (TlsCredentials* const side : {client.get(), server.get()}) {
    ASSERT_EQ(SSL_CTX_set_ciphersuites(side->Context(0), suite), 1);
    SSL_CTX_set_keylog_callback(side->Context(0),
                                SSL_CTX_get_keylog_callback(with_psk->Context(0)));
    SSL_CTX_set_num_tickets(side->Context(0), tickets);
  }
  TlsPair pair(client.get(), server.get());
  // A wish that is not granted: not by this kernel, not for these sockets, or as the test has it.
  pair.client().UseKernel();
  pair.server().UseKernel();
  ExpectToCarry(&pair);
  EXPECT_EQ(pair.client().records_by(), client_by) << suite;
  EXPECT_EQ(pair.server().records_by(), server_by) << suite;
  for (TlsStream* const stream : {&pair.client(), &pair.server()}) {
    const std::string& why = stream->why_not_kernel();
    EXPECT_NE(why, "") << suite;
    if (!AskKernelForTls().ok()) continue;
    EXPECT_EQ(why.find("the kernel's TLS does not take this socket") == 0,
              stream->records_by() == RecordsBy::kWeft)
        << why;
  }
}

TEST(TlsStreamTest, OfOtherSuitesOpenSslMakesTheRecords) {
  MeetWith("TLS_AES_256_GCM_SHA384", 0, RecordsBy::kWeft, RecordsBy::kWeft);
  MeetWith("TLS_AES_128_GCM_SHA256", 0, RecordsBy::kWeft, RecordsBy::kWeft);
  MeetWith("TLS_CHACHA20_POLY1305_SHA256", 0, RecordsBy::kOpenssl, RecordsBy::kOpenssl);
}

// It has used its key for them.
TEST(TlsStreamTest, AServerThatGivesTicketsStaysWithOpenSsl) {
  MeetWith("TLS_AES_256_GCM_SHA384", 2, RecordsBy::kWeft, RecordsBy::kOpenssl);
}

// What the client says right behind its handshake comes with the end of it.
TEST(TlsStreamTest, RecordsRightBehindTheHandshakeAreNotLost) {
  TlsPair pair(WithPsk(), WithPsk());
  pair.client().Flush();
  pair.server().Flush();
  ASSERT_EQ(WriteTo(&pair.client(), "at once"), 7);  // behind its Finished, in one stream of bytes
  ASSERT_EQ(pair.server().state(), TlsStream::State::kHandshake);
  EXPECT_EQ(ReadFrom(&pair.server()), "at once");
  EXPECT_EQ(pair.server().records_by(), RecordsBy::kWeft);
}

TEST(TlsStreamTest, WrongSecretIsRefused) {
  TlsPair pair(WithPsk(), WithPsk('t'));
  pair.Settle();
  ExpectRefused(pair.server(), absl::StatusCode::kUnauthenticated, "\"fleet\"");
  ExpectRefused(pair.client(), absl::StatusCode::kUnauthenticated, "the peer refuses");
}

TEST(TlsStreamTest, UnknownKeyNameIsRefused) {
  SecurityOptions client = WithPsk();
  client.psk_name = "other";
  TlsPair pair(client, WithPsk());
  pair.Settle();
  EXPECT_EQ(pair.server().state(), TlsStream::State::kFailed);
  EXPECT_EQ(pair.client().state(), TlsStream::State::kFailed);
}

TEST(TlsStreamTest, CertificateIsNoAnswerToAKey) {
  SecurityOptions server = Certified();
  server.require_client_certificate = false;
  TlsPair pair(WithPsk(), server);
  pair.Settle();
  ExpectRefused(pair.client(), absl::StatusCode::kUnauthenticated, "\"fleet\"");
}

// --- peers that speak something else -------------------------------------------------------------

// A client of OpenSSL's own, set up by `change`, and a server of ours.
absl::Status MeetOther(const std::function<void(SSL*)>& change) {
  SecurityOptions open = Certified();
  open.require_client_certificate = false;
  auto credentials = *TlsCredentials::Create(TlsRole::kServer, open);
  Descriptor ours, theirs;
  MakePair(&ours, &theirs);
  TlsScratch scratch;
  TlsStream stream(ours.get());
  EXPECT_TRUE(stream.Start(credentials.get(), &scratch, 0).ok());
  SSL_CTX* const context = SSL_CTX_new(TLS_client_method());
  SSL* const other = SSL_new(context);
  SSL_set_fd(other, theirs.get());
  change(other);
  for (int i = 0; i < 10; ++i) {
    SSL_connect(other);
    stream.Flush();
  }
  SSL_free(other);
  SSL_CTX_free(context);
  return stream.error();
}

constexpr unsigned char kWeft[] = {6, 'w', 'e', 'f', 't', '/', '1'};
constexpr unsigned char kHttp2[] = {2, 'h', '2'};

TEST(TlsStreamTest, OtherClientThatSpeaksOurProtocolIsWelcome) {
  const absl::Status met = MeetOther([](SSL* ssl) { SSL_set_alpn_protos(ssl, kWeft, 7); });
  EXPECT_TRUE(met.ok()) << met;
}

// By which a client asks for an engine, of whatever release the server is.
TEST(TlsStreamTest, AnotherAlpnNameBehindOursIsPassedOver) {
  const absl::Status met = MeetOther([](SSL* ssl) {
    constexpr unsigned char kNames[] = "\x06weft/1\x0dweft-engine/3";
    SSL_set_alpn_protos(ssl, kNames, sizeof(kNames) - 1);
  });
  EXPECT_TRUE(met.ok()) << met;
}

TEST(TlsStreamTest, Tls12IsRefused) {
  const absl::Status met = MeetOther([](SSL* ssl) {
    SSL_set_alpn_protos(ssl, kWeft, 7);
    SSL_set_max_proto_version(ssl, TLS1_2_VERSION);
  });
  EXPECT_EQ(met.code(), absl::StatusCode::kFailedPrecondition) << met;
}

// All of TLS 1.3's suites that are not in the list: nobody needs them, and they are the slow ones.
TEST(TlsStreamTest, SuitesOutsideOfTheListAreRefused) {
  for (const char* suite : {"TLS_AES_128_CCM_SHA256", "TLS_AES_128_CCM_8_SHA256"}) {
    const absl::Status met = MeetOther([&](SSL* ssl) {
      SSL_set_alpn_protos(ssl, kWeft, 7);
      ASSERT_EQ(SSL_set_ciphersuites(ssl, suite), 1);
    });
    EXPECT_FALSE(met.ok()) << suite;
    // And a server that has nothing else.
    auto client = *TlsCredentials::Create(TlsRole::kClient, Certified());
    auto server = *TlsCredentials::Create(TlsRole::kServer, Certified());
    ASSERT_EQ(SSL_CTX_set_ciphersuites(server->Context(0), suite), 1);
    TlsPair pair(client.get(), server.get());
    pair.Run();
    EXPECT_EQ(pair.client().state(), TlsStream::State::kFailed) << suite;
    EXPECT_EQ(pair.server().state(), TlsStream::State::kFailed) << suite;
  }
}

TEST(TlsStreamTest, OtherAlpnAndNoneAreRefused) {
  const absl::Status other = MeetOther([](SSL* ssl) { SSL_set_alpn_protos(ssl, kHttp2, 3); });
  EXPECT_EQ(other.code(), absl::StatusCode::kFailedPrecondition) << other;
  const absl::Status none = MeetOther([](SSL*) {});
  EXPECT_EQ(none.code(), absl::StatusCode::kFailedPrecondition) << none;
}

absl::Status MeetBytes(const std::string& bytes, bool close) {
  auto credentials = *TlsCredentials::Create(TlsRole::kServer, WithPsk());
  Descriptor ours, theirs;
  MakePair(&ours, &theirs);
  TlsScratch scratch;
  TlsStream stream(ours.get());
  EXPECT_TRUE(stream.Start(credentials.get(), &scratch, 0).ok());
  for (size_t at = 0; at < bytes.size() && stream.error().ok();) {
    const ssize_t count = ::send(theirs.get(), bytes.data() + at,
                                 std::min<size_t>(bytes.size() - at, 9000), MSG_NOSIGNAL);
    if (count > 0) at += static_cast<size_t>(count);
    stream.Flush();
  }
  if (close) theirs.Reset();
  stream.Flush();
  return stream.error();
}

TEST(TlsStreamTest, PlainBytesAreNamed) {
  const absl::Status met = MeetBytes("\x89WEFT\n", false);
  EXPECT_EQ(met.code(), absl::StatusCode::kFailedPrecondition) << met;
  EXPECT_NE(met.ToString().find("does not speak TLS"), std::string::npos) << met;
}

TEST(TlsStreamTest, ClosedHandshakeIsUnavailable) {
  const absl::Status met = MeetBytes("", true);
  EXPECT_EQ(met.code(), absl::StatusCode::kUnavailable) << met;
}

TEST(TlsStreamTest, NoiseEndsTheHandshakeOnly) {
  Random random(3);
  for (int i = 0; i < 200; ++i) {
    std::string bytes(1 + random.Next64() % 300, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random.Next64());
    if (i % 2 == 0) bytes.replace(0, std::min<size_t>(bytes.size(), 3), "\x16\x03\x01");
    EXPECT_FALSE(MeetBytes(bytes, true).ok());
  }
}

// With a secret that both sides have, somebody on the way can send each side's bytes back to it:
// the keys of the two directions differ, and a client is no server.
TEST(TlsStreamTest, WhatAStreamHasSentIsNotTakenFromAMirror) {
  auto client = *TlsCredentials::Create(TlsRole::kClient, WithPsk());
  Descriptor near, mirror;
  MakePair(&near, &mirror);
  TlsScratch scratch;
  TlsStream stream(near.get());
  ASSERT_TRUE(stream.Start(client.get(), &scratch, 0, "localhost").ok());
  stream.Flush();
  char wire[4096];
  ssize_t bytes = ::recv(mirror.get(), wire, sizeof(wire), 0);
  ASSERT_GT(bytes, 0);
  ASSERT_EQ(::send(mirror.get(), wire, static_cast<size_t>(bytes), 0), bytes);
  stream.Flush();
  EXPECT_EQ(stream.state(), TlsStream::State::kFailed) << "its hello is no server's";

  TlsPair pair(WithPsk(), WithPsk());
  pair.Settle();
  ASSERT_EQ(WriteTo(&pair.client(), "pay seventy"), 11);
  bytes = ::recv(pair.server_fd(), wire, sizeof(wire), 0);
  ASSERT_GT(bytes, 11);
  ASSERT_EQ(::send(pair.server_fd(), wire, static_cast<size_t>(bytes), 0), bytes);
  EXPECT_EQ(ReadFrom(&pair.client()), "");
  ExpectRefused(pair.client(), absl::StatusCode::kDataLoss, "a record is wrong");
}

// --- resumption, and secrets for others ----------------------------------------------------------

TEST(TlsStreamTest, SecondConnectionResumesAndIsTheSamePeer) {
  auto client = *TlsCredentials::Create(TlsRole::kClient, Certified());
  auto server = *TlsCredentials::Create(TlsRole::kServer, Certified());
  {
    TlsPair first(client.get(), server.get());
    first.Settle();
    EXPECT_FALSE(first.client().resumed());
  }
  TlsPair second(client.get(), server.get());
  second.Settle();
  EXPECT_TRUE(second.client().resumed());
  EXPECT_TRUE(second.server().resumed());
  EXPECT_EQ(second.server().identity().subject, "CN=a test");
  EXPECT_EQ(second.client().identity().subject, "CN=a test");
  // A ticket is for the name that was checked when it was given.
  TlsPair other(client.get(), server.get(), "127.0.0.1");
  other.Settle();
  EXPECT_FALSE(other.client().resumed());
}

// --- early data ----------------------------------------------------------------------------------

// Whoever records it can send it again: there is none, in the first connection and in those after.
TEST(TlsStreamTest, TicketsPermitNoEarlyData) {
  auto client = *TlsCredentials::Create(TlsRole::kClient, Certified());
  auto server = *TlsCredentials::Create(TlsRole::kServer, Certified());
  for (const bool resumed : {false, true}) {
    TlsPair pair(client.get(), server.get());
    pair.Settle();
    ASSERT_EQ(pair.client().resumed(), resumed) << pair.client().error();
    const SSL_SESSION* const ticket = client->Session("localhost");
    ASSERT_NE(ticket, nullptr);
    EXPECT_EQ(SSL_SESSION_get_max_early_data(ticket), 0u);
  }
}

// Counts the hellos, and those that offer early data.
struct HellosSeen {
  int all = 0;
  int with_early_data = 0;
};

int OnHello(SSL* ssl, int*, void* argument) {
  auto* const seen = static_cast<HellosSeen*>(argument);
  const unsigned char* body = nullptr;
  size_t bytes = 0;
  ++seen->all;
  seen->with_early_data += SSL_client_hello_get0_ext(ssl, TLSEXT_TYPE_early_data, &body, &bytes);
  return SSL_CLIENT_HELLO_SUCCESS;
}

TEST(TlsStreamTest, EarlyDataIsNotOfferedThoughATicketPermitsIt) {
  auto client = *TlsCredentials::Create(TlsRole::kClient, Certified());
  auto server = *TlsCredentials::Create(TlsRole::kServer, Certified());
  HellosSeen seen;
  SSL_CTX_set_client_hello_cb(server->Context(0), OnHello, &seen);
  ASSERT_EQ(SSL_CTX_set_max_early_data(server->Context(0), 16'384), 1);
  SSL_CTX_set_options(server->Context(0), SSL_OP_NO_ANTI_REPLAY);  // or it keeps its tickets itself
  for (const bool resumed : {false, true}) {
    TlsPair pair(client.get(), server.get());
    // Ours to send as early as it likes.
    EXPECT_EQ(WriteTo(&pair.client(), "early"), -1);
    pair.Settle();
    ASSERT_EQ(pair.client().resumed(), resumed) << pair.client().error();
    ASSERT_NE(client->Session("localhost"), nullptr);
    EXPECT_EQ(SSL_SESSION_get_max_early_data(client->Session("localhost")), 16'384u);
  }
  EXPECT_EQ(seen.all, 2);
  EXPECT_EQ(seen.with_early_data, 0);
}

// A client of OpenSSL's own, with a ticket of ours, that sends early data whatever the ticket says.
TEST(TlsStreamTest, EarlyDataOfAClientThatSendsItIsNotTaken) {
  SecurityOptions open = Certified();
  open.require_client_certificate = false;
  auto server = *TlsCredentials::Create(TlsRole::kServer, open);
  SSL_CTX* const context = SSL_CTX_new(TLS_client_method());
  SSL_SESSION* ticket = nullptr;
  for (const bool again : {false, true}) {
    Descriptor ours, theirs;
    MakePair(&ours, &theirs);
    TlsScratch scratch;
    TlsStream stream(ours.get());
    ASSERT_TRUE(stream.Start(server.get(), &scratch, 0).ok());
    SSL* const other = SSL_new(context);
    SSL_set_fd(other, theirs.get());
    SSL_set_alpn_protos(other, kWeft, 7);
    std::string heard;
    if (again) {
      ASSERT_EQ(SSL_SESSION_set_max_early_data(ticket, 16'384), 1);
      ASSERT_EQ(SSL_set_session(other, ticket), 1);
      size_t written = 0;
      ASSERT_EQ(SSL_write_early_data(other, "early", 5, &written), 1);
    }
    for (int i = 0; i < 10; ++i) {
      SSL_connect(other);
      stream.Flush();
      if (stream.state() == TlsStream::State::kUp) heard += ReadFrom(&stream);
    }
    ASSERT_EQ(stream.state(), TlsStream::State::kUp) << stream.error();
    EXPECT_EQ(stream.resumed(), again);
    ASSERT_EQ(SSL_write(other, "late", 4), 4);
    char byte;
    EXPECT_LT(SSL_read(other, &byte, 1), 0) << "there is a ticket, and nothing else";
    EXPECT_EQ(heard + ReadFrom(&stream), "late");
    EXPECT_EQ(SSL_get_early_data_status(other),
              again ? SSL_EARLY_DATA_REJECTED : SSL_EARLY_DATA_NOT_SENT);
    SSL_SESSION_free(std::exchange(ticket, SSL_get1_session(other)));
    SSL_shutdown(other);  // or its ticket is good for nothing
    SSL_free(other);
  }
  SSL_SESSION_free(ticket);
  SSL_CTX_free(context);
}

TEST_P(TlsDataTest, BothSidesExportTheSameSecret) {
  TlsPair pair(Options(), Options());
  pair.Run();
  const auto secret = [](const TlsStream& stream, std::string_view context) {
    std::string made(32, '\0');
    EXPECT_TRUE(stream
                    .Export("EXPORTER-weft-test", AsBytes(context),
                            MutableByteSpan(reinterpret_cast<std::byte*>(made.data()), 32))
                    .ok());
    return made;
  };
  EXPECT_EQ(secret(pair.client(), "one"), secret(pair.server(), "one"));
  EXPECT_NE(secret(pair.client(), "one"), secret(pair.server(), "two"));
  EXPECT_NE(secret(pair.client(), "one"), std::string(32, '\0'));
  TlsPair another(Options(), Options());
  another.Run();
  EXPECT_NE(secret(pair.client(), "one"), secret(another.client(), "one"));
}

}  // namespace
}  // namespace weft
