#include "rpc/wire/status_text.h"

#include <gtest/gtest.h>

#include "rpc/wire/frame.h"
#include "weft/status.h"

namespace weft {
namespace {

TEST(StatusTextTest, SaysWhetherARequestMayHaveRun) {
  const absl::Status why = absl::UnavailableError("the peer was killed");
  EXPECT_EQ(
      NotSentError("db:1", why),
      WithDelivery(absl::UnavailableError("connection to db:1 lost: the peer was killed (not sent, "
                                          "safe to retry)"),
                   Delivery::kNotSent));
  EXPECT_EQ(MayHaveRunError("db:1", why),
            WithDelivery(absl::UnavailableError("connection to db:1 lost: the peer was killed (the "
                                                "request was sent and may have run)"),
                         Delivery::kMayHaveRun));
}

TEST(StatusTextTest, ALostConnectionIsUnavailableWhateverTheReason) {
  EXPECT_TRUE(absl::IsUnavailable(MayHaveRunError("a", absl::DataLossError("x"))));
  EXPECT_TRUE(absl::IsCancelled(MayHaveRunError("a", absl::CancelledError("x"))));
}

TEST(StatusTextTest, AMissingServerKeepsCodesThatAskForAChange) {
  EXPECT_EQ(
      NoServerError("db:1", absl::DeadlineExceededError("slow")),
      WithDelivery(absl::UnavailableError("no server at db:1: slow (not sent, safe to retry)"),
                   Delivery::kNotSent));
  EXPECT_TRUE(absl::IsFailedPrecondition(NoServerError("a", absl::FailedPreconditionError("x"))));
  EXPECT_TRUE(absl::IsInvalidArgument(NoServerError("a", absl::InvalidArgumentError("x"))));
}

TEST(StatusTextTest, LongTextsAreCutBetweenCharacters) {
  EXPECT_EQ(CutStatusText("short"), "short");
  EXPECT_EQ(CutStatusText(std::string(kMaxStatusText, 'x')).size(), kMaxStatusText);
  EXPECT_EQ(CutStatusText(std::string(kMaxStatusText + 1, 'x')).size(), kMaxStatusText);
  // "é" is two bytes: the cut would fall between them.
  const std::string text = std::string(kMaxStatusText - 1, 'x') + "\xC3\xA9";
  EXPECT_EQ(CutStatusText(text).size(), kMaxStatusText - 1);
  // What is no UTF-8 is cut all the same.
  EXPECT_GE(CutStatusText(std::string(2 * kMaxStatusText, '\x80')).size(), kMaxStatusText - 4);
}

TEST(StatusTextTest, DurationsUseTheLargestWholeUnit) {
  EXPECT_EQ(DurationText(3'000'000), "3 s");
  EXPECT_EQ(DurationText(1'500'000), "1500 ms");
  EXPECT_EQ(DurationText(1'001), "1001 us");
}

}  // namespace
}  // namespace weft
