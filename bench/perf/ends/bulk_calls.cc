#include "bench/perf/ends/bulk_calls.h"

#include <utility>

#include "bench/perf/ends/run_clock.h"
#include "core/clock.h"
#include "core/histogram.h"
#include "core/status.h"

namespace weft::bench {

absl::StatusOr<std::unique_ptr<BulkCalls>> BulkCalls::Open(Channel& channel) {
  WEFT_ASSIGN_OR_RETURN(std::unique_ptr<Buffer> buffer, channel.AllocateBuffer(kRegionBytes));
  for (std::byte& byte : buffer->bytes()) byte = std::byte{2};  // touches every page
  return std::unique_ptr<BulkCalls>(new BulkCalls(channel, std::move(buffer)));
}

void BulkCalls::Prepare(const Cell& cell) {
  cell_ = cell;
  while (lanes_.size() < cell.outstanding) lanes_.push_back(std::make_unique<Lane>(channel_));
  for (std::unique_ptr<Lane>& lane : lanes_) {
    lane->request.set_with_crc32c(cell.pattern == Pattern::kBulkChecked);
    lane->request.set_bytes(cell.bytes);
  }
}

absl::StatusOr<Figures> BulkCalls::Run(const Cell& cell, double seconds) {
  Prepare(cell);
  if (cell.outstanding == 1) return OneByOne(seconds);
  Figures figures;
  WEFT_ASSIGN_OR_RETURN(figures.per_s, Rate(seconds));
  return figures;
}

void BulkCalls::Lend(Lane& lane) {
  const size_t offset = places_.Next(cell_.bytes);
  lane.bulk.Clear();
  lane.bulk.Receive(buffer_->slice(offset, cell_.bytes));
}

absl::Status BulkCalls::Check(Lane& lane) { return lane.bulk.Received(lane.reply.data()).status(); }

absl::StatusOr<Figures> BulkCalls::OneByOne(double seconds) {
  LatencyHistogram latency;
  Lane& lane = *lanes_[0];
  CallOptions call;
  call.bulk = &lane.bulk;
  const RunClock run(seconds);
  uint64_t start_ns = Clock::Real().NowNs();
  while (!(run.IsOver(start_ns) && latency.count() > 0)) {
    Lend(lane);
    WEFT_RETURN_IF_ERROR(stub_.Fetch(lane.request, &lane.reply, call));
    WEFT_RETURN_IF_ERROR(Check(lane));
    const uint64_t end_ns = Clock::Real().NowNs();
    if (run.IsCounted(start_ns)) latency.Record(end_ns - start_ns);
    start_ns = end_ns;
  }
  return FiguresOf(latency);
}

absl::StatusOr<double> BulkCalls::Rate(double seconds) {
  RateCounter rate(seconds, cell_.outstanding);
  running_ = true;
  engine_.Enter();
  for (uint32_t i = 0; i < cell_.outstanding; ++i) Start(*lanes_[i]);
  while (running_ && rate.Continue()) {
    const uint64_t ended_before = ended_;
    engine_.Poll();
    rate.Add(ended_ - ended_before);
  }
  running_ = false;
  while (outstanding_ > 0) engine_.Poll();
  engine_.Leave();
  WEFT_RETURN_IF_ERROR(status_);
  return rate.PerSecond();
}

void BulkCalls::Start(Lane& lane) {
  Lend(lane);
  CallOptions call;
  call.bulk = &lane.bulk;
  ++outstanding_;
  stub_.Fetch(lane.request, &lane.reply, call,
              [this, &lane](const absl::Status& status) { Ended(lane, status); });
}

void BulkCalls::Ended(Lane& lane, absl::Status status) {
  --outstanding_;
  ++ended_;
  if (status.ok()) status = Check(lane);
  if (!status.ok()) {
    running_ = false;
    if (status_.ok()) status_ = std::move(status);
  }
  if (running_) Start(lane);
}

}  // namespace weft::bench
