#include "bench/perf/run/progress.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "absl/strings/str_format.h"
#include "core/clock.h"

namespace weft::bench {
namespace {

// From here on the run itself says how fast it is.
constexpr double kKnownFrom = 0.05;

}  // namespace

Progress::Progress(double expected_seconds)
    : on_terminal_(isatty(STDERR_FILENO) == 1),
      expected_seconds_(expected_seconds),
      start_ns_(Clock::Real().NowNs()) {}

Progress::~Progress() {
  if (on_terminal_) std::fputs("\r\033[K", stderr);
}

double Progress::SecondsLeft(double done) const {
  if (done < kKnownFrom) return expected_seconds_ * (1 - done);
  const auto elapsed_s = static_cast<double>(Clock::Real().NowNs() - start_ns_) / kNsPerSec;
  return elapsed_s * (1 - done) / done;
}

void Progress::Say(double done, const std::string& what) {
  const int tenths = static_cast<int>(done * 10);
  if (!on_terminal_ && tenths == tenths_said_) return;
  tenths_said_ = tenths;
  const std::string text =
      absl::StrFormat("%3.0f %%, %s left: %s", done * 100, DurationText(SecondsLeft(done)), what);
  std::fprintf(stderr, on_terminal_ ? "\r\033[K%s" : "%s\n", text.c_str());
}

std::string DurationText(double seconds) {
  if (seconds < 90) return absl::StrFormat("%.0f s", std::max(seconds, 0.0));
  return absl::StrFormat("%.0f min", seconds / 60);
}

}  // namespace weft::bench
