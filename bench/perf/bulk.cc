#include "bench/perf/bulk.h"

#include <cstring>
#include <utility>

#include "bench/perf/measurement.h"
#include "bench/perf/run_clock.h"
#include "core/status.h"
#include "core/strings.h"

namespace weft::bench {
namespace {

// As the raw legs: 16 different targets, more than a cache near a core holds.
constexpr size_t kMemoryBytes = 16 << 20;
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

// --- sink ---------------------------------------------------------------------------------------

BulkSink::BulkSink() : memory_(kMemoryBytes, std::byte{1}) {}

absl::StatusOr<ConnectionHandler*> BulkSink::OnIncoming(Connection& connection) {
  (void)connection;
  if (region_ != nullptr) return absl::ResourceExhaustedError("one client at a time");
  return this;
}

void BulkSink::OnOpen(Connection& connection) {
  auto region = connection.Register(MutableByteSpan(memory_), Access::kRemoteWrite);
  if (!region.ok()) return connection.Close(ToStd(region.status().message()));
  region_ = *std::move(region);
  std::byte span[kSpanBytes];
  StoreLe64(span, region_->remote().key);
  StoreLe64(span + 8, region_->remote().offset);
  StoreLe64(span + 16, region_->remote().length);
  if (!Send(connection, span).ok()) connection.Close("no room for the first message");
}

void BulkSink::OnMessage(Connection& connection, ByteSpan message) {
  if (!Send(connection, message).ok()) connection.Close("no room for a fence");
}

void BulkSink::OnClosed(Connection& connection, const absl::Status& why) {
  (void)connection;
  (void)why;
  region_.reset();
}

// --- source -------------------------------------------------------------------------------------

BulkSource::BulkSource() : memory_(kMemoryBytes, std::byte{2}) {
  for (PieceWrite& write : writes_) write.source = this;
}

absl::Status BulkSource::Open(Engine& engine, const std::string& address, const LinkOptions& link) {
  ConnectOptions options;
  options.link = link;
  engine.Enter();
  absl::Status status = engine.transport().Connect(address, options, this).status();
  const uint64_t deadline_ns = engine.clock().NowNs() + kOpenWithinNs;
  while (status.ok() && status_.ok() && remote_.length == 0) {
    engine.Poll();
    if (engine.clock().NowNs() > deadline_ns) {
      status = absl::DeadlineExceededError("the bulk connection does not open");
    }
  }
  engine.Leave();
  return status.ok() ? status_ : status;
}

void BulkSource::OnOpen(Connection& connection) {
  connection_ = &connection;
  auto region = connection.Register(MutableByteSpan(memory_), Access::kLocalOnly);
  if (region.ok()) {
    region_ = *std::move(region);
  } else {
    status_ = region.status();
  }
}

void BulkSource::OnMessage(Connection& connection, ByteSpan message) {
  (void)connection;
  if (message.size() == kFenceBytes) ++fences_answered_;
  if (message.size() != kSpanBytes) return;
  remote_ = {LoadLe64(message.data()), LoadLe64(message.data() + 8), LoadLe64(message.data() + 16)};
  if (remote_.length != kMemoryBytes) {
    status_ = absl::DataLossError(StrCat("the server lends ", remote_.length, " bytes"));
  }
}

void BulkSource::OnClosed(Connection& connection, const absl::Status& why) {
  (void)connection;
  connection_ = nullptr;
  region_.reset();
  if (status_.ok()) status_ = why;
}

void BulkSource::PieceWrite::OnComplete(const absl::Status& status) {
  busy = false;
  if (source->status_.ok() && !status.ok()) source->status_ = status;
}

void BulkSource::StartWrite(PieceWrite& write) {
  const size_t offset = started_ * kBulkBytes % kMemoryBytes;
  const absl::Status posted =
      connection_->Write(*region_, offset, remote_.Slice(offset, kBulkBytes), &write);
  if (posted.ok()) {
    write.busy = true;
    ++started_;
  } else if (!absl::IsResourceExhausted(posted)) {
    status_ = posted;
  }
}

bool BulkSource::AllDone() const {
  for (const PieceWrite& write : writes_) {
    if (write.busy) return false;
  }
  return true;
}

absl::StatusOr<uint64_t> BulkSource::WriteFor(Engine& engine, double seconds) {
  const RunClock run(seconds);
  const uint64_t started_before = started_;
  engine.Enter();
  while (status_.ok() && !run.IsOver(Clock::Real().NowNs())) {
    for (PieceWrite& write : writes_) {
      if (!write.busy && status_.ok()) StartWrite(write);
    }
    engine.Poll();
  }
  while (status_.ok() && !AllDone()) engine.Poll();
  if (status_.ok()) status_ = Fence(engine);
  engine.Leave();
  WEFT_RETURN_IF_ERROR(status_);
  return started_ - started_before;
}

absl::Status BulkSource::Fence(Engine& engine) {
  const uint64_t answered_before = fences_answered_;
  const std::byte fence[kFenceBytes] = {};
  WEFT_RETURN_IF_ERROR(Send(*connection_, fence));
  while (status_.ok() && fences_answered_ == answered_before) engine.Poll();
  return status_;
}

}  // namespace weft::bench
