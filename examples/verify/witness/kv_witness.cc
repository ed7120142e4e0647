// kv_witness: calls kv_server without a pause while machines, cables and processes break, and
// testifies: every line on stdout is a JSON object. SIGINT or SIGTERM ends the calls; the last line
// is the verdict's material.
//
//   {"event": "connected", "path": "tcp", ..., "descriptors": N, ...}       once, after the start
//   {"event": "period", "ok": N, "not_sent": N, "may_have_run": N, ...}     four times a second
//   {"event": "end", "started": N, "ended_twice": N, "latest_ms": N, ...}
//
// Exit status: 0 it has testified, whatever it saw; 1 it could not connect; 2 the command line.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/strings/str_format.h"
#include "core/clock.h"
#include "core/status.h"
#include "examples/process/stop_signal.h"
#include "examples/verify/witness/load.h"
#include "examples/verify/witness/process_facts.h"
#include "weft/channel.h"
#include "weft/engine.h"

ABSL_FLAG(std::string, server, "", "address of kv_server");
ABSL_FLAG(std::string, paths, "",
          "paths to use: shm,verbs,tcp; empty: WEFT_PATHS or all there are");
ABSL_FLAG(uint32_t, calls_per_second, 100, "started evenly, whatever became of the earlier ones");
ABSL_FLAG(uint64_t, timeout_ms, 2000, "of every call");
ABSL_FLAG(bool, audit, false, "compare the store with what the calls were told, at the end");

namespace kv::witness {
namespace {

constexpr uint64_t kPeriodNs = 250 * weft::kNsPerMs;
constexpr uint64_t kTickNs = 5 * weft::kNsPerMs;
// How long beyond its deadline a call may take before it is called lost, and how long the channel
// may hold slots of calls that have ended. Only a failing run waits so long.
constexpr uint64_t kLostNs = 15 * weft::kNsPerSec;

std::string Quoted(const std::string& text) {
  std::string quoted = "\"";
  for (const char byte : text) {
    if (byte == '"' || byte == '\\') quoted += '\\';
    quoted += static_cast<unsigned char>(byte) < ' ' ? ' ' : byte;
  }
  return quoted + '"';
}

void Sleep(uint64_t ns) { std::this_thread::sleep_for(std::chrono::nanoseconds(ns)); }

std::string PathName(weft::Channel& channel) {
  const absl::StatusOr<weft::PathInfo> path = channel.path();
  return path.ok() ? std::string(weft::PathKindName(path->kind)) : std::string();
}

std::string FactsAsJson() {
  const ProcessFacts facts = ReadProcessFacts();
  return absl::StrFormat(
      R"("descriptors": %d, "threads": %d, "pinned_kib": %d, "resident_kib": %d)",
      facts.descriptors, facts.threads, facts.pinned_kib, facts.resident_kib);
}

class Witness {
 public:
  Witness(weft::Channel& channel, examples::StopSignal& stop)
      : channel_(channel),
        stop_(stop),
        load_(channel, absl::GetFlag(FLAGS_timeout_ms) * (weft::kNsPerMs / weft::kNsPerUs)) {}

  void Run() {
    PrintConnected();
    KeepCalling();
    Drain([this] { return load_.ledger().under_way() == 0; });
    PrintPeriod();
    Load::Audit audit;
    if (absl::GetFlag(FLAGS_audit)) audit = load_.Compare();
    Drain([this] {
      const weft::ChannelStats stats = channel_.stats();
      return stats.outstanding == 0 && stats.queued == 0;
    });
    PrintEnd(audit);
  }

 private:
  uint64_t NowNs() const { return channel_.engine().clock().NowNs(); }

  void KeepCalling() {
    const uint64_t interval_ns =
        weft::kNsPerSec / std::max(1u, absl::GetFlag(FLAGS_calls_per_second));
    uint64_t next_call_ns = NowNs();
    uint64_t next_period_ns = next_call_ns + kPeriodNs;
    uint64_t last_ns = next_call_ns;
    while (!stop_.Requested()) {
      const uint64_t now_ns = NowNs();
      longest_stall_ns_ = std::max(longest_stall_ns_, now_ns - last_ns);
      last_ns = now_ns;
      // After a stall of the whole machine: no burst to make up for it.
      if (now_ns > next_call_ns + weft::kNsPerSec) next_call_ns = now_ns;
      for (; next_call_ns <= now_ns; next_call_ns += interval_ns) load_.StartCall();
      if (now_ns >= next_period_ns) {
        PrintPeriod();
        next_period_ns = now_ns + kPeriodNs;
      }
      Sleep(kTickNs);
    }
  }

  template <class Condition>
  void Drain(Condition done) {
    const uint64_t give_up_ns =
        NowNs() + absl::GetFlag(FLAGS_timeout_ms) * weft::kNsPerMs + kLostNs;
    while (!done() && NowNs() < give_up_ns) Sleep(kTickNs);
  }

  void PrintConnected() {
    absl::PrintF("{\"event\": \"connected\", \"path\": %s, \"explain\": %s, %s}\n",
                 Quoted(PathName(channel_)), Quoted(channel_.Explain()), FactsAsJson());
    std::fflush(stdout);
  }

  void PrintPeriod() {
    const Tally tally = load_.ledger().TakeTally();
    absl::PrintF(
        "{\"event\": \"period\", \"ok\": %d, \"not_sent\": %d, \"may_have_run\": %d, "
        "\"deadlines\": %d, \"wrong\": %d, \"connects\": %d, \"path\": %s, \"error\": %s}\n",
        tally.ok, tally.not_sent, tally.may_have_run, tally.deadlines, tally.wrong,
        channel_.stats().connects, Quoted(PathName(channel_)), Quoted(tally.first_error));
    std::fflush(stdout);
  }

  void PrintEnd(const Load::Audit& audit) {
    Ledger& ledger = load_.ledger();
    const weft::ChannelStats stats = channel_.stats();
    absl::PrintF(
        "{\"event\": \"end\", \"started\": %d, \"lost\": %d, \"ended_twice\": %d, "
        "\"latest_ms\": %d, \"longest_stall_ms\": %d, \"first_wrong\": %s, \"missing\": %d, "
        "\"ghosts\": %d, \"unread\": %d, \"outstanding\": %d, \"abandoned\": %d, \"queued\": %d, "
        "\"connects\": %d, \"path\": %s, %s}\n",
        ledger.started(), ledger.under_way(), ledger.ended_twice(),
        ledger.latest_ns() / weft::kNsPerMs, longest_stall_ns_ / weft::kNsPerMs,
        Quoted(ledger.first_wrong()), audit.missing, audit.ghosts, audit.unread, stats.outstanding,
        stats.abandoned, stats.queued, stats.connects, Quoted(PathName(channel_)), FactsAsJson());
    std::fflush(stdout);
  }

  weft::Channel& channel_;
  examples::StopSignal& stop_;
  Load load_;
  uint64_t longest_stall_ns_ = 0;  // of this program's own loop: the machine's fault, not Weft's
};

absl::Status Testify() {
  examples::StopSignal stop;  // before the engine: before any thread
  weft::ChannelOptions options;
  const std::string paths = absl::GetFlag(FLAGS_paths);
  if (!paths.empty()) {
    WEFT_ASSIGN_OR_RETURN(options.link.paths, weft::ParsePathList(paths));
  }
  WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<weft::Engine> engine, weft::OpenNetworkEngine({}));
  WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<weft::Channel> channel,
                        weft::Channel::Open(*engine, absl::GetFlag(FLAGS_server), options));
  Witness(*channel, stop).Run();
  return absl::OkStatus();
}

}  // namespace
}  // namespace kv::witness

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage("kv_witness: calls kv_server while things break (docs/lab.md)");
  if (absl::ParseCommandLine(argc, argv).size() > 1 || absl::GetFlag(FLAGS_server).empty()) {
    absl::FPrintF(stderr, "kv_witness: takes flags only, and needs --server (kv_witness --help)\n");
    return 2;
  }
  const absl::Status status = kv::witness::Testify();
  if (status.ok()) return 0;
  absl::FPrintF(stderr, "kv_witness: %s\n", status.ToString());
  return 1;
}
