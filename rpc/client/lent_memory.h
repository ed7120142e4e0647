// The memory that the calls and streams of one connection have lent to its server: registered with
// a request or an open, released when the server is done with it, reclaimed when nothing can touch
// it any more.
//
//   Loan        what one call or stream lends: windows, and how far their reclaim is
//   LentMemory  all loans of a connection, by the slot of their calls
//
// A loan may outlive its call, which then has ended before its reply: the server says that it is
// done with the memory, or its late reply does, or the connection's end. The same holds for a
// stream and its end.
//
// Threads: filling a Loan: one at a time, between calls. The rest: the engine's.
// Lifetime: a Loan is a member of its owner (bulk_call.h), who keeps it and its memory until
//   Owner::OnReclaimed(). REQUIRES: ReclaimAll() before a LentMemory goes.
// Errors: Lend() is all or nothing.
// Invariants: a window has a region, or is pinned, only while its loan is in a LentMemory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "core/function.h"
#include "core/intrusive_list.h"
#include "rpc/wire/frame.h"
#include "transport/operation.h"
#include "transport/region.h"
#include "transport/slice.h"

namespace weft {

class Connection;
class LentMemory;

class Loan final : private ListNode<> {
 public:
  // Ends a call or a stream whose memory has been reclaimed.
  using EndWith = Function<void(absl::Status outcome), 2 * sizeof(void*)>;

  class Owner {
   public:
    // Nothing can touch the memory, and no call has the loan any more. It may destroy the loan.
    virtual void OnReclaimed() = 0;

   protected:
    ~Owner() = default;
  };

  struct LentWindow final : public Operation {
    void OnComplete(const absl::Status&) override { loan->OnWindowReclaimed(); }

    Loan* loan = nullptr;
    Slice slice;
    Rights rights = 0;
    bool exposed = false;            // to be written, by the present or last call
    bool verified = false;           // the payload in it: for the owner
    std::unique_ptr<Region> region;  // while the server may use it
    bool pinned = false;             // kept out of other hands: LocalMemory::Pin()
  };

  explicit Loan(Owner* owner);
  Loan(const Loan&) = delete;
  Loan& operator=(const Loan&) = delete;

  // --- between calls ----------------------------------------------------------------------------

  uint32_t size() const { return size_; }
  // REQUIRES: size() < kMaxWindows.
  void Add(const Slice& slice, Rights rights);
  void Clear() { size_ = 0; }
  // A call or a stream has it from here to EndUse(). Nothing of the last one is in the windows any
  // more.
  void Begin();
  // REQUIRES: i < size().
  LentWindow& operator[](uint32_t i) { return windows_[i]; }
  const LentWindow& operator[](uint32_t i) const { return windows_[i]; }

  // --- on the engine's thread -------------------------------------------------------------------

  bool is_lent() const { return lender_ != nullptr; }
  // The call or stream has ended, with the memory reclaimed or not.
  void EndUse();
  // Ends the connection whose server has the memory, if one has.
  void EndConnection(std::string_view why);

 private:
  friend class LentMemory;
  friend class IntrusiveList<Loan>;

  // Registers all windows with the connection, and writes the table to `to`. All or none.
  absl::Status Lend(Connection& connection, std::byte* to);
  // Ends remote access. lender_->OnReclaimed() comes when all of it has ended.
  void Release(Connection& connection);
  void OnWindowReclaimed();

  Owner& owner_;
  std::array<LentWindow, kMaxWindows> windows_;
  uint32_t size_ = 0;  // <= kMaxWindows

  // While lent. Engine thread only.
  LentMemory* lender_ = nullptr;  // null: not lent
  CallId id_;                     // of the call; kOfStream
  bool in_use_ = false;           // its call or stream has not ended
  EndWith end_with_;              // that waits for the reclaim; null: nobody does
  absl::Status outcome_;          // for it
  uint32_t pinned_ = 0;           // windows whose reclaim has not ended
  bool releasing_ = false;
};

class LentMemory {
 public:
  // Of who has this: no base class, which would take room where every call touches it.
  using EndConnection = Function<void(std::string_view why), sizeof(void*)>;
  using OnEmpty = Function<void(), sizeof(void*)>;

  // The name of what a stream has lent: the stream itself says when it is given back. No call has
  // this slot (kMaxOutstandingCalls).
  static constexpr CallId kOfStream = {~uint32_t{0}, 0};

  // `end_connection`: the server does not do its part. `on_empty`: nothing is lent any more.
  LentMemory(EndConnection end_connection, OnEmpty on_empty)
      : end_connection_(std::move(end_connection)), on_empty_(std::move(on_empty)) {}
  LentMemory(const LentMemory&) = delete;
  LentMemory& operator=(const LentMemory&) = delete;

  // Lends all of the loan for the call of that name, and writes the table of windows to `table`:
  // from now on the server may use them. One without windows is not lent: no server would give it
  // back. REQUIRES: Loan::Begin(); not lent.
  absl::Status Lend(Connection& connection, Loan& loan, CallId id, std::byte* table);

  // The server is done with it: `end` gets `outcome` when the memory is reclaimed, perhaps inside;
  // not at all if EndUse() comes before.
  void EndWhenReclaimed(Connection& connection, Loan& loan, absl::Status outcome,
                        Loan::EndWith end);

  // The server is done with what an abandoned call, or a stream, has lent, if it has lent anything.
  void Release(Connection& connection, CallId id);
  static void Release(Connection& connection, Loan& loan);

  // The connection is gone, and with it every way to the memory.
  void ReclaimAll(Connection& connection);

  // Ends all calls and streams that have their replies and wait for their memory.
  void EndCalls(const absl::Status& status);

  bool empty() const { return loans_.empty(); }

 private:
  friend class Loan;

  void OnReclaimed(Loan& loan);

  EndConnection end_connection_;
  OnEmpty on_empty_;
  IntrusiveList<Loan> loans_;
};

// Whether a server takes so many windows of a call or a stream (`what`); else UNIMPLEMENTED.
absl::Status CheckWindows(std::string_view what, uint32_t windows, uint32_t most,
                          std::string_view address);

}  // namespace weft
