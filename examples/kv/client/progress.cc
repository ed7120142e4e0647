#include "examples/kv/client/progress.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "examples/kv/client/report.h"

namespace kv::client {
namespace {

constexpr uint64_t kTerminalIntervalNs = 100 * weft::kNsPerMs;  // the eye sees no more
constexpr uint64_t kPlainIntervalNs = 2 * weft::kNsPerSec;      // a log wants less

constexpr char kEraseLine[] = "\r\x1b[K";

}  // namespace

Progress::Progress(std::string label, std::string unit)
    : Progress(std::move(label), std::move(unit), stderr, isatty(STDERR_FILENO) == 1,
               weft::Clock::Real()) {}

Progress::Progress(std::string label, std::string unit, std::FILE* out, bool terminal,
                   const weft::Clock& clock)
    : label_(std::move(label)),
      unit_(std::move(unit)),
      out_(out),
      terminal_(terminal),
      clock_(clock),
      start_ns_(clock.NowNs()),
      next_ns_(start_ns_ + (terminal ? kTerminalIntervalNs : kPlainIntervalNs)) {}

void Progress::Update(double fraction, uint64_t done) {
  const uint64_t now_ns = clock_.NowNs();
  if (now_ns < next_ns_) return;
  next_ns_ = now_ns + (terminal_ ? kTerminalIntervalNs : kPlainIntervalNs);
  shown_ = true;
  const double seconds = static_cast<double>(now_ns - start_ns_) / weft::kNsPerSec;
  absl::FPrintF(out_, "%s%-10s %3.0f %% %12s %s %11s/s%s", terminal_ ? kEraseLine : "", label_,
                100 * std::clamp(fraction, 0.0, 1.0), WithCommas(done), unit_,
                WithCommas(static_cast<uint64_t>(static_cast<double>(done) / seconds)),
                terminal_ ? "" : "\n");
  std::fflush(out_);
}

Progress::~Progress() {
  if (!terminal_ || !shown_) return;
  std::fputs(kEraseLine, out_);
  std::fflush(out_);
}

}  // namespace kv::client
