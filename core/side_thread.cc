#include "core/side_thread.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <mutex>
#include <utility>

namespace weft {

void SideThread::Bring(Function<void()> task) {
  LookForFork();
  const std::lock_guard lock(mutex_);
  line_.push_back(std::move(task));
  LookForThread();
}

size_t SideThread::waiting() {
  LookForFork();
  const std::lock_guard lock(mutex_);
  LookForThread();
  return line_.size();
}

// LeaveBehind() takes a mutex that a fork holds while it waits for this one.
void SideThread::LookForFork() {
  std::deque<Function<void()>> of_parent;
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(forks_, ForkCount()) == ForkCount()) return;
    running_ = false;
    of_parent.swap(line_);
  }
  LeaveBehind(std::move(of_parent));
}

// Not std::thread, which throws where there is none left.
void SideThread::LookForThread() {
  if (running_ || line_.empty()) return;
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes) != 0) return;
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  cpu_set_t cpus;
  if (sched_getaffinity(getpid(), sizeof(cpus), &cpus) == 0) {
    pthread_attr_setaffinity_np(&attributes, sizeof(cpus), &cpus);
  }
  const auto run = [](void* self) -> void* {
    static_cast<SideThread*>(self)->Run();
    return nullptr;
  };
  // The host's signals are for its own threads.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_t thread;
  running_ = pthread_create(&thread, &attributes, run, this) == 0;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_attr_destroy(&attributes);
}

// What is being done stays in line: it counts.
void SideThread::Run() {
  // Here, not by attributes: with these pthread_create(3) fails (EINVAL) where the thread that
  // starts it has a real-time priority.
  const sched_param ordinary = {};
  pthread_setschedparam(pthread_self(), SCHED_OTHER, &ordinary);
  std::unique_lock lock(mutex_);
  while (!line_.empty()) {
    Function<void()> task = std::move(line_.front());
    lock.unlock();
    task();
    task = nullptr;
    lock.lock();
    line_.pop_front();
  }
  running_ = false;
}

}  // namespace weft
