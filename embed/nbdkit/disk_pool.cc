#include "embed/nbdkit/disk_pool.h"

#include <algorithm>
#include <utility>

namespace weft::embed {

DiskPool::DiskPool(int threads) : most_running_(static_cast<size_t>(std::max(1, threads - 1))) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Work(); });
}

DiskPool::~DiskPool() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void DiskPool::Run(uint64_t client, Function<void()> task) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    auto found = clients_.find(client);
    if (found == clients_.end()) {
      if (spare_.empty()) {
        found = clients_.try_emplace(client).first;
      } else {
        spare_.key() = client;
        found = clients_.insert(std::move(spare_)).position;
      }
    }
    Tasks& tasks = found->second;
    tasks.waiting.push_back(std::move(task));
    if (tasks.waiting.size() == 1) TakeTurn(client, tasks);
  }
  changed_.notify_one();
}

void DiskPool::TakeTurn(uint64_t client, const Tasks& tasks) {
  if (!tasks.waiting.empty() && tasks.running < most_running_) turns_.push_back(client);
}

void DiskPool::Work() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || !turns_.empty(); });
    // What else waits is a client's that has its part: who runs that goes on with it.
    if (turns_.empty()) return;
    const uint64_t client = turns_.front();
    turns_.pop_front();
    Tasks& tasks = clients_.find(client)->second;
    Function<void()> task = std::move(tasks.waiting.front());
    tasks.waiting.pop_front();
    ++tasks.running;
    TakeTurn(client, tasks);
    lock.unlock();
    task();
    task = {};  // what it holds goes before the lock comes back
    lock.lock();
    if (tasks.running-- == most_running_) {
      TakeTurn(client, tasks);
      changed_.notify_one();
    }
    if (tasks.running == 0 && tasks.waiting.empty()) spare_ = clients_.extract(client);
  }
}

}  // namespace weft::embed
