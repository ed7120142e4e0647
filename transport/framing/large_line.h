// The connections of a domain that have much to do for their large messages, in a line: to seal
// them, to open them, and to hand them to their handlers. The first of them does a piece of it in a
// turn of the engine, and goes to the line's end. So a turn is held up by one piece, whoever and
// however many want one: a message of 64 MiB (30 ms of AES on one core) lets every other call
// through in between, and so do ten messages that have come at the same time.
//
//   Join() -> waits -> is first: OnFirst(), then its piece in a turn -> Yield() to the end, or
//   Leave()
//
// While the line is empty, and none has been done in this turn, a piece does not wait: it is sealed
// when the turn ends in which it was written, opened and delivered when it has come. Who has had it
// joins the line, and so do those who come in the same turn, whose pieces follow, one in a turn.
//
// Threads: one engine's. Lifetime: outlives its members, each of which leaves before it goes.
// Errors: none. Invariants: the first member, and no other, has been told so.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "core/intrusive_list.h"

namespace weft {

// A piece, in bytes: 0.1 ms of AES-256-GCM on one core, and as long in a handler that copies it
// some times, as generated code does: what a hundred small calls take. A handler that does more
// with its message takes what it takes, for each of them. Less: a message of 64 MiB takes more
// turns to open; more: whoever comes meanwhile waits longer.
inline constexpr size_t kLargePieceBytes = size_t{256} << 10;

struct LargeLineTag;

class LargeLine {
 public:
  class Member : public ListNode<LargeLineTag> {
   public:
    // It does a piece, if Use() lets it, in this Transport::Poll() or the next. Called by Join(),
    // and where another member makes room for it: nothing of the line is to be called inside.
    virtual void OnFirst() = 0;

   protected:
    ~Member() = default;
  };

  bool empty() const { return members_.empty(); }
  // `turn`: another number in each turn. False: a piece has been done in this one.
  bool Use(uint64_t turn) { return std::exchange(used_turn_, turn) != turn; }
  bool Has(const Member* member) const { return members_.IsLinked(member); }
  bool IsFirst(const Member* member) const { return members_.Front() == member; }

  // Nothing to do if it is in the line.
  void Join(Member* member) {
    if (Has(member)) return;
    members_.PushBack(member);
    if (IsFirst(member)) member->OnFirst();
  }
  // Nothing to do if it is not.
  void Leave(Member* member) {
    const bool was_first = IsFirst(member);
    members_.Remove(member);
    if (was_first && !members_.empty()) members_.Front()->OnFirst();
  }
  // REQUIRES: it is the first.
  void Yield(Member* member) {
    members_.Remove(member);
    members_.PushBack(member);
    members_.Front()->OnFirst();
  }

 private:
  IntrusiveList<Member, LargeLineTag> members_;
  uint64_t used_turn_ = ~uint64_t{0};
};

}  // namespace weft
