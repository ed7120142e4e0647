#include "core/log.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <latch>
#include <memory>
#include <string>
#include <thread>
#include <vector>

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

TEST_F(LogTest, SaysNothingUnlessAsked) {
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

// Each in a process of its own, because the environment is looked at once.
void LogOnceWith(const char* wanted) {
  internal::log_threshold.store(internal::kLogUnresolved);
  setenv("WEFT_LOG", wanted, 1);
  WEFT_LOG(kInfo, "an info");
  WEFT_LOG(kError, "an error");
  std::exit(0);
}

TEST(LogDeathTest, EnvironmentTurnsStderrOn) {
  EXPECT_EXIT(LogOnceWith("info"), testing::ExitedWithCode(0),
              "weft info core/log_test.cc:[0-9]+\\] an info\n.*an error\n$");
  EXPECT_EXIT(LogOnceWith("error"), testing::ExitedWithCode(0), "^weft error .*an error\n$");
  EXPECT_EXIT(LogOnceWith("loud"), testing::ExitedWithCode(0), "WEFT_LOG=loud is not a level");
  EXPECT_EXIT(LogOnceWith(""), testing::ExitedWithCode(0), "^$");
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
