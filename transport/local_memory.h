// The near end of one-sided operations: memory of this process, registered with each path when it
// is first used there, and never again.
//
// A Region belongs to one path's device; a server's clients come over several. LocalMemory is the
// one name for the memory, and keeps a Region for each path: an array access on the hot path. Where
// several engines use it (a server's), it keeps those of each apart, and refuses other engines'.
// Applications do not meet it: they have a Buffer (buffer.h), which is a part of one, or all of it.
//
// Access is kLocalOnly. Peers get leases (exports.h), or regions of their own that last for one
// call.
//
// Threads: the engine's, but for the constructor and bytes(). Of several engines each on its own.
// Lifetime: the memory outlives it; it is destroyed, or DropRegions() is called, before the
//   Transport, when no operation on it is outstanding.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/bytes.h"
#include "transport/connection.h"
#include "transport/region.h"

namespace weft {

class LocalMemory {
 public:
  // Who hands parts of the memory out, and must not reuse those that are pinned.
  class Keeper {
   public:
    virtual void Pin(size_t offset) = 0;
    virtual void Unpin(size_t offset) = 0;

   protected:
    ~Keeper() = default;
  };

  // `keeper` may be null: the memory is the application's, who keeps it as long as it is told to.
  // `engines`: so many use it, whose path numbers begin at `first_number`
  // (Transport::first_path_number() of the first), kMaxPathNumbers behind it, and so on.
  // kOfFirstUse: it is that one engine's on which it is used first. `next`: see next().
  static constexpr uint32_t kOfFirstUse = ~uint32_t{0};
  explicit LocalMemory(MutableByteSpan memory, Keeper* keeper = nullptr, uint32_t engines = 1,
                       uint32_t first_number = kOfFirstUse, LocalMemory* next = nullptr)
      : memory_(memory),
        keeper_(keeper),
        first_number_(first_number),
        numbers_(first_number != kOfFirstUse ? engines * kMaxPathNumbers : 0),
        others_(engines > 1
                    ? std::make_unique<std::unique_ptr<Region>[]>((engines - 1) * kMaxPathNumbers)
                    : nullptr),
        next_(next) {}
  LocalMemory(const LocalMemory&) = delete;
  LocalMemory& operator=(const LocalMemory&) = delete;

  MutableByteSpan bytes() const { return memory_; }

  // The region of this connection's path. The first time on a path it registers (not for the hot
  // path: call it once when the connection opens); errors are RemoteAccess::Register()'s, and
  // FAILED_PRECONDITION for a connection of an engine that does not use this.
  // REQUIRES: the connection is open.
  absl::StatusOr<const Region*> For(Connection& connection) {
    // Of an engine before the first: a large number.
    uint32_t number = connection.memory().path_number() - first_number_;
    if (number >= numbers_) [[unlikely]] {
      if (numbers_ != 0) {
        return absl::FailedPreconditionError(
            "the memory is of one engine, and the connection another's: take memory of the channel "
            "that it is used with (Channel::here() of one with several engines), by "
            "Channel::AllocateBuffer(); a server has memory for all of its engines, by "
            "Server::AllocateBuffer()");
      }
      number = connection.memory().path_number() % kMaxPathNumbers;
      first_number_ = connection.memory().path_number() - number;
      numbers_ = kMaxPathNumbers;
    }
    std::unique_ptr<Region>& region =
        number < kMaxPathNumbers ? regions_[number] : others_[number - kMaxPathNumbers];
    if (region == nullptr) [[unlikely]] {
      absl::StatusOr<std::unique_ptr<Region>> made =
          connection.memory().Register(memory_, Access::kLocalOnly);
      if (!made.ok()) return made.status();
      region = *std::move(made);
    }
    return region.get();
  }

  // The same bytes for the next of a channel's engines; null: there is none. (Engines of a
  // program's own have no numbers that follow each other, so each has a LocalMemory.)
  LocalMemory* next() const { return next_; }

  bool has_regions() const {
    return std::any_of(regions_.begin(), regions_.end(),
                       [](const std::unique_ptr<Region>& region) { return region != nullptr; });
  }
  // Closes the registrations; For() would make new ones.
  void DropRegions() {
    for (std::unique_ptr<Region>& region : regions_) region.reset();
  }
  // The same of an engine but the first, on that one. REQUIRES: 0 < engine < engines.
  void DropRegionsOf(uint32_t engine) {
    std::unique_ptr<Region>* const first = &others_[(engine - 1) * kMaxPathNumbers];
    for (uint32_t i = 0; i < kMaxPathNumbers; ++i) first[i].reset();
  }

  // Keeps the pool's buffer in which `offset` lies out of other hands, also when its Buffer is
  // destroyed, until Unpin(): for memory that a peer may still touch (RemoteAccess::Reclaim()).
  // Pins count. Nothing to do for an application's own memory. REQUIRES: the Buffer lives, at
  // Pin(); CheckPinnable().
  void Pin(size_t offset) {
    if (keeper_ != nullptr) keeper_->Pin(offset);
  }
  void Unpin(size_t offset) {
    if (keeper_ != nullptr) keeper_->Unpin(offset);
  }
  // Pins are counted on one engine.
  bool is_pinnable() const { return others_ == nullptr; }
  absl::Status CheckPinnable() const {
    if (is_pinnable()) [[likely]]
      return absl::OkStatus();
    return absl::FailedPreconditionError(
        "the buffer is for all engines of a server, and channels use none of these where a peer "
        "may be late: take one of Channel::AllocateBuffer()");
  }

 private:
  const MutableByteSpan memory_;
  Keeper* const keeper_;
  uint32_t first_number_;  // constant, but for kOfFirstUse
  uint32_t numbers_;       // the same; 0: it was not used yet
  // Of the engines behind the first; null: there is one.
  const std::unique_ptr<std::unique_ptr<Region>[]> others_;
  std::array<std::unique_ptr<Region>, kMaxPathNumbers> regions_;  // [path number - first_number_]
  LocalMemory* const next_;
};

}  // namespace weft
