#include "transport/ofi/queue_groups.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/types/span.h"
#include "core/status.h"

namespace weft {
namespace {

// Of a group: what one read of it may bring in. The provider allocates beyond it, so it is no
// limit.
constexpr size_t kReceiveEntries = 128;
constexpr size_t kSendEntries = 1024;

// A provider's signal to its own threads. It may stay set, so only news of it count.
bool IsSignal(int fd) {
  int family = AF_UNSPEC;
  socklen_t bytes = sizeof(family);
  return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &bytes) == 0 && family == AF_UNIX;
}

uint32_t EpollEvents(const pollfd& entry) {
  return ((entry.events & POLLIN) != 0 ? uint32_t{EPOLLIN} : 0) |
         ((entry.events & POLLOUT) != 0 ? uint32_t{EPOLLOUT} : 0) |
         (IsSignal(entry.fd) ? uint32_t{EPOLLET} : 0);
}

bool IsSame(const pollfd& a, const pollfd& b) { return a.fd == b.fd && a.events == b.events; }

}  // namespace

absl::StatusOr<std::unique_ptr<QueueGroups>> QueueGroups::Create(fid_fabric* fabric,
                                                                 fid_domain* domain) {
  std::unique_ptr<QueueGroups> groups(new QueueGroups(fabric, domain));
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
  WEFT_ASSIGN_OR_RETURN(group->receives, OpenQueue(kReceiveEntries, FI_WAIT_POLLFD));
  WEFT_ASSIGN_OR_RETURN(group->sends, SendQueueForGroup());
  ++group->sends->groups;
  groups_.push_back(std::move(group));
  return groups_.back().get();
}

absl::StatusOr<SendQueue*> QueueGroups::SendQueueForGroup() {
  if (!send_queues_.empty() && send_queues_.back()->groups < kGroupsPerSendQueue) {
    return send_queues_.back().get();
  }
  auto sends = std::make_unique<SendQueue>();
  WEFT_ASSIGN_OR_RETURN(sends->queue, OpenQueue(kSendEntries, FI_WAIT_FD));
  send_queues_.push_back(std::move(sends));
  return send_queues_.back().get();
}

absl::StatusOr<QueuePtr> QueueGroups::OpenQueue(size_t entries, fi_wait_obj wait_object) {
  fi_cq_attr attributes = {};
  attributes.size = entries;
  attributes.format = FI_CQ_FORMAT_MSG;
  attributes.wait_obj = wait_object;
  fid_cq* opened = nullptr;
  const int result = fi_cq_open(domain_, &attributes, &opened, nullptr);
  if (result != 0) return FabricStatus(result, "opening a completion queue for more connections");
  return QueuePtr(opened);
}

// The provider takes note of new descriptors when the queue is read.
absl::Status QueueGroups::Connected(QueueGroup* group) {
  group->settled = false;
  MarkDue(group);
  fi_cq_read(group->receives.get(), nullptr, 0);
  return Watch(group);
}

// Closed descriptors have left the epoll, and a new one may have the number of one before: so after
// a change all are given to it.
absl::Status QueueGroups::Watch(QueueGroup* group) {
  fid_t const queue = &group->receives->fid;
  fi_wait_pollfd wanted = {};
  fi_control(queue, FI_GETWAIT, &wanted);  // says how many there are
  pollfd fds[2 * kEndpoints + 2];
  if (wanted.nfds > std::size(fds)) return absl::InternalError("more descriptors than endpoints");
  wanted.fd = fds;
  if (const int result = fi_control(queue, FI_GETWAIT, &wanted); result != 0) {
    return FabricStatus(result, "asking for descriptors to wait on");
  }
  const bool is_news = wanted.change_index != group->version;
  const auto knows = [&](const pollfd& entry) {
    return !is_news && std::any_of(group->watched.begin(), group->watched.end(),
                                   [&](const pollfd& old) { return IsSame(old, entry); });
  };
  for (const pollfd& entry : absl::MakeSpan(fds, wanted.nfds)) {
    if (knows(entry)) continue;
    epoll_event event = {};
    event.events = EpollEvents(entry);
    event.data.ptr = group;
    if (epoll_ctl(ready_.get(), EPOLL_CTL_ADD, entry.fd, &event) == 0) continue;
    if (errno != EEXIST || epoll_ctl(ready_.get(), EPOLL_CTL_MOD, entry.fd, &event) != 0) {
      return StatusFromErrno(errno, "watching a descriptor of the provider");
    }
  }
  group->version = wanted.change_index;
  group->watched.assign(fds, fds + wanted.nfds);
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
    if ((ready[i].events & EPOLLOUT) != 0) group->awaits_room = true;
    MarkDue(group);
  }
  return count;
}

// Only groups where something was done since the last sleep: the others' descriptors are as they
// were.
bool QueueGroups::Settle() {
  awaited_ = nullptr;
  for (const auto& group : groups_) {
    if (group->settled) continue;
    fid_t queue = &group->receives->fid;
    if (fi_trywait(fabric_, &queue, 1) != FI_SUCCESS || !Watch(group.get()).ok()) {
      MarkDue(group.get());
      return false;
    }
    group->settled = true;
    group->Unlink();
  }
  for (const auto& sends : send_queues_) {
    if (sends->in_flight > 0 && fi_cq_read(sends->queue.get(), nullptr, 0) != -FI_EAGAIN) {
      return false;
    }
  }
  return TakeReady() <= 0;
}

}  // namespace weft
