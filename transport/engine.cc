#include "transport/engine.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/check.h"
#include "core/fork_guard.h"
#include "core/futex.h"
#include "core/inline.h"
#include "core/log.h"
#include "core/status.h"
#include "transport/devices/numa.h"

namespace weft {
namespace {

// How often a busy engine looks at its descriptors (control sockets): a dead peer is noticed this
// late at most, far below the promised 100 ms, and the system call (about 150 ns) costs less than
// 0.1 % of the time.
constexpr uint64_t kDescriptorCheckNs = 200'000;

// After this long without work a spinning engine offers its processor to others between turns, and
// so does a follower that spins: the peer or the driver it waits for may need just this one. More
// than a round trip over shm, so that those never pay for the system call (0.2 us when nobody else
// wants to run).
constexpr uint64_t kYieldAfterNs = 5'000;

// The longest sleep while the transport is busy: some providers make progress that no descriptor
// announces.
constexpr uint64_t kLongestBusySleepNs = 10'000'000;

// Looks at the transport between two turns of an engine that spins. The turn's own look included,
// timers and descriptors wait for so many: some 0.2 us over shm, 10 us over tcp.
constexpr int kLooks = 7;

constexpr size_t kThreadNameBytes = 15;  // the kernel's limit, without the final zero

using internal::ThreadNumber;

absl::Status CheckOptions(const EngineOptions& options) {
  const uint32_t slots = options.inbox_slots;
  if (slots < 16 || slots > 65536 || (slots & (slots - 1)) != 0) {
    return absl::InvalidArgumentError(absl::StrCat("EngineOptions::inbox_slots is ", slots,
                                                   "; a power of two from 16 to 65536 is needed"));
  }
  if (options.cpu >= CPU_SETSIZE) {
    return absl::InvalidArgumentError(
        absl::StrCat("EngineOptions::cpu is ", options.cpu, "; there is no such processor"));
  }
  if (options.numa_node < 0) return absl::OkStatus();
  const std::vector<int> cpus = ProcessorsOfNode(kSysfs, options.numa_node);
  if (cpus.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("EngineOptions::numa_node is ", options.numa_node,
                     "; there is no such node with processors (", kSysfs, "/devices/system/node)"));
  }
  if (options.cpu >= 0 && std::find(cpus.begin(), cpus.end(), options.cpu) == cpus.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("EngineOptions::cpu is ", options.cpu, ", and numa_node ", options.numa_node,
                     "; that processor is of another node: give one of both"));
  }
  return absl::OkStatus();
}

int NodeOf(const EngineOptions& options) {
  if (options.numa_node >= 0 || options.cpu < 0) return options.numa_node;
  return NodeOfProcessor(kSysfs, options.cpu);
}

// Best effort: a container may forbid both, and the engine works without. On a node the thread runs
// on those processors that it may use already, as who has started it may (taskset): where these are
// of other nodes, it stays with them.
void NameAndPinThread(const EngineOptions& options) {
  pthread_setname_np(pthread_self(), options.name.substr(0, kThreadNameBytes).c_str());
  if (options.cpu < 0 && options.numa_node < 0) return;
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  if (options.cpu >= 0) {
    CPU_SET(static_cast<size_t>(options.cpu), &cpus);
  } else {
    const std::vector<int> of_node = ProcessorsOfNode(kSysfs, options.numa_node);
    for (const int cpu : AllowedProcessors()) {
      if (std::binary_search(of_node.begin(), of_node.end(), cpu)) {
        CPU_SET(static_cast<size_t>(cpu), &cpus);
      }
    }
    if (CPU_COUNT(&cpus) == 0) return;
  }
  pthread_setaffinity_np(pthread_self(), sizeof(cpus), &cpus);
}

Log* LogOfThisThread() {
  const internal::Turn* const turn = internal::innermost_turn;
  return turn != nullptr ? turn->engine->log() : internal::LogScope::current();
}

}  // namespace

absl::StatusOr<std::unique_ptr<EngineCore>> EngineCore::Create(const EngineOptions& options,
                                                               TransportFactory make_transport) {
  WEFT_RETURN_IF_ERROR(CheckOptions(options));
  // The thread that opens it may be of another node. The engine's own begins without this, and what
  // it touches lies where it runs.
  std::optional<NearMemory> near(NodeOf(options));
  std::unique_ptr<EngineCore> engine(new EngineCore(options));
  WEFT_RETURN_IF_ERROR(engine->Start(std::move(make_transport)));
  near.reset();
  if (options.drive == EngineOptions::Drive::kOwnThread) {
    engine->thread_ = std::thread([core = engine.get()] { core->RunOwnThread(); });
  }
  return engine;
}

Engine::Engine(Clock* clock) : clock_(clock) {}
Engine::~Engine() = default;

EngineCore::EngineCore(const EngineOptions& options)
    : Engine(options.clock != nullptr ? options.clock : &Clock::Real()),
      options_(options),
      numa_node_(NodeOf(options)),
      timers_(clock_->NowNs()),
      inbox_(options.inbox_slots),
      owner_(ThreadNumber()),
      fork_watch_([](void* engine) { static_cast<EngineCore*>(engine)->OnForked(); }, this) {
  turn_ns_ = clock_->NowNs();
  if (options.log != nullptr) {
    internal::find_log.store(&LogOfThisThread, std::memory_order_relaxed);
  }
  if (options.drive == EngineOptions::Drive::kExternal) internal::home_engine = this;
  counters_.Register("engine.wakes", &woken_);
  counters_.Register("engine.wakes", &called_);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Winvalid-offsetof"  // of a class with bases: compilers know it
  // What every turn and every call touches is one cache line, which Engine begins.
  static_assert(offsetof(EngineCore, driver_) % kCacheLineBytes == 0);
  static_assert(offsetof(EngineCore, doorbell_) + sizeof(doorbell_) ==
                offsetof(EngineCore, driver_) + kCacheLineBytes);
#pragma GCC diagnostic pop
}

absl::Status EngineCore::Start(TransportFactory make_transport) {
  WEFT_ASSIGN_OR_RETURN(doorbell_, Doorbell::Create());
  WEFT_ASSIGN_OR_RETURN(poller_, Poller::Create());
  WEFT_RETURN_IF_ERROR(poller_->Add(doorbell_->event_fd(), EPOLLIN | EPOLLET, /*handler=*/nullptr));
  const EngineContext context = {clock_,
                                 &timers_,
                                 poller_.get(),
                                 doorbell_.get(),
                                 options_.drive != EngineOptions::Drive::kExternal,
                                 options_.drive == EngineOptions::Drive::kOwnThread,
                                 &counters_,
                                 numa_node_};
  WEFT_ASSIGN_OR_RETURN(transport_, make_transport(context));
  return absl::OkStatus();
}

// --- in a child of fork() ------------------------------------------------------------------------

absl::Status EngineCore::ForkedError() {
  return absl::FailedPreconditionError(
      "this process is a child of fork(), and the engine is its parent's, as are its channels, "
      "servers and memory: their connections and threads are not in this process. Open what the "
      "child needs in the child");
}

void EngineCore::OnForked() {
  // A callback on this thread has forked: when the driver leaves, it does not give the role back.
  constexpr int kForGood = 1 << 30;  // more than calls nest
  if (OnEngine()) depth_ += kForGood;
  internal::innermost_turn = nullptr;  // this is the child's only thread, and in none of its turns
  driver_.store(kForked, std::memory_order_relaxed);
}

// Other threads may have been anywhere in what this has when the process forked. It all stays as it
// is: what is destroyed behind this is as new.
void EngineCore::Abandon() {
  LeaveBehind(std::move(transport_));
  LeaveBehind(std::move(poller_));
  LeaveBehind(std::move(doorbell_));
  std::construct_at(&thread_);
  std::construct_at(&timers_, uint64_t{0});
  std::construct_at(&set_aside_);
  std::construct_at(&inbox_, size_t{1});
  std::construct_at(&list_);
}

EngineCore::~EngineCore() {
  if (internal::home_engine == this) internal::home_engine = nullptr;
  if (forked()) {
    Abandon();
    return;
  }
  stop_.store(true, std::memory_order_release);
  if (thread_.joinable()) {
    doorbell_->Ring();
    thread_.join();
  }
  // A task may have run, and told its poster's owner that all is done, before the poster has rung.
  while (posters_.load(std::memory_order_acquire) > 0) std::this_thread::yield();
  // The transport's last callbacks run here, so this thread is the engine's now.
  WEFT_CHECK(TakeRole());                                  // Ours: whoever had it has gone
  internal::Turn turn = {this, internal::innermost_turn};  // what they say goes to its log
  internal::innermost_turn = &turn;
  transport_.reset();
  internal::innermost_turn = turn.outer;
}

// --- driving ------------------------------------------------------------------------------------

void EngineCore::RunOwnThread() {
  NameAndPinThread(options_);
  internal::home_engine = this;
  WEFT_CHECK(TakeRole());  // Ours: whoever had it has gone
  while (!stop_.load(std::memory_order_acquire)) Step(kNoDeadline);
  DropRole();
}

int Engine::Poll(int budget) {
  EngineCore& core = CoreOf(*this);
  // Like Enter(), but it does not count as a use of the engine.
  const bool enters = OnEngine() ? core.Enter() : core.MayDrive() && core.TakeRole();
  if (!enters) return 0;
  const bool passes = core.in_turn_ || (core.doorbell_->armed() && core.SleepsOn());
  const int work = passes ? 0 : core.RunTurn(budget);
  core.Leave();
  return work;
}

int EngineCore::RunTurn(int budget) {
  WEFT_DCHECK(!in_turn_);  // User: Poll() is not called inside a callback
  if (doorbell_->armed()) [[unlikely]]
    Wake();
  was_used_ = false;
  in_turn_ = true;
  internal::Turn turn = {this, internal::innermost_turn};
  internal::innermost_turn = &turn;
  turn_ns_ = clock_->NowNs();
  int work = inbox_.empty() ? 0 : DrainInbox(budget);
  work += transport_->Poll(budget, turn_ns_);
  WEFT_CHECK(!forked());  // User: a child that was forked inside a callback does not return from it
  // Only this is worth to spin for: heartbeats and timers come one at a time.
  if (work > 0) idle_since_ns_ = kNotIdle;
  if (turn_ns_ >= next_descriptor_check_ns_) [[unlikely]] {
    transport_->FlushAll();  // replies do not wait for system calls
    next_descriptor_check_ns_ = turn_ns_ + kDescriptorCheckNs;
    work += LookAtDescriptors();
  }
  // Last: after a pause of this process what has come meanwhile is not taken for late.
  work += timers_.Advance(turn_ns_);
  WEFT_CHECK(!forked());  // User: as above
  transport_->FlushAll();
  internal::innermost_turn = turn.outer;
  in_turn_ = false;
  return work;
}

// After a turn that found nothing: a few looks at the transport alone. What arrives is found sooner
// than by whole turns, in which the clock alone costs as much as a look. True: there was something,
// or there is in the inbox.
bool EngineCore::LookAgain() {
  in_turn_ = true;
  internal::Turn turn = {this, internal::innermost_turn};
  internal::innermost_turn = &turn;
  bool found = false;
  for (int look = 0; look < kLooks && !found; ++look) {
    if (transport_->Poll(kDefaultBudget, turn_ns_) > 0) {
      found = true;
      idle_since_ns_ = kNotIdle;
    }
    WEFT_CHECK(!forked());  // User: as in RunTurn()
    transport_->FlushAll();
    found = found || !inbox_.empty();
  }
  internal::innermost_turn = turn.outer;
  in_turn_ = false;
  return found;
}

// No system call where nobody is to hear of a descriptor, but to take what rang. That is taken
// late, after the work that it rang for: no one rings while the bell is not armed, and who is about
// to sleep arms it first and then looks for work.
int EngineCore::LookAtDescriptors() {
  if (!rang_ && !poller_->has_handlers()) return 0;
  rang_ = false;
  return poller_->Poll();
}

int EngineCore::DrainInbox(int budget) {
  int tasks = 0;
  Function<void()> task;
  while (tasks < budget && NextTask(&task)) {
    task();
    task = nullptr;
    ++tasks;
  }
  return tasks;
}

bool EngineCore::NextTask(Function<void()>* task) {
  if (set_aside_.empty()) [[likely]]
    return inbox_.TryPop(task);
  *task = std::move(set_aside_.front());
  set_aside_.pop_front();
  return true;
}

// Half of what the inbox has: the rest tells that there is something to do.
void EngineCore::SetAside() {
  if (set_aside_.size() >= kMostSetAside * inbox_.capacity()) return;
  Function<void()> task;
  for (size_t i = 0; i < inbox_.capacity() / 2 && inbox_.TryPop(&task); ++i) {
    set_aside_.push_back(std::move(task));
  }
}

// One turn, and where it found nothing: wait, first by spinning, then asleep.
void EngineCore::Step(uint64_t until_ns) {
  if (RunTurn(kDefaultBudget) > 0) return;
  if (idle_since_ns_ == kNotIdle) idle_since_ns_ = turn_ns_;
  const uint64_t wake_ns = std::min(until_ns, timers_.NextDeadlineNs());
  if (transport_->Idle(wake_ns)) return;
  const bool spins_forever = options_.spin_ns == kSpinForever;
  // An engine that a timer or a heartbeat has woken has looked once, and sleeps on.
  if (!spins_forever && turn_ns_ >= idle_since_ns_ + options_.spin_ns) return Sleep(wake_ns);
  if (LookAgain() || spins_forever) return;
  if (turn_ns_ >= idle_since_ns_ + kYieldAfterNs) {
    sched_yield();
  }
}

// Of an engine that the application has armed, whether a turn would find nothing: it was not used
// since, and the loop was woken by something else. What comes after Arm() makes the descriptor
// readable, so that one look there stands for all that a turn looks at. What it finds is kept for
// the turn, which has to follow.
WEFT_COLD bool EngineCore::SleepsOn() {
  return !was_used_ && inbox_.empty() && set_aside_.empty() && !transport_->busy() &&
         timers_.NextDeadlineNs() > clock_->NowNs() && !poller_->Wait(/*timeout_ns=*/0);
}

bool Engine::Arm() {
  EngineCore& core = CoreOf(*this);
  if (core.forked()) return true;  // nothing will ever be
  // This thread has used the engine, and nobody else can: what it has begun waits for the next
  // turn, which disarms.
  if (core.was_used_) return false;
  // No turn has come since it was armed, for that would have ended it.
  if (core.doorbell_->armed() && core.inbox_.empty()) return true;
  core.doorbell_->Arm();
  // Others may have posted before they could see that it is armed.
  if (core.inbox_.empty() && !core.stop_.load(std::memory_order_acquire) && transport_->Arm()) {
    return true;
  }
  core.Wake();
  return false;
}

int Engine::fd() const { return CoreOf(*this).poller_->descriptor(); }

uint64_t Engine::NextTimerNs() const {
  const EngineCore& core = CoreOf(*this);
  return core.forked() ? kNever : core.timers_.NextDeadlineNs();
}

// After a sleep, or instead of one. What woke us may be a descriptor: the next turn looks.
void EngineCore::Wake() {
  doorbell_->Disarm();
  rang_ = true;
  next_descriptor_check_ns_ = 0;
}

void EngineCore::Sleep(uint64_t until_ns) {
  if (!Arm()) return;
  const uint64_t now_ns = clock_->NowNs();
  uint64_t sleep_ns = until_ns > now_ns ? until_ns - now_ns : 0;
  if (transport_->busy()) sleep_ns = std::min(sleep_ns, kLongestBusySleepNs);
  poller_->Wait(sleep_ns);
  Wake();
}

// --- who drives ---------------------------------------------------------------------------------

bool EngineCore::MayDrive() const {
  switch (options_.drive) {
    case EngineOptions::Drive::kCaller:
      return true;
    case EngineOptions::Drive::kOwnThread:
      return false;  // the own thread holds the role, and OnEngine() is true on it
    case EngineOptions::Drive::kExternal:
      return owner_.load(std::memory_order_relaxed) == ThreadNumber();
  }
  return false;
}

void Engine::Adopt() {
  internal::home_engine = this;
  CoreOf(*this).owner_.store(ThreadNumber(), std::memory_order_relaxed);
}

bool EngineCore::TakeRole() {
  uint64_t nobody = 0;
  if (!driver_.compare_exchange_strong(nobody, ThreadNumber(), std::memory_order_seq_cst)) {
    return false;
  }
  depth_ = 1;
  return true;
}

void EngineCore::DropRole() {
  driver_.store(0, std::memory_order_seq_cst);
  if (followers_.load(std::memory_order_seq_cst) != 0) [[unlikely]]
    CallFollower();
}

bool EngineCore::BecomeDriver() {
  if (!MayDrive() || !TakeRole()) return false;
  was_used_ = true;
  return true;
}

// --- other threads ------------------------------------------------------------------------------

bool Engine::Post(Function<void()>&& task) {
  EngineCore& core = CoreOf(*this);
  if (core.forked()) [[unlikely]]
    return false;
  core.posters_.fetch_add(1, std::memory_order_relaxed);
  const bool posted = core.inbox_.TryPush(std::move(task));
  // The loop that owns the engine is not asleep, and makes a turn before it is; but it may have
  // made this engine's already where it posts in the turn of another one.
  const internal::Turn* const turn = internal::innermost_turn;
  const bool makes_turn =
      core.is_external() && core.MayDrive() && (turn == nullptr || turn->engine == &core);
  if (posted && !makes_turn) core.doorbell_->Ring();
  core.posters_.fetch_sub(1, std::memory_order_release);
  return posted;
}

void EngineCore::AwaitRoom() {
  for (const internal::Turn* turn = internal::innermost_turn; turn != nullptr; turn = turn->outer) {
    if (turn->engine->inbox_.full()) turn->engine->SetAside();
  }
  std::this_thread::yield();
}

const CounterSet& Engine::counters() const { return CoreOf(*this).counters_; }

bool EngineCore::Wait(Waiter& waiter, uint64_t deadline_ns) {
  WEFT_CHECK(!InTurn());  // User: blocks, so not inside a callback
  if (waiter.done()) return true;
  if (Enter()) {
    DriveUntil(waiter, deadline_ns);
    Leave();
  } else if (!forked()) {
    FollowUntil(waiter, deadline_ns);
  }
  return waiter.done();
}

void EngineCore::Finish(Waiter& waiter) {
  if (waiter.driven_) return waiter.word_.store(Waiter::kDone, std::memory_order_relaxed);
  std::atomic<uint32_t>* const word = &waiter.word_;
  // Who is about to sleep adds itself to the same word first, and sees there whether it is done.
  const uint32_t before = word->fetch_or(Waiter::kDone, std::memory_order_acq_rel);
  if ((before & Waiter::kSleepers) == 0) return;
  woken_.Increment();
  FutexWakeAll(word);
}

void EngineCore::DriveUntil(Waiter& waiter, uint64_t deadline_ns) {
  idle_since_ns_ = kNotIdle;
  while (!waiter.done()) {
    Step(deadline_ns);
    if (turn_ns_ >= deadline_ns) break;
  }
}

// --- who follows --------------------------------------------------------------------------------

// A thread that may drive, and sleeps until its waiter is finished or it is called to drive.
struct EngineCore::Follower : ListNode<> {
  explicit Follower(Waiter& of) : waiter(of) {}

  Waiter& waiter;
  // It has left the list and is the lookout. Written before the call changes the waiter's word.
  std::atomic<bool> called{false};
};

// The role is free, and was free before this looks at lookout_ (seq_cst): whoever looks out looks
// at the role after it has said that it does so no more, and finds it free, or a new driver, who
// will leave, too.
void EngineCore::CallFollower() {
  if (lookout_.load(std::memory_order_seq_cst)) return;
  const std::atomic<uint32_t>* word = nullptr;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    // The last one: the others have waited longer, and their ends are likely to come sooner.
    Follower* const follower = list_.Back();
    if (follower == nullptr || lookout_.exchange(true, std::memory_order_seq_cst)) return;
    list_.Remove(follower);
    followers_.fetch_sub(1, std::memory_order_relaxed);
    follower->called.store(true, std::memory_order_relaxed);
    word = &follower->waiter.word_;
    // It is there: a follower takes the lock before it goes.
    const uint32_t before =
        follower->waiter.word_.fetch_add(Waiter::kCall, std::memory_order_acq_rel);
    if ((before & Waiter::kSleepers) == 0) return;
    called_.Increment();
  }
  FutexWakeAll(word);
}

// For who was the lookout, has said that it is no more, and does not take the role.
void EngineCore::PassOn() {
  if (driver_.load(std::memory_order_seq_cst) == 0 &&
      followers_.load(std::memory_order_seq_cst) != 0) {
    CallFollower();
  }
}

void EngineCore::Enlist(Follower& follower) {
  const std::lock_guard<std::mutex> lock(mutex_);
  follower.called.store(false, std::memory_order_relaxed);
  list_.PushBack(&follower);
  followers_.fetch_add(1, std::memory_order_seq_cst);
}

// True: it was called, and is the lookout.
bool EngineCore::Delist(Follower& follower) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (follower.called.load(std::memory_order_relaxed)) return true;
  list_.Remove(&follower);
  followers_.fetch_sub(1, std::memory_order_relaxed);
  return false;
}

// Spins for as long as the engine itself would.
void EngineCore::SpinUntil(const Waiter& waiter, uint64_t deadline_ns, bool may_drive) {
  const uint64_t start_ns = clock_->NowNs();
  for (;;) {
    if (waiter.done()) return;
    if (may_drive && driver_.load(std::memory_order_relaxed) == 0) return;
    const uint64_t now_ns = clock_->NowNs();
    if (now_ns >= deadline_ns) return;
    if (options_.spin_ns != kSpinForever && now_ns - start_ns >= options_.spin_ns) return;
    if (now_ns - start_ns >= kYieldAfterNs) sched_yield();
  }
}

// Sleeps. The deadline is the engine's clock's, which need not follow the kernel's: the time is
// looked at again after each sleep.
void EngineCore::SleepUntil(Waiter& waiter, uint64_t deadline_ns, const std::atomic<bool>& called) {
  std::atomic<uint32_t>& word = waiter.word_;
  uint32_t seen = word.fetch_add(Waiter::kSleeper, std::memory_order_acq_rel) + Waiter::kSleeper;
  // Whatever ends this changes the word: what is looked at below is as new as `seen`, or newer.
  while ((seen & Waiter::kDone) == 0 && !called.load(std::memory_order_relaxed)) {
    const uint64_t now_ns = clock_->NowNs();
    if (now_ns >= deadline_ns) break;
    FutexWait(word, seen, deadline_ns == kNoDeadline ? kNever : deadline_ns - now_ns);
    seen = word.load(std::memory_order_acquire);
  }
  word.fetch_sub(Waiter::kSleeper, std::memory_order_relaxed);
}

// For who may not drive. One such thread spins, for the shortest way back to who waits alone; more
// would take the processors of those who bring what they all wait for.
void EngineCore::AwaitEnd(Waiter& waiter, uint64_t deadline_ns) {
  if (!spinning_.exchange(true, std::memory_order_relaxed)) {
    SpinUntil(waiter, deadline_ns, /*may_drive=*/false);
    spinning_.store(false, std::memory_order_relaxed);
  }
  const std::atomic<bool> nobody_calls{false};
  if (!waiter.done()) SleepUntil(waiter, deadline_ns, nobody_calls);
}

// Until the waiter is finished, or `deadline_ns`. True: before that, this thread became the driver.
bool EngineCore::FollowToDrive(Waiter& waiter, uint64_t deadline_ns) {
  Follower self(waiter);
  // Where nobody looks out this thread does, and spins; the others sleep at once.
  bool is_lookout = MayDrive() && !lookout_.exchange(true, std::memory_order_seq_cst);
  for (;;) {
    if (is_lookout) {
      SpinUntil(waiter, deadline_ns, /*may_drive=*/true);
      lookout_.store(false, std::memory_order_seq_cst);
      if (!waiter.done() && BecomeDriver()) return true;
      if (waiter.done() || clock_->NowNs() >= deadline_ns) {
        PassOn();
        return false;
      }
    }
    if (!MayDrive()) {
      if (is_lookout) PassOn();  // kExternal: another thread has adopted the engine meanwhile
      AwaitEnd(waiter, deadline_ns);
      return false;
    }
    Enlist(self);
    const bool driving = BecomeDriver();
    if (!driving) SleepUntil(waiter, deadline_ns, self.called);
    is_lookout = Delist(self);
    if (driving && is_lookout) lookout_.store(false, std::memory_order_seq_cst);
    if (driving || !is_lookout) return driving;
  }
}

void EngineCore::FollowUntil(Waiter& waiter, uint64_t deadline_ns) {
  if (!FollowToDrive(waiter, deadline_ns)) return;
  DriveUntil(waiter, deadline_ns);
  Leave();
}

bool Engine::RunUntil(absl::FunctionRef<bool()> done, uint64_t deadline_ns) {
  EngineCore& core = CoreOf(*this);
  WEFT_CHECK(!core.InTurn());  // User: blocks, so not inside a callback
  if (!core.Enter()) {
    Waiter nobody;  // finishes it: only the driver's role is waited for
    if (core.forked() || !core.MayDrive() || !core.FollowToDrive(nobody, deadline_ns)) return false;
  }
  core.idle_since_ns_ = EngineCore::kNotIdle;
  bool is_done = done();
  for (bool late = false; !is_done && !late; is_done = done()) {
    core.Step(deadline_ns);
    late = core.turn_ns_ >= deadline_ns;
  }
  core.Leave();
  return is_done;
}

}  // namespace weft
