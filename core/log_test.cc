#include "core/log.h"

#include <cstdlib>
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
