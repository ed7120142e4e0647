#include "tools/weft/table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace weft::tools {
namespace {

using ::testing::ElementsAre;

TEST(Table, ColumnsAreAlignedAndEmptyCellsShown) {
  Table table({"path", "device"});
  table.AddRow({"shm", "/dev/shm"});
  table.AddText("usable");
  table.AddRow({"verbs", ""});
  EXPECT_EQ(table.text(),
            "path   device\n"
            "shm    /dev/shm\n"
            "    usable\n"
            "verbs  -\n");
}

TEST(Wrap, BreaksAtBlanksWithinTheBound) {
  EXPECT_THAT(Wrap("one two three", 7), ElementsAre("one two", "three"));
  EXPECT_THAT(Wrap("one two three", 6), ElementsAre("one", "two", "three"));
  EXPECT_THAT(Wrap("", 6), ElementsAre(""));
}

TEST(Wrap, LeavesAWordThatIsTooLongWhole) {
  EXPECT_THAT(Wrap("/sys/kernel/config x", 6), ElementsAre("/sys/kernel/config", "x"));
  EXPECT_THAT(Wrap("a /sys/kernel/config", 6), ElementsAre("a", "/sys/kernel/config"));
}

}  // namespace
}  // namespace weft::tools
