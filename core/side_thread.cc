#include "core/side_thread.h"

#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include <mutex>
#include <utility>

namespace weft {

void SideThread::Bring(Function<void()> task) {
  const std::lock_guard lock(mutex_);
  LookForFork();
  line_.push_back(std::move(task));
  if (!running_) running_ = StartThread();
}

size_t SideThread::waiting() {
  const std::lock_guard lock(mutex_);
  LookForFork();
  return line_.size();
}

void SideThread::LookForFork() {
  if (std::exchange(forks_, ForkCount()) == ForkCount()) return;
  running_ = false;
  LeaveBehind(std::exchange(line_, {}));
}

// Not std::thread, which throws where there is none left.
bool SideThread::StartThread() {
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes) != 0) return false;
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  cpu_set_t cpus;  // of the first thread
  if (sched_getaffinity(getpid(), sizeof(cpus), &cpus) == 0) {
    pthread_attr_setaffinity_np(&attributes, sizeof(cpus), &cpus);
  }
  const auto run = [](void* self) -> void* {
    static_cast<SideThread*>(self)->Run();
    return nullptr;
  };
  pthread_t thread;
  const bool started = pthread_create(&thread, &attributes, run, this) == 0;
  pthread_attr_destroy(&attributes);
  return started;
}

// What is being done stays in line: it counts.
void SideThread::Run() {
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
