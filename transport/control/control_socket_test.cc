// A control connection's socket, whose peer sends what it likes, as fast as it likes.

#include "transport/control/control_socket.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/counters.h"
#include "transport/control/shared_tls.h"
#include "transport/poller.h"

namespace weft {
namespace {

SecurityOptions WithPsk() {
  SecurityOptions options;
  options.psk_name = "fleet";
  options.psk_secret = std::string(kMinPskBytes, 's');
  return options;
}

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
  // Of the engine's: each socket that is ready is told.
  void Turn() {
    tls_->BeginTurn();
    poller_->Poll();
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
TEST_F(ControlSocketTest, OneReadOfATurn) {
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

}  // namespace
}  // namespace weft
