#include "bench/perf/perf.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "bench/machine/cpu.h"
#include "bench/perf/leg.h"
#include "bench/perf/perf_path.h"
#include "bench/perf/process_pair.h"
#include "core/status.h"
#include "core/strings.h"

namespace weft::bench {
namespace {

constexpr struct {
  Measurement measurement;
  bool of_raw;
  bool of_weft;
} kMeasurements[] = {
    {Measurement::kRoundTrip, true, true}, {Measurement::kRate, true, true},
    {Measurement::kOneWay, true, false},   {Measurement::kRead, true, true},
    {Measurement::kReadRate, true, true},  {Measurement::kWrite, true, true},
    {Measurement::kBulk, true, true},      {Measurement::kBulkChecked, false, true},
};

// One line on the terminal, rewritten; nothing where the output goes elsewhere.
class ProgressLine {
 public:
  ~ProgressLine() { Print(""); }
  void Print(const std::string& text) const {
    if (terminal_) std::fprintf(stderr, "\r\033[K%s", text.c_str());
  }

 private:
  const bool terminal_ = isatty(STDERR_FILENO) == 1;
};

// The machine's state at one moment.
struct Moment {
  double core_to_core_ns = 0;
  bool fit() const { return core_to_core_ns <= kFitCoreToCoreNs; }
};

class Run {
 public:
  explicit Run(const PerfOptions& options) : options_(options) {}

  absl::Status Prepare();
  PerfReport Measure();

 private:
  absl::Status ChooseCpus();
  absl::Status FindPaths();
  void StartPair(const std::string& kind, const PerfPath& path);
  void AddLegs();
  void RunRound(int round);
  void RunLeg(size_t index, std::vector<Sample>* samples);
  void Note(const std::string& text) { report_.notes.push_back(text); }
  void Fail(const absl::Status& status);
  void LookAtMachine();
  void NoteMachine(uint64_t stolen_before);
  int RoundsAtMost() const { return 2 * options_.rounds; }

  const PerfOptions options_;
  ProgressLine progress_;
  PerfReport report_;
  std::vector<PerfPath> paths_;
  bool is_guarded_ = false;  // some path is not emulated: rounds count only on a fit machine
  int server_cpu_ = 0;
  int client_cpu_ = 0;
  struct PairedLeg {
    ProcessPair* pair;
    std::unique_ptr<Leg> leg;  // null: its pair has failed
  };
  std::vector<std::unique_ptr<ProcessPair>> pairs_;
  std::vector<PairedLeg> legs_;
  Moment last_;
  std::vector<double> core_to_core_ns_;
};

absl::Status Run::ChooseCpus() {
  const std::vector<int> cpus = AllowedCpus();
  if (cpus.empty()) return absl::UnavailableError("this process may run on no processor");
  client_cpu_ = cpus[0];
  server_cpu_ = cpus.size() > 1 ? cpus[1] : cpus[0];
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
    if (IsEmulated(name)) {
      report_.results.SetEmulated(name);
    } else {
      is_guarded_ = true;
    }
  }
  return absl::OkStatus();
}

void Run::StartPair(const std::string& kind, const PerfPath& path) {
  absl::StatusOr<std::unique_ptr<ProcessPair>> pair =
      ProcessPair::Start({kind, path, server_cpu_, client_cpu_});
  if (!pair.ok()) return Fail(pair.status());
  pairs_.push_back(*std::move(pair));
}

absl::Status Run::Prepare() {
  WEFT_RETURN_IF_ERROR(FindPaths());
  WEFT_RETURN_IF_ERROR(ChooseCpus());
  progress_.Print("starting");
  for (const PerfPath& path : paths_) {
    for (const char* kind : {"raw", "weft"}) StartPair(kind, path);
  }
  for (std::unique_ptr<ProcessPair>& pair : pairs_) {
    const absl::Status ready = pair->AwaitReady();
    if (ready.ok()) continue;
    Fail(ready);
    pair.reset();
  }
  AddLegs();
  if (legs_.empty()) return absl::UnavailableError("no leg can be measured");
  return absl::OkStatus();
}

// By measurement first: what is compared runs right after one another.
void Run::AddLegs() {
  for (const auto& row : kMeasurements) {
    for (const std::unique_ptr<ProcessPair>& pair : pairs_) {
      if (pair == nullptr) continue;
      const bool measured = pair->options().kind == "raw" ? row.of_raw : row.of_weft;
      if (!measured) continue;
      legs_.push_back({pair.get(), std::make_unique<PairLeg>(pair.get(), row.measurement)});
    }
  }
}

void Run::RunLeg(size_t index, std::vector<Sample>* samples) {
  const absl::StatusOr<std::vector<Sample>> measured =
      legs_[index].leg->Run(options_.seconds_per_leg);
  if (measured.ok()) {
    samples->insert(samples->end(), measured->begin(), measured->end());
    return;
  }
  Fail(measured.status());
  for (PairedLeg& other : legs_) {
    if (other.pair == legs_[index].pair) other.leg.reset();
  }
}

void Run::RunRound(int round) {
  std::vector<Sample> samples;
  for (size_t i = 0; i < legs_.size(); ++i) {
    const Leg* leg = legs_[i].leg.get();
    if (leg == nullptr) continue;
    progress_.Print(absl::StrFormat("round %d of %d  %3d %%  %s %s", round, options_.rounds,
                                    static_cast<int>(100 * i / legs_.size()), leg->path(),
                                    leg->name()));
    RunLeg(i, &samples);
  }
  const Moment before = last_;
  LookAtMachine();
  if (is_guarded_) samples.push_back({"machine.core_to_core_ns", last_.core_to_core_ns});
  report_.results.AddRound(samples, before.fit() && last_.fit());
}

void Run::LookAtMachine() {
  if (!is_guarded_) return;  // every moment is fit
  last_.core_to_core_ns = CoreToCoreNs(client_cpu_, server_cpu_);
  core_to_core_ns_.push_back(last_.core_to_core_ns);
}

PerfReport Run::Measure() {
  const uint64_t stolen_before = StolenTicks();
  LookAtMachine();
  // Extra rounds only where time does not matter.
  const bool patient = options_.seconds_per_leg >= kPatientSeconds;
  for (int done = 0; done < (patient ? RoundsAtMost() : options_.rounds); ++done) {
    if (report_.results.fit_rounds() >= options_.rounds) break;
    RunRound(done + 1);
  }
  NoteMachine(stolen_before);
  return std::move(report_);
}

void Run::NoteMachine(uint64_t stolen_before) {
  for (const PerfPath& path : paths_) {
    if (!path.device.empty()) Note(StrCat(path.name, ": ", path.device, " at ", path.host));
  }
  if (!is_guarded_) {
    Note(StrCat("emulated: ratios only, and rough ones; rounds: ", report_.results.rounds(),
                ", on a machine that was not asked whether it is fit"));
    return;
  }
  const auto [least, most] = std::minmax_element(core_to_core_ns_.begin(), core_to_core_ns_.end());
  Note(absl::StrFormat(
      "processors %d and %d: %.0f..%.0f ns apart; %d of %d rounds on a fit machine"
      " (<= %.0f ns); %d ms stolen",
      client_cpu_, server_cpu_, *least, *most, report_.results.fit_rounds(),
      report_.results.rounds(), kFitCoreToCoreNs,
      (StolenTicks() - stolen_before) * 1000 / static_cast<uint64_t>(sysconf(_SC_CLK_TCK))));
}

}  // namespace

absl::StatusOr<PerfReport> RunPerf(const PerfOptions& options) {
  Run run(options);
  WEFT_RETURN_IF_ERROR(run.Prepare());
  return run.Measure();
}

}  // namespace weft::bench
