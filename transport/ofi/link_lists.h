// The links of one domain, and which of them wait for what.
//
// Threads: the engine's.
// Lifetime: a link leaves all lists when it is destroyed. Handlers that are called from here may
//   destroy any link and open new ones.
#pragma once

#include "core/intrusive_list.h"
#include "transport/link.h"
#include "transport/ofi/fabric_link.h"

namespace weft {

class LinkLists {
 public:
  explicit LinkLists(LinkDomainStats* stats) : stats_(stats) {}

  // A link is here from its construction to its destruction.
  void Join(FabricLink* link);
  void Leave(FabricLink* link);

  // `link` has works that the provider has refused, or that wait for the next turn.
  void ScheduleRetry(FabricLink* link);
  // Of these some wait for the next turn, not for the provider.
  void NoteMoreToDo() { more_to_do_ = true; }
  bool has_retries() const { return !retries_.empty(); }
  bool more_to_do() const { return more_to_do_; }
  // Posts what is scheduled, once for each link.
  void Retry();

  // `link` has news for its handler.
  void ScheduleEvent(FabricLink* link);
  bool has_events() const { return !events_.empty(); }
  // Handlers hear of them. Returns how many there were.
  int DeliverEvents();

  // A link that had no room for a wide send has room again.
  void NoteRoom() { has_room_ = true; }
  bool room_noted() const { return has_room_; }
  // True once.
  bool TakeRoom();
  // Handlers of all links that are up are told that there is room.
  void TellSlotsFree();

  // `link`, in a group, is used: the one that was used before goes cold (FabricLink::GoCold()).
  void Use(FabricLink* link) {
    if (link != last_used_) UseNext(link);
  }
  // `link` is not used any more.
  void Forget(const FabricLink* link) {
    if (last_used_ == link) last_used_ = nullptr;
  }

 private:
  void UseNext(FabricLink* link);

  LinkDomainStats* const stats_;
  IntrusiveList<FabricLink, MemberTag> members_;
  IntrusiveList<FabricLink, RetryTag> retries_;
  IntrusiveList<FabricLink, EventTag> events_;
  FabricLink* last_used_ = nullptr;  // of those in groups
  bool more_to_do_ = false;
  bool has_room_ = false;
};

}  // namespace weft
