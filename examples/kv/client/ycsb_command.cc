// kv_client ycsb: stores the records, runs the workloads, prints and records what they achieved.
#include <cerrno>
#include <cstdio>

#include "absl/strings/str_format.h"
#include "core/clock.h"
#include "core/status.h"
#include "core/strings.h"
#include "examples/kv/client/commands.h"
#include "examples/kv/client/one_sided_report.h"
#include "examples/kv/client/report.h"
#include "examples/kv/client/ycsb_run.h"

namespace kv::client {
namespace {

std::string GetName(const Session& session) {
  return session.one_sided == nullptr ? "rpc" : "one-sided";
}

void Print(const Session& session, const std::string& path, const ycsb::Workload& workload,
           const YcsbResult& result) {
  absl::PrintF(
      "YCSB %c over %s, %d outstanding, gets %s: %s operations in %.2f s = %s/s, %s calls/s, %s "
      "errors, %.2f us of server CPU each\n",
      workload.name, path, session.outstanding, GetName(session), WithCommas(result.operations),
      result.seconds, WithCommas(static_cast<uint64_t>(result.OperationsPerSecond())),
      WithCommas(static_cast<uint64_t>(result.CallsPerSecond())), WithCommas(result.errors),
      result.ServerCpuUs());
  std::string table = LatencyHead();
  for (int kind = 0; kind < ycsb::kOperationKinds; ++kind) {
    const weft::LatencyHistogram& latency = result.latency_of[static_cast<size_t>(kind)];
    if (latency.count() == 0) continue;
    table += LatencyLine(ycsb::OperationName(static_cast<ycsb::OperationKind>(kind)), latency);
  }
  std::fputs(table.c_str(), stdout);
  if (session.one_sided != nullptr) std::fputs(OneSidedLine(*session.one_sided).c_str(), stdout);
  if (!result.first_error.ok()) {
    absl::PrintF("  first error: %s\n", result.first_error.ToString());
  }
  std::fflush(stdout);
}

// The line that --results describes.
std::string ResultLine(const Session& session, const std::string& path,
                       const ycsb::Workload& workload, const YcsbResult& result) {
  const auto us = [&](double percent) {
    return static_cast<double>(result.latency.Percentile(percent)) / weft::kNsPerUs;
  };
  return absl::StrFormat("%s\t%c\t%d\t%.0f\t%.0f\t%.2f\t%.2f\t%.2f\t%d\t%s\t%.3f\n", path,
                         workload.name, session.outstanding, result.OperationsPerSecond(),
                         result.CallsPerSecond(), us(50), us(99), us(99.9), result.errors,
                         GetName(session), result.ServerCpuUs());
}

absl::Status AppendTo(const std::string& path, const std::string& line) {
  std::FILE* file = std::fopen(path.c_str(), "a");
  if (file == nullptr) return weft::StatusFromErrno(errno, weft::StrCat("open ", path));
  const bool written = std::fputs(line.c_str(), file) >= 0;
  if (std::fclose(file) != 0 || !written) {
    return weft::StatusFromErrno(errno, weft::StrCat("write ", path));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Ycsb(Session& session, const YcsbOptions& options) {
  if (options.load) {
    WEFT_RETURN_IF_ERROR(StoreYcsbRecords(session, options));
  }
  for (const ycsb::Workload& workload : options.workloads) {
    const std::string path = PathName(session.server());
    const auto result = RunYcsbWorkload(session, options, workload);
    Print(session, path, workload, *result);
    if (!options.results.empty()) {
      WEFT_RETURN_IF_ERROR(AppendTo(options.results, ResultLine(session, path, workload, *result)));
    }
    if (result->interrupted) return absl::CancelledError("interrupted");
    if (result->errors > 0) return result->first_error;
  }
  return absl::OkStatus();
}

}  // namespace kv::client
