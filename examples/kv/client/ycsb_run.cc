#include "examples/kv/client/ycsb_run.h"

#include <cstdio>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "core/clock.h"
#include "core/strings.h"
#include "examples/kv/client/call_all.h"
#include "examples/kv/client/closed_loop.h"
#include "examples/kv/client/progress.h"
#include "examples/kv/client/report.h"
#include "examples/kv/client/ycsb_records.h"

namespace kv::client {
namespace {

using ycsb::Operation;
using ycsb::OperationKind;

// Seeds for things that must not follow each other's numbers.
uint64_t RecordSeed(const YcsbOptions& options) { return weft::Random(options.seed).Next64(); }

class WorkloadRun {
 public:
  WorkloadRun(Session& session, const YcsbOptions& options, const ycsb::Workload& workload)
      : session_(session),
        options_(options),
        label_(weft::StrCat("ycsb ", std::string(1, workload.name))),
        stream_(workload, options.records, options.fields, options.seed),
        records_(options, RecordSeed(options)),
        lanes_(session.outstanding),
        loop_(session.channel.engine(), session.outstanding,
              [this](uint32_t lane) { return Start(lane); }) {}

  std::unique_ptr<YcsbResult> Run() {
    Progress progress(label_, "operations");
    start_ns_ = now_ns_ = NowNs();
    end_ns_ = options_.operations > 0
                  ? weft::kNever
                  : start_ns_ + static_cast<uint64_t>(options_.seconds * weft::kNsPerSec);
    loop_.Run([&] {
      progress.Update(Fraction(), result_->operations);
      result_->interrupted = result_->interrupted || session_.StopRequested();
      return !result_->interrupted;
    });
    result_->seconds = Seconds(NowNs() - start_ns_);
    for (const weft::LatencyHistogram& each : result_->latency_of) result_->latency.Merge(each);
    return std::move(result_);
  }

 private:
  struct Lane {
    Operation operation = {};
    uint64_t start_ns = 0;
    PutRequest put;
    PutReply put_reply;
    GetRequest get;
    GetReply get_reply;
    ScanRequest scan;
    ScanReply scan_reply;
  };

  uint64_t NowNs() const { return session_.NowNs(); }
  static double Seconds(uint64_t ns) { return static_cast<double>(ns) / weft::kNsPerSec; }

  double Fraction() const {
    if (options_.operations == 0) return Seconds(NowNs() - start_ns_) / options_.seconds;
    return static_cast<double>(started_) / static_cast<double>(options_.operations);
  }

  bool Start(uint32_t index) {
    if (now_ns_ >= end_ns_) return false;
    if (options_.operations > 0 && started_ == options_.operations) return false;
    ++started_;
    Lane& lane = lanes_[index];
    lane.operation = stream_.Next();
    Fill(lane);
    lane.start_ns = NowNs();
    switch (lane.operation.kind) {
      case OperationKind::kRead:
      case OperationKind::kReadModifyWrite:
        Read(index);
        break;
      case OperationKind::kUpdate:
      case OperationKind::kInsert:
        Write(index);
        break;
      case OperationKind::kScan:
        Scan(index);
        break;
    }
    return true;
  }

  // Makes the request, before the operation's time begins.
  void Fill(Lane& lane) {
    const Operation& operation = lane.operation;
    switch (operation.kind) {
      case OperationKind::kRead:
      case OperationKind::kReadModifyWrite:
        ycsb::SetRecordKey(operation.record, lane.get.mutable_key());
        break;
      case OperationKind::kUpdate:
        records_.FillUpdate(operation.record, operation.field, &lane.put);
        break;
      case OperationKind::kInsert:
        records_.FillInsert(operation.record, &lane.put);
        break;
      case OperationKind::kScan:
        ycsb::SetRecordKey(operation.record, lane.scan.mutable_start());
        lane.scan.set_limit(operation.scan_records);
        break;
    }
  }

  void Read(uint32_t index) {
    Lane& lane = lanes_[index];
    session_.StartGet(index, lane.get, &lane.get_reply,
                      [this, index](absl::Status status) { OnRead(index, std::move(status)); });
  }

  void OnRead(uint32_t index, absl::Status status) {
    Lane& lane = lanes_[index];
    if (status.ok()) status = CheckRead(lane);
    if (lane.operation.kind == OperationKind::kRead || !status.ok()) return End(index, status);
    ++result_->calls;
    records_.FillUpdate(lane.operation.record, lane.operation.field, &lane.put);
    Write(index);
  }

  absl::Status CheckRead(const Lane& lane) const {
    if (records_.Fits(lane.get_reply.fields())) return absl::OkStatus();
    return absl::DataLossError(weft::StrCat("record ", lane.get.key(), " is not as stored"));
  }

  void Write(uint32_t index) {
    Lane& lane = lanes_[index];
    session_.StartPut(index, lane.put, &lane.put_reply,
                      [this, index](absl::Status status) { OnWritten(index, status); });
  }

  void OnWritten(uint32_t index, const absl::Status& status) {
    const Operation& operation = lanes_[index].operation;
    if (operation.kind == OperationKind::kInsert) stream_.InsertDone(operation.record);
    End(index, status);
  }

  void Scan(uint32_t index) {
    Lane& lane = lanes_[index];
    session_.StartScan(index, lane.scan, &lane.scan_reply,
                       [this, index](absl::Status status) { OnScanned(index, std::move(status)); });
  }

  void OnScanned(uint32_t index, absl::Status status) {
    if (status.ok()) status = CheckScan(lanes_[index]);
    End(index, status);
  }

  // It starts where it was told to, and holds as much as it should.
  static absl::Status CheckScan(const Lane& lane) {
    const ScanReply& reply = lane.scan_reply;
    const auto records = static_cast<uint32_t>(reply.records_size());
    const bool fits = records >= 1 && reply.records(0).key() == lane.scan.start() &&
                      records <= lane.scan.limit() &&
                      (records == lane.scan.limit() || !reply.more() || IsFull(reply));
    if (fits) return absl::OkStatus();
    return absl::DataLossError(weft::StrCat("a scan of ", lane.scan.limit(), " records from ",
                                            lane.scan.start(), " returned ", records));
  }

  // Large fields: a reply of less records than asked for is complete at 1 MiB (kv.proto).
  static bool IsFull(const ScanReply& reply) {
    constexpr size_t kNearlyFullBytes = size_t{512} << 10;
    return reply.ByteSizeLong() > kNearlyFullBytes;
  }

  void End(uint32_t index, const absl::Status& status) {
    const Lane& lane = lanes_[index];
    ++result_->calls;
    now_ns_ = NowNs();
    if (status.ok()) {
      ++result_->operations;
      result_->latency_of[static_cast<size_t>(lane.operation.kind)].Record(now_ns_ - lane.start_ns);
    } else {
      ++result_->errors;
      if (result_->first_error.ok()) result_->first_error = status;
      if (absl::IsUnavailable(status)) loop_.Stop();
    }
    loop_.Done(index);
  }

  Session& session_;
  const YcsbOptions& options_;
  const std::string label_;
  ycsb::OperationStream stream_;
  YcsbRecords records_;
  uint64_t start_ns_ = 0;
  uint64_t end_ns_ = 0;
  uint64_t now_ns_ = 0;  // when the last operation ended
  uint64_t started_ = 0;
  std::unique_ptr<YcsbResult> result_ = std::make_unique<YcsbResult>();
  std::vector<Lane> lanes_;
  ClosedLoop loop_;
};

// What the server's process has used until now.
absl::StatusOr<uint64_t> ServerCpuNs(Session& session) {
  StatsReply reply;
  const absl::Status status = Kv::Stub(session.server()).Stats({}, &reply, session.call);
  if (!status.ok()) return status;
  return reply.cpu_ns();
}

}  // namespace

absl::Status StoreYcsbRecords(Session& session, const YcsbOptions& options) {
  YcsbRecords records(options, RecordSeed(options));
  const auto fill = [&](uint64_t number, PutRequest* request) {
    records.FillInsert(number, request);
  };
  const auto check = [](uint64_t, const absl::Status& status, const PutReply&) { return status; };
  const auto put = [&](uint32_t lane, const PutRequest& request, PutReply* reply,
                       weft::Function<void(absl::Status)> done) {
    session.StartPut(lane, request, reply, std::move(done));
  };
  CallAll<PutRequest, PutReply> puts(session, put, options.records, fill, check);
  const Outcome outcome = puts.Run("ycsb load", "records");
  absl::PrintF("stored %s records of %d x %d bytes over %s in %.2f s: %s calls/s\n",
               WithCommas(outcome.completed), options.fields, options.value_bytes,
               PathName(session.server()), outcome.seconds,
               WithCommas(static_cast<uint64_t>(outcome.PerSecond())));
  std::fflush(stdout);
  if (!outcome.error.ok()) return outcome.error;
  return outcome.interrupted ? absl::CancelledError("interrupted") : absl::OkStatus();
}

std::unique_ptr<YcsbResult> RunYcsbWorkload(Session& session, const YcsbOptions& options,
                                            const ycsb::Workload& workload) {
  if (session.bulk != nullptr) session.bulk->ExpectValues(options.fields, options.value_bytes);
  const absl::StatusOr<uint64_t> before_ns = ServerCpuNs(session);
  auto result = WorkloadRun(session, options, workload).Run();
  const absl::StatusOr<uint64_t> after_ns = ServerCpuNs(session);
  if (before_ns.ok() && after_ns.ok()) result->server_cpu_ns = *after_ns - *before_ns;
  return result;
}

}  // namespace kv::client
