#include "examples/fileshare/client/lanes.h"

#include <utility>

#include "examples/fileshare/chunk.h"

namespace fileshare::client {

Lanes::Lanes(weft::Channel& channel, uint32_t lanes) {
  for (uint32_t i = 0; i < lanes; ++i) threads_.emplace_back([this, &channel] { Run(channel); });
}

Lanes::~Lanes() { Finish().IgnoreError(); }

bool Lanes::Add(Work work) {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [this] { return waiting_.size() < kMaxWaiting || !status_.ok(); });
  if (!status_.ok()) return false;
  waiting_.push_back(std::move(work));
  changed_.notify_all();
  return true;
}

absl::Status Lanes::Finish() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    finishing_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
  const std::lock_guard<std::mutex> lock(mutex_);
  return status_;
}

void Lanes::Fail(absl::Status status) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (status_.ok()) status_ = std::move(status);
  changed_.notify_all();
}

void Lanes::Run(weft::Channel& channel) {
  auto buffer = channel.AllocateBuffer(kChunkBytes);
  if (!buffer.ok()) return Fail(buffer.status());
  Lane lane(channel, *std::move(buffer));
  WorkWith(lane);
}

void Lanes::WorkWith(Lane& lane) {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return finishing_ || !waiting_.empty() || !status_.ok(); });
    if (waiting_.empty() || !status_.ok()) return;
    Work work = std::move(waiting_.front());
    waiting_.pop_front();
    changed_.notify_all();
    lock.unlock();
    absl::Status status = work(lane);
    work = {};
    if (!status.ok()) Fail(std::move(status));
    lock.lock();
  }
}

}  // namespace fileshare::client
