// A socket that the first of several engines has accepted, until its first bytes say whose it is
// (shared_listener.h). They are looked at and not read: whoever gets the socket finds it as it
// came.
//
//   end      when
//   kJoin    the bytes are a link's join, all of it
//   kClient  they are the beginning of anything else, TLS's included, as far as it says whether its
//            client asks for an engine (wanted_engine.h)
//   kGone    it has hung up, said nothing in time, or was put out for others (newcomers.h)
//
// It is a stranger, as a connection is whose hello has not come, and counts among those of the
// engine that accepts. Sockets for busy engines are no arrivals: they are decided, and handed over.
//
// Threads: one engine's. Lifetime: its owner destroys it, inside OnEnd().
// Errors: of Start(): it cannot be watched.
#pragma once

#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "core/intrusive_list.h"
#include "core/timer_wheel.h"
#include "transport/control/control_connection.h"
#include "transport/control/newcomers.h"
#include "transport/descriptor.h"
#include "transport/link.h"
#include "transport/path.h"
#include "transport/poller.h"

namespace weft {

struct ArrivalTag;

class Arrival final : public ListNode<ArrivalTag>,
                      private Newcomer,
                      private PollHandler,
                      private Timer {
 public:
  enum class End : uint8_t { kJoin = 1, kClient = 2, kGone = 3 };
  class Owner {
   public:
    // Once, unless it is destroyed before.
    virtual void OnEnd(Arrival* arrival, End end) = 0;

   protected:
    ~Owner() = default;
  };

  // Both outlive it.
  Arrival(ControlContext* context, Owner* owner, Descriptor socket)
      : context_(context), owner_(owner), socket_(std::move(socket)) {}
  ~Arrival();
  Arrival(const Arrival&) = delete;
  Arrival& operator=(const Arrival&) = delete;

  // It has until then to say something.
  absl::Status Start(uint64_t deadline_ns);

  // Lets go of the socket: somebody else's from now on.
  Descriptor Release();
  // Of kJoin.
  const Nonce128& token() const { return token_; }
  // Of kClient: a number, or kAnyEngine.
  uint32_t wanted_engine() const { return wanted_engine_; }

 private:
  // Between two looks at what has only come in part: honest peers' comes in one piece, and the
  // poller would be ready all the time.
  static constexpr uint64_t kLookAgainNs = 10'000'000;

  void OnReady(uint32_t events) override;
  void OnTimer() override;
  void PutOut() override;
  bool tries_path() const override { return false; }
  bool waits_for_us() const override { return false; }  // it is looked at when it speaks
  bool is_unread() const override { return true; }
  void Look();

  ControlContext* const context_;
  Owner* const owner_;
  Descriptor socket_;
  uint64_t deadline_ns_ = 0;
  bool in_part_ = false;  // a part of it has come
  bool put_out_ = false;
  Nonce128 token_;
  uint32_t wanted_engine_ = kAnyEngine;
};

}  // namespace weft
