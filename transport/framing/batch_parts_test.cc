#include "transport/framing/batch_parts.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

constexpr uint32_t kUsual = 8192;

TEST(BatchParts, HoldHalfOfManyAnswersAndTwoFifthsOfFewAndOneMore) {
  const SentBatch last = {.bytes = 16 + 10 * 104, .frames = 10};
  EXPECT_EQ(PartBytes(64, last, kUsual), 16 + 33 * 104u);
  EXPECT_EQ(PartBytes(32, last, kUsual), 16 + 13 * 104u);
  EXPECT_EQ(PartBytes(12, last, kUsual), 16 + 5 * 104u);
}

TEST(BatchParts, AreToldFromWhatIsNeverParted) {
  EXPECT_FALSE(IsPart(2, /*frames_to_part=*/12));
  EXPECT_TRUE(IsPart(3, /*frames_to_part=*/12));
  EXPECT_FALSE(IsPart(1000, /*frames_to_part=*/0));
}

TEST(BatchParts, AreNeverLargerThanABatch) {
  EXPECT_EQ(PartBytes(64, {.bytes = kUsual, .frames = 2}, kUsual), kUsual);
  EXPECT_EQ(PartBytes(65535, {.bytes = ~0u, .frames = 1}, kUsual), kUsual);
}

TEST(BatchParts, AreNotMadeBeforeTheLengthOfAnAnswerIsKnown) {
  EXPECT_EQ(PartBytes(64, {}, kUsual), kUsual);
  // The last batch returned credits and had nothing to say.
  EXPECT_EQ(PartBytes(64, {.bytes = 16, .frames = 0}, kUsual), kUsual);
}

TEST(BatchParts, EndWhereAFrameDoes) {
  for (uint32_t frames = 2; frames < 100; ++frames) {
    EXPECT_EQ(PartBytes(frames, {.bytes = 16 + 3 * 56, .frames = 3}, kUsual) % kFrameAlignment, 0u);
  }
}

}  // namespace
}  // namespace weft
