// A control connection's socket, whose peer sends what it likes, as fast as it likes.

#include "transport/control/control_socket.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/counters.h"
#include "transport/control/shared_tls.h"
#include "transport/poller.h"
#include "transport/tls/testing/security_options.h"

namespace weft {
namespace {

class ControlSocketTest : public ::testing::Test {
 protected:
  // A server's socket, and the peer, who speaks TLS, or anything else by `fd`.
  struct Pair {
    Descriptor fd;
    std::unique_ptr<TlsStream> client;
    int told = 0;  // that there is something
    std::unique_ptr<ControlSocket> socket;
  };

  void SetUp() override {
    poller_ = *Poller::Create();
    tls_.emplace(&counters_);
    client_ = *TlsCredentials::Create(TlsRole::kClient, WithPsk());
    server_ = *TlsCredentials::Create(TlsRole::kServer, WithPsk());
  }

  std::unique_ptr<Pair> NewPair() {
    int fds[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
    auto pair = std::make_unique<Pair>();
    pair->fd.Reset(fds[0]);
    pair->client = std::make_unique<TlsStream>(fds[0]);
    pair->socket = std::make_unique<ControlSocket>(Descriptor(fds[1]), poller_.get(),
                                                   [raw = pair.get()] { ++raw->told; });
    EXPECT_TRUE(pair->socket->Start().ok());
    pair->socket->ExpectTls(server_.get(), &*tls_, 0);
    return pair;
  }
  // One whose handshake is over.
  std::unique_ptr<Pair> NewSecuredPair() {
    auto pair = NewPair();
    EXPECT_TRUE(pair->client->Start(client_.get(), &scratch_, 0).ok());
    for (int i = 0; i < 10 && !pair->socket->is_secured(); ++i) {
      pair->client->Flush();
      Turn();
    }
    EXPECT_TRUE(pair->socket->is_secured());
    EXPECT_EQ(Frames(*pair), 0);
    return pair;
  }
  // Of the engine's: each socket that is ready is told, and one handshake goes on.
  void Turn() {
    poller_->Poll();
    tls_->line().RunTurn();
  }
  static void Write(Pair& pair, ByteSpan bytes) {
    const iovec piece{const_cast<std::byte*>(bytes.data()), bytes.size()};
    ASSERT_EQ(pair.client->Write(&piece, 1), static_cast<ssize_t>(bytes.size()));
  }
  // Those that can be received now.
  static int Frames(Pair& pair) {
    int count = 0;
    for (ControlFrame frame; pair.socket->Receive(&frame);) ++count;
    return count;
  }

  CounterSet counters_;
  std::unique_ptr<Poller> poller_;
  std::optional<SharedTls> tls_;
  TlsScratch scratch_;
  std::unique_ptr<TlsCredentials> client_;
  std::unique_ptr<TlsCredentials> server_;
};

// Receive() read on for as long as bytes came faster than it read them, and calls of others waited.
TEST_F(ControlSocketTest, APeerThatSendsFastTakesTwoReadsOfATurnAtMost) {
  auto pair = NewSecuredPair();
  Write(*pair, EncodePreamble());
  std::vector<std::byte> heartbeat;
  AppendControlFrame(ControlType::kHeartbeat, kIgnorable, {}, &heartbeat);
  constexpr int kFrames = 2 * TlsStream::kMaxReadRecords;  // and each is a record
  for (int i = 0; i < kFrames; ++i) Write(*pair, heartbeat);

  Turn();
  int received = Frames(*pair);
  EXPECT_EQ(received, TlsStream::kMaxReadRecords - 1) << "the first record was the preamble";
  EXPECT_TRUE(pair->socket->ended().ok());
  // The owner comes back for the rest, by itself.
  for (; pair->socket->has_more(); received += Frames(*pair)) {
    const uint64_t before = pair->socket->received_bytes();
    Turn();
    EXPECT_EQ(pair->socket->received_bytes(), before) << "the poller's word is not heeded";
    pair->socket->ReadMore();
  }
  EXPECT_EQ(received, kFrames);
}

// TLS may have taken the end out of the kernel, which tells of it no more.
TEST_F(ControlSocketTest, TheEndBehindMuchIsSeen) {
  auto pair = NewSecuredPair();
  Write(*pair, EncodePreamble());
  std::vector<std::byte> heartbeat;
  AppendControlFrame(ControlType::kHeartbeat, kIgnorable, {}, &heartbeat);
  for (int i = 0; i < TlsStream::kMaxReadRecords; ++i) Write(*pair, heartbeat);
  pair->client->End();

  Turn();
  int received = Frames(*pair);
  EXPECT_TRUE(pair->socket->ended().ok()) << pair->socket->ended();
  for (int i = 0; i < 3 && pair->socket->has_more(); ++i) {
    pair->socket->ReadMore();
    received += Frames(*pair);
  }
  EXPECT_EQ(received, TlsStream::kMaxReadRecords);
  EXPECT_TRUE(absl::IsUnavailable(pair->socket->ended())) << pair->socket->ended();
}

// Whose handshakes go on, and when.
class TurnsTest : public ControlSocketTest {
 protected:
  using Pair = ControlSocketTest::Pair;

  // The first flight of a client.
  std::string Hello() {
    int fds[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
    const Descriptor near(fds[0]), far(fds[1]);
    TlsStream stream(near.get());
    EXPECT_TRUE(stream.Start(client_.get(), &scratch_, 0).ok());
    stream.Flush();
    std::string bytes(TlsStream::kMaxHandshakeBytes, '\0');
    const ssize_t count = ::recv(far.get(), bytes.data(), bytes.size(), 0);
    bytes.resize(static_cast<size_t>(std::max<ssize_t>(count, 0)));
    return bytes;
  }
  static void Say(const Pair& pair, std::string_view bytes) {
    ASSERT_EQ(::send(pair.fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  // One who has said a whole hello, and the poller has told of it.
  std::unique_ptr<Pair> NewInLine() {
    auto pair = NewPair();
    Say(*pair, Hello());
    poller_->Poll();
    return pair;
  }
  static bool IsAnswered(const Pair& pair) {
    char byte;
    return ::recv(pair.fd.get(), &byte, 1, MSG_PEEK) == 1;
  }
};

// Whoever had something to read took the turn, if it was a byte: a hundred who sent their hellos
// byte by byte took a hundred turns for each of an honest client.
TEST_F(TurnsTest, WhoSendsHisHelloByteByByteHoldsNoPlace) {
  const std::string hello = Hello();
  std::vector<std::unique_ptr<Pair>> dribblers;
  for (int i = 0; i < 30; ++i) dribblers.push_back(NewPair());
  for (const char byte : hello.substr(0, hello.size() - 1)) {
    for (const auto& dribbler : dribblers) Say(*dribbler, std::string(1, byte));
    poller_->Poll();
    ASSERT_TRUE(tls_->line().empty());
  }
  const auto honest = NewInLine();
  for (const auto& dribbler : dribblers) Say(*dribbler, hello.substr(hello.size() - 1));
  poller_->Poll();
  tls_->line().RunTurn();
  EXPECT_TRUE(IsAnswered(*honest)) << "it was the first with a whole hello";
  for (size_t i = 0; i < dribblers.size(); ++i) EXPECT_EQ(tls_->line().RunTurn(), 1);
  for (const auto& dribbler : dribblers) EXPECT_TRUE(IsAnswered(*dribbler));
}

TEST_F(TurnsTest, WhoCameFirstGoesFirst) {
  std::vector<std::unique_ptr<Pair>> pairs;
  for (int i = 0; i < 20; ++i) pairs.push_back(NewPair());
  // Neither the order in which they connected, nor that of their descriptors.
  std::vector<size_t> order;
  for (size_t i = 0; i < pairs.size(); ++i) order.push_back(i * 7 % pairs.size());
  for (const size_t next : order) {
    Say(*pairs[next], Hello());
    poller_->Poll();
  }
  for (const size_t next : order) {
    EXPECT_FALSE(IsAnswered(*pairs[next]));
    EXPECT_EQ(tls_->line().RunTurn(), 1);
    EXPECT_TRUE(IsAnswered(*pairs[next]));
  }
  EXPECT_EQ(tls_->line().RunTurn(), 0);
}

TEST_F(TurnsTest, WhoComesAnewWaitsForThoseBeforeHimOnly) {
  std::vector<std::unique_ptr<Pair>> strangers;
  for (int i = 0; i < 5; ++i) strangers.push_back(NewInLine());
  const auto newcomer = NewInLine();
  for (int i = 0; i < 5; ++i) {
    for (int more = 0; more < 2; ++more) strangers.push_back(NewInLine());
    EXPECT_FALSE(IsAnswered(*newcomer));
    EXPECT_EQ(tls_->line().RunTurn(), 1);
  }
  tls_->line().RunTurn();
  EXPECT_TRUE(IsAnswered(*newcomer));
}

// After his flight one is out until the peer has answered, and then at the end.
TEST_F(TurnsTest, AFlightTakesAnAnswerBeforeTheNext) {
  const auto pair = NewPair();
  ASSERT_TRUE(pair->client->Start(client_.get(), &scratch_, 0).ok());
  pair->client->Flush();
  Turn();
  EXPECT_TRUE(IsAnswered(*pair));
  Turn();
  EXPECT_TRUE(tls_->line().empty());
  const auto other = NewInLine();
  pair->client->Flush();
  poller_->Poll();
  tls_->line().RunTurn();
  EXPECT_TRUE(IsAnswered(*other));
  EXPECT_FALSE(pair->socket->is_secured());
  tls_->line().RunTurn();
  EXPECT_TRUE(pair->socket->is_secured());
}

TEST_F(TurnsTest, WhoIsClosedLeavesTheLine) {
  auto first = NewInLine();
  const auto second = NewInLine();
  first.reset();
  tls_->line().RunTurn();
  EXPECT_TRUE(IsAnswered(*second)) << "nobody is waited for who has gone";
  EXPECT_TRUE(tls_->line().empty());
}

// What shows that there will be no handshake is told at once, and takes no turn.
TEST_F(TurnsTest, WhoGivesUpOrSpeaksSomethingElseTakesNoTurn) {
  const auto gone = NewPair();
  Say(*gone, Hello().substr(0, 20));
  poller_->Poll();
  gone->fd.Reset();
  const auto noisy = NewPair();
  Say(*noisy, std::string("\x16\x03\x01\x40\x00", 5) + std::string(100, 'x'));
  poller_->Poll();
  EXPECT_TRUE(tls_->line().empty());
  EXPECT_TRUE(gone->socket->gone());
  EXPECT_EQ(gone->told, 1);
  ControlFrame frame;
  EXPECT_FALSE(gone->socket->Receive(&frame));
  EXPECT_TRUE(absl::IsUnavailable(gone->socket->ended())) << gone->socket->ended();
  EXPECT_FALSE(noisy->socket->gone()) << "it may still be a record";
}

}  // namespace
}  // namespace weft
