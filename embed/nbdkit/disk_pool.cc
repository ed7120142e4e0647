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

void DiskPool::Run(Lane& lane, Function<void()> task) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    lane.tasks_.push_back(std::move(task));
    if (lane.tasks_.size() == 1) lanes_.push_back(&lane);
  }
  changed_.notify_one();
}

void DiskPool::Work() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || !lanes_.empty(); });
    if (lanes_.empty()) return;
    Lane* const lane = lanes_.front();
    lanes_.pop_front();
    Function<void()> task = std::move(lane->tasks_.front());
    lane->tasks_.pop_front();
    if (!lane->tasks_.empty()) lanes_.push_back(lane);
    lock.unlock();
    task();
    task = {};  // what it holds, perhaps the lane, goes before the lock comes back
    lock.lock();
  }
}

}  // namespace weft::embed
