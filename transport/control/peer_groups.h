// The open connections of one engine, in groups of those that lead to the same engine: they share
// heartbeats.
//
//   A heartbeat says that the peer's engine makes progress, which is as true of a thousand
//   connections as of the one by which it comes. (That the peer's host can be reached over each of
//   them is for the kernel to see: SetSilence().) So bytes by any connection of a group are a sign
//   of life for all, and silence ends all.
//
//   Two connections are of one group if both sides have told the same keys and terms for both in
//   their hellos. So both sides find the same groups. A client's key is a code over the address
//   that it dials and the credentials that it dials with, by a secret of its engine: no server at
//   another address learns it, and so none can join that group (replicas behind one address are
//   taken for one). A server's key tells its engine from others behind the same address, and is a
//   code over who the client has proved to be: clients with different names are never of one group,
//   whatever keys they tell, so none keeps another's connection alive, or has it declared dead. A
//   side that tells no key, of an older release, shares nothing.
//
//   A heartbeat goes by kCarriers connections of the group, each time by the next ones: one whose
//   bytes do not come through keeps none from the peer. When one ends by which the last has gone,
//   another goes at once, for the peer may have closed it before it came. And there are more of
//   them than by one connection (PeerWatch::kSharedPerTimeout).
//
// Threads: one engine's.
// Lifetime: outlives its members. A member is in a group from Join() to Leave().
// Errors: none. Invariants: a group has one watch and one timer, and members as long as it exists.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string_view>

#include "core/clock.h"
#include "core/intrusive_list.h"
#include "core/secret.h"
#include "core/timer_wheel.h"
#include "transport/control/hello.h"
#include "transport/control/peer_watch.h"
#include "transport/identity.h"

namespace weft {

struct PeerMemberTag;

class PeerGroups {
 public:
  class Group;

  // An open connection.
  class Member : public ListNode<PeerMemberTag> {
   public:
    virtual void SendHeartbeat() = 0;
    // Something from the peer, its end included, waits to be read.
    virtual bool HasUnread() const = 0;
    // The peer is dead. Inside, nobody joins or leaves.
    virtual void OnSilent() = 0;

   protected:
    ~Member() = default;

   private:
    friend class PeerGroups;
    Group* group_ = nullptr;
    uint64_t carried_ = 0;  // the group's last heartbeat that went by this connection
    PeerWatch::FrameCount frames_;
  };

  PeerGroups(const Clock* clock, TimerWheel* timers);
  ~PeerGroups();
  PeerGroups(const PeerGroups&) = delete;
  PeerGroups& operator=(const PeerGroups&) = delete;

  // What this side tells in its hello. A client's key: a code over the server's address as it was
  // given, and over its credentials (null: none), which outlive the connection. A server's key: a
  // code over the client's names by TLS, or over its user and group by the kernel.
  Nonce128 ClientKey(std::string_view server, const void* credentials) const;
  Nonce128 ServerKey(const PeerIdentity& client) const;

  // REQUIRES: in no group; checked limits, as both sides have told them.
  void Join(Member* member, const ControlLimits& own, const ControlLimits& peer);
  // Nothing to do if it is in none.
  void Leave(Member* member);
  // Bytes have arrived, and a frame has. False: too many by this connection. REQUIRES: in a group.
  void OnHeard(Member* member);
  [[nodiscard]] bool OnFrame(Member* member);

  // Groups. For tests.
  size_t size() const { return shared_.size() + alone_; }

 private:
  // Of each heartbeat. A single connection fails alone; what fails together (a host, a way that
  // some of them take) takes the next heartbeats with it, too, whatever this is.
  static constexpr int kCarriers = 2;

  // Both keys, and both terms.
  struct Key {
    uint64_t numbers[6];
    auto operator<=>(const Key&) const = default;
  };

  void Hide(Group* group);

  const Clock* const clock_;
  TimerWheel* const timers_;
  SecretBytes<32> secret_;
  std::map<Key, Group*> shared_;  // owned, as those that are not here, by their members
  size_t alone_ = 0;              // not here: of one connection, or of a dead peer
};

}  // namespace weft
