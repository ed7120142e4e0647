// The life of a link, and what its handler has still to hear of it, for domains that tell handlers
// from Poll() only.
//
//   State        entered by                         left to
//   kConnecting  construction                       kUp, kDown
//   kUp          BecomeUp()                         kDown
//   kDown        Fail(), End()                      (the link is destroyed)
//
// BecomeUp() and Fail() may be called from anywhere in the domain, also from inside of what the
// handler itself called. They note the news; the domain keeps a list of links with news, and calls
// Deliver() for each from Poll().
//
// Threads: the engine's.
// Lifetime: part of the link. Invariants: the handler hears at most once that the link is up, at
//   most once that it is down, in this order, and nothing after End().
#pragma once

#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "transport/link.h"

namespace weft {

class LinkLife {
 public:
  enum class State : uint8_t { kConnecting = 1, kUp = 2, kDown = 3 };

  explicit LinkLife(LinkHandler* handler) : handler_(handler) {}

  State state() const { return state_; }
  bool up() const { return state_ == State::kUp; }
  LinkHandler* handler() const { return handler_; }
  // Of Fail().
  const absl::Status& why_down() const { return why_down_; }

  // For what needs a link that is up.
  absl::Status CheckUp() const;

  // True: there is news. A link that is up or down stays what it is.
  bool BecomeUp() {
    if (state_ != State::kConnecting) return false;
    state_ = State::kUp;
    return up_pending_ = true;
  }
  // The same. The first reason counts.
  bool Fail(const absl::Status& why);
  // By this side: the handler knows.
  void End() {
    state_ = State::kDown;
    up_pending_ = down_pending_ = false;
  }

  // Tells the oldest news, if there is any; before that it calls again() if there is more. The
  // handler may destroy the link: nothing is touched after a call to it.
  template <class Again>
  void Deliver(Again again) {
    if (std::exchange(up_pending_, false)) {
      if (down_pending_) again();
      handler_->OnLinkUp();
    } else if (std::exchange(down_pending_, false)) {
      const absl::Status why = why_down_;
      handler_->OnLinkDown(why);
    }
  }

 private:
  LinkHandler* const handler_;
  State state_ = State::kConnecting;
  bool up_pending_ = false;
  bool down_pending_ = false;
  absl::Status why_down_;
};

}  // namespace weft
