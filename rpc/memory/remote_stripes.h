// Large transfers of a RemoteMemory over all lanes of its channel: each is cut into stripes, one
// for a lane, which move at the same time, over the lanes' connections and so by their cards.
//
// What is cut: an operation of 2 * kLeastStripeBytes at least, between memory that is good for all
// lanes (BufferOf()) and the owner's, if nothing has to stay in order behind it before its end. A
// lane takes part if it has a connection now, and was not refused a lease for want of room. (So a
// transfer goes on by the others when one is lost, if it begins after that, also where one alone is
// left.) Stripes are of about the same length.
//
//   one that is cut   begun   RemoteMemory starts its stripes, each an operation of its lane's core
//                             -> ended: the last stripe has ended
//                     ended   its caller goes on, or its callback runs on the home lane's engine,
//                             with OK or StatusOfWhole() of a stripe that failed; others may have
//                             been carried out. None touches the memory any more, but for late ones
//                             (WhenReclaimed())
//
// Every stripe of a write is acknowledged, so that whatever is started behind the whole finds its
// bytes, by whichever lane. And nothing is cut while a write may not have arrived, as one that is
// not acknowledged may not at its end, nor one that has failed: other lanes would overtake it. The
// lane's core knows (RemoteMemoryCore::has_unproven_writes()); who finds it so has the owner asked,
// and does not wait for the answer.
//
// Each lane but the home one has a core of its own, with a lease of its own, made when it first
// takes part. An owner counts them as it counts those of several channels. The transfer that finds
// out that it has no more to give fails; each that follows asks again, and does not count on it.
//
// Threads: any, but for what the engine is named of.
// Lifetime: a member of the RemoteMemory; Shutdown() before it is destroyed.
// Limits: as many stripes as lanes; each counts in its lane's max_waiting.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "core/bytes.h"
#include "core/function.h"
#include "rpc/client/channel_lanes.h"
#include "rpc/memory/remote_memory.h"
#include "rpc/memory/remote_memory_core.h"
#include "rpc/memory/remote_operation.h"
#include "transport/buffer.h"
#include "transport/engine.h"

namespace weft {

// Of a stripe. What it saves has to be more than what it costs to wake the thread of another lane,
// some 25 us in a virtual machine, and a round trip for its acknowledgement: 1 MiB takes 80 us of a
// wire of 100 Gb/s.
inline constexpr size_t kLeastStripeBytes = size_t{1} << 20;

class RemoteStripes {
 public:
  struct Stripe {
    RemoteMemoryCore* core;
    std::vector<RemotePiece> pieces;
  };

  // `home`: the number of the lane on which the memory was opened, whose core is `home_core`.
  RemoteStripes(const ChannelLanes& lanes, uint32_t home, RemoteMemoryCore& home_core,
                const RegionHandle& handle, const RemoteMemoryOptions& options);

  // How an operation on these is cut. Empty: it is not, or it is one that the home lane's core
  // refuses. `blocks`: its caller waits, and drives the engines that callers drive; otherwise these
  // take no part, but for the home one.
  std::vector<Stripe> Cut(RemoteOperation::Kind kind, absl::Span<const RemotePiece> pieces,
                          bool blocks);

  // Memory of the program's, good for all lanes.
  std::unique_ptr<Buffer> BufferOf(MutableByteSpan bytes) const;

  // Returns when `waiter`, of the engine `of`, is finished, or at the deadline; whether it is.
  // Lanes' engines that this thread may drive have their turns meanwhile: two threads that wait for
  // each other's make progress.
  bool Wait(EngineCore& of, Waiter& waiter, uint64_t deadline_ns = EngineCore::kNoDeadline) const {
    return Wait(lanes_.engines(), of, waiter, deadline_ns);
  }

  // As RemoteMemoryCore::HoldWhileLate(), of all lanes; `then` runs on the home engine.
  [[nodiscard]] bool HoldWhileLate(Function<void()>& then);

  // Ends the other lanes' cores; every operation that was cut has ended then, but for the home
  // lane's stripe. What begins meanwhile on the home engine is not cut.
  void Shutdown();

 private:
  static bool Wait(const std::vector<EngineCore*>& engines, EngineCore& of, Waiter& waiter,
                   uint64_t deadline_ns);
  uint32_t count() const { return static_cast<uint32_t>(lanes_.all().size()); }
  // Lanes in the order that begins with the home one, and goes round.
  uint32_t Number(uint32_t place) const { return (home_ + place) % count(); }
  EngineCore& EngineAt(uint32_t place) const { return *lanes_.engines()[Number(place)]; }
  RemoteMemoryCore& CoreAt(uint32_t place);
  bool IsForAll(const Slice& local) const;
  bool HaveAllArrived() const;
  std::vector<uint32_t> Places(bool blocks) const;
  bool HoldWhileLateFrom(uint32_t place, Function<void()>& then);

  // Constant after construction.
  const ChannelLanes& lanes_;
  const uint32_t home_;
  const RegionHandle handle_;
  const RemoteMemoryOptions options_;

  bool closing_ = false;  // home engine
  std::mutex mutex_;
  // By place; written with mutex_ held. Null: that lane has taken no part, or this ends.
  std::vector<std::atomic<RemoteMemoryCore*>> cores_;
};

// Of an operation one of whose stripes ended so.
absl::Status StatusOfWhole(absl::Status stripe);

// The end of an operation that was cut and has a callback. Made for so many stripes, and for the
// function that starts them; the last of these ends it.
class StripedEnd {
 public:
  StripedEnd(EngineCore& home, size_t stripes, Function<void(absl::Status)> done)
      : home_(home), left_(stripes + 1), done_(std::move(done)) {}

  // A stripe of this core has ended. On its engine; this may be gone then.
  void OnStripe(RemoteMemoryCore& core, absl::Status status);
  // All are started. `done` does not run inside, unless the home engine's inbox is full.
  void OnStarted();

 private:
  bool IsLast() { return left_.fetch_sub(1, std::memory_order_acq_rel) == 1; }
  void Run();

  EngineCore& home_;
  std::atomic<size_t> left_;
  std::atomic<bool> failed_{false};
  absl::Status status_;  // of the stripe that set failed_, until the last has counted down
  Function<void(absl::Status)> done_;
};

}  // namespace weft
