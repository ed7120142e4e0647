// What the library has to say, to whoever wants to hear it.
//
// Unless it is told otherwise, warnings and errors go to stderr, and what is below is dropped
// before it is formatted. So whoever runs a program hears what nobody else would tell (that a
// server has no security, say). What nobody has asked for is kept small: of each place in the
// source ten lines at once and then one in a minute, which says how many were left out; and a line
// that stderr cannot take now (a pipe that nobody reads) is left out as well, so that hardly ever
// an engine waits for it: only where the process may not open its stderr anew, and other writers
// fill the pipe in that very moment.
//
//   WEFT_LOG=debug|info|warning|error   in the environment: that level
//                                       and above, on stderr, all of it,
//                                       and a line waits until it is
//                                       written
//   WEFT_LOG=off                        silence
//   SetLogSink(sink), a Log             in the program: the sink has it
//                                       instead, and nothing is left out;
//                                       an empty sink is silence
//
//   WEFT_LOG(kInfo, "shm rejected for ", address, ": ", status.message());
//
// Errors are returned, not logged: a message here explains a decision (a path chosen, a connection
// given up), never replaces a Status. Nothing is logged on the hot path.
//
// A WARNING is for whoever runs the program, and says what he has to know or to mend, or that
// somebody has no access or breaks the protocol. What an ordinary client may bring about (it is
// slow, stopped, or gives up) is info. What a peer can bring about is limited where it is said, or
// logged with WEFT_LOG_EVERY_N_SEC: sinks of a program's own hear it as well.
//
// SEVERAL INSTANCES in one process, two databases say, have a Log each, which they give to their
// engines (EngineOptions::log, ServerOptions::log): what is said in the turns of an engine goes
// there, and not to the process's sink. What else is said is the process's: by functions that run
// on the caller's thread before or beside an engine's turns. How often a place may say something
// (WEFT_LOG_EVERY_N_SEC) is the process's as well.
//
// Threads:   everything from any thread. A sink is called by one thread at a time.
// Lifetime:  after SetLogSink returns, the previous sink is neither running nor called again. A
//            sink may not be changed from within a sink; what a sink itself logs is dropped.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

#include "core/strings.h"

namespace weft {

enum class LogLevel : int {
  kDebug = 1,    // for those who work on Weft
  kInfo = 2,     // decisions worth knowing: path chosen, a peer given up
  kWarning = 3,  // something works, but not as it should: no security, limit reached
  kError = 4,    // something was given up that the program was to do
};

std::string_view LogLevelName(LogLevel level);

// Valid only during the call of the sink.
struct LogRecord {
  LogLevel level;
  std::string_view file;  // root-relative
  int line;
  // One line, without its end: control characters have become '?', and what is longer than 4 KiB is
  // cut, with "..." in its place.
  std::string_view text;
};

using LogSink = std::function<void(const LogRecord&)>;

// Sends messages of `min_level` and above to `sink`, whatever WEFT_LOG says, and leaves none out.
// An empty sink drops all.
void SetLogSink(LogSink sink, LogLevel min_level = LogLevel::kInfo);

// A sink that writes "weft warning file:line] text" to stderr: each line, however long that takes.
LogSink StderrLogSink();

namespace internal {
struct LogOutput;
}  // namespace internal

// The log of one instance. An empty sink drops all. Outlives the engines that have it; a sink that
// hears from several of them is called by one thread at a time.
class Log {
 public:
  explicit Log(LogSink sink, LogLevel min_level = LogLevel::kInfo);
  ~Log();
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;

 private:
  friend struct internal::LogOutput;

  const std::unique_ptr<internal::LogOutput> output_;
};

namespace internal {

inline constexpr int kLogUnresolved = 0;  // nobody has looked at the environment yet
inline constexpr int kLogOff = 5;
// The lowest level that anybody hears: the process's sink, or a Log that there is.
inline std::atomic<int> log_threshold{kLogUnresolved};

// Whose this thread's lines are now, as the engines know it; null: the process's.
inline constinit std::atomic<Log* (*)()> find_log{nullptr};

// The same of a thread that does something for an instance, and is in no turn of an engine.
class LogScope {
 public:
  explicit LogScope(Log* log);
  ~LogScope();
  LogScope(const LogScope&) = delete;
  LogScope& operator=(const LogScope&) = delete;

  static Log* current();

 private:
  Log* const outer_;
};

// Looks at the environment once; compares with the level of who hears this thread.
bool IsLogged(LogLevel level);
void WriteLog(LogLevel level, std::string_view file, int line, std::string_view text);

// Lets one message through in each interval.
class LogRateLimit {
 public:
  // Whether to log now; if so, *suppressed is the number of refusals since the last time.
  bool Allow(uint64_t interval_ns, uint64_t* suppressed);

 private:
  std::atomic<uint64_t> next_ns_{0};
  std::atomic<uint64_t> suppressed_{0};
};

}  // namespace internal

// Whether a message of this level would reach a sink: one relaxed load where nobody hears it.
inline bool LogEnabled(LogLevel level) {
  return static_cast<int>(level) >= internal::log_threshold.load(std::memory_order_relaxed) &&
         internal::IsLogged(level);
}

}  // namespace weft

// WEFT_LOG(kInfo, parts...): the parts as for StrCat (core/strings.h), evaluated only if the level
// is enabled.
#define WEFT_LOG(level, ...)                                                  \
  do {                                                                        \
    if (::weft::LogEnabled(::weft::LogLevel::level)) {                        \
      ::weft::internal::WriteLog(::weft::LogLevel::level, __FILE__, __LINE__, \
                                 ::weft::StrCat(__VA_ARGS__));                \
    }                                                                         \
  } while (false)

// The same, at most once in `seconds` from this place; it says how many were left out.
#define WEFT_LOG_EVERY_N_SEC(level, seconds, ...)                                              \
  do {                                                                                         \
    if (::weft::LogEnabled(::weft::LogLevel::level)) {                                         \
      static ::weft::internal::LogRateLimit weft_rate_limit;                                   \
      uint64_t weft_suppressed = 0;                                                            \
      if (weft_rate_limit.Allow((seconds)*uint64_t{1'000'000'000}, &weft_suppressed)) {        \
        ::weft::internal::WriteLog(                                                            \
            ::weft::LogLevel::level, __FILE__, __LINE__,                                       \
            ::weft::StrCat(::weft::StrCat(__VA_ARGS__),                                        \
                           weft_suppressed == 0 ? "" : " (suppressed since: ",                 \
                           weft_suppressed == 0 ? "" : ::weft::StrCat(weft_suppressed, ")"))); \
      }                                                                                        \
    }                                                                                          \
  } while (false)
