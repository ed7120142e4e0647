// What the kernel takes to wake a sleeping thread through an eventfd: the measure of any wake-up.
//
// Threads: Ask() on one; the answering thread is the object's own.
// Errors: UNAVAILABLE, without descriptors.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>

#include "absl/status/statusor.h"
#include "core/histogram.h"

namespace weft::bench {

class EventPing {
 public:
  // The answering thread runs on `cpu`.
  static absl::StatusOr<std::unique_ptr<EventPing>> Start(int cpu);
  ~EventPing();
  EventPing(const EventPing&) = delete;
  EventPing& operator=(const EventPing&) = delete;

  // The answerer sleeps in read(2); this thread writes, and then spins on a word of memory that the
  // answerer sets at once: one wake-up.
  LatencyHistogram AskAwake(double seconds, uint32_t pause_us);
  // This thread sleeps in read(2) for the answer, as well: two wake-ups.
  LatencyHistogram AskAsleep(double seconds, uint32_t pause_us);

 private:
  EventPing() = default;
  void Answer();
  template <class Await>
  LatencyHistogram Ask(double seconds, uint32_t pause_us, uint64_t kind, Await await);

  int there_ = -1;  // blocking eventfds
  int back_ = -1;
  std::atomic<uint64_t> answered_{0};
  std::thread thread_;
};

}  // namespace weft::bench
