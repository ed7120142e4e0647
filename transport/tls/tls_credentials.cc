#include "transport/tls/tls_credentials.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/sha.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <iterator>
#include <tuple>
#include <utility>

#include "core/log.h"
#include "core/secret.h"
#include "core/status.h"
#include "core/strings.h"
#include "transport/pem.h"
#include "transport/read_file.h"
#include "transport/tls/kernel_tls.h"
#include "transport/tls/tls_errors.h"
#include "transport/tls/tls_stream.h"

namespace weft {
namespace {

constexpr char kSuites[] =
    "TLS_AES_256_GCM_SHA384:TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256";
// A client chooses among them, and a server pays: with OpenSSL's own list that is up to 120 ms
// (ffdhe8192) for a hello that was recorded and sent again. These take 0.5 to 2.4 ms.
constexpr char kGroups[] = "X25519:P-256:P-384";
constexpr char kPskSuite[] = "TLS_AES_256_GCM_SHA384";
constexpr unsigned char kPskSuiteNumber[2] = {0x13, 0x02};
constexpr unsigned char kAlpn[] = {6, 'w', 'e', 'f', 't', '/', '1'};
// OpenSSL's limit for a chain: four certificates with RSA keys of 4,096 bits have half of it. What
// a stranger shows is kept as it was understood, in up to 25 times the memory.
constexpr long kMaxChainBytes = long{16} << 10;

// Of a context's tickets: a name, and a key each to authenticate and to encrypt them (OpenSSL 3 has
// 80 bytes).
constexpr size_t kMostTicketKeyBytes = 128;

using CertificatePtr = std::unique_ptr<X509, Freer<X509_free>>;
using KeyPtr = std::unique_ptr<EVP_PKEY, Freer<EVP_PKEY_free>>;
using NamesPtr = std::unique_ptr<GENERAL_NAMES, Freer<GENERAL_NAMES_free>>;

const TlsCredentials& CredentialsOf(SSL* ssl) {
  return *static_cast<const TlsCredentials*>(SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl)));
}

absl::Status WrongContent(std::string_view what, const std::string& file) {
  return absl::InvalidArgumentError(
      StrCat("TLS: ", what, file.empty() ? " in memory" : " in ", file, ": ", TakeTlsErrors()));
}

// Where a file is named, its content; otherwise `pem`.
absl::StatusOr<std::string> ReadPem(const std::string& file, const std::string& pem) {
  if (file.empty()) return pem;
  absl::StatusOr<std::string> text = ReadRegularFile(file, TlsCredentials::kMaxPemBytes, file);
  if (!text.ok()) return Annotate(text.status(), "TLS");
  return text;
}

// A reader of PEM blocks has come to the end of the text, and not to a broken block.
bool AtEnd() {
  const unsigned long error = ERR_peek_last_error();
  if (ERR_GET_LIB(error) != ERR_LIB_PEM || ERR_GET_REASON(error) != PEM_R_NO_START_LINE) {
    return false;
  }
  ERR_clear_error();
  return true;
}

bool HasUri(const X509* certificate, const std::string& uri) {
  const NamesPtr names(static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr)));
  for (int i = 0; names != nullptr && i < sk_GENERAL_NAME_num(names.get()); ++i) {
    const GENERAL_NAME* const name = sk_GENERAL_NAME_value(names.get(), i);
    if (name->type != GEN_URI) continue;
    const ASN1_STRING* const text = name->d.uniformResourceIdentifier;
    if (std::string_view(reinterpret_cast<const char*>(ASN1_STRING_get0_data(text)),
                         static_cast<size_t>(ASN1_STRING_length(text))) == uri) {
      return true;
    }
  }
  return false;
}

// --- OpenSSL's calls -----------------------------------------------------------------------------

int OnVerify(int accepted, X509_STORE_CTX* store) {
  if (accepted == 0 || X509_STORE_CTX_get_error_depth(store) != 0) return accepted;
  SSL* const ssl =
      static_cast<SSL*>(X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx()));
  const std::string& uri = CredentialsOf(ssl).options().expected_uri;
  if (uri.empty() || HasUri(X509_STORE_CTX_get_current_cert(store), uri)) return 1;
  X509_STORE_CTX_set_error(store, X509_V_ERR_APPLICATION_VERIFICATION);
  return 0;
}

int OnAlpn(SSL*, const unsigned char** chosen, unsigned char* chosen_bytes,
           const unsigned char* offered, unsigned int offered_bytes, void*) {
  for (unsigned int i = 0; i < offered_bytes; i += 1u + offered[i]) {
    const unsigned int rest = offered_bytes - i;
    if (rest < sizeof(kAlpn) || !std::equal(kAlpn, kAlpn + sizeof(kAlpn), offered + i)) continue;
    *chosen = offered + i + 1;
    *chosen_bytes = kAlpn[0];
    return SSL_TLSEXT_ERR_OK;
  }
  return SSL_TLSEXT_ERR_ALERT_FATAL;
}

const TlsKey& KeyOf(SSL* ssl) {
  return static_cast<const TlsStream*>(SSL_get_app_data(ssl))->key();
}

// The pre-shared key in the form that OpenSSL wants; null: no memory.
SSL_SESSION* PskSession(SSL* ssl) {
  const ByteSpan secret = KeyOf(ssl).secret;
  const SSL_CIPHER* const suite = SSL_CIPHER_find(ssl, kPskSuiteNumber);
  SSL_SESSION* const session = SSL_SESSION_new();
  if (session == nullptr || suite == nullptr ||
      SSL_SESSION_set1_master_key(session, reinterpret_cast<const unsigned char*>(secret.data()),
                                  secret.size()) != 1 ||
      SSL_SESSION_set_cipher(session, suite) != 1 ||
      SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) != 1) {
    SSL_SESSION_free(session);
    return nullptr;
  }
  return session;
}

int OnUsePsk(SSL* ssl, const EVP_MD*, const unsigned char** name, size_t* name_bytes,
             SSL_SESSION** session) {
  const std::string_view own = KeyOf(ssl).name;
  *name = reinterpret_cast<const unsigned char*>(own.data());
  *name_bytes = own.size();
  *session = PskSession(ssl);
  return *session == nullptr ? 0 : 1;
}

// A name that is not ours is no error here: the handshake goes on without a key, and fails.
int OnFindPsk(SSL* ssl, const unsigned char* name, size_t name_bytes, SSL_SESSION** session) {
  *session = nullptr;
  const std::string_view offered(reinterpret_cast<const char*>(name), name_bytes);
  if (offered != KeyOf(ssl).name) return 1;
  *session = PskSession(ssl);
  return *session == nullptr ? 0 : 1;
}

}  // namespace

void TlsCredentials::ContextDeleter::operator()(ssl_ctx_st* context) const {
  SSL_CTX_free(context);
}
void TlsCredentials::SessionDeleter::operator()(ssl_session_st* session) const {
  SSL_SESSION_free(session);
}

TlsCredentials::Texts::~Texts() { Wipe(&key); }

TlsCredentials::~TlsCredentials() = default;

absl::StatusOr<std::unique_ptr<TlsCredentials>> TlsCredentials::Create(
    TlsRole role, const SecurityOptions& options) {
  std::unique_ptr<TlsCredentials> self(new TlsCredentials(role, options));
  WEFT_RETURN_IF_ERROR(self->CheckOptions());
  if (options.kernel_tls) (void)AskKernelForTls();  // now, and not within the first handshake
  self->LookAtFiles();  // before they are read: a later change is seen later
  Texts texts;
  WEFT_RETURN_IF_ERROR(self->Read(&texts));
  self->read_ = DigestOf(texts);
  WEFT_ASSIGN_OR_RETURN(self->context_, self->Build(texts));
  return self;
}

absl::StatusOr<std::unique_ptr<TlsCredentials>> TlsCredentials::CreateForKeys(TlsRole role) {
  std::unique_ptr<TlsCredentials> self(new TlsCredentials(role, {}));
  self->has_stream_keys_ = true;
  const Texts none;
  self->read_ = DigestOf(none);
  WEFT_ASSIGN_OR_RETURN(self->context_, self->Build(none));
  return self;
}

absl::Status TlsCredentials::CheckOptions() const {
  const SecurityOptions& o = options_;
  const auto wrong = [](const auto&... parts) {
    return absl::InvalidArgumentError(StrCat("SecurityOptions: ", parts...));
  };
  const bool has_certificate = !o.certificate_file.empty() || !o.certificate_pem.empty();
  const bool has_key = !o.key_file.empty() || !o.key_pem.empty();
  const bool has_roots = !o.roots_file.empty() || !o.roots_pem.empty();
  if ((!o.certificate_file.empty() && !o.certificate_pem.empty()) ||
      (!o.key_file.empty() && !o.key_pem.empty()) ||
      (!o.roots_file.empty() && !o.roots_pem.empty())) {
    return wrong("a file and a text are given for the same thing; give one of them");
  }
  if (o.psk_name.empty() != o.psk_secret.empty()) {
    return wrong("psk_name and psk_secret belong together");
  }
  if (uses_psk()) {
    if (has_certificate || has_key || has_roots || !o.expected_uri.empty()) {
      return wrong("a pre-shared key takes the place of certificates; give one of the two");
    }
    if (o.psk_secret.size() < kMinPskBytes || o.psk_secret.size() > kMaxPskBytes) {
      return wrong("psk_secret has ", o.psk_secret.size(), " bytes; it must have ", kMinPskBytes,
                   "..", kMaxPskBytes);
    }
    if (o.psk_name.size() > kMaxPskNameBytes) {
      return wrong("psk_name has ", o.psk_name.size(), " bytes; at most ", kMaxPskNameBytes);
    }
    return absl::OkStatus();
  }
  if (has_certificate != has_key) return wrong("a certificate and its key belong together");
  if (role_ == TlsRole::kServer && !has_certificate) {
    return wrong("a server needs a certificate and its key, or a pre-shared key");
  }
  if (role_ == TlsRole::kServer && !has_roots &&
      (o.require_client_certificate || !o.expected_uri.empty())) {
    return wrong(
        "clients' certificates are required, so roots_file or roots_pem must say who may "
        "sign them (or set require_client_certificate = false)");
  }
  if (role_ == TlsRole::kServer && !o.require_client_certificate && !o.expected_uri.empty()) {
    return wrong("expected_uri asks for a certificate, but require_client_certificate is false");
  }
  return absl::OkStatus();
}

absl::Status TlsCredentials::Read(Texts* texts) const {
  const auto read = [](const std::string& file, const std::string& pem, std::string* to) {
    absl::StatusOr<std::string> text = ReadPem(file, pem);
    if (text.ok()) to->swap(*text);
    return text.status();
  };
  WEFT_RETURN_IF_ERROR(
      read(options_.certificate_file, options_.certificate_pem, &texts->certificate));
  WEFT_RETURN_IF_ERROR(read(options_.key_file, options_.key_pem, &texts->key));
  return read(options_.roots_file, options_.roots_pem, &texts->roots);
}

TlsCredentials::Digest TlsCredentials::DigestOf(const Texts& texts) {
  Digest all[3];
  const std::string* const each[] = {&texts.certificate, &texts.key, &texts.roots};
  for (size_t i = 0; i < std::size(each); ++i) {
    SHA256(reinterpret_cast<const unsigned char*>(each[i]->data()), each[i]->size(),
           reinterpret_cast<unsigned char*>(all[i].data()));
  }
  Digest digest;
  SHA256(reinterpret_cast<const unsigned char*>(all), sizeof(all),
         reinterpret_cast<unsigned char*>(digest.data()));
  return digest;
}

absl::StatusOr<TlsCredentials::ContextPtr> TlsCredentials::Build(const Texts& texts) {
  ERR_clear_error();
  ContextPtr made(SSL_CTX_new(TLS_method()));
  SSL_CTX* const context = made.get();
  if (context == nullptr || SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) != 1 ||
      SSL_CTX_set_max_proto_version(context, TLS1_3_VERSION) != 1 ||
      SSL_CTX_set_ciphersuites(context, uses_psk() ? kPskSuite : kSuites) != 1 ||
      // A client compares it with its key's, which has none.
      (!(uses_psk() && role_ == TlsRole::kClient) &&
       SSL_CTX_set_session_id_context(context, kAlpn, sizeof(kAlpn)) != 1) ||
      SSL_CTX_set1_groups_list(context, kGroups) != 1 ||
      SSL_CTX_set_alpn_protos(context, kAlpn, sizeof(kAlpn)) != 0) {
    return absl::InternalError(StrCat("TLS: OpenSSL cannot be set up: ", TakeTlsErrors()));
  }
  SSL_CTX_set_app_data(context, this);
  SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
#ifdef SSL_OP_NO_RX_CERTIFICATE_COMPRESSION  // since OpenSSL 3.2
  // Certificates are counted as they come (TlsStream::kMaxCertificates).
  SSL_CTX_set_options(context, SSL_OP_NO_RX_CERTIFICATE_COMPRESSION);
#endif
  // There may be thousands of streams: of those that are still, OpenSSL keeps no buffers.
  SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_max_cert_list(context, kMaxChainBytes);
  SSL_CTX_set_alpn_select_cb(context, OnAlpn, nullptr);
  SSL_CTX_set_timeout(context, kSessionSeconds);
  const bool is_client = role_ == TlsRole::kClient;
  // Servers keep nothing for tickets; clients keep them in sessions_.
  SSL_CTX_set_session_cache_mode(context, is_client && !uses_psk()
                                              ? SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL
                                              : SSL_SESS_CACHE_OFF);
  SSL_CTX_set_num_tickets(context, uses_psk() ? 0 : 1);
  if (uses_psk()) {
    SSL_CTX_set_options(context, SSL_OP_NO_TICKET);
    SSL_CTX_set_psk_use_session_callback(context, OnUsePsk);
    SSL_CTX_set_psk_find_session_callback(context, OnFindPsk);
    // A server that answers with a certificate does not know the key, and there are no roots.
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, OnVerify);
    return made;
  }
  WEFT_RETURN_IF_ERROR(AddCertificate(context, texts));
  WEFT_RETURN_IF_ERROR(AddRoots(context, texts));
  const bool has_roots = !options_.roots_file.empty() || !options_.roots_pem.empty();
  int verify = SSL_VERIFY_PEER;
  if (!is_client && options_.require_client_certificate) verify |= SSL_VERIFY_FAIL_IF_NO_PEER_CERT;
  if (!is_client && !has_roots) verify = SSL_VERIFY_NONE;
  SSL_CTX_set_verify(context, verify, OnVerify);
  return made;
}

absl::Status TlsCredentials::AddCertificate(ssl_ctx_st* context, const Texts& texts) const {
  if (options_.certificate_file.empty() && options_.certificate_pem.empty()) {
    return absl::OkStatus();
  }
  const std::string& file = options_.certificate_file;
  const BioPtr certificates = OpenPem(texts.certificate);
  const CertificatePtr own(PEM_read_bio_X509(certificates.get(), nullptr, NoPassword, nullptr));
  if (own == nullptr || SSL_CTX_use_certificate(context, own.get()) != 1) {
    return WrongContent("the certificate", file);
  }
  while (X509* const issuer = PEM_read_bio_X509(certificates.get(), nullptr, NoPassword, nullptr)) {
    if (SSL_CTX_add0_chain_cert(context, issuer) != 1) {
      X509_free(issuer);
      return WrongContent("an intermediate certificate", file);
    }
  }
  if (!AtEnd()) return WrongContent("an intermediate certificate", file);

  const KeyPtr key(PEM_read_bio_PrivateKey(OpenPem(texts.key).get(), nullptr, NoPassword, nullptr));
  if (key == nullptr || SSL_CTX_use_PrivateKey(context, key.get()) != 1 ||
      SSL_CTX_check_private_key(context) != 1) {
    return WrongContent("the private key", options_.key_file);
  }
  return absl::OkStatus();
}

absl::Status TlsCredentials::AddRoots(ssl_ctx_st* context, const Texts& texts) const {
  if (options_.roots_file.empty() && options_.roots_pem.empty()) {
    if (role_ == TlsRole::kClient && SSL_CTX_set_default_verify_paths(context) != 1) {
      return absl::InternalError(StrCat("TLS: the system's trust roots: ", TakeTlsErrors()));
    }
    return absl::OkStatus();
  }
  const BioPtr roots = OpenPem(texts.roots);
  int count = 0;
  while (const CertificatePtr root{PEM_read_bio_X509(roots.get(), nullptr, NoPassword, nullptr)}) {
    if (X509_STORE_add_cert(SSL_CTX_get_cert_store(context), root.get()) != 1) {
      return WrongContent("a trust root", options_.roots_file);
    }
    ++count;
  }
  if (count == 0 || !AtEnd()) return WrongContent("the trust roots", options_.roots_file);
  return absl::OkStatus();
}

// --- files that change ---------------------------------------------------------------------------

// Whether one has changed since the last look.
bool TlsCredentials::LookAtFiles() {
  const std::string* const files[] = {&options_.certificate_file, &options_.key_file,
                                      &options_.roots_file};
  static_assert(std::tuple_size_v<decltype(stamps_)> == std::size(files));
  bool changed = false;
  for (size_t i = 0; i < std::size(files); ++i) {
    if (!files[i]->empty() && LookForChange(*files[i], &stamps_[i])) changed = true;
  }
  return changed;
}

ssl_ctx_st* TlsCredentials::Context(uint64_t now_ns) {
  if (now_ns - checked_ns_ < kCheckIntervalNs) return context_.get();
  checked_ns_ = now_ns;
  if (built_ns_ == 0) built_ns_ = now_ns;
  const bool changed = LookAtFiles();
  // Tickets are of one context: with a new one each hour nobody comes in by tickets alone for
  // longer.
  const bool is_old = now_ns - built_ns_ >= kSessionSeconds * uint64_t{1'000'000'000};
  if (!changed && !is_old) return context_.get();
  Texts texts;
  const absl::Status status = Read(&texts);
  // What does not come of what stands there may pass: it is read again.
  if (!status.ok() && !absl::IsInvalidArgument(status)) stamps_ = {};
  absl::StatusOr<Digest> read = status.ok() ? absl::StatusOr<Digest>(DigestOf(texts)) : status;
  // Files that cannot be used are not tried again before they change.
  if (read == read_ && !is_old) return context_.get();
  read_ = std::move(read);
  absl::StatusOr<ContextPtr> made = status.ok() ? Build(texts) : status;
  if (made.ok() || is_old) built_ns_ = now_ns;
  if (!made.ok()) {
    WEFT_LOG(kError, "changed TLS files cannot be used, the old ones stay in use: ",
             ToStd(made.status().message()));
    if (is_old) EndTickets();
    return context_.get();
  }
  context_ = *std::move(made);
  sessions_.clear();  // of peers that may not be trusted any more
  return context_.get();
}

// As with a new context, where there can be none.
void TlsCredentials::EndTickets() {
  sessions_.clear();
  SecretBytes<kMostTicketKeyBytes> keys;
  const long bytes = SSL_CTX_get_tlsext_ticket_keys(context_.get(), nullptr, 0);
  const bool are_made =
      bytes > 0 && static_cast<size_t>(bytes) <= keys.size() &&
      RAND_bytes(reinterpret_cast<unsigned char*>(keys.data()), static_cast<int>(bytes)) == 1 &&
      SSL_CTX_set_tlsext_ticket_keys(context_.get(), keys.data(), bytes) == 1;
  if (are_made) return;
  WEFT_LOG(kError, "TLS: there are no new keys for tickets, so that no more are given or taken: ",
           TakeTlsErrors());
  SSL_CTX_set_options(context_.get(), SSL_OP_NO_TICKET);
}

// --- sessions ------------------------------------------------------------------------------------

ssl_session_st* TlsCredentials::Session(const std::string& server) const {
  const auto found =
      std::find_if(sessions_.begin(), sessions_.end(),
                   [&server](const Remembered& known) { return known.server == server; });
  return found == sessions_.end() ? nullptr : found->session.get();
}

void TlsCredentials::KeepSession(const std::string& server, const ssl_ctx_st* context,
                                 ssl_session_st* session) {
  if (context != context_.get()) return SSL_SESSION_free(session);
  std::erase_if(sessions_, [&server](const Remembered& known) { return known.server == server; });
  if (sessions_.size() == kMaxSessions) sessions_.erase(sessions_.begin());
  sessions_.push_back({server, {}});
  sessions_.back().session.reset(session);
}

}  // namespace weft
