// The secret of a link: both ends of a connection have it, and nobody else; nothing that differs
// between two links leaves it the same.

#include "transport/control/link_secret.h"

#include <sys/socket.h>

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "transport/control/network_transport.h"
#include "transport/control/testing/faulty_domain.h"
#include "transport/control/testing/network_world.h"
#include "transport/control/testing/two_path_engine.h"
#include "transport/descriptor.h"

namespace weft {
namespace {

SecurityOptions Fleet() {
  SecurityOptions options;
  options.psk_name = "fleet";
  options.psk_secret = std::string(kMinPskBytes, 'x');
  return options;
}

// Two ends of one TLS connection.
class TlsPair {
 public:
  TlsPair() {
    int fds[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
    client_fd_.Reset(fds[0]);
    server_fd_.Reset(fds[1]);
    client_ = std::make_unique<TlsStream>(fds[0]);
    server_ = std::make_unique<TlsStream>(fds[1]);
    EXPECT_TRUE(client_->Start(client_credentials_.get(), &scratch_, 0).ok());
    EXPECT_TRUE(server_->Start(server_credentials_.get(), &scratch_, 0).ok());
    for (int i = 0; i < 10; ++i) {
      client_->Flush();
      server_->Flush();
    }
  }
  const TlsStream& client() const { return *client_; }
  const TlsStream& server() const { return *server_; }

 private:
  std::unique_ptr<TlsCredentials> client_credentials_ =
      *TlsCredentials::Create(TlsRole::kClient, Fleet());
  std::unique_ptr<TlsCredentials> server_credentials_ =
      *TlsCredentials::Create(TlsRole::kServer, Fleet());
  TlsScratch scratch_;
  Descriptor client_fd_;
  Descriptor server_fd_;
  std::unique_ptr<TlsStream> client_;
  std::unique_ptr<TlsStream> server_;
};

LinkSecrets AfterHellos(const std::string& client, const std::string& server) {
  LinkSecrets secrets;
  secrets.Note(ControlType::kClientHello, AsBytes(client));
  secrets.Note(ControlType::kServerHello, AsBytes(server));
  return secrets;
}

LinkSecret Derive(const LinkSecrets& secrets, const TlsStream& stream, const LinkPeer& peer,
                  PathKind kind = PathKind::kTcp) {
  const absl::StatusOr<LinkSecret> secret = secrets.Derive(stream, peer, kind);
  EXPECT_TRUE(secret.ok()) << secret.status();
  return secret.value_or(LinkSecret{});
}

LinkPeer WithNonce(uint64_t high, uint64_t low) {
  LinkPeer peer;
  peer.nonce = high;
  peer.nonce_low = low;
  return peer;
}

TEST(LinkSecrets, BothSidesHaveTheSameAndNothingElseHas) {
  const TlsPair pair, another;
  const LinkPeer peer = WithNonce(1, 2);
  const LinkSecrets hellos = AfterHellos("client", "server");
  const LinkSecret secret = Derive(hellos, pair.client(), peer);
  EXPECT_EQ(Derive(AfterHellos("client", "server"), pair.server(), peer), secret);
  EXPECT_NE(secret, LinkSecret{});

  EXPECT_NE(Derive(hellos, another.server(), peer), secret);
  EXPECT_NE(Derive(hellos, pair.server(), WithNonce(1, 3)), secret);
  EXPECT_NE(Derive(hellos, pair.server(), WithNonce(3, 2)), secret);
  EXPECT_NE(Derive(hellos, pair.server(), peer, PathKind::kVerbs), secret);
  EXPECT_NE(Derive(AfterHellos("cliENt", "server"), pair.server(), peer), secret);
  EXPECT_NE(Derive(AfterHellos("client", "serveR"), pair.server(), peer), secret);
  EXPECT_NE(Derive(AfterHellos("clients", "erver"), pair.server(), peer), secret);
}

// A neighbouring release makes the same of the same connection: the label and the context stand
// here as docs/wire_format.md has them, and not as constants of what is tested.
TEST(LinkSecrets, IsMadeAsTheWireFormatSays) {
  const TlsPair pair;
  const unsigned char context[81] = {
      // SHA-256 of "client", and of "server".
      0x94, 0x8f, 0xe6, 0x03, 0xf6, 0x1d, 0xc0, 0x36, 0xb5, 0xc5, 0x96, 0xdc, 0x09, 0xfe, 0x3c,
      0xe3, 0xf3, 0xd3, 0x0d, 0xc9, 0x0f, 0x02, 0x4c, 0x85, 0xf3, 0xc8, 0x2d, 0xb2, 0xcc, 0xab,
      0x67, 0x9d, 0xb3, 0xea, 0xcd, 0x33, 0x43, 0x3b, 0x31, 0xb5, 0x25, 0x23, 0x51, 0x03, 0x2c,
      0x9b, 0x3e, 0x7a, 0x2e, 0x7a, 0xa7, 0x73, 0x8d, 0x5d, 0xec, 0xdf, 0x0d, 0xd6, 0xc6, 0x26,
      0x80, 0x85, 0x3c, 0x06,
      // The nonce's halves, and the kind of tcp.
      0x08, 0x07, 0x06, 0x05, 0x04, 0x03, 0x02, 0x01, 0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12,
      0x11, 10};
  LinkSecret wanted;
  ASSERT_TRUE(
      pair.server().Export("EXPORTER-weft-link", std::as_bytes(std::span(context)), wanted).ok());
  EXPECT_EQ(Derive(AfterHellos("client", "server"), pair.client(),
                   WithNonce(0x0102030405060708, 0x1112131415161718)),
            wanted);
  EXPECT_EQ(wanted.size(), 48u);
}

TEST(LinkSecrets, OtherFramesChangeNothing) {
  const TlsPair pair;
  LinkSecrets hellos = AfterHellos("client", "server");
  hellos.Note(ControlType::kPathTry, AsBytes(std::string("a path")));
  EXPECT_EQ(Derive(hellos, pair.client(), {}),
            Derive(AfterHellos("client", "server"), pair.server(), {}));
}

// The handshakes give it to every link that they start.
class LinkSecretTest : public NetworkTest {
 protected:
  void SetUp() override {
    server_ = Recording(&accepted_);
    client_ = Recording(&dialed_peers_);
  }
  // Both begin with a path whose links fail.
  static std::unique_ptr<Engine> Recording(std::vector<LinkPeer>* peers) {
    return TwoPathEngine([peers] {
      PathProvider shm;
      shm.kind = PathKind::kShm;
      shm.open = [peers](const PathOffer&, BatchSink*) {
        return absl::StatusOr<std::unique_ptr<LinkDomain>>(
            std::make_unique<FaultyDomain>(Fault::kLinkFails, peers));
      };
      return shm;
    });
  }
  void Meet(const std::optional<SecurityOptions>& security) {
    ListenOptions listen;
    listen.security = security;
    Listen("127.0.0.1:0", listen);
    ConnectOptions options = Impatient();
    options.security = security;
    NetworkEnd* const end = Dial(options);
    ASSERT_TRUE(RunUntilDecided(*end));
  }

  std::vector<LinkPeer> accepted_;
  std::vector<LinkPeer> dialed_peers_;
};

TEST_F(LinkSecretTest, LinksOfOneConnectionAreGivenOneSecret) {
  Meet(Fleet());
  ASSERT_EQ(accepted_.size(), 1u);
  ASSERT_EQ(dialed_peers_.size(), 1u);
  ASSERT_TRUE(accepted_[0].secret.has_value());
  EXPECT_EQ(accepted_[0].secret, dialed_peers_[0].secret);
  listener_.reset();
  Meet(Fleet());
  ASSERT_EQ(accepted_.size(), 2u);
  EXPECT_NE(accepted_[0].secret, accepted_[1].secret);
}

TEST_F(LinkSecretTest, WithoutSecurityThereIsNone) {
  Meet(std::nullopt);
  ASSERT_EQ(accepted_.size(), 1u);
  ASSERT_EQ(dialed_peers_.size(), 1u);
  EXPECT_FALSE(accepted_[0].secret.has_value());
  EXPECT_FALSE(dialed_peers_[0].secret.has_value());
}

}  // namespace
}  // namespace weft
