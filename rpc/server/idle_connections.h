// Asks clients to leave whose connections nobody uses (ServerLimits::idle_timeout_us), by the frame
// idle. Four times in that time the server looks at each connection: so a call's way has no
// work by it, and a connection is asked when it was not used for so long, or a quarter longer.
//
// In use is a connection by which a message has come since the last look, or on which a call, a
// stream or a one-way message runs, a reply waits, or a large message is under way. Never asked are
//
//   - a peer's, which both servers want all the time;
//   - one whose client has had a lease on the server's memory: its operations on that do not wait
//     for the next connection, as calls do;
//   - one whose client knows no idle, or would connect again at once (leaves_idle in its hello);
//   - one that was asked to move.
//
// The frame says how many of the client's messages the server has. A client that has sent another
// one stays, and so does one that is in the middle of anything: no call is ever under way on a
// connection that is left for this. What was asked once is asked again when it has been used since.
//
// Threads: the engine's.
#pragma once

#include <cstdint>

#include "transport/connection.h"

namespace weft {

// One connection's.
class IdleLooks {
 public:
  // Each is a walk over the server's connections. More: connections are asked sooner after their
  // time; a quarter of it is nothing to a client that has been silent for so long.
  static constexpr uint32_t kInTimeout = 4;

  // The client says so in its hello.
  void SetMayLeave(bool may_leave) { may_leave_ = may_leave; }
  // A look, in a turn of the engine: returns whether the client was asked to leave. `runs_calls`:
  // of its, or streams or one-way messages, or replies that wait.
  bool Look(Connection& connection, bool runs_calls);

 private:
  bool may_leave_ = false;  // the client does when it is asked
  bool told_ = false;       // that it should, and was not used since
  uint32_t unused_ = 0;     // looks, one after the other
  // That had come at the last look; kUsed: it was in use then, or there was none.
  static constexpr uint64_t kUsed = ~uint64_t{0};
  uint64_t messages_ = kUsed;
};

}  // namespace weft
