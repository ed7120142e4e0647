#include "core/log.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdint>
#include <cstdlib>
#include <latch>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "core/clock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

class LogTest : public testing::Test {
 protected:
  ~LogTest() override { SetLogSink(nullptr); }

  void Listen(LogLevel min_level) {
    SetLogSink([this](const LogRecord& record) { heard_.emplace_back(record.text); }, min_level);
  }

  std::vector<std::string> heard_;
};

TEST_F(LogTest, AnEmptySinkIsSilence) {
  SetLogSink(nullptr);
  testing::internal::CaptureStderr();
  WEFT_LOG(kError, "nobody hears this");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_FALSE(LogEnabled(LogLevel::kError));
}

TEST_F(LogTest, SinkHearsItsLevelAndAbove) {
  Listen(LogLevel::kWarning);
  WEFT_LOG(kInfo, "too low");
  WEFT_LOG(kWarning, "number ", 7, std::string_view(" and text"));
  WEFT_LOG(kError, "worse");
  EXPECT_EQ(heard_, (std::vector<std::string>{"number 7 and text", "worse"}));
}

TEST_F(LogTest, RecordNamesLevelAndPlace) {
  SetLogSink([](const LogRecord& record) {
    EXPECT_EQ(record.level, LogLevel::kInfo);
    EXPECT_EQ(record.file, "core/log_test.cc");
    EXPECT_GT(record.line, 0);
  });
  WEFT_LOG(kInfo, "x");
}

TEST_F(LogTest, PartsAreNotEvaluatedWhenNobodyListens) {
  Listen(LogLevel::kError);
  int evaluated = 0;
  WEFT_LOG(kWarning, ++evaluated);
  EXPECT_EQ(evaluated, 0);
}

TEST_F(LogTest, FitsWhereOneStatementFits) {
  Listen(LogLevel::kInfo);
  if (heard_.empty())
    WEFT_LOG(kInfo, "then");
  else
    WEFT_LOG(kInfo, "else");
  EXPECT_EQ(heard_.size(), 1u);
}

TEST_F(LogTest, RateLimitCountsWhatItLeavesOut) {
  Listen(LogLevel::kInfo);
  for (int i = 0; i < 5; ++i) WEFT_LOG_EVERY_N_SEC(kInfo, 1000, "round ", i);
  EXPECT_EQ(heard_, std::vector<std::string>{"round 0"});
  internal::LogRateLimit limit;
  uint64_t suppressed = 0;
  EXPECT_TRUE(limit.Allow(~uint64_t{0} / 4, &suppressed));
  EXPECT_EQ(suppressed, 0u);
  EXPECT_FALSE(limit.Allow(0, &suppressed));
}

TEST_F(LogTest, WhatASinkLogsItselfIsDropped) {
  SetLogSink([this](const LogRecord& record) {
    heard_.emplace_back(record.text);
    WEFT_LOG(kError, "from within");
  });
  WEFT_LOG(kInfo, "outer");
  EXPECT_EQ(heard_, std::vector<std::string>{"outer"});
}

TEST_F(LogTest, ReplacedSinkIsGone) {
  const auto alive = std::make_shared<int>(0);
  SetLogSink([alive](const LogRecord&) {});
  EXPECT_EQ(alive.use_count(), 2);
  SetLogSink(nullptr);
  EXPECT_EQ(alive.use_count(), 1);
}

// The sink itself takes no lock: ThreadSanitizer sees whether its calls overlap.
TEST_F(LogTest, SinkIsCalledByOneThreadAtATime) {
  Listen(LogLevel::kInfo);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([] {
      for (int i = 0; i < 500; ++i) WEFT_LOG(kInfo, i);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(heard_.size(), 2000u);
}

// --- a Log of an instance's own -----------------------------------------------------------------

struct Heard {
  LogSink Sink() {
    return [this](const LogRecord& record) { texts.emplace_back(record.text); };
  }
  std::vector<std::string> texts;
};

TEST_F(LogTest, AScopesLinesGoToItsLogAndNotToTheProcess) {
  Listen(LogLevel::kInfo);
  Heard first;
  Heard second;
  Log first_log(first.Sink());
  Log second_log(second.Sink());
  WEFT_LOG(kInfo, "before");
  {
    const internal::LogScope scope(&first_log);
    WEFT_LOG(kInfo, "of the first");
    {
      const internal::LogScope inner(&second_log);
      WEFT_LOG(kInfo, "of the second");
    }
    WEFT_LOG(kInfo, "of the first again");
  }
  WEFT_LOG(kInfo, "after");
  EXPECT_EQ(first.texts, (std::vector<std::string>{"of the first", "of the first again"}));
  EXPECT_EQ(second.texts, std::vector<std::string>{"of the second"});
  EXPECT_EQ(heard_, (std::vector<std::string>{"before", "after"}));
}

TEST_F(LogTest, EachHearsItsOwnLevel) {
  Listen(LogLevel::kError);
  Heard low;
  Heard high;
  Log low_log(low.Sink(), LogLevel::kDebug);
  Log high_log(high.Sink(), LogLevel::kError);
  int evaluated = 0;
  WEFT_LOG(kWarning, "too low for the process ", ++evaluated);
  {
    const internal::LogScope scope(&high_log);
    WEFT_LOG(kWarning, "too low ", ++evaluated);
    WEFT_LOG(kError, "an error");
  }
  {
    const internal::LogScope scope(&low_log);
    EXPECT_TRUE(LogEnabled(LogLevel::kDebug));
    WEFT_LOG(kDebug, "a detail");
  }
  EXPECT_EQ(evaluated, 0);
  EXPECT_EQ(low.texts, std::vector<std::string>{"a detail"});
  EXPECT_EQ(high.texts, std::vector<std::string>{"an error"});
  EXPECT_TRUE(heard_.empty());
}

TEST_F(LogTest, ALogThatIsGoneIsHeardByNobody) {
  SetLogSink(nullptr);
  Heard heard;
  {
    Log log(heard.Sink());
    const internal::LogScope scope(&log);
    EXPECT_TRUE(LogEnabled(LogLevel::kInfo));
  }
  EXPECT_FALSE(LogEnabled(LogLevel::kError));
  Log silent(nullptr);
  const internal::LogScope scope(&silent);
  Listen(LogLevel::kDebug);
  WEFT_LOG(kError, "nobody hears this");
  EXPECT_TRUE(heard_.empty());
}

TEST_F(LogTest, WhatASinkLogsIsDroppedWhosesoeverItIs) {
  Listen(LogLevel::kInfo);
  int calls = 0;
  Log log([&calls](const LogRecord&) {
    ++calls;
    const internal::LogScope process(nullptr);
    WEFT_LOG(kError, "from within");
  });
  const internal::LogScope scope(&log);
  WEFT_LOG(kInfo, "outer");
  EXPECT_EQ(calls, 1);
  EXPECT_TRUE(heard_.empty());
}

// A child would have waited for a thread of its parent's, which was in the other sink.
TEST_F(LogTest, AChildThatWasForkedInOneSinkUsesTheOther) {
  const pid_t parent = getpid();
  std::latch is_in(1);
  std::latch may_go(1);
  SetLogSink([&](const LogRecord&) {
    if (getpid() != parent) return;
    is_in.count_down();
    may_go.wait();
  });
  std::thread other([] { WEFT_LOG(kInfo, "stays in the process's sink"); });
  is_in.wait();
  pid_t child = -1;
  Log forks([&child](const LogRecord&) { child = fork(); });
  {
    const internal::LogScope scope(&forks);
    WEFT_LOG(kInfo, "forks");
  }
  if (child == 0) {
    alarm(60);  // it ends a child that hangs
    WEFT_LOG(kInfo, "to the process's sink");
    _exit(0);
  }
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  may_go.count_down();
  other.join();
}

// --- nobody has asked ---------------------------------------------------------------------------

// A process that has looked for WEFT_LOG not yet, and will not find it.
class UnaskedLogTest : public LogTest {
 protected:
  UnaskedLogTest() {
    unsetenv("WEFT_LOG");
    internal::log_threshold.store(internal::kLogUnresolved);
    process_had_ = dup(STDERR_FILENO);
  }
  ~UnaskedLogTest() override {
    RestoreStderr();
    close(process_had_);
  }

  // What is written to stderr from now on is read from `end_` (a pipe, in which 64 KiB wait).
  void ReadStderr() {
    int ends[2] = {-1, -1};
    ASSERT_EQ(pipe(ends), 0);
    end_ = ends[0];
    dup2(ends[1], STDERR_FILENO);
    close(ends[1]);
  }
  void RestoreStderr() {
    dup2(process_had_, STDERR_FILENO);
    CloseEnd();
  }
  void CloseEnd() {
    if (end_ >= 0) close(end_);
    end_ = -1;
  }
  // All that waits in the pipe: there is something.
  std::string Heard() {
    std::string text(size_t{1} << 20, '\0');
    const ssize_t count = read(end_, text.data(), text.size());
    text.resize(count > 0 ? static_cast<size_t>(count) : 0);
    return text;
  }

  int end_ = -1;

 private:
  int process_had_ = -1;
};

size_t Lines(const std::string& text) {
  return static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
}

void SayAgain(const std::string& text) { WEFT_LOG(kWarning, text); }

TEST_F(UnaskedLogTest, WarningsAndErrorsAreHeardOnStderrAndNothingBelow) {
  ReadStderr();
  EXPECT_FALSE(LogEnabled(LogLevel::kInfo));
  WEFT_LOG(kInfo, "a decision");
  WEFT_LOG(kWarning, "the server has no security");
  WEFT_LOG(kError, "given up");
  const std::string heard = Heard();
  RestoreStderr();
  EXPECT_EQ(Lines(heard), 2u) << heard;
  EXPECT_EQ(heard.find("weft warning core/log_test.cc:"), 0u) << heard;
  EXPECT_NE(heard.find("] the server has no security\nweft error "), std::string::npos) << heard;
}

// Who brings one thing about as often as he likes.
TEST_F(UnaskedLogTest, APlaceThatGoesOnIsHeardOnceInAMinuteAndHidesNoOther) {
  ReadStderr();
  const uint64_t begin_ns = Clock::Real().NowNs();
  for (int i = 0; i < 1000; ++i) SayAgain("a stranger is refused");
  WEFT_LOG(kError, "the certificate cannot be used");
  const uint64_t minutes = (Clock::Real().NowNs() - begin_ns) / 60'000'000'000;
  const std::string heard = Heard();
  RestoreStderr();
  EXPECT_GE(Lines(heard), 11u) << heard;
  EXPECT_LE(Lines(heard), 11 + minutes + 1) << heard;
  EXPECT_NE(heard.find("the certificate cannot be used"), std::string::npos) << heard;
}

// A terminal says that it is writable when it has room for less than a line; the write then waited,
// and every engine that warned waited behind it.
TEST_F(UnaskedLogTest, ATerminalThatNobodyReadsHoldsUpNobody) {
  const int reader = posix_openpt(O_RDWR | O_NOCTTY);
  if (reader < 0 || grantpt(reader) != 0 || unlockpt(reader) != 0) GTEST_SKIP() << "no terminals";
  const int terminal = open(ptsname(reader), O_RDWR | O_NOCTTY);
  ASSERT_GE(terminal, 0);
  dup2(terminal, STDERR_FILENO);
  close(terminal);
  EXPECT_TRUE(LogEnabled(LogLevel::kWarning));
  const std::string text(1000, 'x');
  for (int line = 1; line <= 300; ++line) {
    internal::WriteLog(LogLevel::kWarning, __FILE__, line, text);
  }
  RestoreStderr();
  close(reader);
}

// A stranger's lines went into another client's connection.
TEST_F(UnaskedLogTest, WhatHasTheNumberOfAStderrThatIsClosedIsLeftAlone) {
  int ends[2] = {-1, -1};
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  dup3(ends[1], STDERR_FILENO, O_CLOEXEC);  // as a descriptor that a library has opened
  WEFT_LOG(kWarning, "a client is refused");
  close(ends[1]);
  RestoreStderr();
  char byte = 0;
  EXPECT_EQ(read(ends[0], &byte, 1), 0) << "nothing came, and nobody writes any more";
  close(ends[0]);
}

// Two places had one budget by chance, and who brought about what the one says kept the other's
// error from being heard.
TEST_F(UnaskedLogTest, PlacesThatBeginTheirSearchAtOneBudgetHaveOneEach) {
  ReadStderr();
  EXPECT_TRUE(LogEnabled(LogLevel::kWarning));
  const int line = 1000;
  for (int i = 0; i < 100; ++i) {
    internal::WriteLog(LogLevel::kWarning, __FILE__, line, "a stranger is refused");
  }
  // 128 budgets, and one search begins where the other does.
  internal::WriteLog(LogLevel::kError, __FILE__, line + 128, "the certificate cannot be used");
  internal::WriteLog(LogLevel::kError, __FILE__, line + 1, "nor the list of servers");
  const std::string heard = Heard();
  RestoreStderr();
  EXPECT_NE(heard.find("the certificate cannot be used\n"), std::string::npos) << heard;
  EXPECT_NE(heard.find("nor the list of servers\n"), std::string::npos) << heard;
}

TEST_F(UnaskedLogTest, MorePlacesThanThereAreBudgetsShareThemAndAreHeard) {
  ReadStderr();
  EXPECT_TRUE(LogEnabled(LogLevel::kWarning));
  for (int line = 1; line <= 300; ++line) {
    internal::WriteLog(LogLevel::kWarning, __FILE__, line, "x");
  }
  const std::string heard = Heard();
  RestoreStderr();
  EXPECT_EQ(Lines(heard), 300u) << heard;
}

// An engine waited for a reader that had stopped: with nobody to read stderr the first 64 KiB of
// warnings would have been its last.
TEST_F(UnaskedLogTest, AStderrThatTakesNothingNowLosesLinesAndHoldsUpNobody) {
  ReadStderr();
  SayAgain("first");
  Heard();
  const int flags = fcntl(STDERR_FILENO, F_GETFL);
  fcntl(STDERR_FILENO, F_SETFL, flags | O_NONBLOCK);
  const std::string filling(4096, 'x');
  while (write(STDERR_FILENO, filling.data(), filling.size()) > 0) continue;
  fcntl(STDERR_FILENO, F_SETFL, flags);
  SayAgain("second");
  SayAgain("third");
  Heard();
  SayAgain("fourth");
  const std::string heard = Heard();
  RestoreStderr();
  EXPECT_EQ(heard.find("second"), std::string::npos) << heard;
  EXPECT_NE(heard.find("] fourth (2 lines left out before; WEFT_LOG=warning has all)\n"),
            std::string::npos)
      << heard;
}

// A warning that a stranger could bring about would have ended the process by SIGPIPE.
TEST_F(UnaskedLogTest, AStderrWhoseReaderHasGoneEndsNoProcess) {
  ReadStderr();
  SayAgain("heard");
  CloseEnd();
  SayAgain("heard by nobody");
  close(STDERR_FILENO);
  SayAgain("nor this");
  RestoreStderr();
}

TEST_F(UnaskedLogTest, ALineIsNoLongerThanAPipeTakesAtOnce) {
  ReadStderr();
  SayAgain(std::string(100'000, 'x'));
  const std::string heard = Heard();
  RestoreStderr();
  EXPECT_EQ(Lines(heard), 1u);
  EXPECT_EQ(heard.size(), size_t{PIPE_BUF});
  EXPECT_EQ(heard.back(), '\n');
}

TEST_F(UnaskedLogTest, ASinkOfAProgramsOwnHasAllInstead) {
  ReadStderr();
  SayAgain("to stderr");
  Listen(LogLevel::kWarning);
  for (int i = 0; i < 100; ++i) SayAgain("to the sink");
  SetLogSink(nullptr);
  SayAgain("to nobody");
  const std::string said = Heard();
  RestoreStderr();
  EXPECT_EQ(heard_, std::vector<std::string>(100, "to the sink"));
  EXPECT_EQ(Lines(said), 1u) << said;
}

// Each in a process of its own, because the environment is looked at once.
void LogOnceWith(const char* wanted) {
  internal::log_threshold.store(internal::kLogUnresolved);
  setenv("WEFT_LOG", wanted, 1);
  WEFT_LOG(kInfo, "an info");
  WEFT_LOG(kError, "an error");
  std::exit(0);
}

TEST(LogDeathTest, EnvironmentSaysWhatStderrHears) {
  EXPECT_EXIT(LogOnceWith("info"), testing::ExitedWithCode(0),
              "weft info core/log_test.cc:[0-9]+\\] an info\n.*an error\n$");
  EXPECT_EXIT(LogOnceWith("error"), testing::ExitedWithCode(0), "^weft error .*an error\n$");
  EXPECT_EXIT(LogOnceWith("loud"), testing::ExitedWithCode(0), "WEFT_LOG=loud is not a level");
  EXPECT_EXIT(LogOnceWith(""), testing::ExitedWithCode(0), "^weft error .*an error\n$");
  EXPECT_EXIT(LogOnceWith("off"), testing::ExitedWithCode(0), "^$");
}

// Much of a line may be what a peer has said.
TEST_F(LogTest, WhatIsSaidIsOneLineAndBounded) {
  Listen(LogLevel::kInfo);
  WEFT_LOG(kInfo, "a peer said \"\nweft E forged\r\x1b[2J\x7f gr\xc3\xbc\xc3\x9f\"");
  EXPECT_EQ(heard_.back(), "a peer said \"?weft E forged??[2J? gr\xc3\xbc\xc3\x9f\"");
  // What a terminal takes for "ESC [" and "ESC M" in UTF-8 was let through.
  WEFT_LOG(kInfo,
           "a\xc2\x9b"
           "2J\xc2\x8d \xc2\xa0");
  EXPECT_EQ(heard_.back(), "a??2J?? \xc2\xa0");
  WEFT_LOG(kInfo, std::string(100'000, 'x'));
  EXPECT_LT(heard_.back().size(), 5'000u);
}

}  // namespace
}  // namespace weft
