// A network of simulated machines in one thread, for tests: real engines, real connections, virtual
// time, and faults on demand. The same seed and the same calls give the same run, event by event.
//
//   SimNetwork network(/*seed=*/7);
//   Engine& server = network.Node("db");       // give it to whatever is under test
//   Engine& client = network.Node("client");   // and connect to "sim:db", if that is listened on
//   network.Kill("db");
//   ASSERT_TRUE(network.RunUntil([&] { return call.done(); }, /*limit_ns=*/kNsPerSec));
//
// Time stands still while code runs and jumps to the next event when all is quiet. It moves inside
// RunUntil() and RunFor(), and inside a blocking call, which runs the other machines
// too: so blocking calls work in one thread. A blocking call without deadline that nothing can end
// any more aborts, rather than hang the test.
//
// What is simulated: the wire (delay, jitter, bandwidth), one-sided transfers, receive slots,
// processes that die or are stopped, partitions, slow receivers. Everything above, credits and
// large messages included, is the code that runs in production.
//
// Threads: one. Lifetime: outlives whatever uses its engines; destroying it closes all connections.
// Errors: names that are not Node()s abort: they are mistakes of the test.
// Invariants: CheckInvariants().
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/bytes.h"
#include "core/clock.h"
#include "core/function.h"
#include "transport/identity.h"
#include "weft/engine.h"

namespace weft {

class SimFabric;

// One direction of the wire between two nodes.
struct SimWire {
  uint64_t delay_ns = 10'000;
  uint64_t jitter_ns = 2'000;            // added at random, 0..jitter_ns; order is kept
  uint64_t bytes_per_s = 1'000'000'000;  // 0: unlimited
};

struct SimOptions {
  SimWire wire = {};                      // of every pair, until SetWire()
  uint64_t lifeline_delay_ns = kNsPerMs;  // from a node's death until the others know
  // Of silence, until a peer is given up: what LinkOptions::peer_timeout_ns is between real hosts.
  // One for the whole network, so that a test says it once; there are no heartbeats, for a machine
  // that nobody polls is not simulated.
  uint64_t lifeline_timeout_ns = kNsPerSec;
  // As on tcp and iWARP: what has begun to arrive is put into memory, or taken from it, this much
  // later, also when the region is closed meanwhile. Messages behind it wait for it. 0: at once,
  // and a closed region is an untouched one, as on shm and InfiniBand.
  uint64_t late_placing_ns = 0;
  uint32_t slot_bytes = 8192;  // one batch; a multiple of 8, 256..65536
  // Of the batches that small messages fill; 0: slot_bytes. Larger messages have batches of their
  // own, as on tcp.
  uint32_t usual_slot_bytes = 0;
  // From how many messages on a batch is answered in parts; 0: never.
  uint8_t frames_to_part = 0;
  // Of the one-sided operations that the network could carry out at once, so many per cent are
  // done before the function that posts them returns, as over shared memory where the peer's memory
  // is mapped (RemoteMemory::ReadNow() is then true). The others travel; so do all whose peer is
  // dead, cut off or grants no such access. 0..100.
  uint32_t done_at_once_percent = 0;
  // RemoteAccess::reads_prove_writes(), as on verbs.
  bool reads_prove_writes = false;
  // What goes by the control connection (how connections begin and end, and all about leases) does
  // not wait for the bytes that the link moves: as on verbs and tcp. False: one line for both, as
  // there was when the first histories were recorded. Histories, and what a seed is known to show,
  // would be others with true: so only tests to which the difference matters set it.
  bool control_apart = false;
  bool keep_trace = false;  // as text as well as hashed
  // EngineOptions::inbox_slots of each node: where nodes are made by the thousand, fewer are
  // cheaper to make.
  uint32_t inbox_slots = 4096;
  // Connections are sealed, as those over verbs are with security; as where one side requires
  // encryption as well, so that there are no leases.
  bool sealed = false;
  bool only_sealed = false;
};

class SimNetwork {
 public:
  explicit SimNetwork(uint64_t seed, const SimOptions& options = {});
  ~SimNetwork();
  SimNetwork(const SimNetwork&) = delete;
  SimNetwork& operator=(const SimNetwork&) = delete;

  // The engine of the machine `name`, made at the first call. It is kExternal, on clock().
  // It listens on and connects to addresses "sim:NAME"; a listener's name needs not be its node's.
  Engine& Node(const std::string& name);
  // Nanoseconds since the network was made, and a bit.
  Clock& clock();

  // --- time -------------------------------------------------------------------------------------

  // Runs until `done` or until `limit_ns` have passed. Returns done().
  // REQUIRES: not inside a callback of a node.
  bool RunUntil(Function<bool()> done, uint64_t limit_ns);
  void RunFor(uint64_t ns);
  // Runs until nothing is under way (timers apart).
  void Settle();

  // --- faults -----------------------------------------------------------------------------------

  void SetWire(const std::string& from, const std::string& to, const SimWire& wire);
  // What `from` sends does not come to `to`, until Heal(): it then comes late, as over TCP. After
  // lifeline_timeout_ns `to` gives `from` up.
  void Cut(const std::string& from, const std::string& to);
  void Partition(const std::string& a, const std::string& b);  // cut both ways
  void Heal(const std::string& a, const std::string& b);       // both ways
  // As by SIGKILL: nothing of this node runs any more, and nobody answers for it.
  // Its handlers hear OnClosed() when the network is destroyed; servers and channels on it may stay
  // until just before. Listen() there is FAILED_PRECONDITION: a process that is started again is
  // another node, which may listen at the same "sim:NAME".
  void Kill(const std::string& name);
  // As by SIGSTOP: nothing of this node's program runs, nor its timers, until Thaw(). What is
  // sent to it is kept, and its card answers. REQUIRES: nothing blocks on its engine meanwhile.
  void Freeze(const std::string& name);
  void Thaw(const std::string& name);
  // The node takes `ns_per_batch` for each batch that it receives.
  void SlowDown(const std::string& name, uint64_t ns_per_batch);
  // The node answers no one-sided operations of others any more, as a peer over tcp that nobody
  // drives, or that means harm. What has been posted stays under way until its connection ends.
  void StopAnswering(const std::string& name);
  // Lets `change` do something to the next batch from one node to the other.
  void Corrupt(const std::string& from, const std::string& to,
               Function<void(std::vector<std::byte>&)> change);

  // What others see in PathInfo::identity of connections with this node that come up from now on,
  // as if TLS had proved it. Before: that nobody has proved who it is.
  void SetIdentity(const std::string& name, PeerIdentity identity);

  // --- proof ------------------------------------------------------------------------------------

  // Of all events so far: equal for equal runs.
  uint64_t trace_hash() const;
  const std::vector<std::string>& trace() const;  // empty without keep_trace
  // Aborts unless, on every node: receives posted cover all credits granted, and each connection's
  // own invariants hold. (A batch without a receive aborts when it arrives.)
  void CheckInvariants();

  // For tests of the transport itself.
  SimFabric& fabric() { return *fabric_; }

 private:
  std::unique_ptr<SimFabric> fabric_;
};

}  // namespace weft
