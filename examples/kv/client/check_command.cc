// kv_client check: works on few keys, records what it sees, and has it checked for linearizability.
#include <cstdio>

#include "absl/strings/str_format.h"
#include "core/clock.h"
#include "core/random.h"
#include "core/strings.h"
#include "examples/kv/client/check_load.h"
#include "examples/kv/client/commands.h"
#include "examples/kv/client/one_sided_report.h"
#include "examples/kv/client/report.h"
#include "examples/verify/history/checker.h"

namespace kv::client {
namespace {

absl::Status StatusOf(const verify::Verdict& verdict, const CheckCounts& counts) {
  if (counts.broken > 0) {
    return absl::DataLossError(
        weft::StrCat(WithCommas(counts.broken), " gets saw what nobody wrote"));
  }
  if (verdict.kind == verify::Verdict::Kind::kViolation) {
    return absl::DataLossError("what was seen is not linearizable");
  }
  return verdict.ok() ? absl::OkStatus() : absl::ResourceExhaustedError(verdict.text);
}

}  // namespace

absl::Status Check(Session& session, double seconds) {
  CheckPlan plan;
  plan.seed = weft::SecureRandom64();
  plan.until_unavailable = true;
  plan.end_ns = session.NowNs() + static_cast<uint64_t>(seconds * weft::kNsPerSec);
  verify::Recorder recorder(session.channel.engine().clock(), session.outstanding);
  CheckLoad load(session, plan, &recorder, /*first_lane=*/0);
  absl::PrintF("puts, deletes and gets of %d keys at a time, over %s\n", plan.keys,
               PathName(session.server()));
  std::fflush(stdout);
  load.Run();
  const CheckCounts& counts = load.counts();
  absl::PrintF("%s gets and %s writes, %s errors\n", WithCommas(counts.gets),
               WithCommas(counts.writes), WithCommas(counts.errors));
  if (!counts.first_error.ok()) {
    absl::PrintF("  first error: %s\n", counts.first_error.ToString());
  }
  if (session.one_sided != nullptr) std::fputs(OneSidedLine(*session.one_sided).c_str(), stdout);
  std::fflush(stdout);
  const verify::Verdict verdict = verify::CheckHistory(recorder.Merge());
  if (!verdict.ok()) absl::FPrintF(stderr, "%s\n", verdict.text);
  const absl::Status status = StatusOf(verdict, counts);
  if (!status.ok()) return status;
  absl::PrintF("linearizable: %s operations\n", WithCommas(verdict.operations));
  return counts.first_error;
}

}  // namespace kv::client
