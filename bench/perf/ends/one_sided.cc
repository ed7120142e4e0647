#include "bench/perf/ends/one_sided.h"

#include <utility>

#include "bench/perf/ends/run_clock.h"
#include "core/clock.h"
#include "core/histogram.h"
#include "core/status.h"

namespace weft::bench {

absl::StatusOr<std::unique_ptr<OneSided>> OneSided::Open(Channel& channel,
                                                         const RemoteRegion& remote) {
  WEFT_ASSIGN_OR_RETURN(std::unique_ptr<RemoteMemory> memory, RemoteMemory::Open(channel, remote));
  WEFT_ASSIGN_OR_RETURN(std::unique_ptr<Buffer> buffer, channel.AllocateBuffer(kRegionBytes));
  for (std::byte& byte : buffer->bytes()) byte = std::byte{2};  // touches every page
  return std::unique_ptr<OneSided>(new OneSided(channel, std::move(memory), std::move(buffer)));
}

OneSided::OneSided(Channel& channel, std::unique_ptr<RemoteMemory> memory,
                   std::unique_ptr<Buffer> buffer)
    : engine_(CoreOf(channel.engine())), buffer_(std::move(buffer)), memory_(std::move(memory)) {}

Slice OneSided::Here(size_t offset) const { return buffer_->slice(offset, cell_.bytes); }

absl::Status OneSided::Transfer() {
  const size_t offset = places_.Next(cell_.bytes);
  return cell_.pattern == Pattern::kRead ? memory_->Read(offset, Here(offset))
                                         : memory_->Write(offset, Here(offset));
}

// As for round trips: the end of one is the start of the next.
absl::StatusOr<Figures> OneSided::OneByOne(const Cell& cell, double seconds) {
  cell_ = cell;
  LatencyHistogram latency;
  const RunClock run(seconds);
  uint64_t start_ns = Clock::Real().NowNs();
  while (!(run.IsOver(start_ns) && latency.count() > 0)) {
    WEFT_RETURN_IF_ERROR(Transfer());
    const uint64_t end_ns = Clock::Real().NowNs();
    if (run.IsCounted(start_ns)) latency.Record(end_ns - start_ns);
    start_ns = end_ns;
  }
  return FiguresOf(latency);
}

void OneSided::Begin(const Cell& cell) {
  cell_ = cell;
  running_ = true;
}

void OneSided::TopUp() {
  for (uint32_t started = outstanding_; started < cell_.outstanding; ++started) Start();
}

void OneSided::Start() {
  const size_t offset = places_.Next(cell_.bytes);
  auto ended = [this](const absl::Status& status) { Ended(status); };
  const bool done = cell_.pattern == Pattern::kRead
                        ? memory_->ReadNow(offset, Here(offset), ended)
                        : memory_->WriteNow(offset, Here(offset), ended);
  done ? ++ended_ : ++outstanding_;
}

void OneSided::Ended(const absl::Status& status) {
  --outstanding_;
  ++ended_;
  if (!status.ok()) {
    running_ = false;
    if (status_.ok()) status_ = status;
  }
  if (running_) Start();
}

absl::Status OneSided::AwaitAll() {
  running_ = false;
  while (outstanding_ > 0) engine_.Poll();
  return status_;
}

absl::StatusOr<double> OneSided::Rate(const Cell& cell, double seconds) {
  RateCounter rate(seconds, cell.outstanding);
  engine_.Enter();
  Begin(cell);
  while (running_ && rate.Continue()) {
    const uint64_t ended_before = ended_;
    TopUp();
    engine_.Poll();
    rate.Add(ended_ - ended_before);
  }
  const absl::Status status = AwaitAll();
  engine_.Leave();
  WEFT_RETURN_IF_ERROR(status);
  return rate.PerSecond();
}

absl::StatusOr<uint64_t> OneSided::RunFor(const Cell& cell, double seconds) {
  const RunClock run(seconds);
  const uint64_t ended_before = ended_;
  engine_.Enter();
  Begin(cell);
  while (running_ && !run.IsOver(Clock::Real().NowNs())) {
    TopUp();
    engine_.Poll();
  }
  const absl::Status status = AwaitAll();
  engine_.Leave();
  WEFT_RETURN_IF_ERROR(status);
  return ended_ - ended_before;
}

}  // namespace weft::bench
