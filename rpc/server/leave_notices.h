// The notices by which a server asks one client to leave (frame.h), each for clients that
// understand it:
//
//   goaway  the server is about to shut down: the client takes what it waits for, and closes
//   moved   another process serves at the address, or another engine of the server has fewer
//           clients (rebalance.h): the client connects again, and leaves then
//   idle    nobody has used the connection for long (ServerLimits::idle_timeout_us)
//
// A goaway, and a moved, is in one of these states:
//
//   kNone  nothing is to be told. -> kTold, -> kOwed
//   kOwed  it is to be told, but there is no room, or a one-way message is being handled: the
//          client may have nothing under way, and would close, which cancels such messages. ->
//          kTold;
//          -> kNone: of a moved, when there is to be a goaway
//   kTold  it was sent
//
// Behind a goaway there is no moved.
//
// An idle is sent by looks: four times in idle_timeout_us the server looks at each connection. So a
// call's way has no work by it, and a client is asked when its connection was not used for so long,
// or a quarter longer. In use is a connection by which a message has come since the last look, or
// on which a call, a stream or a one-way message runs, a reply waits, or a large message is under
// way. Never asked are
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
// Threads: the engine's. Lifetime: a member of its ServerConnection.
#pragma once

#include <cstdint>
#include <utility>

#include "rpc/wire/hello.pb.h"
#include "transport/connection.h"

namespace weft {

class LeaveNotices {
 public:
  // For idle connections. Each is a walk over the server's connections. More: connections are asked
  // sooner after their time; a quarter of it is nothing to a client that has been silent for so
  // long.
  static constexpr uint32_t kLooksInIdleTimeout = 4;

  // What the client says of itself.
  void SetClient(const rpc::ClientHello& hello);

  // --- goaway and moved. `too_early`: a one-way message is being handled ------------------------

  bool takes_goaway() const { return takes_goaway_; }
  // Sends one, unless it was told, or it is owed. `running`: calls, streams and one-way messages.
  // REQUIRES: the client takes it.
  void SendGoaway(Connection& connection, uint32_t running, bool too_early);
  // The same, if the client takes it and was told neither before. True: it was sent now.
  bool SendMoved(Connection& connection, bool too_early);
  bool owes_goaway() const { return goaway_ == State::kOwed; }
  bool owes_any() const { return goaway_ == State::kOwed || moved_ == State::kOwed; }
  bool told_moved() const { return moved_ == State::kTold; }
  bool takes_moved() const { return takes_moved_; }
  // The client was told to go away, or will be, and is going to close. `quiet`: there was time for
  // that, if somebody drives the client.
  bool AwaitsClose(bool quiet) const {
    return goaway_ != State::kNone && (drives_itself_ || !quiet);
  }

  // --- for Rebalance ----------------------------------------------------------------------------

  // A look: whether the client is going to leave. What was asked more than `patience` looks ago,
  // and is still here, is not: nobody drives its client. `messages`: have come from it.
  bool LookIsLeaving(uint64_t messages, uint32_t patience) {
    called_lately_ = std::exchange(messages_seen_, messages) != messages;
    return is_asked_to_move() && looks_since_asked_++ < patience;
  }
  // The client may be asked to move (rebalance.h), and would hear of it soon.
  bool MayMove(Connection& connection) const;

  // --- for idle connections ---------------------------------------------------------------------

  // A look, in a turn of the engine: returns whether the client was asked to leave. `runs_calls`:
  // of its, or streams or one-way messages, or replies that wait.
  bool LookIsIdle(Connection& connection, bool runs_calls);

 private:
  enum class State : uint8_t { kNone = 1, kOwed = 2, kTold = 3 };

  bool is_asked_to_move() const { return moved_ != State::kNone; }

  State goaway_ = State::kNone;
  State moved_ = State::kNone;
  // The client does, as it has said.
  bool takes_goaway_ = false, takes_moved_ = false, moves_ahead_ = false, leaves_idle_ = false;
  bool drives_itself_ = false;
  // Rebalance.
  bool called_lately_ = false;  // between its last two looks
  uint32_t looks_since_asked_ = 0;
  uint64_t messages_seen_ = 0;  // at the last look
  // Idle.
  bool told_idle_ = false;     // and was not used since
  uint32_t unused_looks_ = 0;  // one after the other
  // That had come at the last look; kUsed: it was in use then, or there was none.
  static constexpr uint64_t kUsed = ~uint64_t{0};
  uint64_t messages_ = kUsed;
};

}  // namespace weft
