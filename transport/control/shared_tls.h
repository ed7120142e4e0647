// What the control connections of one transport share for TLS: credentials, room, and the line of
// their handshakes.
//
// Credentials are made once for the same options: a client that connects again reads no file again,
// and has its tickets, by which both sides do without certificates. The kMaxCredentials that were
// asked for last are kept, whoever uses them; older ones for as long as somebody uses them.
//
// Handshakes stand in its line (handshake_line.h).
//
// Threads: one engine's. Lifetime: as the transport; users of credentials may outlive it.
// Errors: as TlsCredentials::Create().
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "core/counters.h"
#include "transport/control/handshake_line.h"
#include "transport/tls/tls_credentials.h"
#include "transport/tls/tls_stream.h"

namespace weft {

class SharedTls {
 public:
  // Different options of one engine's channels and servers. The roots of one, parsed, are up to a
  // megabyte where they are the system's.
  static constexpr size_t kMaxCredentials = 16;

  explicit SharedTls(CounterSet* counters);
  ~SharedTls();
  SharedTls(const SharedTls&) = delete;
  SharedTls& operator=(const SharedTls&) = delete;

  absl::StatusOr<std::shared_ptr<TlsCredentials>> CredentialsFor(TlsRole role,
                                                                 const SecurityOptions& options);

  // Of all streams; made by the first one.
  TlsScratch* scratch() {
    if (scratch_ == nullptr) scratch_ = std::make_unique<TlsScratch>();
    return scratch_.get();
  }

  HandshakeLine& line() { return line_; }
  const HandshakeLine& line() const { return line_; }

  // A handshake has ended.
  void CountUp(bool resumed) {
    handshakes_.Increment();
    if (resumed) resumed_.Increment();
  }
  void CountRefused() { refused_.Increment(); }

 private:
  CounterSet* const counter_set_;
  Counter handshakes_;  // complete
  Counter resumed_;     // among them: by a ticket
  Counter refused_;     // of peers that could not prove who they are, or had no TLS
  std::vector<std::shared_ptr<TlsCredentials>> credentials_;  // the one asked for last at the end
  std::unique_ptr<TlsScratch> scratch_;
  HandshakeLine line_;
};

}  // namespace weft
