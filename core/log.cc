#include "core/log.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <initializer_list>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "core/check.h"
#include "core/clock.h"
#include "core/fork_guard.h"
#include "core/process_wide.h"
#include "core/rate_budget.h"

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

std::string WithPlace(const LogRecord& record) {
  return StrCat("weft ", LogLevelName(record.level), " ", record.file, ":", record.line, "] ",
                record.text);
}

// A write to stderr may bring signals: its reader has gone, the file is as long as it may be, or
// the process is a job in the background of a terminal that stops those who write. They are the
// program's to have from its own writes, not from these: each is blocked meanwhile, and taken back.
ssize_t WriteWithoutSignals(int descriptor, std::string_view line) {
  const auto set_of = [](std::initializer_list<int> signals) {
    sigset_t set;
    sigemptyset(&set);
    for (const int signal : signals) sigaddset(&set, signal);
    return set;
  };
  const sigset_t all = set_of({SIGPIPE, SIGXFSZ, SIGTTOU});
  sigset_t before;
  sigset_t pending;
  if (pthread_sigmask(SIG_BLOCK, &all, &before) != 0) return -1;
  const bool knows_pending = sigpending(&pending) == 0;
  const ssize_t count = ::write(descriptor, line.data(), line.size());
  const int raised = count >= 0 ? 0 : errno == EPIPE ? SIGPIPE : errno == EFBIG ? SIGXFSZ : 0;
  if (raised != 0 && knows_pending && sigismember(&pending, raised) == 0) {
    const sigset_t one = set_of({raised});
    const timespec now{};
    sigtimedwait(&one, nullptr, &now);
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return count;
}

// Whether stderr takes a line now; nobody waits for a reader that has stopped. (Where the process
// may not open its stderr anew, and others fill a pipe or terminal between the look and the write,
// it waits for them: to make the program's own not wait would make others' so, too.) REQUIRES: the
// line has PIPE_BUF bytes at most: what a pipe has room for at once, and does not mix with others.
bool TakenByStderr(std::string_view line) {
  // What libraries open is closed on exec, and a program's stderr is not. If this is, the program
  // has closed its own, and something else has its number.
  const int flags = fcntl(STDERR_FILENO, F_GETFD);
  struct stat facts {};
  if (flags < 0 || (flags & FD_CLOEXEC) != 0 || fstat(STDERR_FILENO, &facts) != 0) return false;
  const auto size = static_cast<ssize_t>(line.size());
  if (S_ISSOCK(facts.st_mode)) {
    return send(STDERR_FILENO, line.data(), line.size(), MSG_DONTWAIT | MSG_NOSIGNAL) == size;
  }
  // A terminal says that it is writable when it has room for less than a line, and then waits. (A
  // file does not, and where it is written to is the program's.)
  const int own = S_ISREG(facts.st_mode)
                      ? -1
                      : open("/proc/self/fd/2", O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  pollfd room{own >= 0 ? own : STDERR_FILENO, POLLOUT, 0};
  const bool is_writable = ::poll(&room, 1, 0) == 1 && room.revents == POLLOUT;
  const bool taken = is_writable && WriteWithoutSignals(room.fd, line) == size;
  if (own >= 0) close(own);
  return taken;
}

// Warnings and errors that nobody has asked for, on stderr. A stranger who brings about what is
// said at one place neither fills a disk nor keeps what is said at others from being heard.
class UnaskedSink {
 public:
  void operator()(const LogRecord& record) {
    Place& place = PlaceOf(record);
    const uint64_t now_ns = Clock::Real().NowNs();
    if (!place.budget.permits(now_ns)) {
      ++place.left_out;
      return;
    }
    const std::string left_out =
        place.left_out == 0
            ? "\n"
            : StrCat(" (", place.left_out, " lines left out before; WEFT_LOG=warning has all)\n");
    const std::string line = WithPlace(record).substr(0, PIPE_BUF - left_out.size()) + left_out;
    // (One that is not taken counts as well: a full disk is not asked again and again.)
    place.budget.Take(now_ns);
    place.left_out = TakenByStderr(line) ? 0 : place.left_out + 1;
  }

 private:
  // Some fifty places say something at these levels, and a program's own code may add some. More
  // than these share: in 6 KiB.
  static constexpr size_t kPlaces = 128;
  // What one command or one fault says at once; from then on enough to see that it goes on. All
  // places together are 128 lines in a minute at most, mostly of 200 bytes: 37 MB in a day.
  static constexpr uint64_t kBurst = 10;
  static constexpr uint64_t kIntervalNs = 60'000'000'000;

  // (Plain numbers: a child that was forked in the middle has some count of them, and no harm. The
  // file's hash, not its name, which a library that was unloaded has taken along.)
  struct Place {
    RateBudget budget{kBurst, kIntervalNs};
    uint64_t left_out = 0;
    size_t file = 0;
    int line = 0;  // 0: it is nobody's yet
  };

  // That of the record's place in the source, and of no other, unless all are taken.
  Place& PlaceOf(const LogRecord& record) {
    const size_t file = std::hash<std::string_view>()(record.file);
    const size_t first = file + static_cast<size_t>(record.line);
    for (size_t i = 0; i < kPlaces; ++i) {
      Place& place = places_[(first + i) % kPlaces];
      if (place.line == 0) {
        place.file = file;
        place.line = record.line;
      }
      if (place.file == file && place.line == record.line) return place;
    }
    return places_[first % kPlaces];
  }

  std::array<Place, kPlaces> places_;
};

// REQUIRES: the mutex is held.
void InstallFromEnvironment(LogOutput& process) {
  const char* const said = std::getenv("WEFT_LOG");
  const std::string_view wanted = said != nullptr ? said : "";
  if (wanted == "off") return Install(process, nullptr, kLogOff);
  if (wanted.empty()) {
    return Install(process, UnaskedSink(), static_cast<int>(LogLevel::kWarning));
  }
  const std::optional<LogLevel> level = ParseLevel(wanted);
  if (!level) {
    std::fprintf(
        stderr, "weft: WEFT_LOG=%s is not a level; debug, info, warning, error or off is.\n", said);
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
  WEFT_CHECK(inside == nullptr);  // User: changes no sink from within one
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
    std::fprintf(stderr, "%s\n", WithPlace(record).c_str());
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
      process.changing = true;  // a child of a fork at this moment has no half of a sink
      InstallFromEnvironment(process);
      process.changing = false;
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
