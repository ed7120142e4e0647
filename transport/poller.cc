#include "transport/poller.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/str_cat.h"
#include "core/clock.h"
#include "core/fork_guard.h"
#include "core/status.h"

namespace weft {
namespace {

int TimeoutMs(uint64_t timeout_ns) {
  constexpr uint64_t kLongestMs = 3'600'000;
  return static_cast<int>(std::min((timeout_ns + kNsPerMs - 1) / kNsPerMs, kLongestMs));
}

}  // namespace

Poller::Poller() : watches_(kMaxDescriptors) {}

absl::StatusOr<std::unique_ptr<Poller>> Poller::Create() {
  std::unique_ptr<Poller> poller(new Poller);
  poller->epoll_fd_ = epoll_create1(EPOLL_CLOEXEC);
  if (poller->epoll_fd_ < 0) return StatusFromErrno(errno, "epoll_create1 for an engine");
  OwnDescriptor(poller->epoll_fd_);
  return poller;
}

Poller::~Poller() {
  for (size_t place = 0; place < by_descriptor_.size(); ++place) Remove(static_cast<int>(place));
  DisownDescriptor(epoll_fd_);
  if (epoll_fd_ >= 0) close(epoll_fd_);
}

absl::Status Poller::Add(int descriptor, uint32_t events, PollHandler* handler) {
  SlabHandle handle;
  Watch* watch = watches_.Allocate(&handle);
  if (watch == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat("an engine watches at most ", kMaxDescriptors, " descriptors"));
  }
  *watch = {descriptor, handler};
  // The handle, not a pointer: an event that epoll reported for a watch removed in the same round
  // then finds nothing instead of freed memory.
  epoll_event event{};
  event.events = events;
  event.data.u64 = handle.packed();
  if (epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, descriptor, &event) != 0) {
    watches_.Free(handle);
    return StatusFromErrno(errno, absl::StrCat("watching descriptor ", descriptor));
  }
  const size_t place = static_cast<size_t>(descriptor);
  if (by_descriptor_.size() <= place) by_descriptor_.resize(place + 1);
  by_descriptor_[place] = handle;
  if (handler != nullptr) ++handlers_;
  OwnDescriptor(descriptor);
  return absl::OkStatus();
}

absl::Status Poller::Modify(int descriptor, uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = by_descriptor_[static_cast<size_t>(descriptor)].packed();
  if (epoll_ctl(epoll_fd_, EPOLL_CTL_MOD, descriptor, &event) != 0) {
    return StatusFromErrno(errno, absl::StrCat("watching descriptor ", descriptor));
  }
  return absl::OkStatus();
}

void Poller::Remove(int descriptor) {
  const size_t place = static_cast<size_t>(descriptor);
  if (place >= by_descriptor_.size()) return;
  const Watch* const watch = watches_.Get(by_descriptor_[place]);
  if (watch == nullptr) return;
  if (watch->handler != nullptr) --handlers_;
  DisownDescriptor(descriptor);
  epoll_ctl(epoll_fd_, EPOLL_CTL_DEL, descriptor, nullptr);
  watches_.Free(by_descriptor_[place]);
  by_descriptor_[place] = SlabHandle{};
}

int Poller::Poll() {
  if (ready_count_ == 0 && !Wait(/*timeout_ns=*/0)) return 0;
  int called = 0;
  for (int i = 0; i < ready_count_; ++i) {
    const Watch* watch = watches_.Get(SlabHandle::FromPacked(ready_[i].data.u64));
    if (watch == nullptr || watch->handler == nullptr) continue;
    watch->handler->OnReady(ready_[i].events);
    ++called;
  }
  ready_count_ = 0;
  return called;
}

bool Poller::Wait(uint64_t timeout_ns) {
  const int count = epoll_wait(epoll_fd_, ready_, kEventsPerRound, TimeoutMs(timeout_ns));
  ready_count_ = std::max(count, 0);  // a signal is nothing
  return ready_count_ > 0;
}

}  // namespace weft
