#include "bench/perf/run/perf.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "bench/machine/cpu.h"
#include "bench/perf/cell/perf_path.h"
#include "bench/perf/run/process_pair.h"
#include "bench/perf/run/progress.h"
#include "core/clock.h"
#include "core/status.h"
#include "core/strings.h"

namespace weft::bench {
namespace {

// Repeated turns may take this share of the time that the rounds took, but so many seconds at any
// rate. A machine that is unfit for longer is what there is.
constexpr double kRepeatShare = 0.2;
constexpr double kRepeatSeconds = 15;

class Run {
 public:
  explicit Run(const PerfOptions& options) : options_(options) {}

  absl::Status Prepare();
  PerfReport Measure();

 private:
  // The two processes of one kind on one path. Null: they have failed.
  using PairName = std::pair<size_t, std::string>;

  absl::Status ChooseCpus();
  absl::Status FindPaths();
  absl::Status StartPairs();
  void RunRounds(Progress* progress);
  void RepeatUnfitTurns(Progress* progress);
  void RunTurn(size_t turn, int round);
  void RunLeg(const Turn& turn, const std::string& kind, int round);
  void Note(const std::string& text) { report_.notes.push_back(text); }
  void Fail(const absl::Status& status);
  bool LookAtMachine();
  void NoteMachine(uint64_t stolen_before);
  std::string Title(const Turn& turn) const;

  const PerfOptions options_;
  PerfReport report_;
  std::vector<PerfPath> paths_;
  bool is_guarded_ = false;  // some path is not emulated: turns count only on a fit machine
  bool was_fit_ = true;      // at the last look
  std::map<PairName, std::unique_ptr<ProcessPair>> pairs_;
  std::vector<std::pair<LegName, Outcome>> of_turn_;  // what the present turn has yielded
  std::vector<int> fit_of_turn_;                      // how often each turn was fit
};

absl::Status Run::ChooseCpus() {
  const std::vector<int> cpus = AllowedCpus();
  if (cpus.empty()) return absl::UnavailableError("this process may run on no processor");
  report_.client_cpu = cpus[0];
  report_.server_cpu = cpus.size() > 1 ? cpus[1] : cpus[0];
  if (cpus.size() == 1) Note("one processor only: both sides share it, and the figures say little");
  return absl::OkStatus();
}

void Run::Fail(const absl::Status& status) {
  report_.complete = false;
  Note(StrCat("failed: ", ToStd(status.message())));
}

absl::Status Run::FindPaths() {
  for (const std::string& name : options_.paths) {
    WEFT_ASSIGN_OR_RETURN(PerfPath path, FindPerfPath(name));
    paths_.push_back(std::move(path));
    if (!IsEmulated(name)) is_guarded_ = true;
  }
  return absl::OkStatus();
}

// All at once: each takes a while to look for its providers.
absl::Status Run::StartPairs() {
  for (const Turn& turn : report_.plan.turns) {
    for (const std::string& kind : turn.kinds) {
      std::unique_ptr<ProcessPair>& pair = pairs_[{turn.path, kind}];
      if (pair != nullptr) continue;
      WEFT_ASSIGN_OR_RETURN(pair, ProcessPair::Start({kind, paths_[turn.path], report_.server_cpu,
                                                      report_.client_cpu}));
    }
  }
  bool any = false;
  for (auto& [unused, pair] : pairs_) {
    const absl::Status ready = pair->AwaitReady();
    any = any || ready.ok();
    if (ready.ok()) continue;
    Fail(ready);
    pair.reset();
  }
  if (any) return absl::OkStatus();
  if (report_.plan.turns.empty()) return absl::InvalidArgumentError("there is nothing to measure");
  return absl::UnavailableError(
      StrCat("no leg can be measured\n", absl::StrJoin(report_.notes, "\n")));
}

absl::Status Run::Prepare() {
  WEFT_RETURN_IF_ERROR(FindPaths());
  WEFT_RETURN_IF_ERROR(ChooseCpus());
  report_.plan = MakePlan(options_, paths_, EndKinds());
  return StartPairs();
}

void Run::RunLeg(const Turn& turn, const std::string& kind, int round) {
  std::unique_ptr<ProcessPair>& pair = pairs_[{turn.path, kind}];
  if (pair == nullptr) return;
  const auto figures = pair->Run(turn.cell, report_.plan.seconds_per_leg);
  if (!figures.ok()) {
    Fail(Annotate(figures.status(), Title(turn)));
    pair.reset();
    return;
  }
  of_turn_.push_back({{paths_[turn.path].name, turn.cell, kind}, {round, true, *figures}});
}

void Run::RunTurn(size_t index, int round) {
  const Turn& turn = report_.plan.turns[index];
  of_turn_.clear();
  for (const std::string& kind : turn.kinds) RunLeg(turn, kind, round);
  const bool fit = was_fit_;
  was_fit_ = LookAtMachine();
  for (auto& [leg, outcome] : of_turn_) {
    outcome.fit = fit && was_fit_;
    report_.results.Add(leg, outcome);
  }
  ++report_.turns;
  report_.fit_turns += fit && was_fit_;
  fit_of_turn_[index] += fit && was_fit_;
}

std::string Run::Title(const Turn& turn) const {
  return StrCat(paths_[turn.path].name, " ", NameOf(turn.cell));
}

void Run::RunRounds(Progress* progress) {
  const size_t turns = report_.plan.turns.size();
  for (int round = 1; round <= options_.rounds; ++round) {
    for (size_t i = 0; i < turns; ++i) {
      const double done =
          (round - 1 + static_cast<double>(i) / static_cast<double>(turns)) / options_.rounds;
      progress->Say(done, absl::StrFormat("round %d of %d, %s", round, options_.rounds,
                                          Title(report_.plan.turns[i])));
      RunTurn(i, round);
    }
  }
}

// One more time for each in turn, until all have been fit as often as asked for.
void Run::RepeatUnfitTurns(Progress* progress) {
  if (options_.quick) return;
  const double seconds =
      std::max(report_.plan.EstimatedSeconds(options_.rounds) * kRepeatShare, kRepeatSeconds);
  const uint64_t until_ns =
      Clock::Real().NowNs() + static_cast<uint64_t>(seconds * static_cast<double>(kNsPerSec));
  for (int round = options_.rounds + 1; round <= 2 * options_.rounds; ++round) {
    for (size_t i = 0; i < report_.plan.turns.size(); ++i) {
      if (fit_of_turn_[i] >= options_.rounds) continue;
      if (Clock::Real().NowNs() >= until_ns) return;
      progress->Say(1, "once more, " + Title(report_.plan.turns[i]));
      RunTurn(i, round);
    }
  }
}

bool Run::LookAtMachine() {
  if (!is_guarded_) return true;
  report_.core_to_core_ns.push_back(CoreToCoreNs(report_.client_cpu, report_.server_cpu));
  return report_.core_to_core_ns.back() <= kFitCoreToCoreNs;
}

PerfReport Run::Measure() {
  const Plan& plan = report_.plan;
  const double expected_seconds = plan.EstimatedSeconds(options_.rounds);
  std::fprintf(stderr, "%zu legs of %.2f s in %d rounds: about %s\n", plan.legs(),
               plan.seconds_per_leg, options_.rounds, DurationText(expected_seconds).c_str());
  const uint64_t stolen_before = StolenTicks();
  fit_of_turn_.assign(plan.turns.size(), 0);
  was_fit_ = LookAtMachine();
  {
    Progress progress(expected_seconds);
    RunRounds(&progress);
    RepeatUnfitTurns(&progress);
  }
  NoteMachine(stolen_before);
  return std::move(report_);
}

void Run::NoteMachine(uint64_t stolen_before) {
  report_.stolen_ms =
      (StolenTicks() - stolen_before) * 1000 / static_cast<uint64_t>(sysconf(_SC_CLK_TCK));
  for (const PerfPath& path : paths_) {
    if (!path.device.empty()) Note(StrCat(path.name, ": ", path.device, " at ", path.host));
  }
  if (!is_guarded_) {
    Note(StrCat("emulated: ratios only, and rough ones; ", report_.turns,
                " turns, on a machine that was not asked whether it is fit"));
    return;
  }
  const std::vector<double>& looks = report_.core_to_core_ns;
  const auto [least, most] = std::minmax_element(looks.begin(), looks.end());
  Note(absl::StrFormat(
      "processors %d and %d: %.0f..%.0f ns apart; %d of %d turns on a fit machine (<= %.0f ns);"
      " %d ms stolen",
      report_.client_cpu, report_.server_cpu, *least, *most, report_.fit_turns, report_.turns,
      kFitCoreToCoreNs, report_.stolen_ms));
}

}  // namespace

absl::StatusOr<PerfReport> RunPerf(const PerfOptions& options) {
  Run run(options);
  WEFT_RETURN_IF_ERROR(run.Prepare());
  return run.Measure();
}

}  // namespace weft::bench
