#include "rpc/memory/remote_stripes.h"

#include <algorithm>
#include <utility>

#include "core/fork_guard.h"
#include "core/status.h"
#include "rpc/client/client_connection.h"
#include "rpc/operation/on_engine.h"
#include "transport/local_memory.h"
#include "weft/status.h"

namespace weft {
namespace {

// The length of all stripes but the last is a multiple of a page: two cards share few pages.
constexpr size_t kStripeStepBytes = 4096;

// How long a thread drives one lane before it looks at the next. A socket's buffer of 4 MiB is full
// after 0.4 ms at 10 GB/s.
constexpr uint64_t kDriveNs = 100'000;

// The same bytes, for the lane at this place.
LocalMemory* MemoryAt(LocalMemory* memory, uint32_t place) {
  for (; memory != nullptr && place > 0; --place) memory = memory->next();
  return memory;
}

uint64_t BytesOf(absl::Span<const RemotePiece> pieces) {
  uint64_t bytes = 0;
  for (const RemotePiece& piece : pieces) bytes += piece.local.length;
  return bytes;
}

// Has the core ask for what it lacks. An inbox that is full: the next transfer does.
void Recover(RemoteMemoryCore& core) {
  static_cast<void>(core.engine().Post([&core] { core.Recover(); }));
}

}  // namespace

RemoteStripes::RemoteStripes(const ChannelLanes& lanes, uint32_t home, RemoteMemoryCore& home_core,
                             const RegionHandle& handle, const RemoteMemoryOptions& options)
    : lanes_(lanes), home_(home), handle_(handle), options_(options), cores_(lanes.all().size()) {
  cores_[0].store(&home_core, std::memory_order_relaxed);
}

RemoteMemoryCore& RemoteStripes::CoreAt(uint32_t place) {
  if (RemoteMemoryCore* const core = cores_[place].load(std::memory_order_acquire)) return *core;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (RemoteMemoryCore* const core = cores_[place].load(std::memory_order_relaxed)) return *core;
  ClientConnection& client = internal::ConnectionOf(*lanes_.all()[Number(place)]);
  auto* const core = new RemoteMemoryCore(EngineAt(place), client, handle_, options_);
  cores_[place].store(core, std::memory_order_release);
  return *core;
}

// --- cutting ------------------------------------------------------------------------------------

bool RemoteStripes::IsForAll(const Slice& local) const {
  return local.valid() && MemoryAt(local.memory, count() - 1) != nullptr;
}

bool RemoteStripes::HaveAllArrived() const {
  bool all = true;
  for (const std::atomic<RemoteMemoryCore*>& one : cores_) {
    RemoteMemoryCore* const core = one.load(std::memory_order_acquire);
    if (core == nullptr || !core->has_unproven_writes()) continue;
    Recover(*core);
    all = false;
  }
  return all;
}

// The lanes that can take part now.
std::vector<uint32_t> RemoteStripes::Places(bool blocks) const {
  std::vector<uint32_t> places;
  for (uint32_t place = 0; place < count(); ++place) {
    const EngineCore& engine = EngineAt(place);
    const bool is_driven = place == 0 || blocks || engine.drives_itself() || engine.is_external();
    if (!is_driven || !lanes_.states().IsReady(Number(place))) continue;
    RemoteMemoryCore* const core = cores_[place].load(std::memory_order_acquire);
    if (core != nullptr && core->lacks_lease()) {
      Recover(*core);
    } else {
      places.push_back(place);
    }
  }
  return places;
}

std::vector<RemoteStripes::Stripe> RemoteStripes::Cut(RemoteOperation::Kind kind,
                                                      absl::Span<const RemotePiece> pieces,
                                                      bool blocks) {
  const uint64_t bytes = BytesOf(pieces);
  if (bytes < 2 * kLeastStripeBytes || EngineAt(0).forked()) return {};
  // A callback of another lane's engine that waited would keep that one's stripe waiting.
  if (blocks && internal::innermost_turn != nullptr) return {};
  if (EngineAt(0).OnEngine() && closing_) return {};
  RemoteOperation whole;
  whole.kind = kind;
  whole.pieces = pieces;
  if (!CoreAt(0).Check(whole).ok()) return {};
  if (!std::all_of(pieces.begin(), pieces.end(),
                   [this](const RemotePiece& piece) { return IsForAll(piece.local); })) {
    return {};
  }
  if (!HaveAllArrived()) return {};
  std::vector<uint32_t> places = Places(blocks);
  if (places.size() > bytes / kLeastStripeBytes) places.resize(bytes / kLeastStripeBytes);
  if (places.empty() || (places.size() == 1 && places.front() == 0)) return {};

  const uint64_t even = (bytes + places.size() - 1) / places.size();
  const uint64_t share = (even + kStripeStepBytes - 1) / kStripeStepBytes * kStripeStepBytes;
  std::vector<Stripe> stripes;
  uint64_t room = 0;  // in the last stripe
  for (const RemotePiece& piece : pieces) {
    for (size_t done = 0; done < piece.local.length;) {
      if (room == 0) {
        const uint32_t place = places[stripes.size()];
        stripes.push_back({&CoreAt(place), {}});
        room = share;
      }
      const uint32_t place = places[stripes.size() - 1];
      const size_t length = std::min<uint64_t>(room, piece.local.length - done);
      stripes.back().pieces.push_back(
          {piece.offset + done,
           {MemoryAt(piece.local.memory, place), piece.local.offset + done, length}});
      done += length;
      room -= length;
    }
  }
  return stripes;
}

// --- memory -------------------------------------------------------------------------------------

std::unique_ptr<Buffer> RemoteStripes::BufferOf(MutableByteSpan bytes) const {
  std::vector<std::unique_ptr<LocalMemory>> memories(count());
  LocalMemory* next = nullptr;
  for (uint32_t place = count(); place-- > 0;) {
    memories[place] =
        std::make_unique<LocalMemory>(bytes, /*keeper=*/nullptr, /*engines=*/1,
                                      EngineAt(place).transport().first_path_number(), next);
    next = memories[place].get();
  }
  std::vector<EngineCore*> engines;
  for (uint32_t place = 0; place < count(); ++place) engines.push_back(&EngineAt(place));
  const Slice all = {memories.front().get(), 0, bytes.size()};
  return std::make_unique<Buffer>(
      all, [memories = std::move(memories), engines = std::move(engines)]() mutable {
        for (size_t place = 0; place < engines.size(); ++place) {
          EngineCore& engine = *engines[place];
          LocalMemory& memory = *memories[place];
          if (engine.forked()) {
            LeaveBehind(std::move(memories[place]));
          } else if (engine.InTurn()) {
            memory.DropRegions();
          } else if (memory.has_regions()) {
            Waiter closed;
            PostOrDrive(engine, [&] {
              memory.DropRegions();
              engine.Finish(closed);
            });
            Wait(engines, engine, closed, EngineCore::kNoDeadline);
          }
        }
      });
}

// --- waiting ------------------------------------------------------------------------------------

bool RemoteStripes::Wait(const std::vector<EngineCore*>& engines, EngineCore& of, Waiter& waiter,
                         uint64_t deadline_ns) {
  const bool needs_turns = std::any_of(engines.begin(), engines.end(),
                                       [](const EngineCore* one) { return !one->drives_itself(); });
  if (!needs_turns) return of.Wait(waiter, deadline_ns);
  while (!waiter.done() && !of.forked()) {
    const uint64_t now_ns = of.clock().NowNs();
    if (now_ns >= deadline_ns) return false;
    if (of.Wait(waiter, std::min(deadline_ns, now_ns + kDriveNs))) return true;
    for (EngineCore* const engine : engines) engine->Poll();
  }
  return waiter.done();
}

// --- the end ------------------------------------------------------------------------------------

bool RemoteStripes::HoldWhileLate(Function<void()>& then) {
  return HoldWhileLateFrom(count() - 1, then);
}

// One lane after the other, from the last place down to the home one, as Shutdown() goes.
bool RemoteStripes::HoldWhileLateFrom(uint32_t place, Function<void()>& then) {
  const auto last = std::make_shared<Function<void()>>(std::move(then));
  // None of the cores that are there goes meanwhile.
  const std::lock_guard<std::mutex> lock(mutex_);
  for (; place > 0; --place) {
    RemoteMemoryCore* const core = cores_[place].load(std::memory_order_relaxed);
    if (core == nullptr) continue;
    Function<void()> next = [this, place, core, last] {
      if (!HoldWhileLateFrom(place - 1, *last)) core->Deliver(EngineAt(0), std::move(*last));
    };
    if (core->HoldWhileLate(next)) return true;
  }
  then = std::move(*last);
  return cores_[0].load(std::memory_order_relaxed)->HoldWhileLate(then);
}

void RemoteStripes::Shutdown() {
  if (EngineAt(0).forked()) {
    for (std::atomic<RemoteMemoryCore*>& core : cores_) {
      LeaveBehind(core.load(std::memory_order_relaxed));
    }
    return;
  }
  RunOnEngine(EngineAt(0), [this] { closing_ = true; });
  for (uint32_t place = count() - 1; place > 0; --place) {
    RemoteMemoryCore* core = nullptr;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      core = cores_[place].exchange(nullptr);
    }
    if (core == nullptr) continue;
    Waiter gone;
    // Behind everything that was posted: those operations end.
    PostOrDrive(EngineAt(place), [core, &gone] { core->Shutdown(&gone); });
    Wait(EngineAt(place), gone);
  }
}

// --- the end of one that was cut ----------------------------------------------------------------

absl::Status StatusOfWhole(absl::Status stripe) {
  if (stripe.ok()) return stripe;
  return WithDelivery(
      Annotate(stripe, "a stripe of the transfer, others of which may have been carried out"),
      Delivery::kMayHaveRun);
}

void StripedEnd::OnStripe(RemoteMemoryCore& core, absl::Status status) {
  if (!status.ok() && !failed_.exchange(true, std::memory_order_relaxed)) {
    status_ = std::move(status);
  }
  if (!IsLast()) return;
  if (home_.InTurn()) return Run();
  // All are started, so this is in a turn of the core's engine.
  core.Deliver(home_, [this] { Run(); });
}

void StripedEnd::OnStarted() {
  if (IsLast() && !home_.Post([this] { Run(); })) Run();
}

void StripedEnd::Run() {
  Function<void(absl::Status)> done = std::move(done_);
  absl::Status status = StatusOfWhole(std::move(status_));
  delete this;
  done(std::move(status));
}

}  // namespace weft
