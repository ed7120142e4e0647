// A BlockDevice in memory, for tests: it waits where a test wants it to, and forgets like a medium.
//
//   MemoryDevice device(1 << 20);
//   device.Hold();                  // everything that may wait for the medium waits, or some of it
//   ...
//   device.Go();
//
// Threads: any.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "embed/nbdkit/block_device.h"

namespace weft::embed {

class MemoryDevice : public BlockDevice {
 public:
  explicit MemoryDevice(uint64_t bytes, bool read_only = false)
      : BlockDevice({.bytes = bytes, .read_only = read_only}), bytes_(bytes) {}

  // --- for tests --------------------------------------------------------------------------------

  // kRanges: what trims and zeroes.
  enum class Held : uint8_t { kNothing = 1, kRanges = 2, kFlushes = 3, kAll = 4 };

  void Hold(Held what = Held::kAll) {
    Set([=, this] { held_ = what; });
  }
  void Go() { Hold(Held::kNothing); }
  // Blocks until so many operations wait.
  void AwaitHeld(int operations) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return waiting_ == operations; });
  }
  // Its next flushes fail, and the epoch changes, as block_device.h says.
  void FailFlushes(bool fail) {
    Set([&] { fails_ = fail; });
  }
  // As fdatasync(2) has it: one is told, and the next one succeeds.
  void FailOneFlush() {
    Set([this] { fails_once_ = true; });
  }
  // The host was started again.
  void ChangeEpoch() {
    Set([this] { ++epoch_; });
  }
  int flushes() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return flushes_;
  }
  int writes() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return writes_;
  }
  // Offset and bytes of each that was trimmed or zeroed, in their order.
  std::vector<std::pair<uint64_t, uint64_t>> ranges() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return ranges_;
  }
  std::byte At(uint64_t offset) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return bytes_[offset];
  }

  // --- BlockDevice ------------------------------------------------------------------------------

  uint64_t epoch() const override {
    const std::lock_guard<std::mutex> lock(mutex_);
    return epoch_;
  }
  // While it is held nothing is in memory.
  bool ReadCached(uint64_t offset, MutableByteSpan into) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (held_ == Held::kAll) return false;
    std::memcpy(into.data(), bytes_.data() + offset, into.size());
    return true;
  }
  absl::Status Read(uint64_t offset, MutableByteSpan into) override {
    const auto lock = Wait();
    std::memcpy(into.data(), bytes_.data() + offset, into.size());
    return absl::OkStatus();
  }
  absl::Status Write(uint64_t offset, ByteSpan from) override {
    const auto lock = Wait();
    std::memcpy(bytes_.data() + offset, from.data(), from.size());
    ++writes_;
    return absl::OkStatus();
  }
  absl::Status Flush() override {
    const auto lock = Wait(Held::kFlushes);
    ++flushes_;
    if (!fails_ && !std::exchange(fails_once_, false)) return absl::OkStatus();
    ++epoch_;
    return absl::DataLossError("flush: the medium has failed");
  }
  absl::Status Trim(uint64_t offset, uint64_t bytes) override { return Zero(offset, bytes, true); }
  absl::Status Zero(uint64_t offset, uint64_t bytes, bool) override {
    const auto lock = Wait(Held::kRanges);
    std::memset(bytes_.data() + offset, 0, bytes);
    ranges_.emplace_back(offset, bytes);
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<Extent>> Extents(uint64_t offset, uint64_t bytes,
                                              size_t limit) override {
    const auto lock = Wait();
    std::vector<Extent> extents;
    for (uint64_t at = offset; at < offset + bytes; ++at) {
      const bool is_hole = bytes_[at] == std::byte{0};
      if (!extents.empty() && extents.back().is_hole == is_hole) {
        ++extents.back().bytes;
      } else if (extents.size() == limit) {
        break;
      } else {
        extents.push_back({1, is_hole});
      }
    }
    return extents;
  }

 private:
  template <class Change>
  void Set(Change change) {
    const std::lock_guard<std::mutex> lock(mutex_);
    change();
    changed_.notify_all();
  }
  std::unique_lock<std::mutex> Wait(Held kind = Held::kAll) {
    std::unique_lock<std::mutex> lock(mutex_);
    ++waiting_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return held_ != Held::kAll && held_ != kind; });
    --waiting_;
    return lock;
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  std::vector<std::byte> bytes_;
  uint64_t epoch_ = 1;
  Held held_ = Held::kNothing;
  bool fails_ = false;
  bool fails_once_ = false;
  int waiting_ = 0;
  int flushes_ = 0;
  int writes_ = 0;
  std::vector<std::pair<uint64_t, uint64_t>> ranges_;
};

}  // namespace weft::embed
