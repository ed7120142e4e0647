#include "core/log.h"

#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <new>
#include <optional>
#include <utility>

#include "core/check.h"
#include "core/clock.h"
#include "core/fork_guard.h"

namespace weft {
namespace {

struct SinkState {
  std::mutex mutex;
  LogSink sink;           // guarded by mutex
  bool changing = false;  // guarded by mutex: the sink may be half of one
  // A sink may take long, so no fork waits for it. Another thread that is inside has it still, and
  // is not in the child: the mutex is as new there.
  ForkWatch fork_watch{&InChild, this};

  static void InChild(void* state);
};

// Never destroyed: threads may still log while the process exits.
SinkState& State() {
  static SinkState& state = *new SinkState;
  return state;
}

thread_local bool inside_sink = false;

void SinkState::InChild(void* state) {
  if (inside_sink) return;  // a sink has forked: it has the mutex, in the child as well
  auto& self = *static_cast<SinkState*>(state);
  new (&self.mutex) std::mutex;
  if (!self.changing) return;
  new (&self.sink) LogSink;
  self.changing = false;
  internal::log_threshold.store(internal::kLogOff, std::memory_order_relaxed);
}

// REQUIRES: the mutex is held.
void Install(SinkState& state, LogSink sink, int threshold) {
  state.sink = std::move(sink);
  internal::log_threshold.store(state.sink ? threshold : internal::kLogOff,
                                std::memory_order_relaxed);
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
void InstallFromEnvironment(SinkState& state) {
  const char* wanted = std::getenv("WEFT_LOG");
  if (wanted == nullptr || *wanted == '\0') return Install(state, nullptr, internal::kLogOff);
  const std::optional<LogLevel> level = ParseLevel(wanted);
  if (!level) {
    std::fprintf(stderr, "weft: WEFT_LOG=%s is not a level; debug, info, warning or error is.\n",
                 wanted);
  }
  Install(state, StderrLogSink(), static_cast<int>(level.value_or(LogLevel::kInfo)));
}

}  // namespace

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
  WEFT_CHECK(!inside_sink);
  SinkState& state = State();
  LogSink previous;  // Destroyed after the lock is released: its destructor is foreign code.
  std::lock_guard<std::mutex> lock(state.mutex);
  state.changing = true;
  previous = std::exchange(state.sink, nullptr);
  Install(state, std::move(sink), static_cast<int>(min_level));
  state.changing = false;
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

bool ResolveLogEnabled(LogLevel level) {
  SinkState& state = State();
  std::lock_guard<std::mutex> lock(state.mutex);
  if (log_threshold.load(std::memory_order_relaxed) == kLogUnresolved) {
    InstallFromEnvironment(state);
  }
  return static_cast<int>(level) >= log_threshold.load(std::memory_order_relaxed);
}

void WriteLog(LogLevel level, std::string_view file, int line, std::string_view text) {
  if (inside_sink) return;
  const std::string one_line = OneLine(text);
  SinkState& state = State();
  std::lock_guard<std::mutex> lock(state.mutex);
  if (!state.sink) return;  // Replaced since the caller looked.
  inside_sink = true;
  state.sink(LogRecord{level, file, line, one_line});
  inside_sink = false;
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
