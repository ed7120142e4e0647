#include "rpc/client/channel_events.h"

#include <utility>

#include "core/strings.h"
#include "rpc/operation/on_engine.h"

namespace weft {
namespace {

absl::Status DestroyedError(const std::string& address) {
  return absl::FailedPreconditionError(
      StrCat("the channel to ", address, " is being destroyed: nothing more will come of it"));
}

}  // namespace

std::string_view ChannelStateName(ChannelState state) {
  switch (state) {
    case ChannelState::kIdle:
      return "idle";
    case ChannelState::kConnecting:
      return "connecting";
    case ChannelState::kReady:
      return "ready";
    case ChannelState::kTransientFailure:
      return "transient failure";
    case ChannelState::kShutdown:
      return "shut down";
  }
  return "unknown";
}

// --- the handle ---------------------------------------------------------------------------------

ChannelWatch::ChannelWatch(std::shared_ptr<StateWatch> watch) : watch_(std::move(watch)) {}

ChannelWatch::~ChannelWatch() { End(); }

ChannelWatch& ChannelWatch::operator=(ChannelWatch&& other) noexcept {
  if (this != &other) {
    End();
    watch_ = std::move(other.watch_);
  }
  return *this;
}

void ChannelWatch::End() {
  const std::shared_ptr<StateWatch> watch = std::move(watch_);
  if (watch == nullptr || watch->over.load(std::memory_order_acquire)) return;
  RunOnEngine(watch->engine, [&watch] {
    if (!watch->over.load(std::memory_order_relaxed)) watch->events->Forget(*watch);
  });
}

// --- states -------------------------------------------------------------------------------------

absl::StatusOr<ChannelWatch> ChannelEvents::Watch(Function<void(ChannelState)> changed) {
  if (state_ == ChannelState::kShutdown) return DestroyedError(address_);
  if (watch_count_ >= kMaxStateWatches) {
    return absl::ResourceExhaustedError(
        StrCat("the channel to ", address_, " has ", watch_count_,
               " watches of its state, and can have no more: destroy one"));
  }
  auto watch = std::make_shared<StateWatch>(engine_);
  watch->events = this;
  watch->changed = std::move(changed);
  watch->self = watch;
  watches_.PushBack(watch.get());
  ++watch_count_;
  engine_.timers().Schedule(this, 0);
  return ChannelWatch(std::move(watch));
}

void ChannelEvents::Forget(StateWatch& watch) {
  IntrusiveList<StateWatch>::Remove(&watch);
  watch.over.store(true, std::memory_order_release);
  watch.self.reset();
  --watch_count_;
}

void ChannelEvents::OnState(ChannelState state) {
  state_ = state;
  if (watch_count_ > 0) engine_.timers().Schedule(this, 0);
}

void ChannelEvents::TellWatches() {
  IntrusiveList<StateWatch> due;  // callbacks may destroy watches, and add others
  due.SpliceBack(watches_);
  while (StateWatch* const watch = due.PopFront()) {
    watches_.PushBack(watch);
    if (watch->seen == state_) continue;
    watch->seen = state_;
    const std::shared_ptr<StateWatch> kept = watch->self;  // it may be destroyed inside
    watch->changed(state_);
  }
}

// --- room ---------------------------------------------------------------------------------------

void ChannelEvents::WhenWritable(Function<void(absl::Status)> done) {
  if (state_ == ChannelState::kShutdown) return done(DestroyedError(address_));
  if (writable_.size() >= kMaxWritableCallbacks) {
    return done(absl::ResourceExhaustedError(
        StrCat(writable_.size(), " callbacks wait already until the channel to ", address_,
               " has room, and no more can: wait for one of them")));
  }
  writable_.push_back(std::move(done));
  engine_.timers().Schedule(this, 0);
}

// Each finds room: what one callback starts may fill the channel again.
void ChannelEvents::TellOfRoom() {
  // Callbacks add others, without an end: then the engine has its turn in between.
  for (int run = 0; run < Engine::kDefaultBudget; ++run) {
    if (writable_.empty()) return;
    if (!calls_.HasRoom()) return calls_.WantRoom();
    calls_.WantNoRoom();
    Function<void(absl::Status)> done = std::move(writable_.front());
    writable_.pop_front();
    done(absl::OkStatus());
  }
  if (!writable_.empty()) engine_.timers().Schedule(this, 0);
}

void ChannelEvents::EndWaiting(const absl::Status& why) {
  calls_.WantNoRoom();
  std::deque<Function<void(absl::Status)>> ended = std::exchange(writable_, {});
  for (Function<void(absl::Status)>& done : ended) done(why);
}

// --- both ---------------------------------------------------------------------------------------

void ChannelEvents::OnTimer() {
  TellWatches();
  TellOfRoom();
}

void ChannelEvents::Shutdown(const absl::Status& gone) {
  state_ = ChannelState::kShutdown;
  engine_.timers().Cancel(this);
  TellWatches();
  while (StateWatch* const watch = watches_.Front()) Forget(*watch);
  EndWaiting(gone);
}

}  // namespace weft
