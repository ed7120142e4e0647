#include "bench/perf/bulk_calls.h"

#include <utility>

#include "core/status.h"

namespace weft::bench {

absl::StatusOr<std::unique_ptr<BulkCalls>> BulkCalls::Open(Channel& channel) {
  WEFT_ASSIGN_OR_RETURN(std::unique_ptr<Buffer> buffer, channel.AllocateBuffer(kBulkRegionBytes));
  for (std::byte& byte : buffer->bytes()) byte = std::byte{2};  // touches every page
  return std::unique_ptr<BulkCalls>(new BulkCalls(channel, std::move(buffer)));
}

BulkCalls::BulkCalls(Channel& channel, std::unique_ptr<Buffer> buffer)
    : engine_(channel.engine()), stub_(channel), buffer_(std::move(buffer)) {
  for (std::unique_ptr<Lane>& lane : lanes_) lane = std::make_unique<Lane>(channel);
}

absl::StatusOr<double> BulkCalls::Rate(bool with_crc32c, double seconds) {
  RateCounter rate(seconds);
  rate_ = &rate;
  running_ = true;
  engine_.Enter();
  for (std::unique_ptr<Lane>& lane : lanes_) {
    lane->request.set_with_crc32c(with_crc32c);
    Start(*lane);
  }
  while (running_ && rate.Continue()) engine_.Poll();
  running_ = false;
  while (outstanding_ > 0) engine_.Poll();
  engine_.Leave();
  WEFT_RETURN_IF_ERROR(status_);
  return rate.PerSecond();
}

void BulkCalls::Start(Lane& lane) {
  const size_t offset = started_++ * kBulkBytes % kBulkRegionBytes;
  lane.bulk.Clear();
  lane.bulk.Receive(SliceOf(buffer_->memory(), buffer_->offset() + offset, kBulkBytes));
  CallOptions call;
  call.bulk = &lane.bulk;
  ++outstanding_;
  stub_.Fetch(lane.request, &lane.reply, call,
              [this, &lane](const absl::Status& status) { Ended(lane, status); });
}

void BulkCalls::Ended(Lane& lane, absl::Status status) {
  --outstanding_;
  if (status.ok()) status = lane.bulk.Received(lane.reply.data()).status();
  if (!status.ok()) {
    running_ = false;
    if (status_.ok()) status_ = std::move(status);
  }
  if (!running_) return;
  rate_->Add(1);
  Start(lane);
}

}  // namespace weft::bench
