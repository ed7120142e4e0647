// An Engine is one thread's progress: a network, timers and the tasks of other threads. Channels,
// servers and connections belong to one, and their callbacks run on the thread that drives it.
//
//   absl::StatusOr<std::unique_ptr<Engine>> engine = OpenNetworkEngine({});
//   auto channel = Channel::Open(**engine, "db7:4711");
//
// A Channel or Server that is given no engine brings its own. Programs make one to share it among
// several, to have callbacks without waiting, or to run it in an event loop of their own.
//
// Three ways to drive an engine:
//
//   kOwnThread  the engine starts a thread of its own. Callbacks run there.
//   kCaller     whoever waits in a blocking call drives while waiting, with no hand-over and no
//               wake-up; further waiters sleep, each until its own end, and one takes over when
//               the driver leaves.
//               Nothing happens while nobody waits or polls.
//   kExternal   the application calls Poll() from its own loop, on one thread, and sleeps on fd()
//               after Arm(). No thread is started. That thread is the one that made the engine,
//               or the last that called Adopt(). It may also block in a call, and drives meanwhile.
//               Others may too: they sleep until the loop has brought the end.
//
// Waiting is adaptive: spin for EngineOptions::spin_ns without traffic, then sleep.
//
// One address names a server: host:port, [v6]:port or unix:/path. Client and server agree there on
// a path, and docs/paths.md says how; WEFT_PATHS=shm,tcp in the environment restricts and orders
// the paths of every connection that does not say so itself (LinkOptions::paths). There are such
// variables for RDMA devices, GIDs and subnets too.
//
// Threads: as marked at each function; functions that stand alone, any.
// Lifetime: destroyed on any thread, after everything that uses it (a Post() whose task has run may
//   still be returning), when nobody drives it; it stops its own thread first and then closes its
//   connections (OnClosed(CANCELLED) comes from inside the destructor).
// fork(): an engine, and all that belongs to it, is the parent's. In a child Post() returns false,
//   Poll() 0, RunUntil() false, and destructors touch nothing (docs/guide.md, "Processes that
//   fork").
// Errors: INVALID_ARGUMENT names the option or variable and its bounds.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "core/cache_line.h"
#include "core/clock.h"
#include "core/counters.h"
#include "core/function.h"
#include "transport/options.h"
#include "transport/region.h"

namespace weft {

class Connection;
class EngineCore;
class Log;
class Transport;

struct EngineOptions {
  enum class Drive : uint8_t { kOwnThread = 1, kCaller = 2, kExternal = 3 };
  // Behaviour.
  Drive drive = Drive::kOwnThread;
  std::string name = "weft";  // of the thread, at most 15 characters
  Clock* clock = nullptr;     // null: Clock::Real(); outlives the engine
  // Of what is said in its turns, by whatever is on it (weft/log.h); outlives the engine. Null: the
  // process's sink.
  Log* log = nullptr;
  // Performance.
  uint64_t spin_ns = kDefaultSpinNs;  // how long to poll without work before sleeping. Higher: no
                                      // wake-up for calls that come closely; costs CPU.
                                      // kSpinForever: never sleep. Of the threads that wait for
                                      // what another one brings, one spins; the others sleep.
  uint32_t inbox_slots = 4096;        // tasks posted and not yet run; power of two, 16..65536
  int cpu = -1;                       // kOwnThread: pin to this processor; -1: do not
  // The NUMA node that it works on: RDMA ports of this one come before all others of their kind,
  // and its buffer pools lie there, unless their options say otherwise. kOwnThread: runs there, on
  // those processors of it that the thread may use that has opened it, or, where these are all of
  // other nodes, on these; its slots over shm and tcp mostly lie where it runs (docs/paths.md,
  // "NUMA nodes"). In the other modes the application's threads run there, or do not. -1: that of
  // `cpu`, if that is given; else none.
  int numa_node = -1;
};

class Engine;

namespace internal {

inline constinit thread_local char thread_place = 0;

// The engine whose thread this is: that runs here for good, or whose loop is here. Null: none.
// Compared, and asked (EngineCore::IsHome()) only where it is known to live: it may be gone, or
// another thread's by now.
inline constinit thread_local const Engine* home_engine = nullptr;

// Unique among the threads that live; never 0.
inline uint64_t ThreadNumber() { return reinterpret_cast<uint64_t>(&thread_place); }

}  // namespace internal

class Engine {
 public:
  virtual ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // --- any thread -------------------------------------------------------------------------------

  // This thread drives the engine now: engine-thread functions may be called directly.
  bool OnEngine() const {
    return driver_.load(std::memory_order_relaxed) == internal::ThreadNumber();
  }

  // Runs `task` on the engine soon. False: the inbox is full (RESOURCE_EXHAUSTED for the caller),
  // and `task` is as it was. In kCaller mode it runs when somebody next drives; kExternal, posted
  // by the thread that owns the engine, in its loop's next turn.
  bool Post(Function<void()>&& task);

  // What this engine has done: path.opened.*, path.rejected.*, memory.* (docs/paths.md);
  // engine.wakes: how often it woke a thread that waited, or called one to drive.
  const CounterSet& counters() const;
  Clock& clock() { return *clock_; }

  // --- who drives -------------------------------------------------------------------------------

  // One turn: inbox, transport, timers, descriptors, then what was committed is sent. After Arm()
  // it looks first whether anything has come, or was begun, since, or a timer is due: one system
  // call at most. If not, it returns 0, and the engine is still armed; else it makes the turn.
  // Returns how much there was to do; 0, and does nothing, if this thread may not drive, and in a
  // callback of this engine. kCaller: any thread. kExternal: the application's loop, on the thread
  // that created the engine or, later, called Adopt(). kOwnThread: not for applications, the
  // engine's own thread does it.
  int Poll(int budget = kDefaultBudget);
  static constexpr int kDefaultBudget = 64;

  // Makes turns on this thread until done() is true, or clock() passes `deadline_ns` (kNever: not
  // before done()); sleeps in between as a blocking call does. Returns what done() says last. For
  // programs that wait for callbacks, where a blocking call would wait for its reply.
  // done() is called on this thread, before the first turn and after each one, and while this
  // thread drives: it may read what callbacks write, without a lock. It only looks: it does not
  // block, and starts nothing.
  // kCaller: any thread. While another one drives, this one waits until that one leaves.
  // kExternal: the thread that owns the engine. On other threads, and in kOwnThread mode, it
  // returns false at once, without a call of done().
  // REQUIRES: not inside a callback of this engine, which would wait for itself.
  bool RunUntil(absl::FunctionRef<bool()> done, uint64_t deadline_ns = kNever);

  // kExternal: this thread owns the engine from now on: it polls, and callbacks run here. For an
  // engine created elsewhere, before others use it; and to hand it on, while nobody drives it.
  void Adopt();

  // kExternal: readable when there is something to do, after Arm() returned true: what has come, or
  // another thread has begun. Not for what the loop's own thread begins or posts, nor for timers,
  // nor for what a turn has left beyond its budget: a loop that polls only when this is readable
  // leaves all of that undone. Each round is Poll(), then Arm() if that gave 0, then a sleep.
  int fd() const;
  // kExternal: prepares to sleep on fd(), not longer than until NextTimerNs(). False: do not sleep,
  // Poll().
  bool Arm();
  // On clock(); kNever: there is none. Round up to milliseconds: a loop that sleeps for too short a
  // time comes back, and back again, until the timer is due.
  uint64_t NextTimerNs() const;

  // --- engine thread ----------------------------------------------------------------------------

  // The layer without RPC (weft/connection.h).
  Transport& transport() { return *transport_; }

 private:
  friend class EngineCore;  // every Engine is one

  explicit Engine(Clock* clock);

  // EngineCore goes on in this cache line with the rest of what every turn and every call touches.
  alignas(kCacheLineBytes) std::atomic<uint64_t> driver_{0};  // a thread's number; 0: nobody
  // Constant after construction.
  Clock* const clock_;
  std::unique_ptr<Transport> transport_;
};

struct NetworkOptions {
  // Behaviour.
  // Ways to a peer's memory over shared memory that one-sided operations may take by themselves:
  // memcpy into files that both map, and process_vm_readv(2) or process_vm_writev(2). Each is taken
  // where it works; without both, the peer is asked to copy. For who suspects one of them.
  bool shm_mappings = true;
  bool shm_system_calls = true;

  // Performance.
  // Bytes of one batch, 1024..65536 in steps of 64: the largest message that travels without a
  // round trip of its own is a little smaller. Larger: more memory (each connection holds two
  // windows of slots), fewer round trips for messages in between. Shared memory uses at most 8192
  // of it, which is what its rings are made for; tcp sends messages of up to 64 KiB without a round
  // trip whatever this is.
  uint32_t slot_bytes = 8192;
  // Registered slots, in bytes, for each path: windows of new connections beyond it are refused
  // with RESOURCE_EXHAUSTED. At least 1 MiB. On tcp a quarter is for messages above slot_bytes;
  // below 64 MiB there is none, and they are fetched.
  uint64_t max_pool_bytes = uint64_t{256} << 20;
  // Buffers of large messages, in bytes, for each path and direction; taken as needed. At least
  // kMaxMessageBytes. Lower: senders of large messages meet RESOURCE_EXHAUSTED sooner.
  uint64_t max_large_bytes = uint64_t{256} << 20;
  // What the application may have registered at one time with each path (RemoteAccess::Register(),
  // buffer pools), in bytes. At least 1 MiB. Lower: RESOURCE_EXHAUSTED, which names it, sooner. The
  // counters memory.registrations and memory.registered_bytes of the engine say how much there is.
  uint64_t max_region_bytes = kDefaultRegionBytes;
  // Bytes of all exports (Transport::exports()) together. They cost nothing: it bounds what a
  // mistaken length can offer to peers.
  uint64_t max_exported_bytes = kDefaultExportedBytes;
};

// An engine on the real network.
absl::StatusOr<std::unique_ptr<Engine>> OpenNetworkEngine(const EngineOptions& engine_options,
                                                          const NetworkOptions& options = {});

// Which path carries this connection and why, a line for each candidate. For an open connection, or
// inside OnClosed(). Ends with a newline.
std::string ExplainConnection(const Connection& connection);

// What this process has to build paths of: libfabric's version and providers, and the variables
// that restrict it. Takes some 0.3 s the first time. Ends with a newline.
std::string ExplainNetwork();

}  // namespace weft
