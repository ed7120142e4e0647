// The links of one domain, and which of them wait for what: for another try of what the provider
// has refused, for their turn to move large transfers, or for their handler to hear their news.
//
// A Link derives from LinkNodes, and has
//
//   up(), handler()   as LinkLife
//   Retry()           tries again what waits, and schedules itself where something still does
//   DeliverEvent()    tells the handler the oldest news
//
// Threads: the engine's.
// Lifetime: a link leaves all lists when it is destroyed. Handlers that are called from here may
//   destroy any link and open new ones.
// Invariants: links_open is the number of links between Join() and Leave().
#pragma once

#include "core/intrusive_list.h"
#include "transport/link.h"

namespace weft {

struct LinkMemberTag;
struct LinkRetryTag;
struct LinkTurnTag;
struct LinkEventTag;

// A link's places in the lists of its domain.
struct LinkNodes : ListNode<LinkMemberTag>,
                   ListNode<LinkRetryTag>,
                   ListNode<LinkTurnTag>,
                   ListNode<LinkEventTag> {
  // Nothing is tried again or goes on, and nobody hears of it any more.
  void ForgetDuties() {
    ListNode<LinkRetryTag>::Unlink();
    ListNode<LinkTurnTag>::Unlink();
    ListNode<LinkEventTag>::Unlink();
  }
};

template <class Link>
class LinkLists {
 public:
  explicit LinkLists(LinkDomainStats* stats) : stats_(stats) {}

  // A link is here from Join() to Leave().
  void Join(Link* link) {
    members_.PushBack(link);
    ++stats_->links_open;
  }
  void Leave(Link* link) {
    members_.Remove(link);
    --stats_->links_open;
  }

  // `visit` destroys none.
  template <class Visit>
  void ForEach(Visit&& visit) {
    for (Link& link : members_) visit(link);
  }

  // `link` has works that the provider has refused.
  void ScheduleRetry(Link* link) {
    if (!retries_.IsLinked(link)) retries_.PushBack(link);
  }
  bool has_retries() const { return !retries_.empty(); }
  // Tries again what is scheduled, once for each link.
  void Retry() {
    TakeTurns(&retries_, [](Link* link) {
      link->Retry();
      return true;
    });
  }
  // Whether ready(link) is true for a link that is scheduled.
  template <class Ready>
  bool AnyRetry(Ready&& ready) {
    for (Link& link : retries_) {
      if (ready(link)) return true;
    }
    return false;
  }

  // `link` has a large transfer that goes on when others have had their turn.
  void ScheduleTurn(Link* link) {
    if (!turns_.IsLinked(link)) turns_.PushBack(link);
  }
  bool has_turns() const { return !turns_.empty(); }
  // take(link), the longest waiting link first, for as long as it is true. Each has one turn.
  template <class Take>
  void GiveTurns(const Take& take) {
    TakeTurns(&turns_, take);
  }

  // `link` has news for its handler.
  void ScheduleEvent(Link* link) {
    if (!events_.IsLinked(link)) events_.PushBack(link);
  }
  bool has_events() const { return !events_.empty(); }
  // Handlers hear of them. Returns how many there were.
  int DeliverEvents() {
    int count = 0;
    TakeTurns(&events_, [&](Link* link) {
      link->DeliverEvent();
      ++count;
      return true;
    });
    return count;
  }

  // Handlers of all links that are up are told that there is room.
  void TellSlotsFree() {
    IntrusiveList<Link, LinkMemberTag> now;
    now.SpliceBack(members_);
    while (Link* const link = now.PopFront()) {
      members_.PushBack(link);
      if (link->up()) link->handler()->OnSlotsFree();
    }
  }

 private:
  LinkDomainStats* const stats_;
  IntrusiveList<Link, LinkMemberTag> members_;
  IntrusiveList<Link, LinkRetryTag> retries_;
  IntrusiveList<Link, LinkTurnTag> turns_;
  IntrusiveList<Link, LinkEventTag> events_;
};

}  // namespace weft
