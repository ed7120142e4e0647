#include "examples/kv/client/report.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "core/clock.h"
#include "examples/kv/client/progress.h"

namespace kv::client {
namespace {

TEST(ReportTest, LargeNumbersAreGroupedByThousands) {
  EXPECT_EQ(WithCommas(0), "0");
  EXPECT_EQ(WithCommas(999), "999");
  EXPECT_EQ(WithCommas(1000), "1,000");
  EXPECT_EQ(WithCommas(1234567), "1,234,567");
  EXPECT_EQ(WithCommas(~uint64_t{0}), "18,446,744,073,709,551,615");
}

TEST(ReportTest, DurationsHaveThreeDigitsAndAUnitThatSuitsThem) {
  EXPECT_EQ(Duration(0), "0 ns");
  EXPECT_EQ(Duration(640), "640 ns");
  EXPECT_EQ(Duration(1'000), "1.00 us");
  EXPECT_EQ(Duration(12'449), "12.4 us");
  EXPECT_EQ(Duration(99'960), "100 us");
  EXPECT_EQ(Duration(3'210'000), "3.21 ms");
  EXPECT_EQ(Duration(1'500'000'000), "1.50 s");
}

TEST(ReportTest, ALatencyLineStandsUnderItsHead) {
  weft::LatencyHistogram latency;
  for (int i = 0; i < 1000; ++i) latency.Record(100);
  EXPECT_EQ(LatencyHead(), "                  count        p50        p99      p99.9        max\n");
  EXPECT_EQ(LatencyLine("read", latency),
            "  read            1,000     100 ns     100 ns     100 ns     100 ns\n");
}

class ProgressTest : public testing::Test {
 protected:
  ~ProgressTest() override { std::fclose(out_); }

  // What has been written since the last call.
  std::string Written() {
    std::string text;
    for (int c = (std::fseek(out_, read_, SEEK_SET), std::fgetc(out_)); c != EOF;
         c = std::fgetc(out_)) {
      text.push_back(static_cast<char>(c));
    }
    read_ += static_cast<long>(text.size());
    std::fseek(out_, 0, SEEK_END);
    return text;
  }

  std::FILE* const out_ = std::tmpfile();
  long read_ = 0;
  weft::FakeClock clock_;
};

TEST_F(ProgressTest, OnATerminalTheLineIsRewrittenAndGoesAwayAtTheEnd) {
  {
    Progress progress("load", "puts", out_, /*terminal=*/true, clock_);
    progress.Update(0.1, 10);
    EXPECT_EQ(Written(), "") << "too early";
    clock_.Advance(weft::kNsPerSec / 2);
    progress.Update(0.5, 5000);
    EXPECT_EQ(Written(), "\r\x1b[Kload        50 %        5,000 puts      10,000/s");
    progress.Update(0.6, 6000);
    EXPECT_EQ(Written(), "") << "too soon after the last";
  }
  EXPECT_EQ(Written(), "\r\x1b[K");
}

TEST_F(ProgressTest, ElsewhereItIsAPlainLineNowAndThen) {
  {
    Progress progress("load", "puts", out_, /*terminal=*/false, clock_);
    clock_.Advance(weft::kNsPerSec);
    progress.Update(0.25, 1000);
    EXPECT_EQ(Written(), "");
    clock_.Advance(weft::kNsPerSec);
    progress.Update(0.5, 2000);
    EXPECT_EQ(Written(), "load        50 %        2,000 puts       1,000/s\n");
  }
  EXPECT_EQ(Written(), "");
}

}  // namespace
}  // namespace kv::client
