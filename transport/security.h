// What a side of a connection proves of itself, and what it wants to see of the other.
//
// Either certificates (`certificate...`, `key...`, `roots...`), or a secret that both sides have
// (`psk...`), not both. Each of the PEM texts is given as a file or as the text itself. Files are
// watched: a changed file takes effect with the next handshake, at the latest a second later.
//
// Threads: a plain value. Lifetime: keys and secrets of it are wiped when it goes, and when others
// are assigned.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

namespace weft {

// Of a pre-shared secret, in bytes: one that cannot be guessed, out of a random generator. It is
// not for passwords, which are.
inline constexpr size_t kMinPskBytes = 32;
inline constexpr size_t kMaxPskBytes = 256;      // what OpenSSL stores for one
inline constexpr size_t kMaxPskNameBytes = 128;  // a name, not a document

// A key or a secret: its memory is wiped when it goes, and what it was when it is assigned to. What
// it was before it grew otherwise (by append(), reserve()) is not.
class SecretString : public std::string {
 public:
  SecretString() = default;
  // It is the text, and takes over the memory of a long one.
  SecretString(std::string text) : std::string(std::move(text)) {}  // NOLINT
  SecretString(std::string_view text) : std::string(text) {}        // NOLINT
  SecretString(const char* text) : std::string(text) {}             // NOLINT
  SecretString(const SecretString&) = default;
  SecretString& operator=(SecretString other) noexcept {
    swap(other);
    return *this;
  }
  ~SecretString();
};

struct SecurityOptions {
  // The own certificate first, then the intermediate ones. A server needs one; so does a client of
  // a server that requires it, as servers do by default. A file and a text of the same thing is
  // INVALID_ARGUMENT.
  std::string certificate_file = {};
  std::string certificate_pem = {};
  std::string key_file = {};  // not encrypted: the file's permissions protect it
  SecretString key_pem = {};

  // Who may sign the other side's certificate. A client without any trusts the system's.
  std::string roots_file = {};
  std::string roots_pem = {};

  // Servers: clients without a certificate are refused. When false one is asked for if there are
  // roots to check it against, and a client without one is Authentication::kNone.
  bool require_client_certificate = true;

  // Clients: the name that the server's certificate must have, in the place of the host of its
  // address. A DNS name or a numeric address.
  std::string server_name = {};
  // The URI that the peer's certificate must have among its alternative names, such as
  // "spiffe://example.org/store". A client that wants one does not look at the host's name, unless
  // `server_name` is set as well.
  std::string expected_uri = {};

  // Memory of the other side is not read or written by a card in the clear: over verbs and ofi_tcp
  // there are no one-sided operations then, and no leases on exports; payloads travel sealed, as
  // messages do in any case. Either side's word is enough. Shared memory does not leave the host.
  bool require_encryption = false;

  // Links over tcp: the kernel makes and opens the records of TLS (kTLS), where it can: Linux 6.14
  // or newer with CONFIG_TLS, and the module `tls` loaded. Elsewhere Weft does, as without this,
  // and says why in the log, and by `weft explain`. It is the same TLS on the wire, and each side's
  // own choice. Without a card that encrypts it is the same work in another place, and a hostile
  // peer can hold up the engine for longer (docs/security.md, "What does not hold"). No card has
  // been tried: where one makes the records, and does not take another key, a link ends after 2^24
  // records, and is made anew.
  bool kernel_tls = false;

  // A name that is no secret, and a secret of kMinPskBytes or more. Both sides need the same.
  std::string psk_name = {};
  SecretString psk_secret = {};

  bool operator==(const SecurityOptions&) const = default;
};

}  // namespace weft
