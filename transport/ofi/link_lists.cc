#include "transport/ofi/link_lists.h"

#include <utility>

namespace weft {

void LinkLists::Join(FabricLink* link) {
  members_.PushBack(link);
  ++stats_->links_open;
}

void LinkLists::Leave(FabricLink* link) {
  members_.Remove(link);
  --stats_->links_open;
}

void LinkLists::ScheduleRetry(FabricLink* link) {
  if (!retries_.IsLinked(link)) retries_.PushBack(link);
}

void LinkLists::Retry() {
  more_to_do_ = false;
  IntrusiveList<FabricLink, RetryTag> now;
  now.SpliceBack(retries_);
  while (FabricLink* link = now.PopFront()) {
    link->RetryWaiting();
    if (link->state() == FabricLink::State::kUp && link->has_waiting()) ScheduleRetry(link);
  }
}

void LinkLists::ScheduleEvent(FabricLink* link) {
  if (!events_.IsLinked(link)) events_.PushBack(link);
}

int LinkLists::DeliverEvents() {
  IntrusiveList<FabricLink, EventTag> now;
  now.SpliceBack(events_);
  int count = 0;
  while (FabricLink* link = now.PopFront()) {
    link->DeliverEvent();
    ++count;
  }
  return count;
}

bool LinkLists::TakeRoom() { return std::exchange(has_room_, false); }

void LinkLists::TellSlotsFree() {
  IntrusiveList<FabricLink, MemberTag> now;
  now.SpliceBack(members_);
  while (FabricLink* link = now.PopFront()) {
    members_.PushBack(link);
    if (link->state() == FabricLink::State::kUp) link->handler()->OnSlotsFree();
  }
}

void LinkLists::UseNext(FabricLink* link) {
  if (last_used_ != nullptr) last_used_->GoCold();
  last_used_ = link;
}

}  // namespace weft
