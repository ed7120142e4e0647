// One thing that was handed to a provider, or waits to be: a send slot or a one-sided operation.
//
// The provider gets a WorkId as its context: an integer {kind, generation, index} that finds the
// work again if, and only if, it is still the one that was posted. Nothing is ever dereferenced
// that came back from a provider, so a completion that arrives late (after a close, on the
// versions where that happens) is recognized and dropped.
//
// Threads: the engine's.
// Invariants: a Work is on at most one list: its link's waiting or its link's posted works, or the
//   domain's deferred completions.
#pragma once

#include <cstdint>

#include "core/intrusive_list.h"

namespace weft {

class FabricLink;

enum class WorkKind : uint8_t { kReceive = 1, kSend = 2, kOperation = 3 };

// Packed as generation:32, kind:2, index:30. Zero is never a valid id.
class WorkId {
 public:
  WorkId(WorkKind kind, uint32_t index, uint32_t generation)
      : packed_(uint64_t{generation} << 32 | uint64_t{static_cast<uint8_t>(kind)} << kIndexBits |
                (index & kIndexMask)) {}
  explicit WorkId(const void* context) : packed_(reinterpret_cast<uintptr_t>(context)) {}

  // NOLINTNEXTLINE(performance-no-int-to-ptr): never dereferenced
  void* context() const { return reinterpret_cast<void*>(static_cast<uintptr_t>(packed_)); }
  // 0 for contexts that are not ours.
  uint8_t raw_kind() const { return static_cast<uint8_t>(packed_ >> kIndexBits & 3); }
  bool Is(WorkKind kind) const { return raw_kind() == static_cast<uint8_t>(kind); }
  uint32_t index() const { return static_cast<uint32_t>(packed_ & kIndexMask); }
  uint32_t generation() const { return static_cast<uint32_t>(packed_ >> 32); }

 private:
  static constexpr int kIndexBits = 30;
  static constexpr uint64_t kIndexMask = (1u << kIndexBits) - 1;
  static_assert(sizeof(void*) == 8, "contexts carry 64 bits");

  uint64_t packed_;
};

// Base of Slot and OperationRecord. `link` is null when the link is gone or was never told.
struct Work : ListNode<> {
  explicit Work(WorkKind work_kind) : kind(work_kind) {}

  FabricLink* link = nullptr;
  WorkKind kind;
};

using WorkList = IntrusiveList<Work>;

}  // namespace weft
