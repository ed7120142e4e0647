// EngineCore is an engine from the inside: all of what weft/engine.h shows, and what channels,
// servers, connections and networks use beside it: the driver's role, waiting, timers.
//
// Everything that belongs to an engine is used by one thread at a time, the one that drives it;
// nothing below is locked. Other threads hand it work through Post(). Who waits for something on a
// kCaller engine drives while waiting (Enter, Drive, Leave): a blocking call has no hand-over and
// no wake-up in it. Further waiters are followers: one takes over when the driver leaves.
//
// A driver that sleeps arms the doorbell, looks once more, and sleeps on the descriptors. A wake-up
// is never lost (doorbell.h).
//
// Who waits and does not drive sleeps on a word of what it waits for (core/futex.h), so that the
// end of one wait wakes nobody else. A driver that leaves calls one follower, and only where none
// is the lookout. That is the one follower that is awake and has yet to look at the role: one that
// was called, or one that spins before it sleeps. Who stops to look out says so first and then
// looks at the role; who is about to sleep says so first and then looks at it; who leaves drops the
// role first and then looks for both. So the role is never free while followers sleep and nobody
// looks. A lookout whose own wait has ended passes the call on. (PassOn, CallFollower)
//
// Threads: as marked at each function. Lifetime, Errors: Engine's.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/clock.h"
#include "core/counters.h"
#include "core/fork_guard.h"
#include "core/function.h"
#include "core/intrusive_list.h"
#include "core/mpsc_queue.h"
#include "core/timer_wheel.h"
#include "transport/doorbell.h"
#include "transport/poller.h"
#include "transport/transport.h"
#include "weft/engine.h"

namespace weft {

// What a transport gets from the engine that it serves. Outlives the transport.
struct EngineContext {
  Clock* clock;
  TimerWheel* timers;
  Poller* poller;
  Doorbell* doorbell;
  bool may_start_threads;  // false for kExternal: the application's thread is the only one
  bool drives_itself;      // kOwnThread: it makes progress whatever the application does
  CounterSet* counters;    // what the transport counts
  int numa_node = -1;      // EngineOptions::numa_node, or that of its processor; -1: none
};

using TransportFactory = Function<absl::StatusOr<std::unique_ptr<Transport>>(const EngineContext&)>;

// Something that threads wait for and an engine finishes, once. Mostly there is one such thread.
class Waiter {
 public:
  bool done() const { return (word_.load(std::memory_order_acquire) & kDone) != 0; }

 private:
  friend class EngineCore;
  // What threads sleep on: whether it is done; how many of them sleep, or are about to, fewer than
  // 2^19, which is more than wait for one thing; and how often one was called to drive, modulo
  // 4096, so that each call changes the word. (Calls stand at the top: what overflows is gone.)
  static constexpr uint32_t kDone = 1;
  static constexpr uint32_t kSleeper = 2;
  static constexpr uint32_t kCall = uint32_t{1} << 20;
  static constexpr uint32_t kSleepers = kCall - kSleeper;

  std::atomic<uint32_t> word_{0};
  bool driven_ = false;  // the engine's: who waits drives it, and so nobody sleeps for this
};

namespace internal {

// The turns that this thread is in: turns of several engines nest, where a callback of one waits
// for what another one brings.
struct Turn {
  EngineCore* engine;
  Turn* outer;  // null: none
};
inline constinit thread_local Turn* innermost_turn = nullptr;

}  // namespace internal

class EngineCore final : public Engine {
 public:
  static absl::StatusOr<std::unique_ptr<EngineCore>> Create(const EngineOptions& options,
                                                            TransportFactory make_transport);
  ~EngineCore() override;

  // --- any thread -------------------------------------------------------------------------------

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
  // the role falls free (kCaller). Returns waiter.done(). Several threads may wait for the same.
  static constexpr uint64_t kNoDeadline = ~uint64_t{0};
  // REQUIRES: not InTurn(): a callback that blocks its own engine would wait for itself.
  bool Wait(Waiter& waiter, uint64_t deadline_ns = kNoDeadline);

  // The same for the driver, who knows that it is, and who alone waits for this: Finish() has
  // nobody to wake then, and is a plain store.
  // REQUIRES: OnEngine(), !InTurn(); no other thread waits for this.
  bool Drive(Waiter& waiter, uint64_t deadline_ns = kNoDeadline) {
    waiter.driven_ = true;
    DriveUntil(waiter, deadline_ns);
    waiter.driven_ = false;
    return waiter.done();
  }

  // This process is a child of fork(), and the engine its parent's: nobody drives it here, and
  // nothing of it is touched. Enter() and Post() return false, Wait() and RunUntil() at once.
  bool forked() const { return driver_.load(std::memory_order_relaxed) == kForked; }
  // What is asked of it ends with.
  static absl::Status ForkedError();

  // EngineOptions'.
  Log* log() const { return options_.log; }

  // This thread is the engine's: its own, or that of the loop that owns it.
  bool IsHome() const { return drives_itself() ? OnEngine() : is_external() && MayDrive(); }

  // It has a thread of its own: what comes is looked at, whatever the application does.
  bool drives_itself() const { return options_.drive == EngineOptions::Drive::kOwnThread; }
  bool is_external() const { return options_.drive == EngineOptions::Drive::kExternal; }
  int numa_node() const { return numa_node_; }  // as EngineContext's

  // This thread is inside Poll() of this engine, that is: in a callback.
  bool InTurn() const { return OnEngine() && in_turn_; }

  // Finishes a waiter, and wakes who sleeps on it, nobody else; no system call where nobody sleeps.
  // Engine thread. The waiter may be gone before this returns: it is not touched once it is done,
  // and the kernel is only told its address (FutexWakeAll() says why that is safe).
  void Finish(Waiter& waiter);

  // As of a moment ago.
  bool inbox_is_half_full() const { return inbox_.half_full(); }

  // For a thread that waits for room in an engine's inbox, between two attempts: lets others run.
  // Where it does so in turns of other engines, whose own inboxes are full, it makes room there:
  // two engines that waited for each other would wait for ever. What it sets aside for that is
  // bounded (kMostSetAside): who posts to an engine that stands still for long finds its inbox full
  // again.
  static void AwaitRoom();

  // --- engine thread ----------------------------------------------------------------------------

  // InTurn(), for the driver.
  bool in_turn() const { return in_turn_; }
  // A turn at `now_ns` would find nothing but what the transport has. For who drives many engines,
  // and passes those by that have nothing to do.
  bool IsIdleAt(uint64_t now_ns) const {
    return inbox_.empty() && timers_.NextDeadlineNs() > now_ns && !poller_->has_handlers() &&
           set_aside_.empty();
  }
  // The driver became it with its last Enter(), and not before.
  bool entered_once() const { return depth_ == 1; }

  TimerWheel& timers() { return timers_; }
  // For counters of who belongs to this engine and is no transport. Any thread.
  CounterSet& counter_set() { return counters_; }
  // For descriptors of who belongs to this engine and is no transport.
  Poller& poller() { return *poller_; }
  // The clock as read at the start of this turn: for timeouts, where a turn's length is no matter.
  uint64_t turn_ns() const { return turn_ns_; }

  // For prefetch: the cache line that every turn and every call touches.
  const void* hot_line() const { return &driver_; }

 private:
  friend class Engine;  // its functions that are not inline stand in engine.cc, with these
  struct Follower;

  explicit EngineCore(const EngineOptions& options);

  absl::Status Start(TransportFactory make_transport);
  void OnForked();
  void Abandon();
  void RunOwnThread();
  int RunTurn(int budget);
  bool LookAgain();
  int DrainInbox(int budget);
  bool NextTask(Function<void()>* task);
  // In inboxes: tasks that are set aside, and that one turn of the engine that it waits for may
  // post before both wait for ever. A turn posts some for each of the 64 messages that it takes;
  // 16 times 4,096 tasks are some 4 MiB.
  static constexpr size_t kMostSetAside = 16;
  void SetAside();
  int LookAtDescriptors();
  void Step(uint64_t until_ns);
  bool SleepsOn();
  void Sleep(uint64_t until_ns);
  void Wake();
  bool BecomeDriver();
  bool MayDrive() const;
  bool TakeRole();
  void DropRole();
  void CallFollower();
  void PassOn();
  void DriveUntil(Waiter& waiter, uint64_t deadline_ns);
  void FollowUntil(Waiter& waiter, uint64_t deadline_ns);
  bool FollowToDrive(Waiter& waiter, uint64_t deadline_ns);
  void AwaitEnd(Waiter& waiter, uint64_t deadline_ns);
  void SpinUntil(const Waiter& waiter, uint64_t deadline_ns, bool may_drive);
  void SleepUntil(Waiter& waiter, uint64_t deadline_ns, const std::atomic<bool>& called);
  void Enlist(Follower& follower);
  bool Delist(Follower& follower);

  // What every turn and every call touches, in the cache line that Engine begins with driver_,
  // clock_ and transport_, and doorbell_ ends. The driver's.
  int depth_ = 0;  // nesting of Enter() on the driving thread
  static constexpr uint64_t kNotIdle = 0;
  static constexpr uint64_t kForked = 1;  // in the place of the driver; no thread's number

  bool in_turn_ = false;
  bool rang_ = false;  // the doorbell may have, or a descriptor: its event is to be taken
  std::atomic<bool> stop_{false};
  bool was_used_ = false;  // since the last turn, by who became the driver for it
  uint64_t turn_ns_ = 0;
  // The first turn without traffic: what came before it may have taken long, and what is awaited
  // then could not come sooner.
  uint64_t idle_since_ns_ = kNotIdle;
  uint64_t next_descriptor_check_ns_ = 0;
  std::unique_ptr<Doorbell> doorbell_;

  // Constant after construction.
  const EngineOptions options_;
  const int numa_node_;
  CounterSet counters_;  // any thread
  std::unique_ptr<Poller> poller_;
  std::thread thread_;

  TimerWheel timers_;  // engine thread only
  // From the inbox, older than what is in there, which is something as long as this is. Engine
  // thread only.
  std::deque<Function<void()>> set_aside_;

  // Any thread.
  MpscQueue<Function<void()>> inbox_;
  std::atomic<uint64_t> owner_;         // kExternal: whose engine this is
  std::atomic<uint32_t> followers_{0};  // in list_
  std::atomic<bool> lookout_{false};    // a follower is awake, and will look at the role
  std::atomic<bool> spinning_{false};   // a thread that may not drive spins
  std::atomic<uint32_t> posters_{0};    // threads inside Post()
  std::mutex mutex_;
  // Guarded by mutex_.
  IntrusiveList<Follower> list_;  // those that sleep, or are about to, and were not called
  Counter called_;                // calls of those that slept
  // The driver's.
  Counter woken_;  // waiters that were finished while a thread slept on them

  const ForkWatch fork_watch_;
};

// The inside of an engine. Every Engine is an EngineCore: only that class can call its constructor.
inline EngineCore& CoreOf(Engine& engine) { return static_cast<EngineCore&>(engine); }
inline const EngineCore& CoreOf(const Engine& engine) {
  return static_cast<const EngineCore&>(engine);
}

}  // namespace weft
