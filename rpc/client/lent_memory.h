// The memory that the calls of one connection have lent to its server: registered with a request,
// released when the server is done with it, reclaimed when nothing can touch it any more.
//
//   Loan        what one call lends: windows, and how far their reclaim is
//   LentMemory  all loans of a connection, by the slot of their calls
//
// A loan may outlive its call, which then has ended before its reply: the server says that it is
// done with the memory, or its late reply does, or the connection's end.
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

class ClientCall;
class Connection;
class LentMemory;

class Loan final : private ListNode<> {
 public:
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
  // Nothing of the last call is in the windows any more.
  void Begin();
  // REQUIRES: i < size().
  LentWindow& operator[](uint32_t i) { return windows_[i]; }
  const LentWindow& operator[](uint32_t i) const { return windows_[i]; }

  // --- on the engine's thread -------------------------------------------------------------------

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
  CallId id_;                     // of the call
  ClientCall* call_ = nullptr;    // that has not ended
  absl::Status outcome_;          // what it ends with once the memory is reclaimed
  uint32_t pinned_ = 0;           // windows whose reclaim has not ended
  bool releasing_ = false;
};

class LentMemory {
 public:
  // Of who has this: no base class, which would take room where every call touches it.
  using EndCall = Function<void(ClientCall& call, absl::Status status), sizeof(void*)>;
  using EndConnection = Function<void(std::string_view why), sizeof(void*)>;

  // `end_call`: the memory that a call had lent is reclaimed; ends it, by EndLoan() among others.
  // `end_connection`: the server does not do its part.
  LentMemory(EndCall end_call, EndConnection end_connection)
      : end_call_(std::move(end_call)), end_connection_(std::move(end_connection)) {}
  LentMemory(const LentMemory&) = delete;
  LentMemory& operator=(const LentMemory&) = delete;

  // Lends what the call has for that, and writes the table of windows to `table`: from now on the
  // server may use them. REQUIRES: call.loan.
  absl::Status Lend(Connection& connection, ClientCall& call, CallId id, std::byte* table);

  // The reply is here: the call ends with `outcome` when the memory is reclaimed, perhaps inside.
  // REQUIRES: call.loan.
  void EndWhenReclaimed(Connection& connection, ClientCall& call, absl::Status outcome);

  // The call ends, with its memory reclaimed or not. REQUIRES: call.loan.
  static void EndLoan(ClientCall& call);

  // The server is done with what an abandoned call has lent, if it has lent anything.
  void Release(Connection& connection, CallId id);

  // The connection is gone, and with it every way to the memory.
  void ReclaimAll(Connection& connection);

  // Ends all calls that have their replies and wait for their memory.
  void EndCalls(const absl::Status& status);

  bool empty() const { return loans_.empty(); }

 private:
  friend class Loan;

  void OnReclaimed(Loan& loan);

  EndCall end_call_;
  EndConnection end_connection_;
  IntrusiveList<Loan> loans_;
};

}  // namespace weft
