// Peers of a TlsStream that have nothing of ours, and do less than ours would: clients and servers
// of OpenSSL's own, which the tests set up by hand.

#include <gtest/gtest.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "transport/descriptor.h"
#include "transport/pem.h"
#include "transport/tls/testing/certificates.h"
#include "transport/tls/testing/openssl_peer.h"
#include "transport/tls/testing/security_options.h"
#include "transport/tls/tls_stream.h"

namespace weft {
namespace {

using ContextPtr = std::unique_ptr<SSL_CTX, Freer<SSL_CTX_free>>;
using SslPtr = std::unique_ptr<SSL, Freer<SSL_free>>;
using SessionPtr = std::unique_ptr<SSL_SESSION, Freer<SSL_SESSION_free>>;
using KeyPtr = std::unique_ptr<EVP_PKEY, Freer<EVP_PKEY_free>>;
using CertificatePtr = std::unique_ptr<X509, Freer<X509_free>>;

constexpr unsigned char kWeft[] = {6, 'w', 'e', 'f', 't', '/', '1'};

const TestAuthority& Authority() {
  static const TestAuthority* const authority = new TestAuthority;
  return *authority;
}

class TlsOtherPeersTest : public ::testing::Test {
 protected:
  TlsOtherPeersTest() {
    int fds[2] = {-1, -1};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
    ours_.Reset(fds[0]);
    theirs_.Reset(fds[1]);
  }

  // Ours, on its end of the socket.
  void Start(TlsRole role, const SecurityOptions& options) {
    credentials_ = *TlsCredentials::Create(role, options);
    StartAgain();
  }
  void StartAgain() {
    stream_ = std::make_unique<TlsStream>(ours_.get());
    ASSERT_TRUE(stream_->Start(credentials_.get(), &scratch_, 0, "localhost").ok());
  }
  void ExpectUp() { ASSERT_EQ(stream_->state(), TlsStream::State::kUp) << stream_->error(); }
  void ExpectRefused(absl::StatusCode code, const std::string& words) {
    EXPECT_EQ(stream_->state(), TlsStream::State::kFailed);
    EXPECT_EQ(stream_->error().code(), code) << stream_->error();
    EXPECT_NE(stream_->error().ToString().find(words), std::string::npos) << stream_->error();
  }

  Descriptor ours_;
  Descriptor theirs_;
  TlsScratch scratch_;
  std::unique_ptr<TlsCredentials> credentials_;
  std::unique_ptr<TlsStream> stream_;
};

// --- what was recorded stays secret --------------------------------------------------------------

// Whether the other side has answered with a key that was made for this handshake alone.
bool HasEphemeralKey(SSL* ssl) {
  EVP_PKEY* key = nullptr;
  const bool found = SSL_get_peer_tmp_key(ssl, &key) == 1;
  EVP_PKEY_free(key);
  return found;
}

// What a hello offers by psk_key_exchange_modes: "\1" is psk_dhe_ke, "\0" psk_ke.
int OnHello(SSL* ssl, int*, void* argument) {
  const unsigned char* body = nullptr;
  size_t bytes = 0;
  if (SSL_client_hello_get0_ext(ssl, TLSEXT_TYPE_psk_kex_modes, &body, &bytes) == 1) {
    static_cast<std::string*>(argument)->assign(reinterpret_cast<const char*>(body), bytes);
  }
  return SSL_CLIENT_HELLO_SUCCESS;
}

TEST_F(TlsOtherPeersTest, EveryHandshakeHasAnEphemeralExchangeWithATicketToo) {
  SecurityOptions open = Certified(Authority());
  open.require_client_certificate = false;
  Start(TlsRole::kServer, open);
  const ContextPtr context(SSL_CTX_new(TLS_client_method()));
  SessionPtr ticket;
  for (const bool again : {false, true}) {
    const SslPtr other(SSL_new(context.get()));
    SSL_set_fd(other.get(), theirs_.get());
    SSL_set_alpn_protos(other.get(), kWeft, sizeof(kWeft));
    if (again) {
      ASSERT_EQ(SSL_set_session(other.get(), ticket.get()), 1);
    }
    for (int i = 0; i < 10; ++i) {
      SSL_connect(other.get());
      stream_->Flush();
    }
    ExpectUp();
    EXPECT_EQ(SSL_session_reused(other.get()) == 1, again);
    EXPECT_TRUE(HasEphemeralKey(other.get()));
    char byte;
    EXPECT_LT(SSL_read(other.get(), &byte, 1), 0) << "there is a ticket, and nothing else";
    ticket.reset(SSL_get1_session(other.get()));
    SSL_set_shutdown(other.get(), SSL_SENT_SHUTDOWN | SSL_RECEIVED_SHUTDOWN);  // it is good still
    StartAgain();
  }
}

TEST_F(TlsOtherPeersTest, SoHasOneWithASharedSecret) {
  Start(TlsRole::kServer, WithPsk());
  OpensslPeer other(TlsRole::kClient, theirs_.get(), "fleet", WithPsk().psk_secret);
  for (int i = 0; i < 10; ++i) {
    other.Shake();
    stream_->Flush();
  }
  ExpectUp();
  EXPECT_TRUE(HasEphemeralKey(other.ssl()));
}

// A client that would do without (psk_ke), and has no group in common with us, so that there can be
// no exchange. A server that is told to permit it serves it: that shows what the client wants.
TEST_F(TlsOtherPeersTest, AServerTakesNoSecretWithoutAnExchange) {
  for (const bool permits : {true, false}) {
    Start(TlsRole::kServer, WithPsk());
    if (permits) {
      SSL_CTX_set_options(credentials_->Context(0), SSL_OP_ALLOW_NO_DHE_KEX);
      StartAgain();
    }
    OpensslPeer other(TlsRole::kClient, theirs_.get(), "fleet", WithPsk().psk_secret);
    SSL_set_options(other.ssl(), SSL_OP_ALLOW_NO_DHE_KEX);
    ASSERT_EQ(SSL_set1_groups_list(other.ssl(), "X448"), 1);
    for (int i = 0; i < 10; ++i) {
      other.Shake();
      stream_->Flush();
    }
    if (permits) {
      ExpectUp();
      EXPECT_FALSE(HasEphemeralKey(other.ssl()));
    } else {
      EXPECT_EQ(stream_->state(), TlsStream::State::kFailed) << "it has no exchange";
    }
  }
}

TEST_F(TlsOtherPeersTest, AClientOffersNoSecretWithoutAnExchange) {
  Start(TlsRole::kClient, WithPsk());
  OpensslPeer other(TlsRole::kServer, theirs_.get(), "fleet", WithPsk().psk_secret);
  std::string modes;
  SSL_CTX_set_client_hello_cb(SSL_get_SSL_CTX(other.ssl()), OnHello, &modes);
  for (int i = 0; i < 10; ++i) {
    stream_->Flush();
    other.Shake();
  }
  ExpectUp();
  EXPECT_EQ(modes, "\1\1") << "one mode, psk_dhe_ke";
}

// --- servers that speak something else -----------------------------------------------------------

// A server with a certificate that our client trusts, and no ALPN unless a test adds it.
ContextPtr OtherServer() {
  ContextPtr context(SSL_CTX_new(TLS_server_method()));
  const CertificateAndKey made = Authority().Sign({});
  const CertificatePtr certificate(
      PEM_read_bio_X509(OpenPem(made.certificate_pem).get(), nullptr, nullptr, nullptr));
  const KeyPtr key(PEM_read_bio_PrivateKey(OpenPem(made.key_pem).get(), nullptr, nullptr, nullptr));
  EXPECT_EQ(SSL_CTX_use_certificate(context.get(), certificate.get()), 1);
  EXPECT_EQ(SSL_CTX_use_PrivateKey(context.get(), key.get()), 1);
  return context;
}

// Agrees to the protocol that `protocol` names, with its length first, whatever the client offers.
int Agree(SSL*, const unsigned char** chosen, unsigned char* bytes, const unsigned char*,
          unsigned int, void* protocol) {
  const auto* const text = static_cast<const unsigned char*>(protocol);
  *bytes = text[0];
  *chosen = text + 1;
  return SSL_TLSEXT_ERR_OK;
}

class OtherServerTest : public TlsOtherPeersTest {
 protected:
  void Meet(const ContextPtr& context, const char* also_offered = nullptr) {
    Start(TlsRole::kClient, Certified(Authority()));
    if (also_offered != nullptr) {
      ASSERT_TRUE(stream_->AlsoOffer(also_offered).ok());
    }
    const SslPtr other(SSL_new(context.get()));
    SSL_set_fd(other.get(), theirs_.get());
    for (int i = 0; i < 10; ++i) {
      stream_->Flush();
      SSL_accept(other.get());
    }
    ERR_clear_error();
  }
};

// What the others here differ from.
TEST_F(OtherServerTest, OneThatSpeaksOurProtocolIsTaken) {
  const ContextPtr context = OtherServer();
  char ours[] = "\6weft/1";
  SSL_CTX_set_alpn_select_cb(context.get(), Agree, ours);
  Meet(context);
  ExpectUp();
}

TEST_F(OtherServerTest, OneThatKnowsNoAlpnIsRefused) {
  Meet(OtherServer());
  ExpectRefused(absl::StatusCode::kFailedPrecondition, "did not agree to the protocol weft/1");
}

// A client may offer a second name, which says no more than which engine it wants.
TEST_F(OtherServerTest, OneThatAgreesToAnotherNameOfTheHelloIsRefused) {
  const ContextPtr context = OtherServer();
  char engine[] = "\x0dweft-engine/3";
  SSL_CTX_set_alpn_select_cb(context.get(), Agree, engine);
  Meet(context, "weft-engine/3");
  ExpectRefused(absl::StatusCode::kFailedPrecondition, "did not agree to the protocol weft/1");
}

// Some releases of OpenSSL tell that by themselves, in words of theirs.
TEST_F(OtherServerTest, OneThatAgreesToWhatWasNotOfferedIsRefused) {
  const ContextPtr context = OtherServer();
  char http[] = "\2h2";
  SSL_CTX_set_alpn_select_cb(context.get(), Agree, http);
  Meet(context);
  EXPECT_EQ(stream_->state(), TlsStream::State::kFailed);
}

TEST_F(OtherServerTest, OneThatKnowsTls12AloneIsRefused) {
  const ContextPtr context = OtherServer();
  char ours[] = "\6weft/1";
  SSL_CTX_set_alpn_select_cb(context.get(), Agree, ours);
  ASSERT_EQ(SSL_CTX_set_max_proto_version(context.get(), TLS1_2_VERSION), 1);
  Meet(context);
  ExpectRefused(absl::StatusCode::kFailedPrecondition, "version");
}

}  // namespace
}  // namespace weft
