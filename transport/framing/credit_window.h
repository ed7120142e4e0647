// Credits: the right to send a batch, because a receive is posted for it at the peer.
//
// Each side grants the other a window of W receive slots when the connection starts. Sending a
// batch takes one credit; receiving one makes its receiver owe one, once the slot is posted again;
// every batch that is sent returns all credits owed.
//
// The rule, with W >= 4:
//   - a batch with frames needs two credits in hand (and takes one);
//   - a batch that only returns credits needs one, and is sent when W/2 or more are owed.
//
// Why both sides can never be stuck. Suppose nothing is in flight, so that credits(A) + owed(B) = W
// and credits(B) + owed(A) = W, and A has frames but credits(A) <= 1. Then owed(B) >= W-1 >= W/2: B
// returns them, unless credits(B) = 0. Then owed(A) = W, and A returns those, unless credits(A) =
// 0. So both would be at 0. A side gets to 0 only by a batch that returns at least W/2 credits, and
// then stays there: its last batch. Of the two last batches one, say A's, was sent first. All W
// batches that A owes for came to A after its last (it returned everything owed with that one), so
// B's last came after it as well; and B owes W, so A's last reached B after B's last was sent. It
// brought W/2 >= 2 credits, and B has sent nothing since: credits(B) > 0, a contradiction.
//
// Batches that only return credits do not keep each other going: each makes the peer owe one, so
// W/2 of them cause one.
//
// Threads: one engine's.
// Invariants: credits <= send window; granted + owed <= receive window, where `granted` are the
//   peer's credits and its batches in flight. (Equal, but for the one batch being received.)
#pragma once

#include <cstdint>

#include "core/check.h"

namespace weft {

inline constexpr uint32_t kMinWindowSlots = 4;     // the rule above needs it
inline constexpr uint32_t kMaxWindowSlots = 1024;  // bounds memory; fits the wire's 16 bits

class CreditWindow {
 public:
  // REQUIRES: both windows are kMinWindowSlots..kMaxWindowSlots.
  void Start(uint32_t send_window_slots, uint32_t receive_window_slots) {
    // Ours: CheckAgreement() has refused others
    WEFT_CHECK(send_window_slots >= kMinWindowSlots && send_window_slots <= kMaxWindowSlots);
    WEFT_CHECK(receive_window_slots >= kMinWindowSlots && receive_window_slots <= kMaxWindowSlots);
    send_window_ = credits_ = send_window_slots;
    receive_window_ = granted_ = receive_window_slots;
    owed_ = 0;
  }

  // --- sending ----------------------------------------------------------------------------------

  bool MaySendFrames() const { return credits_ >= 2; }
  bool MayReturnOnly() const { return credits_ >= 1; }
  // The peer had taken every batch when it sent the last one that came.
  bool has_all() const { return credits_ == send_window_; }
  bool ShouldReturn() const { return owed_ * 2 >= receive_window_; }

  // REQUIRES: MaySendFrames() or MayReturnOnly(), as the batch is.
  void Spend() {
    WEFT_DCHECK(credits_ > 0);  // Ours: MaySend...() comes first
    --credits_;
  }
  // The batch was not sent after all.
  void Refund() {
    ++credits_;
    WEFT_DCHECK(credits_ <= send_window_);  // Ours: gives back what it took
  }

  // What the batch about to be sent returns.
  uint16_t TakeOwed() {
    const uint32_t owed = owed_;
    granted_ += owed;
    owed_ = 0;
    return static_cast<uint16_t>(owed);
  }

  // --- receiving --------------------------------------------------------------------------------

  // A batch has arrived. False: the peer had no credit for it.
  [[nodiscard]] bool Arrive() {
    if (granted_ == 0) return false;
    --granted_;
    return true;
  }
  // That batch is dealt with: its slot is posted again before anything is sent.
  void Owe() {
    ++owed_;
    // Ours: Arrive() has refused batches without a credit
    WEFT_DCHECK(granted_ + owed_ <= receive_window_);
  }
  // The peer returns credits. False: more than it ever had from us. `unsent`: batches that have
  // taken theirs, and that the peer has not had.
  [[nodiscard]] bool Regain(uint32_t credits, uint32_t unsent = 0) {
    if (credits + unsent > send_window_ - credits_) return false;
    credits_ += credits;
    return true;
  }

  // --- facts ------------------------------------------------------------------------------------

  uint32_t credits() const { return credits_; }
  uint32_t granted() const { return granted_; }
  uint32_t owed() const { return owed_; }
  uint32_t send_window() const { return send_window_; }
  uint32_t receive_window() const { return receive_window_; }

  void CheckInvariants() const {
    // Ours: Arrive() has refused batches without a credit
    WEFT_CHECK(credits_ <= send_window_ && granted_ + owed_ <= receive_window_);
  }

 private:
  uint32_t credits_ = 0;
  uint32_t owed_ = 0;
  uint32_t granted_ = 0;
  uint32_t send_window_ = 0;
  uint32_t receive_window_ = 0;
};

}  // namespace weft
