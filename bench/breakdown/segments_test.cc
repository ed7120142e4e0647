#include "bench/breakdown/segments.h"

#include <algorithm>

#include "gtest/gtest.h"

namespace weft::bench {
namespace {

// A call that passes a point every `step` ticks, from `start` on.
TracedCall Steady(uint64_t start, uint64_t step) {
  TracedCall call;
  const auto set = [&](TraceRow& row, TracePoint point, uint64_t steps) {
    row.at[static_cast<int>(point)] = start + steps * step;
  };
  set(call.client, TracePoint::kStarted, 0);
  set(call.client, TracePoint::kWritten, 1);
  set(call.client, TracePoint::kSending, 2);
  set(call.client, TracePoint::kSent, 3);
  set(call.server, TracePoint::kSeen, 3);
  set(call.server, TracePoint::kHandler, 4);
  set(call.server, TracePoint::kWritten, 5);
  set(call.server, TracePoint::kSending, 6);
  set(call.server, TracePoint::kSent, 7);
  set(call.client, TracePoint::kSeen, 7);
  set(call.client, TracePoint::kReturned, 8);
  return call;
}

TEST(SegmentsTest, TheyAddUpToTheRoundTrip) {
  const TracedCall calls[] = {Steady(1000, 20), Steady(5000, 40), Steady(9000, 60)};
  const Breakdown breakdown = Divide(calls, /*ticks_per_ns=*/2);
  ASSERT_EQ(breakdown.segments.size(), 8u);
  double sum_ns = 0;
  for (const Segment& segment : breakdown.segments) {
    EXPECT_DOUBLE_EQ(segment.p50_ns, 20);
    sum_ns += segment.mean_ns;
  }
  EXPECT_DOUBLE_EQ(sum_ns, breakdown.whole.mean_ns);
  EXPECT_DOUBLE_EQ(breakdown.whole.p50_ns, 160);
  EXPECT_EQ(breakdown.calls, 3u);
}

TEST(SegmentsTest, CallsWithoutAPointOrOutOfOrderAreLeftOut) {
  TracedCall without = Steady(1000, 20);
  without.server.at[static_cast<int>(TracePoint::kHandler)] = 0;
  TracedCall backwards = Steady(1000, 20);
  backwards.server.at[static_cast<int>(TracePoint::kSeen)] = 1001;
  const TracedCall calls[] = {Steady(1000, 20), without, backwards};
  const Breakdown breakdown = Divide(calls, 1);
  EXPECT_EQ(breakdown.calls, 1u);
  EXPECT_EQ(breakdown.incomplete, 2u);
}

// Only links that the server does not poll in every turn have to call it.
TEST(SegmentsTest, PartsOfCallsThatCalledTheServerAreOfThoseOnly) {
  TracedCall called = Steady(1000, 20);
  called.server.at[static_cast<int>(TracePoint::kReadyFlag)] = 1050;
  const TracedCall most[] = {called, called, Steady(1000, 20)};
  const Breakdown of_most = Divide(most, 1);
  ASSERT_EQ(of_most.inside.size(), 4u);
  EXPECT_DOUBLE_EQ(of_most.inside[2].p50_ns, 50);
  EXPECT_DOUBLE_EQ(of_most.inside[3].p50_ns, 10);
  const TracedCall few[] = {called, Steady(1000, 20), Steady(1000, 20)};
  EXPECT_EQ(Divide(few, 1).inside.size(), 2u);
}

TEST(SegmentsTest, TheTableHasALineForEachPart) {
  const TracedCall calls[] = {Steady(1000, 20)};
  const std::string table = ToTable(Divide(calls, 1));
  EXPECT_EQ(std::count(table.begin(), table.end(), '\n'), 1 + 8 + 1 + 2);
  EXPECT_NE(table.find("12.5 %  #####\n"), std::string::npos) << table;
}

}  // namespace
}  // namespace weft::bench
