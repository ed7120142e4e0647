#include "transport/ofi/shm_guard.h"

#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "core/log.h"
#include "transport/ofi/shm_lock.h"

namespace weft {
namespace {

// A survivor that spins is freed within this time. The page is touched once in it, and only
// between a peer's death and the closing of its link.
constexpr int kOpenEveryMs = 1;
constexpr uint64_t kStopEvent = 0;

std::atomic<uint64_t> locks_freed{0};

int OpenProcess(int32_t process_id) {
#ifdef SYS_pidfd_open
  return static_cast<int>(syscall(SYS_pidfd_open, process_id, 0));
#else
  return -1;
#endif
}

// A thread that handles none of the process's signals.
template <class Body>
std::thread StartQuietThread(Body body) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread(std::move(body));
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_setname_np(thread.native_handle(), "weft-shm-guard");
  return thread;
}

}  // namespace

// Shared by the guard and its watches: whichever goes last.
class ShmGuard::Watcher {
 public:
  Watcher() : epoll_fd_(epoll_create1(EPOLL_CLOEXEC)), stop_fd_(eventfd(0, EFD_CLOEXEC)) {
    Add(stop_fd_, kStopEvent);
    thread_ = StartQuietThread([this] { Run(); });
  }

  ~Watcher() {
    const uint64_t one = 1;
    while (write(stop_fd_, &one, sizeof(one)) < 0) {
    }
    thread_.join();
    close(stop_fd_);
    close(epoll_fd_);
  }

  uint64_t Insert(int process_fd, std::unique_ptr<ShmLock> own, std::unique_ptr<ShmLock> peers) {
    std::lock_guard<std::mutex> lock(mutex_);
    const uint64_t id = next_id_++;
    links_[id] = {process_fd, std::move(own), std::move(peers), false};
    Add(process_fd, id);
    return id;
  }

  void Erase(uint64_t id) {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = links_.find(id);
    if (found->second.peer_is_dead) --dead_;
    close(found->second.process_fd);  // leaves the epoll
    links_.erase(found);
  }

 private:
  struct WatchedLink {
    int process_fd;
    std::unique_ptr<ShmLock> own;
    std::unique_ptr<ShmLock> peers;
    bool peer_is_dead;
  };

  void Add(int fd, uint64_t id) {
    epoll_event event = {};
    event.events = EPOLLIN;
    event.data.u64 = id;
    epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, fd, &event);
  }

  void Run() {
    while (true) {
      epoll_event event = {};
      const int count = epoll_wait(epoll_fd_, &event, 1, dead_.load() > 0 ? kOpenEveryMs : -1);
      if (count == 1 && event.data.u64 == kStopEvent) return;
      std::lock_guard<std::mutex> lock(mutex_);
      if (count == 1) MarkDead(event.data.u64);
      for (auto& [id, link] : links_) {
        if (link.peer_is_dead) OpenLocks(link);
      }
    }
  }

  void MarkDead(uint64_t id) {
    const auto found = links_.find(id);
    if (found == links_.end() || found->second.peer_is_dead) return;
    found->second.peer_is_dead = true;
    ++dead_;
    epoll_ctl(epoll_fd_, EPOLL_CTL_DEL, found->second.process_fd, nullptr);
  }

  static void OpenLocks(WatchedLink& link) {
    if (link.own->ForceOpen()) ++locks_freed;
    if (link.peers->ForceOpen()) ++locks_freed;
  }

  const int epoll_fd_;
  const int stop_fd_;
  std::thread thread_;

  std::mutex mutex_;  // guards links_ and next_id_
  std::map<uint64_t, WatchedLink> links_;
  uint64_t next_id_ = kStopEvent + 1;
  std::atomic<int> dead_{0};  // links whose peer is dead
};

namespace {

template <class Watcher>
class GuardedLink final : public ShmWatch {
 public:
  GuardedLink(std::shared_ptr<Watcher> watcher, uint64_t id)
      : watcher_(std::move(watcher)), id_(id) {}
  ~GuardedLink() override { watcher_->Erase(id_); }

 private:
  const std::shared_ptr<Watcher> watcher_;
  const uint64_t id_;
};

}  // namespace

std::shared_ptr<ShmGuard> ShmGuard::Get() {
  static std::mutex mutex;
  static auto* running = new std::weak_ptr<ShmGuard>;
  if (!ShmLock::IsKnown()) return nullptr;
  std::lock_guard<std::mutex> lock(mutex);
  std::shared_ptr<ShmGuard> guard = running->lock();
  if (guard == nullptr) {
    guard.reset(new ShmGuard(std::make_shared<Watcher>()));
    *running = guard;
  }
  return guard;
}

ShmGuard::ShmGuard(std::shared_ptr<Watcher> watcher) : watcher_(std::move(watcher)) {}
ShmGuard::~ShmGuard() = default;

std::unique_ptr<ShmWatch> ShmGuard::Watch(int32_t peer_process_id, const std::string& own_endpoint,
                                          const std::string& peer_endpoint) {
  if (peer_process_id <= 0 || peer_process_id == getpid()) return nullptr;
  std::unique_ptr<ShmLock> own = ShmLock::Map(own_endpoint);
  std::unique_ptr<ShmLock> peers = ShmLock::Map(peer_endpoint);
  if (own == nullptr || peers == nullptr) return nullptr;
  const int process_fd = OpenProcess(peer_process_id);
  if (process_fd < 0) {
    WEFT_LOG(kInfo, "shm: process ", peer_process_id, " cannot be watched; if it is killed while ",
             "it sends, this process may hang");
    return nullptr;
  }
  const uint64_t id = watcher_->Insert(process_fd, std::move(own), std::move(peers));
  return std::make_unique<GuardedLink<Watcher>>(watcher_, id);
}

uint64_t ShmLocksFreed() { return locks_freed.load(); }

}  // namespace weft
