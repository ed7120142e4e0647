#include "bench/scale/event_ping.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>

#include "bench/machine/cpu.h"
#include "bench/perf/ends/run_clock.h"
#include "core/clock.h"
#include "core/status.h"

namespace weft::bench {
namespace {

// What the eventfd carries: how the answer is awaited.
constexpr uint64_t kAwake = 1;
constexpr uint64_t kAsleep = 2;
constexpr uint64_t kEnd = 3;

void Write(int fd, uint64_t value) {
  [[maybe_unused]] const ssize_t written = write(fd, &value, sizeof(value));
}

uint64_t Read(int fd) {
  uint64_t value = 0;
  while (read(fd, &value, sizeof(value)) < 0 && errno == EINTR) {
  }
  return value;
}

void SpinFor(uint32_t us) {
  const uint64_t end_ns = Clock::Real().NowNs() + uint64_t{us} * 1000;
  while (Clock::Real().NowNs() < end_ns) {
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<EventPing>> EventPing::Start(int cpu) {
  std::unique_ptr<EventPing> ping(new EventPing);
  ping->there_ = eventfd(0, EFD_CLOEXEC);
  ping->back_ = eventfd(0, EFD_CLOEXEC);
  if (ping->there_ < 0 || ping->back_ < 0) return StatusFromErrno(errno, "eventfd");
  ping->thread_ = std::thread([self = ping.get(), cpu] {
    PinThisThread(cpu).IgnoreError();
    self->Answer();
  });
  return ping;
}

EventPing::~EventPing() {
  if (thread_.joinable()) {
    Write(there_, kEnd);
    thread_.join();
  }
  if (there_ >= 0) close(there_);
  if (back_ >= 0) close(back_);
}

void EventPing::Answer() {
  while (true) {
    switch (Read(there_)) {
      case kAwake:
        answered_.fetch_add(1, std::memory_order_release);
        break;
      case kAsleep:
        Write(back_, 1);
        break;
      default:
        return;
    }
  }
}

template <class Await>
LatencyHistogram EventPing::Ask(double seconds, uint32_t pause_us, uint64_t kind, Await await) {
  LatencyHistogram latency;
  const RunClock run(seconds);
  uint64_t now_ns = 0;
  while (!run.IsOver(now_ns) || latency.count() == 0) {
    SpinFor(pause_us);
    const uint64_t start_ns = Clock::Real().NowNs();
    const uint64_t before = answered_.load(std::memory_order_relaxed);
    Write(there_, kind);
    await(before);
    now_ns = Clock::Real().NowNs();
    if (run.IsCounted(start_ns)) latency.Record(now_ns - start_ns);
  }
  return latency;
}

LatencyHistogram EventPing::AskAwake(double seconds, uint32_t pause_us) {
  return Ask(seconds, pause_us, kAwake, [this](uint64_t before) {
    while (answered_.load(std::memory_order_acquire) == before) {
    }
  });
}

LatencyHistogram EventPing::AskAsleep(double seconds, uint32_t pause_us) {
  return Ask(seconds, pause_us, kAsleep, [this](uint64_t) { Read(back_); });
}

}  // namespace weft::bench
