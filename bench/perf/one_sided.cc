#include "bench/perf/one_sided.h"

#include <utility>

#include "core/clock.h"
#include "core/status.h"

namespace weft::bench {

absl::StatusOr<std::unique_ptr<OneSided>> OneSided::Open(Channel& channel,
                                                         const RemoteRegion& remote) {
  WEFT_ASSIGN_OR_RETURN(std::unique_ptr<RemoteMemory> memory, RemoteMemory::Open(channel, remote));
  WEFT_ASSIGN_OR_RETURN(std::unique_ptr<Buffer> buffer, channel.AllocateBuffer(kBulkRegionBytes));
  for (std::byte& byte : buffer->bytes()) byte = std::byte{2};  // touches every page
  return std::unique_ptr<OneSided>(new OneSided(channel, std::move(memory), std::move(buffer)));
}

OneSided::OneSided(Channel& channel, std::unique_ptr<RemoteMemory> memory,
                   std::unique_ptr<Buffer> buffer)
    : engine_(channel.engine()), buffer_(std::move(buffer)), memory_(std::move(memory)) {}

MemorySlice OneSided::Here(size_t offset, size_t bytes) const {
  return SliceOf(buffer_->memory(), buffer_->offset() + offset, bytes);
}

// As for round trips: the end of one is the start of the next.
absl::StatusOr<LatencyHistogram> OneSided::ReadOneByOne(double seconds) {
  LatencyHistogram latency;
  const RunClock run(seconds);
  uint64_t start_ns = Clock::Real().NowNs();
  while (!(run.IsOver(start_ns) && latency.count() > 0)) {
    const size_t offset = NextOffset(kSmallBytes);
    WEFT_RETURN_IF_ERROR(memory_->Read(offset, Here(offset, kSmallBytes)));
    const uint64_t end_ns = Clock::Real().NowNs();
    if (run.IsCounted(start_ns)) latency.Record(end_ns - start_ns);
    start_ns = end_ns;
  }
  return latency;
}

void OneSided::Ended(const absl::Status& status) {
  --outstanding_;
  if (status.ok()) return;
  running_ = false;
  if (status_.ok()) status_ = status;
}

absl::Status OneSided::AwaitAll() {
  running_ = false;
  while (outstanding_ > 0) engine_.Poll();
  return status_;
}

void OneSided::KeepReading() {
  const size_t offset = NextOffset(kSmallBytes);
  ++outstanding_;
  memory_->Read(offset, Here(offset, kSmallBytes), [this](const absl::Status& status) {
    Ended(status);
    if (!running_) return;
    rate_->Add(1);
    KeepReading();
  });
}

absl::StatusOr<double> OneSided::ReadRate(double seconds) {
  RateCounter rate(seconds);
  rate_ = &rate;
  running_ = true;
  engine_.Enter();
  for (uint32_t i = 0; i < kOutstanding; ++i) KeepReading();
  while (running_ && rate.Continue()) engine_.Poll();
  const absl::Status status = AwaitAll();
  engine_.Leave();
  WEFT_RETURN_IF_ERROR(status);
  return rate.PerSecond();
}

void OneSided::KeepWriting() {
  const size_t offset = NextOffset(kBulkBytes);
  ++outstanding_;
  memory_->Write(offset, Here(offset, kBulkBytes), [this](const absl::Status& status) {
    Ended(status);
    if (running_) KeepWriting();
  });
}

absl::StatusOr<uint64_t> OneSided::WriteFor(double seconds) {
  const RunClock run(seconds);
  const uint64_t started_before = started_;
  running_ = true;
  engine_.Enter();
  for (uint32_t i = 0; i < kBulkOutstanding; ++i) KeepWriting();
  while (running_ && !run.IsOver(Clock::Real().NowNs())) engine_.Poll();
  const absl::Status status = AwaitAll();
  engine_.Leave();
  WEFT_RETURN_IF_ERROR(status);
  return started_ - started_before;
}

}  // namespace weft::bench
