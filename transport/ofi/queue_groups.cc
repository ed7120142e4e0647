#include "transport/ofi/queue_groups.h"

#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "core/status.h"
#include "transport/ofi/poll_entry.h"

namespace weft {
namespace {

// Of a group: what one read of it may bring in. The provider allocates beyond it, so it is no
// limit.
constexpr size_t kReceiveEntries = 128;
constexpr size_t kSendEntries = 1024;

static_assert(size_t{QueueGroups::kEndpoints} * QueueGroups::kGroupsPerSendQueue <=
              QueueDescriptors::kMostEndpoints);

}  // namespace

absl::StatusOr<std::unique_ptr<QueueGroups>> QueueGroups::Create(fid_domain* domain,
                                                                 const MutedQueue* near) {
  std::unique_ptr<QueueGroups> groups(new QueueGroups(domain, near));
  groups->ready_ = Descriptor(epoll_create1(EPOLL_CLOEXEC));
  if (groups->ready_.get() < 0) return StatusFromErrno(errno, "epoll_create1");
  return groups;
}

QueueGroups::~QueueGroups() = default;

// --- joining -----------------------------------------------------------------------------------

absl::StatusOr<QueueSeat*> QueueGroups::Join() {
  const auto found = std::find_if(groups_.begin(), groups_.end(),
                                  [](const auto& group) { return group->endpoints < kEndpoints; });
  QueueGroup* group = found == groups_.end() ? nullptr : found->get();
  if (group == nullptr) {
    WEFT_ASSIGN_OR_RETURN(group, AddGroup());
  }
  ++group->endpoints;
  QueueSeat* const seat = std::find_if(group->seats.begin(), group->seats.end(),
                                       [](const QueueSeat& each) { return !each.taken; });
  seat->taken = true;
  return seat;
}

void QueueGroups::Leave(QueueSeat* seat) {
  QueueGroup* const group = seat->group;
  --group->endpoints;
  *seat = QueueSeat();
  seat->group = group;
}

absl::StatusOr<QueueGroup*> QueueGroups::AddGroup() {
  auto group = std::make_unique<QueueGroup>();
  WEFT_ASSIGN_OR_RETURN(group->receives, MutedQueue::Open(domain_, kReceiveEntries));
  WEFT_ASSIGN_OR_RETURN(group->sends, SendQueueForGroup());
  group->sends->groups.push_back(group.get());
  for (QueueSeat& seat : group->seats) seat.group = group.get();
  groups_.push_back(std::move(group));
  return groups_.back().get();
}

absl::StatusOr<SendQueue*> QueueGroups::SendQueueForGroup() {
  if (!send_queues_.empty() && send_queues_.back()->groups.size() < kGroupsPerSendQueue) {
    return send_queues_.back().get();
  }
  auto sends = std::make_unique<SendQueue>();
  WEFT_ASSIGN_OR_RETURN(sends->queue, MutedQueue::Open(domain_, kSendEntries));
  send_queues_.push_back(std::move(sends));
  return send_queues_.back().get();
}

// The descriptor that nobody had is this endpoint's. Two that connect at once may be taken for each
// other: it is only what is prefetched for it.
absl::Status QueueGroups::Connected(QueueSeat* seat, PrefetchList* prefetch) {
  QueueGroup* const group = seat->group;
  group->settled = false;
  MarkDue(group);
  group->receives.Progress();  // with the new descriptor
  QueueDescriptors wanted;
  WEFT_RETURN_IF_ERROR(group->receives.GetDescriptors(&wanted));
  for (const pollfd& entry : wanted.all()) {
    const bool is_known = std::any_of(group->seats.begin(), group->seats.end(),
                                      [&](const QueueSeat& each) { return each.fd == entry.fd; });
    if (!is_known && !IsSignal(entry.fd)) seat->fd = entry.fd;
  }
  seat->prefetch = prefetch;
  return Watch(group, wanted);
}

bool QueueGroups::CanRest(QueueGroup* group) {
  QueueDescriptors wanted;
  return group->receives.GetDescriptors(&wanted).ok() && wanted.quiet() &&
         Watch(group, wanted).ok();
}

// Closed descriptors have left the epoll, and a new one may have the number of one before: so after
// a change all are given to it.
template <class SeatOf>
absl::Status QueueGroups::Watch(const QueueDescriptors& wanted, WatchedDescriptors* watched,
                                SeatOf seat_of) {
  const bool is_news = wanted.version != watched->version;
  const auto all = wanted.all();
  const auto& before = watched->fds;
  if (!is_news && std::equal(all.begin(), all.end(), before.begin(), before.end(), IsSame)) {
    return absl::OkStatus();
  }
  const auto knows = [&](const pollfd& entry) {
    return !is_news && std::any_of(before.begin(), before.end(),
                                   [&](const pollfd& old) { return IsSame(old, entry); });
  };
  for (const pollfd& entry : all) {
    if (knows(entry)) continue;
    epoll_event event = {};
    event.events = EpollEvents(entry) | uint32_t{EPOLLET};
    event.data.ptr = seat_of(entry.fd);
    if (epoll_ctl(ready_.get(), EPOLL_CTL_ADD, entry.fd, &event) == 0) continue;
    if (errno != EEXIST || epoll_ctl(ready_.get(), EPOLL_CTL_MOD, entry.fd, &event) != 0) {
      return StatusFromErrno(errno, "watching a descriptor of the provider");
    }
  }
  watched->version = wanted.version;
  watched->fds.assign(all.begin(), all.end());
  return absl::OkStatus();
}

// Of descriptors that are nobody's, like the provider's signals, any seat tells the group.
absl::Status QueueGroups::Watch(QueueGroup* group, const QueueDescriptors& wanted) {
  return Watch(wanted, &group->watched, [group](int fd) {
    QueueSeat* const found = std::find_if(group->seats.begin(), group->seats.end(),
                                          [fd](const QueueSeat& seat) { return seat.fd == fd; });
    return found != group->seats.end() ? found : &group->seats.front();
  });
}

// As for a group, but that nobody can say whose receives it may have missed: a read that left
// something, anywhere, is a reason to look on.
bool QueueGroups::NearLooked(bool found) {
  if (found) near_looks_ = 0;
  if (found || backlog_ || ++near_looks_ < kAwaitedLooks) return false;
  QueueDescriptors wanted;
  near_rests_ = near_->GetDescriptors(&wanted).ok() && wanted.quiet() &&
                Watch(wanted, &near_watched_, [this](int) { return &near_seat_; }).ok();
  return near_rests_;
}

// --- turns -------------------------------------------------------------------------------------

void QueueGroups::FindReady() {
  TakeReady();
  if (++turns_ < kTurnsPerVisit || groups_.empty()) return;
  turns_ = 0;
  WakeNear();
  if (++next_visit_ >= groups_.size()) next_visit_ = 0;
  MarkDue(groups_[next_visit_].get());
}

int QueueGroups::TakeReady() {
  epoll_event ready[kReadyAtOnce];
  const int count = epoll_wait(ready_.get(), ready, kReadyAtOnce, /*timeout=*/0);
  for (int i = 0; i < count; ++i) {
    auto* const seat = static_cast<QueueSeat*>(ready[i].data.ptr);
    if (seat->group == nullptr) {
      WakeNear();
      continue;
    }
    if (seat->prefetch->wanted()) seat->prefetch->Fetch();
    MarkDue(seat->group);
  }
  return count;
}

// Some have entries before anybody looks, others get theirs while their groups are read.
bool QueueGroups::MustRead(SendQueue* sends, bool hurry) {
  const bool moved = std::exchange(sends->moved, false) && sends->awaited > 0;
  return hurry || moved || sends->has_entries || sends->in_flight >= kSendsAtOnce ||
         ++sends->turns >= kTurnsPerSendRead;
}

void QueueGroups::OnSendsRead(SendQueue* sends) {
  sends->turns = 0;
  sends->has_entries = false;
  sends->looks_owed = static_cast<uint32_t>(sends->groups.size());
}

// One for each queue and turn: a message that has gone by its socket's news is rare, and waits for
// kGroupsPerSendQueue turns at most.
void QueueGroups::PayLooks() {
  for (const auto& sends : send_queues_) {
    if (sends->looks_owed == 0) continue;
    --sends->looks_owed;
    if (++sends->next_look >= sends->groups.size()) sends->next_look = 0;
    MarkDue(sends->groups[sends->next_look]);
  }
}

// Only groups where something was done since the last sleep: the others' descriptors are as they
// were. None is settled before all are known to be empty: until then one may hold the receives that
// another needs. What the sends' queues take meanwhile is looked for, should the sleep not come.
bool QueueGroups::Settle() {
  awaited_ = nullptr;
  for (const auto& sends : send_queues_) {
    if (sends->in_flight == 0 && sends->looks_owed == 0) continue;
    sends->looks_owed = static_cast<uint32_t>(sends->groups.size());
    if (!sends->queue.IsEmpty()) sends->has_entries = true;
    for (QueueGroup* group : sends->groups) group->settled = false;
    if (sends->has_entries && sends->in_flight > 0) return false;
  }
  for (const auto& group : groups_) {
    if (group->settled || group->receives.IsEmpty()) continue;
    MarkDue(group.get());
    return false;
  }
  for (const auto& group : groups_) {
    if (group->settled) continue;
    if (!CanRest(group.get())) {
      MarkDue(group.get());
      return false;
    }
    group->settled = true;
    group->Unlink();
  }
  for (const auto& sends : send_queues_) sends->looks_owed = 0;
  return TakeReady() <= 0;
}

}  // namespace weft
