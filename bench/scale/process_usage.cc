#include "bench/scale/process_usage.h"

#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <system_error>

#include "absl/status/status.h"
#include "core/clock.h"
#include "core/strings.h"

namespace weft::bench {
namespace {

uint64_t ToNs(const timeval& time) {
  return static_cast<uint64_t>(time.tv_sec) * kNsPerSec +
         static_cast<uint64_t>(time.tv_usec) * 1000;
}

// "Rss:   5124 kB" in smaps_rollup, which counts page by page: exact, and slow.
uint64_t ResidentBytes() {
  std::ifstream rollup("/proc/self/smaps_rollup");
  std::string word;
  while (rollup >> word) {
    uint64_t kib = 0;
    if (word == "Rss:" && rollup >> kib) return kib * 1024;
  }
  return 0;
}

uint64_t MappedBytes() {
  std::ifstream statm("/proc/self/statm");
  uint64_t pages = 0;
  statm >> pages;
  return pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

// The one that lists them is among them, every time.
uint64_t CountDescriptors() {
  std::error_code error;
  const std::filesystem::directory_iterator all("/proc/self/fd", error);
  return error ? 0 : static_cast<uint64_t>(std::distance(begin(all), end(all)));
}

}  // namespace

absl::StatusOr<ProcessUsage> UsageOfThisProcess() {
  rusage times;
  getrusage(RUSAGE_SELF, &times);
  ProcessUsage usage;
  usage.cpu_ns = ToNs(times.ru_utime) + ToNs(times.ru_stime);
  usage.resident_bytes = ResidentBytes();
  usage.mapped_bytes = MappedBytes();
  usage.descriptors = CountDescriptors();
  if (usage.resident_bytes == 0 || usage.mapped_bytes == 0 || usage.descriptors == 0) {
    return absl::UnavailableError("/proc/self does not tell what this process uses");
  }
  return usage;
}

std::string ToLine(const ProcessUsage& usage) {
  return StrCat(usage.cpu_ns, " ", usage.resident_bytes, " ", usage.mapped_bytes, " ",
                usage.descriptors);
}

std::optional<ProcessUsage> UsageFrom(const std::string& line) {
  std::istringstream words(line);
  ProcessUsage usage;
  words >> usage.cpu_ns >> usage.resident_bytes >> usage.mapped_bytes >> usage.descriptors;
  if (!words) return std::nullopt;
  return usage;
}

void RaiseDescriptorLimit() {
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace weft::bench
