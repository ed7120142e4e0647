#include "transport/ofi/sleep_set.h"

#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>

#include "core/status.h"
#include "transport/ofi/poll_entry.h"

namespace weft {

bool SleepSet::IsWatching(absl::Span<const pollfd> wanted, uint64_t version) const {
  return watching() && version == version_ &&
         std::equal(wanted.begin(), wanted.end(), wanted_.begin(), wanted_.end(), IsSame);
}

absl::Status SleepSet::Watch(absl::Span<const pollfd> wanted, uint64_t version) {
  if (IsWatching(wanted, version)) return absl::OkStatus();
  Release();
  version_ = version;
  wanted_.assign(wanted.begin(), wanted.end());
  for (const pollfd& entry : wanted) {
    if (IsSignal(entry.fd)) continue;
    epoll_event event = {};
    event.events = EpollEvents(entry);
    if (epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, entry.fd, &event) != 0) {
      absl::Status why = StatusFromErrno(errno, "watching a descriptor of the provider");
      Release();
      return why;
    }
    watched_.push_back(entry.fd);
  }
  return absl::OkStatus();
}

// What has been closed meanwhile is not there any more, and another one may have its number: that
// is not watched, unless it was given here since.
void SleepSet::Release() {
  for (const int fd : watched_) epoll_ctl(epoll_fd_, EPOLL_CTL_DEL, fd, nullptr);
  watched_.clear();
}

}  // namespace weft
