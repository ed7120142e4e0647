// TLS handshakes take turns, those who came first go first.
//
// What a flight of a handshake costs is a signature and the checks of some others: from 0.1 ms
// (P-256) to 6 ms (RSA with 4,096 bits), while a turn of the engine takes microseconds. Whoever
// connects can ask for that, whoever he is. So handshakes stand in a line, and one socket's goes on
// in a turn, by one flight: a flight takes an answer before the next. Between two flights all
// connections that are up have a turn: a flood of hellos costs a call one flight more, and not as
// many as there are. A handshake has a place in the line while it has something to work on, a whole
// record (TlsStream::ReceiveFlight()); behind its flight it is out, and comes back at the end. So
// who sends his hello byte by byte holds no place, and who comes anew waits for those that were in
// the line before him, one flight each, and for nobody else: Newcomers::kMaxStrangers at most, and
// this engine's own dials.
//
// Threads: one engine's. Lifetime: as the transport; who is destroyed leaves it. Errors: none.
#pragma once

#include "core/intrusive_list.h"

namespace weft {

struct HandshakerTag;

// One whose handshake may stand in the line.
class Handshaker : public ListNode<HandshakerTag> {
 protected:
  ~Handshaker() = default;

 private:
  friend class HandshakeLine;
  // It has the turn. It may enter again, and destroys nobody.
  virtual void GoOn() = 0;
};

class HandshakeLine {
 public:
  bool empty() const { return members_.empty(); }

  // At the end; nothing to do for one that has a place.
  void Enter(Handshaker* handshaker) {
    if (!members_.IsLinked(handshaker)) members_.PushBack(handshaker);
  }
  void Leave(Handshaker* handshaker) { members_.Remove(handshaker); }

  // Once in a turn of the engine: the first one leaves the line, and goes on. How many did.
  int RunTurn() {
    Handshaker* const first = members_.PopFront();
    if (first == nullptr) return 0;
    first->GoOn();
    return 1;
  }

 private:
  IntrusiveList<Handshaker, HandshakerTag> members_;  // who came first at the front
};

}  // namespace weft
