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

absl::StatusOr<std::unique_ptr<QueueGroups>> QueueGroups::Create(fid_domain* domain) {
  std::unique_ptr<QueueGroups> groups(new QueueGroups(domain));
  groups->ready_ = Descriptor(epoll_create1(EPOLL_CLOEXEC));
  if (groups->ready_.get() < 0) return StatusFromErrno(errno, "epoll_create1");
  return groups;
}

QueueGroups::~QueueGroups() = default;

// --- joining -----------------------------------------------------------------------------------

absl::StatusOr<QueueGroup*> QueueGroups::Join() {
  const auto found = std::find_if(groups_.begin(), groups_.end(),
                                  [](const auto& group) { return group->endpoints < kEndpoints; });
  QueueGroup* group = found == groups_.end() ? nullptr : found->get();
  if (group == nullptr) {
    WEFT_ASSIGN_OR_RETURN(group, AddGroup());
  }
  ++group->endpoints;
  return group;
}

absl::StatusOr<QueueGroup*> QueueGroups::AddGroup() {
  auto group = std::make_unique<QueueGroup>();
  WEFT_ASSIGN_OR_RETURN(group->receives, MutedQueue::Open(domain_, kReceiveEntries));
  WEFT_ASSIGN_OR_RETURN(group->sends, SendQueueForGroup());
  group->sends->groups.push_back(group.get());
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

absl::Status QueueGroups::Connected(QueueGroup* group) {
  group->settled = false;
  MarkDue(group);
  group->receives.Progress();  // with the new descriptor
  QueueDescriptors wanted;
  WEFT_RETURN_IF_ERROR(group->receives.GetDescriptors(&wanted));
  return Watch(group, wanted);
}

bool QueueGroups::CanRest(QueueGroup* group) {
  QueueDescriptors wanted;
  return group->receives.GetDescriptors(&wanted).ok() && wanted.quiet() &&
         Watch(group, wanted).ok();
}

// Closed descriptors have left the epoll, and a new one may have the number of one before: so after
// a change all are given to it.
absl::Status QueueGroups::Watch(QueueGroup* group, const QueueDescriptors& wanted) {
  const bool is_news = wanted.version != group->version;
  const auto all = wanted.all();
  if (!is_news &&
      std::equal(all.begin(), all.end(), group->watched.begin(), group->watched.end(), IsSame)) {
    return absl::OkStatus();
  }
  const auto knows = [&](const pollfd& entry) {
    return !is_news && std::any_of(group->watched.begin(), group->watched.end(),
                                   [&](const pollfd& old) { return IsSame(old, entry); });
  };
  for (const pollfd& entry : all) {
    if (knows(entry)) continue;
    epoll_event event = {};
    event.events = EpollEvents(entry) | (IsSignal(entry.fd) ? uint32_t{EPOLLET} : 0);
    event.data.ptr = group;
    if (epoll_ctl(ready_.get(), EPOLL_CTL_ADD, entry.fd, &event) == 0) continue;
    if (errno != EEXIST || epoll_ctl(ready_.get(), EPOLL_CTL_MOD, entry.fd, &event) != 0) {
      return StatusFromErrno(errno, "watching a descriptor of the provider");
    }
  }
  group->version = wanted.version;
  group->watched.assign(all.begin(), all.end());
  return absl::OkStatus();
}

// --- turns -------------------------------------------------------------------------------------

void QueueGroups::FindReady() {
  TakeReady();
  if (++turns_ < kTurnsPerVisit || groups_.empty()) return;
  turns_ = 0;
  if (++next_visit_ >= groups_.size()) next_visit_ = 0;
  MarkDue(groups_[next_visit_].get());
}

int QueueGroups::TakeReady() {
  epoll_event ready[kReadyAtOnce];
  const int count = epoll_wait(ready_.get(), ready, kReadyAtOnce, /*timeout=*/0);
  for (int i = 0; i < count; ++i) {
    auto* const group = static_cast<QueueGroup*>(ready[i].data.ptr);
    MarkDue(group);
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
