// What the control connections of one transport share for TLS: credentials, room, and turns.
//
// Credentials are made once for the same options: a client that connects again reads no file again,
// and has its tickets, by which both sides do without certificates. The kMaxCredentials that were
// asked for last are kept, whoever uses them; older ones for as long as somebody uses them.
//
// Handshakes take turns. What a flight of a TLS handshake costs is a signature and the checks of
// some others: from 0.1 ms (P-256) to 6 ms (RSA with 4,096 bits), while a turn of the engine takes
// microseconds. Whoever connects can ask for that, whoever he is. So one socket's handshake goes on
// in a turn, by one flight: a flight takes an answer before the next. The others stay readable, and
// the poller, which goes round, tells of them again. Between two flights all connections that are
// up have a turn: a flood of hellos costs a call one flight more, and not as many as there are.
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

  // Whether a handshake may go on in this turn; if so, no other does.
  bool TakeTurn() {
    const bool free = !taken_;
    taken_ = true;
    return free;
  }
  // The next turn has begun.
  void BeginTurn() { taken_ = false; }

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
  bool taken_ = false;
};

}  // namespace weft
