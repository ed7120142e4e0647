// Threads that do a client's work, several pieces at once: each has a buffer, and one call under
// way at a time. While one waits for its reply, another one has the disk.
//
//   Lanes lanes(channel, 8);
//   for (...) lanes.Add([...](Lane& lane) { return ...; });  // waits while there is too much to do
//   absl::Status status = lanes.Finish();
//
// Threads: Add() and Finish() from the one that created it.
// Lifetime: the channel outlives it.
// Errors: the first one is Finish()'s; pieces that have not begun by then are dropped.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "core/function.h"
#include "weft/bulk.h"
#include "weft/channel.h"
#include "weft/memory.h"

namespace fileshare::client {

// What a piece of work has to itself: registered memory of one chunk, and a way to lend it.
struct Lane {
  Lane(weft::Channel& channel, std::unique_ptr<weft::Buffer> chunk)
      : buffer(std::move(chunk)), bulk(channel) {}

  std::byte* data() const { return buffer->bytes().data(); }
  weft::Slice Front(size_t bytes) const { return buffer->slice(0, bytes); }

  const std::unique_ptr<weft::Buffer> buffer;
  weft::BulkCall bulk;
};

class Lanes {
 public:
  using Work = weft::Function<absl::Status(Lane&)>;

  // Pieces that wait: some milliseconds of work, and what open files of theirs cost.
  static constexpr size_t kMaxWaiting = 64;

  Lanes(weft::Channel& channel, uint32_t lanes);
  ~Lanes();
  Lanes(const Lanes&) = delete;
  Lanes& operator=(const Lanes&) = delete;

  // False: something has failed, more work is of no use.
  bool Add(Work work);

  // When all is done.
  absl::Status Finish();

 private:
  void Run(weft::Channel& channel);
  void WorkWith(Lane& lane);
  void Fail(absl::Status status);

  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  std::deque<Work> waiting_;
  bool finishing_ = false;
  absl::Status status_;

  std::vector<std::thread> threads_;
};

}  // namespace fileshare::client
