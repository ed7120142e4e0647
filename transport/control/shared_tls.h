// What the control connections of one transport share for TLS: credentials, room, and turns.
//
// Credentials are made once for the same options: a client that connects again reads no file again,
// and has its tickets, by which both sides do without certificates. The kMaxCredentials that were
// asked for last are kept, whoever uses them; older ones for as long as somebody uses them.
//
// Handshakes take turns, those who came first go first. What a flight of a TLS handshake costs is a
// signature and the checks of some others: from 0.1 ms (P-256) to 6 ms (RSA with 4,096 bits), while
// a turn of the engine takes microseconds. Whoever connects can ask for that, whoever he is. So
// handshakes stand in a line, and one socket's goes on in a turn, by one flight: a flight takes an
// answer before the next. Between two flights all connections that are up have a turn: a flood of
// hellos costs a call one flight more, and not as many as there are. A handshake has a place in the
// line while it has something to work on, a whole record (TlsStream::ReceiveFlight()); behind its
// flight it is out, and comes back at the end. So who sends his hello byte by byte holds no place,
// and who comes anew waits for those that were in the line before him, one flight each, and for
// nobody else: Newcomers::kMaxStrangers at most, and this engine's own dials.
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
#include "core/intrusive_list.h"
#include "transport/tls/tls_credentials.h"
#include "transport/tls/tls_stream.h"

namespace weft {

struct HandshakerTag;

// One whose handshake may stand in the line. One that is destroyed leaves it.
class Handshaker : public ListNode<HandshakerTag> {
 protected:
  ~Handshaker() = default;

 private:
  friend class SharedTls;
  // It has the turn. It may enter again, and destroys nobody.
  virtual void GoOn() = 0;
};

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

  // At the end of the line; nothing to do for one that has a place.
  void Enter(Handshaker* handshaker) {
    if (!line_.IsLinked(handshaker)) line_.PushBack(handshaker);
  }
  void Leave(Handshaker* handshaker) { line_.Remove(handshaker); }
  bool has_line() const { return !line_.empty(); }
  // Once in a turn of the engine: the first one leaves the line, and goes on. How many did.
  int RunTurn() {
    Handshaker* const first = line_.PopFront();
    if (first == nullptr) return 0;
    first->GoOn();
    return 1;
  }

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
  IntrusiveList<Handshaker, HandshakerTag> line_;  // who came first at the front
};

}  // namespace weft
