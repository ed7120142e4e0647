#include "bench/perf/one_sided.h"

#include <cstring>
#include <utility>

#include "bench/perf/measurement.h"
#include "core/status.h"
#include "core/strings.h"

namespace weft::bench {
namespace {

constexpr uint64_t kOpenWithinNs = 30 * kNsPerSec;  // more than a connection may take
constexpr size_t kFenceBytes = 8;
constexpr size_t kSpanBytes = 24;

absl::Status Send(Connection& connection, ByteSpan message) {
  WEFT_ASSIGN_OR_RETURN(std::byte* const space, connection.Reserve(message.size()));
  std::memcpy(space, message.data(), message.size());
  connection.Commit(message.size());
  connection.Flush();
  return absl::OkStatus();
}

}  // namespace

// --- target -------------------------------------------------------------------------------------

OneSidedTarget::OneSidedTarget() : memory_(kBulkRegionBytes, std::byte{1}) {}

absl::StatusOr<ConnectionHandler*> OneSidedTarget::OnIncoming(Connection& connection) {
  (void)connection;
  if (region_ != nullptr) return absl::ResourceExhaustedError("one client at a time");
  return this;
}

void OneSidedTarget::OnOpen(Connection& connection) {
  auto region = connection.Register(MutableByteSpan(memory_), Access::kRemoteReadWrite);
  if (!region.ok()) return connection.Close(ToStd(region.status().message()));
  region_ = *std::move(region);
  std::byte span[kSpanBytes];
  StoreLe64(span, region_->remote().key);
  StoreLe64(span + 8, region_->remote().offset);
  StoreLe64(span + 16, region_->remote().length);
  if (!Send(connection, span).ok()) connection.Close("no room for the first message");
}

void OneSidedTarget::OnMessage(Connection& connection, ByteSpan message) {
  if (!Send(connection, message).ok()) connection.Close("no room for a fence");
}

void OneSidedTarget::OnClosed(Connection& connection, const absl::Status& why) {
  (void)connection;
  (void)why;
  region_.reset();
}

// --- source -------------------------------------------------------------------------------------

OneSidedSource::OneSidedSource() : memory_(kBulkRegionBytes, std::byte{2}) {
  for (Transfer& transfer : transfers_) transfer.source = this;
}

absl::Status OneSidedSource::Open(Engine& engine, const std::string& address,
                                  const LinkOptions& link) {
  ConnectOptions options;
  options.link = link;
  engine.Enter();
  absl::Status status = engine.transport().Connect(address, options, this).status();
  const uint64_t deadline_ns = engine.clock().NowNs() + kOpenWithinNs;
  while (status.ok() && status_.ok() && remote_.length == 0) {
    engine.Poll();
    if (engine.clock().NowNs() > deadline_ns) {
      status = absl::DeadlineExceededError("the connection for one-sided transfers does not open");
    }
  }
  engine.Leave();
  return status.ok() ? status_ : status;
}

void OneSidedSource::OnOpen(Connection& connection) {
  connection_ = &connection;
  auto region = connection.Register(MutableByteSpan(memory_), Access::kLocalOnly);
  if (region.ok()) {
    region_ = *std::move(region);
  } else {
    status_ = region.status();
  }
}

void OneSidedSource::OnMessage(Connection& connection, ByteSpan message) {
  (void)connection;
  if (message.size() == kFenceBytes) ++fences_answered_;
  if (message.size() != kSpanBytes) return;
  remote_ = {LoadLe64(message.data()), LoadLe64(message.data() + 8), LoadLe64(message.data() + 16)};
  if (remote_.length != kBulkRegionBytes) {
    status_ = absl::DataLossError(StrCat("the server lends ", remote_.length, " bytes"));
  }
}

void OneSidedSource::OnClosed(Connection& connection, const absl::Status& why) {
  (void)connection;
  connection_ = nullptr;
  region_.reset();
  if (status_.ok()) status_ = why;
}

void OneSidedSource::Transfer::OnComplete(const absl::Status& status) {
  busy = false;
  if (source->status_.ok() && !status.ok()) source->status_ = status;
  if (source->reading_ == nullptr || !source->status_.ok()) return;
  source->reading_->Add(1);
  source->Start(*this, /*is_read=*/true);
}

bool OneSidedSource::Start(Transfer& transfer, bool is_read) {
  const size_t bytes = is_read ? kSmallBytes : kBulkBytes;
  const size_t offset = started_ * bytes % kBulkRegionBytes;
  const RemoteSpan remote = remote_.Slice(offset, bytes);
  const absl::Status posted = is_read ? connection_->Read(*region_, offset, remote, &transfer)
                                      : connection_->Write(*region_, offset, remote, &transfer);
  if (posted.ok()) {
    transfer.busy = true;
    ++started_;
  } else if (!absl::IsResourceExhausted(posted)) {
    status_ = posted;
  }
  return posted.ok();
}

bool OneSidedSource::AllDone() const {
  for (const Transfer& transfer : transfers_) {
    if (transfer.busy) return false;
  }
  return true;
}

void OneSidedSource::AwaitAll(Engine& engine) {
  while (status_.ok() && !AllDone()) engine.Poll();
}

absl::StatusOr<uint64_t> OneSidedSource::WriteFor(Engine& engine, double seconds) {
  const RunClock run(seconds);
  const uint64_t started_before = started_;
  engine.Enter();
  while (status_.ok() && !run.IsOver(Clock::Real().NowNs())) {
    for (uint32_t i = 0; i < kBulkOutstanding && status_.ok(); ++i) {
      if (!transfers_[i].busy) Start(transfers_[i], /*is_read=*/false);
    }
    engine.Poll();
  }
  AwaitAll(engine);
  if (status_.ok()) status_ = Fence(engine);
  engine.Leave();
  WEFT_RETURN_IF_ERROR(status_);
  return started_ - started_before;
}

// As for round trips: the end of one is the start of the next.
absl::StatusOr<LatencyHistogram> OneSidedSource::ReadOneByOne(Engine& engine, double seconds) {
  LatencyHistogram latency;
  const RunClock run(seconds);
  engine.Enter();
  uint64_t start_ns = Clock::Real().NowNs();
  while (status_.ok() && !(run.IsOver(start_ns) && latency.count() > 0)) {
    Start(transfers_[0], /*is_read=*/true);
    while (status_.ok() && transfers_[0].busy) engine.Poll();
    const uint64_t end_ns = Clock::Real().NowNs();
    if (run.IsCounted(start_ns)) latency.Record(end_ns - start_ns);
    start_ns = end_ns;
  }
  engine.Leave();
  WEFT_RETURN_IF_ERROR(status_);
  return latency;
}

absl::StatusOr<double> OneSidedSource::ReadRate(Engine& engine, double seconds) {
  RateCounter rate(seconds);
  engine.Enter();
  reading_ = &rate;
  while (status_.ok() && rate.Continue()) {
    // At the start, and those that found no room.
    for (Transfer& transfer : transfers_) {
      if (!transfer.busy && !Start(transfer, /*is_read=*/true)) break;
    }
    engine.Poll();
  }
  reading_ = nullptr;
  AwaitAll(engine);
  engine.Leave();
  WEFT_RETURN_IF_ERROR(status_);
  return rate.PerSecond();
}

absl::Status OneSidedSource::Fence(Engine& engine) {
  const uint64_t answered_before = fences_answered_;
  const std::byte fence[kFenceBytes] = {};
  WEFT_RETURN_IF_ERROR(Send(*connection_, fence));
  while (status_.ok() && fences_answered_ == answered_before) engine.Poll();
  return status_;
}

}  // namespace weft::bench
