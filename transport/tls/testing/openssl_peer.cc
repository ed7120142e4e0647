#include "transport/tls/testing/openssl_peer.h"

#include <openssl/err.h>

#include <utility>

#include "core/check.h"

namespace weft {
namespace {

constexpr unsigned char kSuite[2] = {0x13, 0x02};  // TLS_AES_256_GCM_SHA384
constexpr unsigned char kProtocols[] = {6, 'w', 'e', 'f', 't', '/', '1'};

int OnAlpn(SSL*, const unsigned char** chosen, unsigned char* bytes, const unsigned char*,
           unsigned int, void*) {
  *chosen = kProtocols + 1;
  *bytes = kProtocols[0];
  return SSL_TLSEXT_ERR_OK;
}

}  // namespace

OpensslPeer::OpensslPeer(TlsRole role, int fd, std::string psk_name, std::string psk_secret,
                         size_t tickets)
    : psk_name_(std::move(psk_name)),
      psk_secret_(std::move(psk_secret)),
      context_(SSL_CTX_new(TLS_method())) {
  WEFT_CHECK(context_ != nullptr);  // System: memory
  SSL_CTX_set_keylog_callback(context_, OnKeyLog);
  SSL_CTX_set_psk_use_session_callback(context_, OnUsePsk);
  SSL_CTX_set_psk_find_session_callback(context_, OnFindPsk);
  SSL_CTX_set_alpn_protos(context_, kProtocols, sizeof(kProtocols));
  SSL_CTX_set_alpn_select_cb(context_, OnAlpn, nullptr);
  SSL_CTX_set_num_tickets(context_, tickets);
  // What is written again may lie somewhere else.
  SSL_CTX_set_mode(context_, SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  if (role == TlsRole::kServer) SSL_CTX_set_session_id_context(context_, kProtocols, 7);
  ssl_ = SSL_new(context_);
  WEFT_CHECK(ssl_ != nullptr && SSL_set_fd(ssl_, fd) == 1);  // System: memory
  SSL_set_app_data(ssl_, this);
  if (role == TlsRole::kClient) {
    SSL_set_connect_state(ssl_);
  } else {
    SSL_set_accept_state(ssl_);
  }
}

OpensslPeer::~OpensslPeer() {
  SSL_free(ssl_);
  SSL_CTX_free(context_);
  ERR_clear_error();
}

void OpensslPeer::OnKeyLog(const SSL* ssl, const char* line) {
  static_cast<OpensslPeer*>(SSL_get_app_data(ssl))->secrets_.Note(line);
}

SSL_SESSION* OpensslPeer::MakeSession() {
  SSL_SESSION* const session = SSL_SESSION_new();
  SSL_SESSION_set1_master_key(session, reinterpret_cast<const unsigned char*>(psk_secret_.data()),
                              psk_secret_.size());
  SSL_SESSION_set_cipher(session, SSL_CIPHER_find(ssl_, kSuite));
  SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION);
  return session;
}

int OpensslPeer::OnUsePsk(SSL* ssl, const EVP_MD*, const unsigned char** name, size_t* name_bytes,
                          SSL_SESSION** session) {
  auto* const peer = static_cast<OpensslPeer*>(SSL_get_app_data(ssl));
  *name = reinterpret_cast<const unsigned char*>(peer->psk_name_.data());
  *name_bytes = peer->psk_name_.size();
  *session = peer->MakeSession();
  return 1;
}

int OpensslPeer::OnFindPsk(SSL* ssl, const unsigned char*, size_t, SSL_SESSION** session) {
  *session = static_cast<OpensslPeer*>(SSL_get_app_data(ssl))->MakeSession();
  return 1;
}

bool OpensslPeer::Shake() {
  ERR_clear_error();
  const int result = SSL_do_handshake(ssl_);
  error_ = SSL_get_error(ssl_, result);
  return result == 1;
}

bool OpensslPeer::Write(std::string_view text) {
  ERR_clear_error();
  const int result = SSL_write(ssl_, text.data(), static_cast<int>(text.size()));
  error_ = SSL_get_error(ssl_, result);
  return result == static_cast<int>(text.size());
}

std::string OpensslPeer::Read() {
  std::string all;
  for (;;) {
    char bytes[5000];
    ERR_clear_error();
    const int result = SSL_read(ssl_, bytes, sizeof(bytes));
    error_ = SSL_get_error(ssl_, result);
    if (result <= 0) return all;
    all.append(bytes, static_cast<size_t>(result));
  }
}

}  // namespace weft
