// A peer that has nothing of ours: OpenSSL with a pre-shared key, in either role, on its own end of
// a socket.
//
// Behind the handshake a test may leave it as it is, or take its secrets, and say with them what no
// honest peer says (tls_records.h).
//
// Threads: one at a time. Lifetime: the socket outlives it. Errors: this is for tests; what cannot
//   be set up is fatal.
#pragma once

#include <openssl/ssl.h>

#include <string>
#include <string_view>

#include "transport/tls/tls_credentials.h"
#include "transport/tls/tls_records.h"

namespace weft {

class OpensslPeer {
 public:
  // `fd`: a non-blocking socket. `tickets`: a server's, behind its handshake.
  OpensslPeer(TlsRole role, int fd, std::string psk_name, std::string psk_secret,
              size_t tickets = 0);
  ~OpensslPeer();
  OpensslPeer(const OpensslPeer&) = delete;
  OpensslPeer& operator=(const OpensslPeer&) = delete;

  // Goes on with the handshake; whether it is complete.
  bool Shake();
  // Whether all of it has been taken.
  bool Write(std::string_view text);
  // What there is now.
  std::string Read();
  // SSL_get_error() of the last call.
  int error() const { return error_; }

  SSL* ssl() { return ssl_; }
  const TlsTrafficSecrets& secrets() const { return secrets_; }

 private:
  static void OnKeyLog(const SSL* ssl, const char* line);
  static int OnUsePsk(SSL* ssl, const EVP_MD*, const unsigned char** name, size_t* name_bytes,
                      SSL_SESSION** session);
  static int OnFindPsk(SSL* ssl, const unsigned char* name, size_t name_bytes,
                       SSL_SESSION** session);
  SSL_SESSION* MakeSession();

  const std::string psk_name_;
  const std::string psk_secret_;
  SSL_CTX* const context_;
  SSL* ssl_ = nullptr;
  TlsTrafficSecrets secrets_;
  int error_ = SSL_ERROR_NONE;
};

}  // namespace weft
