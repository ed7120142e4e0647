#include "core/log.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <new>
#include <optional>
#include <utility>

#include "core/check.h"
#include "core/clock.h"
#include "core/fork_guard.h"
#include "core/process_wide.h"

namespace weft {

// A sink, and who is in it: the process's, or one Log's.
struct internal::LogOutput {
  std::mutex mutex;
  LogSink sink;                                // guarded by mutex
  bool changing = false;                       // guarded by mutex: the sink may be half of one
  std::atomic<int> threshold{kLogUnresolved};  // of this sink; the environment is the process's
  // A sink may take long, so no fork waits for it. Another thread that is inside has it still, and
  // is not in the child: the mutex is as new there.
  ForkWatch fork_watch{&InChild, this};

  static void InChild(void* state);
  static LogOutput& OfThisThread();
};

namespace {

using internal::kLogOff;
using internal::kLogUnresolved;
using internal::LogOutput;

// Never destroyed: threads may still log while the process exits.
LogOutput& OfProcess() {
  static constinit ProcessWide<LogOutput> output;
  return output.Get();
}

// How many Logs hear what. No sink is called with its mutex.
struct Levels {
  ProcessMutex mutex;
  std::array<int, kLogOff + 1> logs = {};  // guarded by mutex: by their threshold

  Levels() { OfProcess(); }  // is there before the mutex is ever held

  // To log_threshold. REQUIRES: the mutex is held.
  void Publish() const {
    int lowest = OfProcess().threshold.load(std::memory_order_relaxed);
    for (int level = lowest; level-- > 0;) {
      if (logs[static_cast<size_t>(level)] > 0) lowest = level;
    }
    internal::log_threshold.store(lowest, std::memory_order_relaxed);
  }
};

Levels& TheLevels() {
  static constinit ProcessWide<Levels> levels;
  return levels.Get();
}

void Count(int threshold, int change) {
  Levels& levels = TheLevels();
  const std::lock_guard lock(levels.mutex);
  levels.logs[static_cast<size_t>(threshold)] += change;
  levels.Publish();
}

thread_local const LogOutput* inside = nullptr;  // whose sink this thread is in
thread_local Log* log_of_thread = nullptr;

// REQUIRES: the output's mutex is held.
void Install(LogOutput& output, LogSink sink, int threshold) {
  output.sink = std::move(sink);
  Levels& levels = TheLevels();
  const std::lock_guard lock(levels.mutex);
  output.threshold.store(output.sink ? threshold : kLogOff, std::memory_order_relaxed);
  levels.Publish();
}

std::optional<LogLevel> ParseLevel(std::string_view name) {
  for (LogLevel level : {LogLevel::kDebug, LogLevel::kInfo, LogLevel::kWarning, LogLevel::kError}) {
    if (name == LogLevelName(level)) return level;
  }
  return std::nullopt;
}

// Our longest lines are those of audit logs, most of it names of peers: 1 KiB, or nearly this where
// the names have to be escaped. Nobody reads a longer one to its end.
constexpr size_t kMaxLineBytes = size_t{4} << 10;

// Much of it may be what a peer has said, who is not to make a line of his own, or to move a
// terminal's cursor: with a control character, or with one of U+0080 to U+009F in UTF-8.
std::string OneLine(std::string_view text) {
  std::string line(text.substr(0, kMaxLineBytes));
  char* before = nullptr;
  for (char& byte : line) {
    const auto value = static_cast<unsigned char>(byte);
    const bool ends_control = before != nullptr && *before == '\xc2' && (value & 0xe0) == 0x80;
    if (value < ' ' || value == 0x7f) byte = '?';
    if (ends_control) *before = byte = '?';
    before = &byte;
  }
  if (text.size() > kMaxLineBytes) line += "...";
  return line;
}

// REQUIRES: the mutex is held.
void InstallFromEnvironment(LogOutput& process) {
  const char* wanted = std::getenv("WEFT_LOG");
  if (wanted == nullptr || *wanted == '\0') return Install(process, nullptr, kLogOff);
  const std::optional<LogLevel> level = ParseLevel(wanted);
  if (!level) {
    std::fprintf(stderr, "weft: WEFT_LOG=%s is not a level; debug, info, warning or error is.\n",
                 wanted);
  }
  Install(process, StderrLogSink(), static_cast<int>(level.value_or(LogLevel::kInfo)));
}

}  // namespace

void internal::LogOutput::InChild(void* state) {
  auto& self = *static_cast<LogOutput*>(state);
  if (inside == &self) return;  // its sink has forked: it has the mutex, in the child as well
  new (&self.mutex) std::mutex;
  if (!self.changing) return;
  new (&self.sink) LogSink;
  self.changing = false;
  // What is logged for nobody is dropped where it is written.
  self.threshold.store(kLogOff, std::memory_order_relaxed);
}

internal::LogOutput& internal::LogOutput::OfThisThread() {
  Log* (*const find)() = find_log.load(std::memory_order_relaxed);
  const Log* const log = find != nullptr ? find() : log_of_thread;
  return log != nullptr ? *log->output_ : OfProcess();
}

Log::Log(LogSink sink, LogLevel min_level) : output_(std::make_unique<internal::LogOutput>()) {
  output_->sink = std::move(sink);
  const int level = std::clamp(static_cast<int>(min_level), 1, kLogOff);
  const int threshold = output_->sink ? level : kLogOff;
  output_->threshold.store(threshold, std::memory_order_relaxed);
  Count(threshold, 1);
}

Log::~Log() { Count(output_->threshold.load(std::memory_order_relaxed), -1); }

std::string_view LogLevelName(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return "debug";
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kWarning:
      return "warning";
    case LogLevel::kError:
      return "error";
  }
  return "unknown";
}

void SetLogSink(LogSink sink, LogLevel min_level) {
  WEFT_CHECK(inside == nullptr);
  LogOutput& process = OfProcess();
  LogSink previous;  // Destroyed after the lock is released: its destructor is foreign code.
  std::lock_guard<std::mutex> lock(process.mutex);
  process.changing = true;
  previous = std::exchange(process.sink, nullptr);
  Install(process, std::move(sink), static_cast<int>(min_level));
  process.changing = false;
}

LogSink StderrLogSink() {
  return [](const LogRecord& record) {
    // One call for the whole line: lines of several processes do not mix.
    const std::string_view name = LogLevelName(record.level);
    std::fprintf(stderr, "weft %.*s %.*s:%d] %.*s\n", static_cast<int>(name.size()), name.data(),
                 static_cast<int>(record.file.size()), record.file.data(), record.line,
                 static_cast<int>(record.text.size()), record.text.data());
  };
}

namespace internal {

LogScope::LogScope(Log* log) : outer_(std::exchange(log_of_thread, log)) {}
LogScope::~LogScope() { log_of_thread = outer_; }
Log* LogScope::current() { return log_of_thread; }

bool IsLogged(LogLevel level) {
  if (log_threshold.load(std::memory_order_relaxed) == kLogUnresolved) {
    LogOutput& process = OfProcess();
    const std::lock_guard<std::mutex> lock(process.mutex);
    if (log_threshold.load(std::memory_order_relaxed) == kLogUnresolved) {
      InstallFromEnvironment(process);
    }
  }
  const LogOutput& output = LogOutput::OfThisThread();
  return static_cast<int>(level) >= output.threshold.load(std::memory_order_relaxed);
}

void WriteLog(LogLevel level, std::string_view file, int line, std::string_view text) {
  if (inside != nullptr) return;
  const std::string one_line = OneLine(text);
  LogOutput& output = LogOutput::OfThisThread();
  std::lock_guard<std::mutex> lock(output.mutex);
  if (!output.sink) return;  // Replaced since the caller looked.
  inside = &output;
  output.sink(LogRecord{level, file, line, one_line});
  inside = nullptr;
}

bool LogRateLimit::Allow(uint64_t interval_ns, uint64_t* suppressed) {
  const uint64_t now_ns = Clock::Real().NowNs();
  uint64_t next_ns = next_ns_.load(std::memory_order_relaxed);
  if (now_ns < next_ns ||
      !next_ns_.compare_exchange_strong(next_ns, now_ns + interval_ns, std::memory_order_relaxed)) {
    suppressed_.fetch_add(1, std::memory_order_relaxed);
    return false;
  }
  *suppressed = suppressed_.exchange(0, std::memory_order_relaxed);
  return true;
}

}  // namespace internal
}  // namespace weft
