// The memory of one link: two rings, one each way, and the state of each side.
//
// The passive side makes it, the handshake hands its descriptor to the active side (docs/
// wire_format.md), and both map it. Zeros are its first state. Each word has one side that writes
// it:
//
//   offset              what                                              written by
//   0                   magic                                             the passive side, once
//   128, 256            SharedSide of the passive and the active side     that side
//   384, 640            RingWords of the rings to the passive, to the     the ring's two ends
//                       active side
//   4096                the ring to the passive side                      the active side
//   4096 + kRingBytes   the ring to the active side                       the passive side
//
// A link comes up as both sides mark themselves here:
//
//   passive  Accept(): maps, marks itself; up when the active side has marked itself
//   active   Connect(): maps, finds the passive side's mark, marks itself: up
//
// Threads: the layout, any; each object one engine's.
// Errors: what a peer hands over is checked: size, seals, magic.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transport/shm/ring.h"
#include "transport/shm/sealed_memory.h"

namespace weft {

enum class SideState : uint32_t { kAbsent = 0, kHere = 1, kLeft = 2 };

struct SharedSide {
  alignas(kWordAlignment) std::atomic<SideState> state;
  // Of this side's link in its domain: the byte to set when there is something to read
  // (ready_flags.h). Written before `state`.
  std::atomic<uint32_t> flag_index;
};

struct SharedLinkMemory {
  uint64_t magic;
  SharedSide passive;
  SharedSide active;
  RingWords to_passive_words;
  RingWords to_active_words;
  alignas(4096) std::byte to_passive[kRingBytes];
  std::byte to_active[kRingBytes];
};
static_assert(sizeof(SharedLinkMemory) == 4096 + 2 * kRingBytes);
static_assert(offsetof(SharedLinkMemory, passive) == 128);
static_assert(offsetof(SharedLinkMemory, to_passive_words) == 384);
static_assert(offsetof(SharedLinkMemory, to_active_words) == 640);

class LinkMemory {
 public:
  LinkMemory() = default;
  // A new one; the descriptor is the caller's to close.
  static absl::StatusOr<int> Create();
  // Maps one; borrows the descriptor.
  static absl::StatusOr<LinkMemory> Open(int descriptor);

  SharedLinkMemory* operator->() const {
    return reinterpret_cast<SharedLinkMemory*>(memory_.data());
  }
  bool valid() const { return memory_.data() != nullptr; }
  void Reset() { memory_.Reset(); }

 private:
  explicit LinkMemory(SealedMemory memory) : memory_(std::move(memory)) {}

  SealedMemory memory_;
};

}  // namespace weft
