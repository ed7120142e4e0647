#include "rpc/client/lent_memory.h"

#include <utility>

#include "core/check.h"
#include "core/status.h"
#include "core/strings.h"
#include "transport/connection.h"

namespace weft {

// --- one loan -----------------------------------------------------------------------------------

Loan::Loan(Owner* owner) : owner_(*owner) {
  for (LentWindow& window : windows_) window.loan = this;
}

void Loan::Add(const Slice& slice, Rights rights) {
  WEFT_CHECK(size_ < kMaxWindows);  // Ours: BulkCall counts its windows
  LentWindow& window = windows_[size_++];
  window.slice = slice;
  window.rights = rights;
  window.exposed = window.verified = false;
}

void Loan::Begin() {
  in_use_ = true;
  for (LentWindow& window : windows_) window.exposed = window.verified = false;
}

void Loan::EndUse() {
  in_use_ = false;
  end_with_ = nullptr;
  if (lender_ == nullptr) owner_.OnReclaimed();
}

void Loan::EndConnection(std::string_view why) {
  if (lender_ != nullptr) lender_->end_connection_(why);
}

absl::Status Loan::Lend(Connection& connection, std::byte* to) {
  for (uint32_t i = 0; i < size_; ++i) {
    const Slice& slice = windows_[i].slice;
    if (slice.length > 0) WEFT_RETURN_IF_ERROR(slice.memory->CheckPinnable());
  }
  for (uint32_t i = 0; i < size_; ++i) {
    LentWindow& window = windows_[i];
    Window entry = {{}, window.rights};
    if (window.slice.length > 0) {
      absl::StatusOr<std::unique_ptr<Region>> region = connection.memory().Register(
          window.slice.bytes(),
          window.rights == kMayRead ? Access::kRemoteRead : Access::kRemoteWrite);
      if (!region.ok()) {
        // Nobody has heard of the others' keys.
        for (LentWindow& other : windows_) other.region.reset();
        return Annotate(region.status(), StrCat("lend ", window.slice.length, " bytes"));
      }
      window.region = *std::move(region);
      entry.span = window.region->remote();
    }
    EncodeWindow(entry, to + i * kWindowBytes);
  }
  for (uint32_t i = 0; i < size_; ++i) {
    LentWindow& window = windows_[i];
    window.exposed = window.rights == kMayWrite;
    window.pinned = window.region != nullptr;  // an empty one lies in no buffer
    if (window.pinned) window.slice.memory->Pin(window.slice.offset);
  }
  releasing_ = false;
  return absl::OkStatus();
}

void Loan::Release(Connection& connection) {
  if (releasing_) return;
  releasing_ = true;
  pinned_ = 1;  // until all have been asked for
  for (LentWindow& window : windows_) {
    if (window.region == nullptr) continue;
    ++pinned_;
    if (connection.memory().Reclaim(std::move(window.region), &window)) --pinned_;
  }
  OnWindowReclaimed();
}

void Loan::OnWindowReclaimed() {
  if (--pinned_ > 0) return;
  for (LentWindow& window : windows_) {
    if (std::exchange(window.pinned, false)) window.slice.memory->Unpin(window.slice.offset);
  }
  lender_->OnReclaimed(*this);
}

// --- all of them --------------------------------------------------------------------------------

absl::Status LentMemory::Lend(Connection& connection, Loan& loan, CallId id, std::byte* table) {
  if (loan.size() == 0) return absl::OkStatus();
  WEFT_RETURN_IF_ERROR(loan.Lend(connection, table));
  loan.lender_ = this;
  loan.id_ = id;
  loans_.PushBack(&loan);
  return absl::OkStatus();
}

void LentMemory::EndWhenReclaimed(Connection& connection, Loan& loan, absl::Status outcome,
                                  Loan::EndWith end) {
  if (loan.lender_ == nullptr) return end(std::move(outcome));  // nothing was lent
  loan.outcome_ = std::move(outcome);
  loan.end_with_ = std::move(end);
  loan.Release(connection);
}

void LentMemory::OnReclaimed(Loan& loan) {
  IntrusiveList<Loan>::Remove(&loan);
  loan.lender_ = nullptr;
  if (Loan::EndWith end = std::exchange(loan.end_with_, nullptr)) {
    end(std::move(loan.outcome_));
  } else if (!loan.in_use_) {  // else the connection is gone, and the call is about to end
    loan.owner_.OnReclaimed();
  }
  if (loans_.empty()) on_empty_();
}

void LentMemory::Release(Connection& connection, Loan& loan) {
  if (loan.lender_ != nullptr) loan.Release(connection);
}

void LentMemory::Release(Connection& connection, CallId id) {
  for (Loan& loan : loans_) {
    if (loan.id_ == id) return loan.Release(connection);
  }
}

void LentMemory::ReclaimAll(Connection& connection) {
  while (Loan* const loan = loans_.Front()) {
    loan->Release(connection);
    WEFT_CHECK(loans_.Front() != loan);  // Ours: a connection that has ended reclaims at once
  }
}

void LentMemory::EndCalls(const absl::Status& status) {
  for (Loan& loan : loans_) {
    if (Loan::EndWith end = std::exchange(loan.end_with_, nullptr)) end(status);
  }
}

absl::Status CheckWindows(std::string_view what, uint32_t windows, uint32_t most,
                          std::string_view address) {
  if (windows <= most) return absl::OkStatus();
  return absl::UnimplementedError(StrCat("the ", what, " lends ", windows,
                                         " windows of memory; the server at ", address,
                                         " takes at most ", most, " (not sent)"));
}

}  // namespace weft
