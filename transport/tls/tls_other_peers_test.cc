// Peers of a TlsStream that have nothing of ours, and do less than ours would: clients and servers
// of OpenSSL's own, which the tests set up by hand.

#include <gtest/gtest.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
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

// --- what certificates may be --------------------------------------------------------------------

std::string PemOf(const std::function<int(BIO*)>& write) {
  const std::unique_ptr<BIO, Freer<BIO_free_all>> out(BIO_new(BIO_s_mem()));
  EXPECT_EQ(write(out.get()), 1);
  char* data = nullptr;
  const long bytes = BIO_get_mem_data(out.get(), &data);
  return std::string(data, static_cast<size_t>(bytes));
}

// A certificate that signs itself, with so many names, and so many extensions that nobody knows.
SecurityOptions SelfSigned(int names, int extensions) {
  const KeyPtr key(EVP_EC_gen("P-256"));
  const CertificatePtr made(X509_new());
  X509_set_version(made.get(), X509_VERSION_3);
  X509_gmtime_adj(X509_getm_notBefore(made.get()), -3600);
  X509_gmtime_adj(X509_getm_notAfter(made.get()), 3600);
  X509_set_pubkey(made.get(), key.get());
  X509_NAME_add_entry_by_txt(X509_get_subject_name(made.get()), "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>("large"), -1, -1, 0);
  X509_set_issuer_name(made.get(), X509_get_subject_name(made.get()));
  const std::unique_ptr<GENERAL_NAMES, Freer<GENERAL_NAMES_free>> all(GENERAL_NAMES_new());
  for (int i = 0; i < names; ++i) {
    ASN1_IA5STRING* const text = ASN1_IA5STRING_new();
    ASN1_STRING_set(text, i == 0 ? "localhost" : "a", -1);
    GENERAL_NAME* const name = GENERAL_NAME_new();
    GENERAL_NAME_set0_value(name, GEN_DNS, text);
    sk_GENERAL_NAME_push(all.get(), name);
  }
  X509_add1_ext_i2d(made.get(), NID_subject_alt_name, all.get(), 0, 0);
  const std::unique_ptr<ASN1_OCTET_STRING, Freer<ASN1_OCTET_STRING_free>> nothing(
      ASN1_OCTET_STRING_new());
  for (int i = 0; i < extensions; ++i) {
    const std::string number = "1.2.3." + std::to_string(i);
    const std::unique_ptr<ASN1_OBJECT, Freer<ASN1_OBJECT_free>> kind(
        OBJ_txt2obj(number.c_str(), 1));
    const std::unique_ptr<X509_EXTENSION, Freer<X509_EXTENSION_free>> extension(
        X509_EXTENSION_create_by_OBJ(nullptr, kind.get(), 0, nothing.get()));
    X509_add_ext(made.get(), extension.get(), -1);
  }
  X509_sign(made.get(), key.get(), EVP_sha256());
  SecurityOptions options;
  options.certificate_pem = PemOf([&](BIO* out) { return PEM_write_bio_X509(out, made.get()); });
  options.key_pem = PemOf([&](BIO* out) {
    return PEM_write_bio_PKCS8PrivateKey(out, key.get(), nullptr, nullptr, 0, nullptr, nullptr);
  });
  return options;
}

// What our side says of a peer that shows what `theirs` has, and takes whatever ours shows.
absl::Status ErrorOf(TlsRole role, SecurityOptions ours, SecurityOptions theirs) {
  int fds[2] = {-1, -1};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
  const Descriptor near(fds[0]), far(fds[1]);
  const bool is_client = role == TlsRole::kClient;
  const auto own = *TlsCredentials::Create(role, ours);
  const auto other =
      *TlsCredentials::Create(is_client ? TlsRole::kServer : TlsRole::kClient, theirs);
  TlsScratch scratch;
  TlsStream stream(near.get()), peer(far.get());
  EXPECT_TRUE(stream.Start(own.get(), &scratch, 0, "localhost").ok());
  EXPECT_TRUE(peer.Start(other.get(), &scratch, 0, "localhost").ok());
  for (int i = 0; i < 10; ++i) {
    stream.Flush();
    peer.Flush();
  }
  EXPECT_NE(stream.state(), TlsStream::State::kHandshake);
  return stream.error();
}

constexpr TlsRole kBothRoles[] = {TlsRole::kClient, TlsRole::kServer};

// OpenSSL reads the key of each before it looks at a signature: 131 of them, which a stranger had
// made by himself, took 40 ms of an engine's turn.
TEST(TlsCertificatesTest, MoreThanAnybodyNeedsAreNotRead) {
  for (const TlsRole role : kBothRoles) {
    SecurityOptions peer = Certified(Authority());
    for (int i = 1; i < TlsStream::kMaxCertificates; ++i) {
      peer.certificate_pem += Authority().certificate_pem();
    }
    EXPECT_EQ(ErrorOf(role, Certified(Authority()), peer), absl::OkStatus());
    peer.certificate_pem += Authority().certificate_pem();
    EXPECT_EQ(ErrorOf(role, Certified(Authority()), peer),
              absl::UnauthenticatedError("TLS: the peer shows more than 8 certificates"));
  }
}

// Each name takes part in each decision about a peer's calls, and in each line of the log.
TEST(TlsCertificatesTest, MoreNamesThanAuthoritiesGiveAreRefused) {
  for (const TlsRole role : kBothRoles) {
    for (const int more : {0, 1}) {
      const int names = static_cast<int>(TlsStream::kMaxNames) + more;
      SecurityOptions peer = SelfSigned(names, 0);
      SecurityOptions ours = Certified(Authority());
      ours.roots_pem = peer.certificate_pem;
      peer.roots_pem = Authority().certificate_pem();
      const absl::Status said = ErrorOf(role, ours, peer);
      EXPECT_EQ(said, more == 0 ? absl::OkStatus()
                                : absl::UnauthenticatedError(
                                      "TLS: the peer's certificate has 257 names; at most 256 "
                                      "are accepted"));
    }
  }
}

// OpenSSL keeps them for as long as the peer is connected: 4,000 in one certificate that the peer
// has added to its own were 0.6 MB.
TEST(TlsCertificatesTest, MoreExtensionsThanAuthoritiesGiveAreRefusedInWhateverIsShown) {
  for (const TlsRole role : kBothRoles) {
    for (const int extensions : {20, TlsStream::kMaxExtensions + 1}) {
      SecurityOptions peer = Certified(Authority());
      peer.certificate_pem += SelfSigned(1, extensions).certificate_pem;
      const absl::Status said = ErrorOf(role, Certified(Authority()), peer);
      EXPECT_EQ(said.ok(), extensions == 20) << said;
      if (said.ok()) continue;
      EXPECT_EQ(said, absl::UnauthenticatedError("TLS: a certificate of the peer's has 66 "
                                                 "extensions; at most 64 are accepted"));
    }
  }
}

}  // namespace
}  // namespace weft
