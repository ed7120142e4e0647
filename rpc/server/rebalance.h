// Evens out the connections of a server with several engines, one engine's side: connections go to
// the engine with the fewest when they come, and become uneven when clients leave. An engine that
// has many more than another one asks clients to connect again; they come to the engine with the
// fewest. They are asked as at an upgrade (SendMoved()): a client has its new connection before it
// leaves the old one, and no call fails.
//
// Each rebalance_us the engine looks. Clients are asked when all of this is so, at kLooks looks one
// after the other, so that clients which just come and go move nobody:
//
//   - it has more than kLeastGap connections more than the engine with the fewest, and more than a
//     quarter more. Those that were asked count as gone, for kPatientLooks looks;
//   - the server has room for twice as many as would be asked: a client that moves has two.
//
// Then a quarter of the excess is asked, kMostAtOnce at the most. A client is asked once on a
// connection, and only where all that it does goes on: it understands it; it has no stream, which
// would hold its old connection up, perhaps for ever (calls that are under way end there); it has
// no lease, nor ever had one, on memory of the server's (operations on remote memory do not wait
// for the next connection, as calls do); it has its next connection before it leaves this one
// (moves_ahead in its hello: not with many servers, or exactly-once calls, where new calls would
// wait for the last one here); it has not asked for this engine (LinkOptions::server_engine); and
// it is no peer's. A client that nobody drives would hear of it with its next call: it is asked
// only if it has called since the last look, and until then it loads no engine.
//
// The engine's counters say how often it has looked (rebalance.looks), and how many clients it has
// asked (rebalance.asked).
//
// Threads: the engine's; the numbers of the others' connections are read where they are counted.
// Lifetime: a part of its ServerCore; the others' stay until all have stopped.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "core/counters.h"
#include "core/timer_wheel.h"

namespace weft {

class ServerCore;

class Rebalance final : private Timer {
 public:
  // With two engines a move begins with the third connection: the one that a client has while it
  // moves (rpc/client/bridge.h) is where its next one does not go, so that two more on one side
  // would only change sides.
  static constexpr uint32_t kLeastGap = 2;
  // Three seconds by default: longer than a client takes to come back that has lost its connection.
  static constexpr uint32_t kLooks = 3;
  // Of one engine at one look. Each makes two connections, some milliseconds of work with TLS:
  // with more the handshakes would be felt by calls.
  static constexpr uint32_t kMostAtOnce = 16;

  // Ten seconds by default: by then a client has left that has heard of it. One that is here still
  // is driven by nobody, and may be for long: others are asked in its place.
  static constexpr uint32_t kPatientLooks = 10;

  explicit Rebalance(ServerCore& own) : own_(own) {}
  ~Rebalance();

  // `all`: the server's, this engine's among them.
  void Start(std::vector<ServerCore*> all);
  void Stop();

  // How many of `own` connections are to move where `least` and `all` are what the engine with the
  // fewest and all together have, of at most `most` (0: none). Apart, for tests.
  static uint32_t Excess(uint32_t own, uint32_t least, uint64_t all, uint32_t most);

 private:
  void OnTimer() override;

  ServerCore& own_;
  std::vector<ServerCore*> all_;
  uint32_t uneven_looks_ = 0;
  Counter looks_;
  Counter asked_;
};

}  // namespace weft
