// An Engine is one thread's progress: a transport, timers, descriptors and an inbox.
//
// Everything that belongs to an engine is used by one thread at a time, the one that drives it;
// nothing below is locked. Other threads hand it work through Post(). Three ways to drive:
//
//   kOwnThread  the engine starts a thread of its own. Callbacks run there.
//   kCaller     whoever waits for something drives while waiting (Enter, DriveUntil, Leave): a
//               blocking call has no hand-over and no wake-up in it. Further waiters are followers:
//               one takes over when the driver leaves. Nothing happens while nobody waits.
//   kExternal   the application calls Poll() from its own loop, on one thread, and sleeps on fd()
//               after Arm(). No thread is started.
//
// Waiting is adaptive: spin for EngineOptions::spin_ns without traffic, then arm the doorbell, look
// once more, and sleep on the descriptors. A wake-up is never lost (doorbell.h).
//
// Threads: as marked at each function. Lifetime: destroyed on any thread, after everything that
//   uses it (a Post() whose task has run may still be returning), when nobody drives it; it stops
//   its own thread first and then closes its connections (OnClosed(CANCELLED) comes from inside the
//   destructor).
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/cache_line.h"
#include "core/clock.h"
#include "core/counters.h"
#include "core/function.h"
#include "core/mpsc_queue.h"
#include "core/timer_wheel.h"
#include "transport/doorbell.h"
#include "transport/options.h"
#include "transport/poller.h"
#include "transport/transport.h"

namespace weft {

struct EngineOptions {
  enum class Drive : uint8_t { kOwnThread = 1, kCaller = 2, kExternal = 3 };
  // Behaviour.
  Drive drive = Drive::kOwnThread;
  std::string name = "weft";  // of the thread, at most 15 characters
  Clock* clock = nullptr;     // null: Clock::Real(); outlives the engine
  // Performance.
  uint64_t spin_ns = kDefaultSpinNs;  // how long to poll without work before sleeping. Higher: no
                                      // wake-up for calls that come closely; costs CPU.
                                      // kSpinForever: never sleep.
  uint32_t inbox_slots = 4096;        // tasks posted and not yet run; power of two, 16..65536
  int cpu = -1;                       // kOwnThread: pin to this processor; -1: do not
};

// What a transport gets from the engine that it serves. Outlives the transport.
struct EngineContext {
  Clock* clock;
  TimerWheel* timers;
  Poller* poller;
  Doorbell* doorbell;
  bool may_start_threads;  // false for kExternal: the application's thread is the only one
  bool drives_itself;      // kOwnThread: it makes progress whatever the application does
  CounterSet* counters;    // what the transport counts
};

using TransportFactory = Function<absl::StatusOr<std::unique_ptr<Transport>>(const EngineContext&)>;

namespace internal {

inline constinit thread_local char thread_place = 0;

// Unique among the threads that live; never 0.
inline uint64_t ThreadNumber() { return reinterpret_cast<uint64_t>(&thread_place); }

}  // namespace internal

// Something that a thread waits for and an engine finishes, once.
class Waiter {
 public:
  bool done() const { return done_.load(std::memory_order_acquire); }

 private:
  friend class Engine;
  std::atomic<bool> done_{false};
  bool driven_ = false;  // the engine's: who waits drives it, and so nobody sleeps for this
};

class Engine {
 public:
  static absl::StatusOr<std::unique_ptr<Engine>> Create(const EngineOptions& options,
                                                        TransportFactory make_transport);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // --- any thread -------------------------------------------------------------------------------

  // This thread drives the engine now: engine-thread functions may be called directly.
  bool OnEngine() const {
    return driver_.load(std::memory_order_relaxed) == internal::ThreadNumber();
  }

  // What this engine has done: path.opened.shm, ... (the transport's header says which there are).
  const CounterSet& counters() const { return counters_; }

  // Runs `task` on the engine soon. False: the inbox is full (RESOURCE_EXHAUSTED for the caller),
  // and `task` is as it was. In kCaller mode it runs when somebody next drives.
  bool Post(Function<void()>&& task);

  // Becomes the driver if nobody is. kCaller: any thread. kExternal: its owner, that is the thread
  // that created the engine or, later, called Adopt(). kOwnThread: only the engine's own thread.
  // Pair with Leave(); nests.
  bool Enter() {
    if (!OnEngine()) return BecomeDriver();
    ++depth_;
    return true;
  }
  void Leave() {
    if (--depth_ == 0) DropRole();
  }

  // Blocks until the waiter is finished or the engine's clock passes `deadline_ns`
  // (kNoDeadline: never). Drives where this thread may; else sleeps, and takes over as driver when
  // the role falls free (kCaller). Returns waiter.done().
  static constexpr uint64_t kNoDeadline = ~uint64_t{0};
  // REQUIRES: not InTurn(): a callback that blocks its own engine would wait for itself.
  bool Wait(Waiter& waiter, uint64_t deadline_ns = kNoDeadline);

  // The same for the driver, who knows that it is.
  // REQUIRES: OnEngine(), !InTurn().
  bool Drive(Waiter& waiter, uint64_t deadline_ns = kNoDeadline) {
    DriveUntil(waiter, deadline_ns);
    return waiter.done();
  }

  // This thread is inside Poll() of this engine, that is: in a callback.
  bool InTurn() const { return OnEngine() && in_turn_; }

  // Finishes a waiter. Engine thread. The waiter may be gone when this returns.
  void Finish(Waiter& waiter);

  // --- engine thread ----------------------------------------------------------------------------

  // One turn: inbox, transport, timers, descriptors, then what was committed is sent. Returns how
  // much there was to do. kExternal: the application's to call; others: for drivers and callbacks'
  // owners only.
  int Poll(int budget = kDefaultBudget);
  static constexpr int kDefaultBudget = 64;

  // kExternal: this thread owns the engine from now on: it polls, and callbacks run here. For an
  // engine created elsewhere; call it before others use the engine.
  void Adopt();

  // kExternal: readable when there is something to do, after Arm() returned true.
  int fd() const { return poller_->descriptor(); }
  // Prepares to sleep on fd(), not longer than until NextTimerNs(). False: do not sleep, Poll().
  bool Arm();
  uint64_t NextTimerNs() const { return timers_.NextDeadlineNs(); }

  // InTurn(), for the driver.
  bool in_turn() const { return in_turn_; }
  // The driver became it with its last Enter(), and not before.
  bool entered_once() const { return depth_ == 1; }

  Transport& transport() { return *transport_; }
  TimerWheel& timers() { return timers_; }
  Clock& clock() { return *clock_; }
  // The clock as read at the start of this turn: for timeouts, where a turn's length is no matter.
  uint64_t turn_ns() const { return turn_ns_; }

 private:
  explicit Engine(const EngineOptions& options);

  absl::Status Start(TransportFactory make_transport);
  void RunOwnThread();
  int RunTurn(int budget);
  bool LookAgain();
  int DrainInbox(int budget);
  int LookAtDescriptors();
  void Step(uint64_t until_ns);
  void Sleep(uint64_t until_ns);
  void Wake();
  bool BecomeDriver();
  bool MayDrive() const;
  bool TakeRole();
  void DropRole();
  void NotifySleepers();
  void DriveUntil(Waiter& waiter, uint64_t deadline_ns);
  void FollowUntil(Waiter& waiter, uint64_t deadline_ns);
  bool SpinUntil(const Waiter& waiter, uint64_t deadline_ns);

  // What every turn and every call touches, in one cache line. The driver's, but for driver_, which
  // any thread looks at; pointers are constant after construction.
  alignas(kCacheLineBytes) std::atomic<uint64_t> driver_{0};  // a thread's number; 0: nobody
  int depth_ = 0;  // nesting of Enter() on the driving thread
  static constexpr uint64_t kNotIdle = 0;

  bool in_turn_ = false;
  bool rang_ = false;  // the doorbell may have: its event is to be taken
  std::atomic<bool> stop_{false};
  uint64_t turn_ns_ = 0;
  // The first turn without traffic: what came before it may have taken long, and what is awaited
  // then could not come sooner.
  uint64_t idle_since_ns_ = kNotIdle;
  uint64_t next_descriptor_check_ns_ = 0;
  Clock* const clock_;
  std::unique_ptr<Doorbell> doorbell_;
  std::unique_ptr<Transport> transport_;

  // Constant after construction.
  const EngineOptions options_;
  CounterSet counters_;  // any thread
  std::unique_ptr<Poller> poller_;
  std::thread thread_;

  TimerWheel timers_;  // engine thread only

  // Any thread.
  MpscQueue<Function<void()>> inbox_;
  std::atomic<uint64_t> owner_;        // kExternal: whose engine this is
  std::atomic<uint32_t> sleepers_{0};  // threads inside FollowUntil()
  std::atomic<uint32_t> posters_{0};   // threads inside Post()
  std::mutex mutex_;
  std::condition_variable changed_;  // a waiter is done, or the driver's role fell free
};

}  // namespace weft
