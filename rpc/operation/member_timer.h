// A timer that calls a member function of the object that it is a part of: for objects with several
// timers. (One that has a single one is a Timer itself.)
//
//   MemberTimer<&EtcdClient::OnTimeout> timeout_{*this};
//
// Threads: the engine's. Lifetime: its owner's; who may be destroyed by the function that it calls.
#pragma once

#include "core/timer_wheel.h"

namespace weft {

template <auto kRing>
class MemberTimer;

template <class Owner, void (Owner::*kRing)()>
class MemberTimer<kRing> final : public Timer {
 public:
  explicit MemberTimer(Owner& owner) : owner_(owner) {}

 private:
  void OnTimer() override { (owner_.*kRing)(); }

  Owner& owner_;
};

}  // namespace weft
