// Links with a secret: what is on the wire, and what happens to whoever reads, changes, cuts or
// makes up something there.

#include <sys/socket.h>

#include <cerrno>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/bytes.h"
#include "core/strings.h"
#include "gtest/gtest.h"
#include "transport/descriptor.h"
#include "transport/link.h"
#include "transport/sockets/join.h"
#include "transport/sockets/socket.h"
#include "transport/tcp/tcp_frame.h"
#include "transport/tcp/testing/tcp_side.h"
#include "transport/tls/kernel_tls.h"
#include "transport/tls/tls_stream.h"

namespace weft {
namespace {

constexpr size_t kRecordHeaderBytes = 5;
constexpr uint8_t kDataRecord = 23;  // all that is encrypted

LinkSecret SecretOf(int number) {
  LinkSecret secret;
  secret.fill(std::byte(number));
  return secret;
}

// Somebody on the way between a link's two ends, who may read and change what passes.
class OnTheWay {
 public:
  explicit OnTheWay(const std::string& server)
      : server_(ParseNumericAddress(server).value()),
        listener_(ListenInternet(ParseNumericAddress("127.0.0.1:0").value()).value()) {}

  std::string address() const { return LocalAddress(listener_.get()).value().text(); }

  // False: nothing has passed.
  bool Step() {
    if (!client_.valid()) {
      client_ = std::move(AcceptClient(listener_.get())).value();
      if (client_.valid()) to_server_ = std::move(StartDial(server_)).value();
      return client_.valid();
    }
    const bool forth = Pass(client_.get(), to_server_.get(), &from_client);
    return Pass(to_server_.get(), client_.get(), &from_server) || forth;
  }

  struct Direction {
    std::string seen;
    size_t flips_at = ~size_t{0};  // the byte of this number is changed
    size_t ends_at = ~size_t{0};   // both sockets are closed in the place of this one
  };
  Direction from_client;
  Direction from_server;

 private:
  bool Pass(int from, int to, Direction* direction) {
    if (from < 0 || to < 0) return false;
    char bytes[4096];
    const ssize_t count = ::recv(from, bytes, sizeof(bytes), MSG_DONTWAIT);
    if (count < 0 && (errno == EAGAIN || errno == ENOTCONN)) return false;
    std::string piece(bytes, count > 0 ? static_cast<size_t>(count) : 0);
    const size_t at = direction->seen.size();
    const bool ends = count <= 0 || direction->ends_at < at + piece.size();
    if (direction->ends_at < at + piece.size()) piece.resize(direction->ends_at - at);
    if (direction->flips_at >= at && direction->flips_at < at + piece.size()) {
      piece[direction->flips_at - at] = static_cast<char>(piece[direction->flips_at - at] ^ 0x10);
    }
    direction->seen += piece;
    for (std::string_view left = piece; !left.empty();) {
      const ssize_t sent = ::send(to, left.data(), left.size(), MSG_NOSIGNAL);
      if (sent < 0 && errno != EAGAIN) break;
      if (sent > 0) left.remove_prefix(static_cast<size_t>(sent));
    }
    if (!ends) return true;
    client_.Reset();
    to_server_.Reset();
    return true;
  }

  const KernelAddress server_;
  Descriptor listener_;
  Descriptor client_;
  Descriptor to_server_;
};

class TcpTlsTest : public ::testing::Test {
 protected:
  // Links of `a` to `b`, by whoever is on the way. Returns whether both came up.
  bool Meet(std::optional<LinkSecret> of_a, std::optional<LinkSecret> of_b) {
    LinkPeer peer;
    peer.nonce = 0x1122334455667788;
    peer.nonce_low = 0x99aabbccddeeff00;
    peer.kernel_tls = TcpTestByKernel();
    peer.secret = of_b;
    b_.end.link = std::move(b_.domain->Accept(peer, &b_.end)).value();
    peer.secret = of_a;
    peer.address = way_ != nullptr ? way_->address() : b_.listens_at;
    a_.end.link = std::move(a_.domain->Connect(peer, &a_.end)).value();
    EXPECT_TRUE(Run([&] {
      return (a_.end.ups == 1 && b_.end.ups == 1) || a_.end.downs == 1 || b_.end.downs == 1;
    })) << "neither up nor down";
    return a_.end.ups == 1 && b_.end.ups == 1 && a_.end.downs == 0 && b_.end.downs == 0;
  }
  template <class Done>
  bool Run(Done done) {
    return TcpRunUntil({&a_, &b_}, [&] {
      if (way_ != nullptr) way_->Step();
      return done();
    });
  }
  void PutSomebodyOnTheWay() { way_ = std::make_unique<OnTheWay>(b_.listens_at); }

  TcpSide a_;
  TcpSide b_;
  std::unique_ptr<OnTheWay> way_;
};

// The records in `bytes` from `from` on: how many are of encrypted data.
int CountRecords(const std::string& bytes, size_t from) {
  int records = 0;
  for (size_t at = from; at + kRecordHeaderBytes <= bytes.size(); ++records) {
    EXPECT_EQ(static_cast<uint8_t>(bytes[at]), kDataRecord);
    at += kRecordHeaderBytes + (static_cast<uint8_t>(bytes[at + 3]) << 8) +
          static_cast<uint8_t>(bytes[at + 4]);
    EXPECT_LE(at, bytes.size());
  }
  return records;
}

TEST_F(TcpTlsTest, WhoReadsAlongSeesNothingOfMessagesOrTransfers) {
  PutSomebodyOnTheWay();
  ASSERT_TRUE(Meet(SecretOf(1), SecretOf(1))) << a_.end.down_status << b_.end.down_status;
  const std::string text = "the cargo is worth seventy million";
  ASSERT_TRUE(a_.Send(text).ok());
  ASSERT_TRUE(b_.Send("and it " + text).ok());

  std::string memory(200'000, '\0');
  for (size_t i = 0; i < memory.size(); ++i) memory[i] = "transfers are secret "[i % 21];
  std::string place(memory.size(), '\0');
  const auto bytes_of = [](std::string& bytes) {
    return MutableByteSpan(reinterpret_cast<std::byte*>(bytes.data()), bytes.size());
  };
  const auto source = std::move(b_.domain->Register(bytes_of(memory), Access::kRemoteRead)).value();
  const auto local = std::move(a_.domain->Register(bytes_of(place), Access::kLocalOnly)).value();
  CountedOperation read;
  const Transfer transfer{local.get(), 0, source->remote()};
  ASSERT_TRUE(a_.end.link->Post(TransferKind::kRead, {&transfer, 1}, &read).ok());
  ASSERT_TRUE(Run(
      [&] { return read.completions == 1 && a_.received.size() == 1 && b_.received.size() == 1; }));
  EXPECT_TRUE(read.status.ok()) << read.status;
  EXPECT_EQ(place, memory);
  EXPECT_EQ(b_.received[0], text);

  const std::string all = way_->from_client.seen + way_->from_server.seen;
  EXPECT_GT(all.size(), memory.size());
  for (const std::string& words : {std::string("cargo"), std::string("secret"),
                                   std::string(reinterpret_cast<const char*>(&kWelcomeMagic), 8)}) {
    EXPECT_EQ(all.find(words), std::string::npos) << words;
  }
  // The join alone is plain: by it the listener finds the link.
  EXPECT_EQ(LoadLe64(AsBytes(all).data()), kJoinMagic);
}

// An answer's records are opened in its place, before anybody knows whether they are right.
TEST_F(TcpTlsTest, AReadWhoseAnswerIsChangedIsNotToldToBeComplete) {
  PutSomebodyOnTheWay();
  ASSERT_TRUE(Meet(SecretOf(1), SecretOf(1)));
  std::vector<std::byte> memory(200'000, std::byte{'m'});
  std::vector<std::byte> place(memory.size());
  const auto source = std::move(b_.domain->Register(memory, Access::kRemoteRead)).value();
  const auto local = std::move(a_.domain->Register(place, Access::kLocalOnly)).value();
  way_->from_server.flips_at = way_->from_server.seen.size() + 100'000;
  CountedOperation read;
  const Transfer transfer{local.get(), 0, source->remote()};
  ASSERT_TRUE(a_.end.link->Post(TransferKind::kRead, {&transfer, 1}, &read).ok());
  ASSERT_TRUE(Run([&] { return a_.end.downs == 1; }));
  EXPECT_TRUE(absl::IsDataLoss(a_.end.down_status)) << a_.end.down_status;
  EXPECT_EQ(place.front(), std::byte{'m'}) << "the test changes something that was on its way";
  a_.end.link.reset();
  EXPECT_EQ(read.completions, 1);
  EXPECT_FALSE(read.status.ok());
}

TEST_F(TcpTlsTest, WhatIsSentAtOnceIsOneRecord) {
  PutSomebodyOnTheWay();
  ASSERT_TRUE(Meet(SecretOf(1), SecretOf(1)));
  const size_t before = way_->from_client.seen.size();
  ASSERT_TRUE(a_.Send("a batch").ok());
  ASSERT_TRUE(Run([&] { return b_.received.size() == 1; }));
  EXPECT_EQ(CountRecords(way_->from_client.seen, before), 1);
  const size_t frame_bytes = kTcpHeaderBytes + 8;
  EXPECT_EQ(way_->from_client.seen.size() - before, kRecordHeaderBytes + frame_bytes + 1 + 16);
}

// Each side's own wish. On the wire it is the same.
TEST_F(TcpTlsTest, ALinkSaysWhatHasComeOfTheWishForTheKernelsTls) {
  const absl::Status offer = AskKernelForTls();
  const std::string by =
      offer.ok() ? "records by the kernel" : StrCat("records by Weft: ", ToStd(offer.message()));
  for (const bool server_wishes : {true, false}) {
    for (const bool has_secret : {true, false}) {
      TcpSide a, b;
      LinkPeer peer;
      peer.nonce = 5;
      if (has_secret) peer.secret = SecretOf(1);
      peer.kernel_tls = server_wishes;
      b.end.link = std::move(b.domain->Accept(peer, &b.end)).value();
      peer.address = b.listens_at;
      peer.kernel_tls = !server_wishes;
      a.end.link = std::move(a.domain->Connect(peer, &a.end)).value();
      ASSERT_TRUE(TcpRunUntil({&a, &b}, [&] { return a.end.ups == 1 && b.end.ups == 1; }));
      EXPECT_EQ(a.end.link->kernel_tls(), !server_wishes && has_secret ? by : "");
      EXPECT_EQ(b.end.link->kernel_tls(), server_wishes && has_secret ? by : "");
    }
  }
}

// An attacker changes one byte, of the handshake or of what comes behind it.
TEST_F(TcpTlsTest, ChangedByteIsNeverTakenForTheTruth) {
  size_t bytes[2] = {};
  size_t handshake[2] = {};
  PutSomebodyOnTheWay();
  ASSERT_TRUE(Meet(SecretOf(1), SecretOf(1)));
  handshake[0] = way_->from_client.seen.size();
  handshake[1] = way_->from_server.seen.size();
  ASSERT_TRUE(a_.Send("to b").ok());
  ASSERT_TRUE(b_.Send("to a").ok());
  ASSERT_TRUE(Run([&] { return a_.received.size() == 1 && b_.received.size() == 1; }));
  bytes[0] = way_->from_client.seen.size();
  bytes[1] = way_->from_server.seen.size();
  const bool by_kernel = TcpTestByKernel() && AskKernelForTls().ok();
  for (const int direction : {0, 1}) {
    for (size_t at = direction == 0 ? kJoinBytes : 0; at < bytes[direction]; ++at) {
      // All of what is encrypted, and each third byte of the hellos.
      if (at < handshake[direction] / 2 && at % 3 != 0) continue;
      SCOPED_TRACE(testing::Message() << "byte " << at << " of direction " << direction);
      TcpSide a, b;
      OnTheWay way(b.listens_at);
      (direction == 0 ? way.from_client : way.from_server).flips_at = at;
      LinkPeer peer;
      peer.nonce = 5;
      peer.secret = SecretOf(1);
      peer.kernel_tls = TcpTestByKernel();
      b.end.link = std::move(b.domain->Accept(peer, &b.end)).value();
      peer.address = way.address();
      a.end.link = std::move(a.domain->Connect(peer, &a.end)).value();
      bool sent[2] = {};
      int idle_turns = 0;
      ASSERT_TRUE(TcpRunUntil({&a, &b}, [&] {
        idle_turns = way.Step() ? 0 : idle_turns + 1;
        if (a.end.ups == 1 && a.end.downs == 0 && !std::exchange(sent[0], true)) {
          EXPECT_TRUE(a.Send("to b").ok());
        }
        if (b.end.ups == 1 && b.end.downs == 0 && !std::exchange(sent[1], true)) {
          EXPECT_TRUE(b.Send("to a").ok());
        }
        // A record that seems longer than it is waits for more, and is found out by it. During the
        // handshake nothing more comes: path_timeout_ns ends that.
        TcpSide& writer = direction == 0 ? a : b;
        if (idle_turns % 100 == 99 && writer.end.ups == 1 && writer.end.downs == 0) {
          EXPECT_TRUE(writer.Send(std::string(8000, 'm')).ok());
        }
        return a.end.downs + b.end.downs > 0 || idle_turns > 300 ||
               (a.received.size() == 1 && b.received.size() == 1);
      }));
      // The kernel passes over the first byte of a record, which says that it is sealed.
      const bool is_passed_over = by_kernel && at == handshake[direction];
      if (a.end.downs + b.end.downs == 0) {
        EXPECT_TRUE(at < handshake[direction] || is_passed_over);
        const bool is_waiting = a.end.ups + b.end.ups < 2 && a.received.empty();
        // The version in the header of a hello's record means nothing (RFC 8446, 5.1).
        const bool is_ignored = a.received.size() == 1 && b.received.size() == 1;
        EXPECT_TRUE(is_waiting || is_ignored);
      }
      const auto is_right = [](const TcpSide& side, const char* text) {
        return side.received.empty() || side.received == std::vector<std::string>{text};
      };
      EXPECT_TRUE(is_right(a, "to a") && is_right(b, "to b"));
      if (at >= handshake[direction] && !is_passed_over) {
        const TcpSide& reader = direction == 0 ? b : a;
        EXPECT_TRUE(reader.received.empty());
        EXPECT_TRUE(absl::IsDataLoss(reader.end.down_status) ||
                    absl::IsUnavailable(reader.end.down_status))
            << reader.end.down_status;
      }
    }
  }
}

TEST_F(TcpTlsTest, CutHandshakeEndsBothSides) {
  PutSomebodyOnTheWay();
  ASSERT_TRUE(Meet(SecretOf(1), SecretOf(1)));
  const size_t bytes[] = {way_->from_client.seen.size(), way_->from_server.seen.size()};
  for (const int direction : {0, 1}) {
    for (size_t at = direction == 0 ? kJoinBytes : 0; at < bytes[direction]; ++at) {
      SCOPED_TRACE(testing::Message() << "byte " << at << " of direction " << direction);
      TcpSide a, b;
      OnTheWay way(b.listens_at);
      (direction == 0 ? way.from_client : way.from_server).ends_at = at;
      LinkPeer peer;
      peer.nonce = 5;
      peer.secret = SecretOf(1);
      peer.kernel_tls = TcpTestByKernel();
      b.end.link = std::move(b.domain->Accept(peer, &b.end)).value();
      peer.address = way.address();
      a.end.link = std::move(a.domain->Connect(peer, &a.end)).value();
      // A listener does not give a link a socket whose join has not come: that one waits.
      const bool has_joined = direction == 1 || at > kJoinBytes;
      ASSERT_TRUE(TcpRunUntil({&a, &b}, [&] {
        way.Step();
        return a.end.downs == 1 && (!has_joined || b.end.downs == 1 || b.end.ups == 0);
      }));
      EXPECT_TRUE(absl::IsUnavailable(a.end.down_status)) << a.end.down_status;
      EXPECT_TRUE(a.received.empty() && b.received.empty());
    }
  }
}

TEST_F(TcpTlsTest, NonceWithoutTheSecretIsWorthNothing) {
  EXPECT_FALSE(Meet(SecretOf(1), SecretOf(2)));
  ASSERT_TRUE(Run([&] { return a_.end.downs == 1 && b_.end.downs == 1; }));
  EXPECT_TRUE(absl::IsUnauthenticated(b_.end.down_status)) << b_.end.down_status;
  EXPECT_EQ(a_.end.ups + b_.end.ups, 0);
}

TEST_F(TcpTlsTest, PlainPeerIsToldFromOneThatIsSealed) {
  LinkPeer peer;
  peer.nonce = 7;
  peer.secret = SecretOf(2);
  peer.kernel_tls = TcpTestByKernel();
  b_.end.link = std::move(b_.domain->Accept(peer, &b_.end)).value();
  peer.secret.reset();
  peer.address = b_.listens_at;
  a_.end.link = std::move(a_.domain->Connect(peer, &a_.end)).value();
  // Each waits for the other, until the handshake's time is over.
  const auto is_taken = [&] { return b_.last_join.ok() && b_.strangers.empty(); };
  b_.last_join = absl::UnknownError("none yet");
  ASSERT_TRUE(Run(is_taken));
  EXPECT_EQ(a_.end.ups + b_.end.ups, 0);
  a_.end.link.reset();
  ASSERT_TRUE(Run([&] { return b_.end.downs == 1; }));
  EXPECT_EQ(b_.end.ups, 0);
  EXPECT_NE(b_.end.down_status.ToString().find("TLS"), std::string::npos) << b_.end.down_status;
}

TEST_F(TcpTlsTest, PlainServerIsNotTalkedTo) {
  EXPECT_FALSE(Meet(SecretOf(1), std::nullopt));
  ASSERT_TRUE(Run([&] { return a_.end.downs == 1; }));
  EXPECT_EQ(a_.end.ups, 0);
  EXPECT_TRUE(absl::IsFailedPrecondition(a_.end.down_status)) << a_.end.down_status;
  EXPECT_NE(a_.end.down_status.ToString().find("does not speak TLS"), std::string::npos);
  ASSERT_TRUE(Run([&] { return b_.end.downs == 1; }));
  EXPECT_NE(b_.end.down_status.ToString().find("it begins TLS"), std::string::npos)
      << b_.end.down_status;
}

// Plain frames behind a right join.
TEST_F(TcpTlsTest, PlainFramesAreNotTaken) {
  LinkPeer peer;
  peer.nonce = 7;
  peer.secret = SecretOf(1);
  peer.kernel_tls = TcpTestByKernel();
  b_.end.link = std::move(b_.domain->Accept(peer, &b_.end)).value();
  const Descriptor stranger =
      std::move(StartDial(ParseNumericAddress(b_.listens_at).value())).value();
  std::string bytes(AsStringView(EncodeJoin({7, 0})));
  std::byte head[kTcpHeaderBytes];
  EncodeTcpHeader(head, TcpFrameKind::kBatch, 0, 8, 0, 0);
  bytes += std::string(AsStringView(ByteSpan(head))) + "8 bytes.";
  ASSERT_TRUE(Run([&] {
    return ::send(stranger.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
           static_cast<ssize_t>(bytes.size());
  }));
  ASSERT_TRUE(Run([&] { return b_.end.downs == 1; }));
  EXPECT_TRUE(absl::IsFailedPrecondition(b_.end.down_status)) << b_.end.down_status;
  EXPECT_TRUE(b_.received.empty());
}

// A link that is not answered holds nobody up, and its secret is given up with it.
TEST_F(TcpTlsTest, SilentPeerCostsItsLinkAlone) {
  LinkPeer peer;
  peer.nonce = 7;
  peer.secret = SecretOf(1);
  peer.kernel_tls = TcpTestByKernel();
  LinkEnd silent;
  silent.link = std::move(b_.domain->Accept(peer, &silent)).value();
  const Descriptor stranger =
      std::move(StartDial(ParseNumericAddress(b_.listens_at).value())).value();
  const auto join = EncodeJoin({7, 0});
  ASSERT_TRUE(Run([&] { return ::send(stranger.get(), join.data(), join.size(), 0) > 0; }));
  ASSERT_TRUE(Meet(SecretOf(3), SecretOf(3)));
  ASSERT_TRUE(a_.Send("hello").ok());
  ASSERT_TRUE(Run([&] { return b_.received.size() == 1; }));
  EXPECT_EQ(silent.ups + silent.downs, 0);
  silent.link.reset();
}

// A link that its side had closed looked as if somebody on the way had cut it.
TEST_F(TcpTlsTest, AnEndInGoodOrderIsToldFromACut) {
  ASSERT_TRUE(Meet(SecretOf(1), SecretOf(1)));
  a_.end.link.reset();
  ASSERT_TRUE(Run([&] { return b_.end.downs == 1; }));
  EXPECT_TRUE(absl::IsUnavailable(b_.end.down_status)) << b_.end.down_status;
  EXPECT_NE(b_.end.down_status.ToString().find("closed the link"), std::string::npos)
      << b_.end.down_status;
}

TEST_F(TcpTlsTest, ACutIsToldFromAnEndInGoodOrder) {
  PutSomebodyOnTheWay();
  ASSERT_TRUE(Meet(SecretOf(1), SecretOf(1)));
  way_->from_client.ends_at = way_->from_client.seen.size();
  ASSERT_TRUE(a_.Send("what does not arrive").ok());
  ASSERT_TRUE(Run([&] { return b_.end.downs == 1; }));
  EXPECT_NE(b_.end.down_status.ToString().find("was cut"), std::string::npos) << b_.end.down_status;
}

}  // namespace
}  // namespace weft
