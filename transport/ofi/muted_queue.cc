#include "transport/ofi/muted_queue.h"

#include <sys/socket.h>

#include <algorithm>

#include "core/log.h"
#include "core/strings.h"
#include "transport/ofi/poll_entry.h"

namespace weft {
namespace {

absl::Status Ask(fid_cq* queue, QueueDescriptors* descriptors) {
  fi_wait_pollfd wanted = {};
  wanted.nfds = QueueDescriptors::kMost;
  wanted.fd = descriptors->fds;
  const int result = fi_control(&queue->fid, FI_GETWAIT, &wanted);
  if (result != 0) return FabricStatus(result, "asking for descriptors to wait on");
  descriptors->count = wanted.nfds;
  descriptors->version = wanted.change_index;
  return absl::OkStatus();
}

bool Poll(QueueDescriptors* descriptors) {
  return poll(descriptors->fds, descriptors->count, /*timeout=*/0) >= 0;
}

// The only descriptor that fi_cq_signal() makes readable; -1: there is none, or more.
int FindSignal(fid_cq* queue) {
  QueueDescriptors after;
  if (!Ask(queue, &after).ok() || !Poll(&after)) return -1;
  const QueueDescriptors before = after;
  if (fi_cq_signal(queue) != 0 || !Poll(&after)) return -1;
  int found = -1;
  for (size_t i = 0; i < after.count; ++i) {
    if (after.fds[i].revents == before.fds[i].revents) continue;
    if (found >= 0 || after.fds[i].revents != POLLIN) return -1;
    found = after.fds[i].fd;
  }
  return found >= 0 && IsSignal(found) ? found : -1;
}

// False: the queue is as it was. REQUIRES: no endpoint has the queue yet.
bool Mute(fid_cq* queue) {
  fi_cq_read(queue, nullptr, 0);  // the provider takes note of its signal's descriptor
  const int signal = FindSignal(queue);
  char byte;
  return signal >= 0 && recv(signal, &byte, sizeof(byte), MSG_DONTWAIT) == sizeof(byte);
}

}  // namespace

// It asks its sockets, and has no epoll of its own: one that watches them costs who sends to them.
absl::StatusOr<MutedQueue> MutedQueue::Open(fid_domain* domain, size_t entries) {
  fi_cq_attr attributes = {};
  attributes.size = entries;
  attributes.format = FI_CQ_FORMAT_MSG;
  attributes.wait_obj = FI_WAIT_POLLFD;
  fid_cq* opened = nullptr;
  const int result = fi_cq_open(domain, &attributes, &opened, nullptr);
  if (result != 0) return FabricStatus(result, "opening a completion queue that tells its sockets");
  if (!Mute(opened)) {
    WEFT_LOG_EVERY_N_SEC(kWarning, 60, "tcp: a completion queue could not be muted: each message ",
                         "takes 1 us longer");
  }
  return MutedQueue(opened);
}

bool QueueDescriptors::quiet() const {
  return std::all_of(all().begin(), all().end(), [](const pollfd& fd) { return fd.revents == 0; });
}

bool MutedQueue::Settle(QueueDescriptors* descriptors) {
  if (!IsEmpty()) return false;
  const absl::Status known = GetDescriptors(descriptors);
  if (known.ok()) return descriptors->quiet();
  WEFT_LOG_EVERY_N_SEC(kError, 1, "tcp: cannot sleep: ", ToStd(known.message()));
  return false;
}

absl::Status MutedQueue::GetDescriptors(QueueDescriptors* descriptors) const {
  return Ask(queue_.get(), descriptors);
}

}  // namespace weft
