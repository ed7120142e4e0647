// What one side brings to its TLS handshakes, made of SecurityOptions, and kept as new as the files
// are; or what streams share that each bring a key of their own.
//
//   protocol     TLS 1.3 only; ALPN "weft/1" on both sides, or the handshake fails
//   suites       TLS_AES_256_GCM_SHA384, TLS_AES_128_GCM_SHA256, TLS_CHACHA20_POLY1305_SHA256;
//                with a pre-shared key the first only, whose hash the key is bound to
//   resumption   by tickets, with certificates; never early data, which can be replayed
//   checks       of the peer's chain against the roots; of the server's alternative names (the
//                subject's CN is never looked at) against its host; of the expected URI
//
// A pre-shared key is used with an ephemeral key exchange (psk_dhe_ke): what was sent stays secret
// when the key becomes known later. OpenSSL 3 accepts psk_ke only where it is told to.
//
// The files are looked at (stat(2)) when a handshake begins, at most once in kCheckIntervalNs. New
// ones that cannot be used change nothing: the old credentials stay, and the log says why, once in
// kSessionSeconds: so often a new context is made in any case, which ends all tickets of the old
// one. A file that has just changed is read again with the next look (file_stamp.h); where the same
// stands in it, nothing is made anew.
//
// Threads: one engine's. Lifetime: it outlives the streams that were started with it.
// Errors: INVALID_ARGUMENT for options that do not fit together; NOT_FOUND, PERMISSION_DENIED, ...
//   for a file that cannot be read; INVALID_ARGUMENT for one whose content is wrong, with the
//   file's name and OpenSSL's reason.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transport/file_stamp.h"
#include "transport/security.h"

struct ssl_ctx_st;      // OpenSSL's SSL_CTX
struct ssl_session_st;  // OpenSSL's SSL_SESSION

namespace weft {

enum class TlsRole : uint8_t { kClient = 1, kServer = 2 };

class TlsCredentials {
 public:
  // Certificates live for hours at least; a second costs nothing that anybody would notice.
  static constexpr uint64_t kCheckIntervalNs = 1'000'000'000;
  // A file with certificates or keys, in bytes: a bundle with all of the world's roots has 250 KiB.
  static constexpr size_t kMaxPemBytes = size_t{1} << 20;
  // Servers that a client remembers a ticket of, about 2 KiB each. One more makes it forget one.
  static constexpr size_t kMaxSessions = 64;
  // How long a ticket holds: the peer's certificate is not looked at again in this time.
  static constexpr long kSessionSeconds = 3600;

  static absl::StatusOr<std::unique_ptr<TlsCredentials>> Create(TlsRole role,
                                                                const SecurityOptions& options);
  // For streams that are each started with a key of their own (TlsStream::Start()).
  static absl::StatusOr<std::unique_ptr<TlsCredentials>> CreateForKeys(TlsRole role);
  ~TlsCredentials();
  TlsCredentials(const TlsCredentials&) = delete;
  TlsCredentials& operator=(const TlsCredentials&) = delete;

  TlsRole role() const { return role_; }
  const SecurityOptions& options() const { return options_; }
  bool uses_psk() const { return has_stream_keys_ || !options_.psk_name.empty(); }

  // For a handshake that begins now. Takes changed files into use. Valid until the next call; an
  // SSL object made of it keeps it.
  ssl_ctx_st* Context(uint64_t now_ns);

  // Clients: the ticket for a server, or null. `server`: as TlsStream::Start() has it, which says
  // whose name was checked.
  ssl_session_st* Session(const std::string& server) const;
  // Takes a reference of `session` over.
  // `context`: that it came by; of an earlier one it is forgotten, for its peer may not be trusted
  // any more.
  void KeepSession(const std::string& server, const ssl_ctx_st* context, ssl_session_st* session);

 private:
  struct ContextDeleter {
    void operator()(ssl_ctx_st* context) const;
  };
  struct SessionDeleter {
    void operator()(ssl_session_st* session) const;
  };
  using ContextPtr = std::unique_ptr<ssl_ctx_st, ContextDeleter>;
  struct Remembered {
    std::string server;
    std::unique_ptr<ssl_session_st, SessionDeleter> session;
  };
  // What stands in the files, or in the options.
  struct Texts {
    Texts() = default;
    ~Texts();
    Texts(const Texts&) = delete;
    Texts& operator=(const Texts&) = delete;
    std::string certificate;
    std::string key;  // is overwritten in the end
    std::string roots;
  };
  using Digest = std::array<std::byte, 32>;

  TlsCredentials(TlsRole role, const SecurityOptions& options) : role_(role), options_(options) {}

  absl::Status CheckOptions() const;
  absl::Status Read(Texts* texts) const;
  static Digest DigestOf(const Texts& texts);
  absl::StatusOr<ContextPtr> Build(const Texts& texts);
  absl::Status AddCertificate(ssl_ctx_st* context, const Texts& texts) const;
  absl::Status AddRoots(ssl_ctx_st* context, const Texts& texts) const;
  bool LookAtFiles();
  void EndTickets();

  // Constant after construction.
  const TlsRole role_;
  const SecurityOptions options_;
  bool has_stream_keys_ = false;  // by CreateForKeys()

  ContextPtr context_;
  // Of certificate, key, roots; none: read it again
  std::array<std::optional<FileStamp>, 3> stamps_;
  absl::StatusOr<Digest> read_;  // of what was read last, or why it was not
  uint64_t checked_ns_ = 0;
  uint64_t built_ns_ = 0;  // tickets are no older; 0: nobody has asked for the context yet
  std::vector<Remembered> sessions_;  // oldest first
};

}  // namespace weft
