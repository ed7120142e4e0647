#include "embed/nbdkit/disk_pool.h"

#include <utility>

namespace weft::embed {

DiskPool::DiskPool(int threads) {
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
    auto found = waiting_.find(client);
    if (found == waiting_.end()) {
      if (spare_.empty()) {
        found = waiting_.try_emplace(client).first;
      } else {
        spare_.key() = client;
        found = waiting_.insert(std::move(spare_)).position;
      }
      turns_.push_back(client);
    }
    found->second.push_back(std::move(task));
  }
  changed_.notify_one();
}

void DiskPool::Work() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || !turns_.empty(); });
    if (turns_.empty()) return;
    const auto next = waiting_.find(turns_.front());
    turns_.pop_front();
    Function<void()> task = std::move(next->second.front());
    next->second.pop_front();
    if (next->second.empty()) {
      spare_ = waiting_.extract(next);
    } else {
      turns_.push_back(next->first);
    }
    lock.unlock();
    task();
    task = {};  // what it holds goes before the lock comes back
    lock.lock();
  }
}

}  // namespace weft::embed
