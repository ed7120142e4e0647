#include "bench/perf/cell/cell.h"

#include <algorithm>

#include "gtest/gtest.h"

namespace weft::bench {
namespace {

std::string Names(std::string_view filters) {
  const auto cells = CellsOnly(filters);
  if (!cells.ok()) return std::string(cells.status().message());
  std::string names;
  for (const Cell& cell : *cells) names += (names.empty() ? "" : " ") + NameOf(cell);
  return names;
}

TEST(CellTest, ANameIsItsPatternItsSizeAndHowManyAreOutstanding) {
  EXPECT_EQ(NameOf(Cell{Pattern::kUnary, 64, 1}), "unary.64B.x1");
  EXPECT_EQ(NameOf(Cell{Pattern::kBulkChecked, 1 << 20, 8}), "bulk_checked.1MiB.x8");
  EXPECT_EQ(NameOf(Cell{Pattern::kMessages, 0, 64}), "messages.0B.x64");
}

TEST(CellTest, EveryCellIsFoundByItsName) {
  for (const Cell& cell : AllCells()) {
    const auto found = CellNamed(NameOf(cell));
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_EQ(*found, cell) << NameOf(cell);
  }
}

TEST(CellTest, WhatIsNoNameIsNotFound) {
  for (const char* name : {"", "unary", "unary.64B", "unary.64B.1", "unary.64.x0", "best.64B.x1",
                           "unary.-1B.x1", "unary.64B.x1.x1", "unary.32MiB.x1", "unary.64B.x129"}) {
    EXPECT_FALSE(CellNamed(name).ok()) << name;
  }
}

TEST(CellTest, SizesAreWrittenInTheLargestUnitThatFits) {
  EXPECT_EQ(SizeName(0), "0B");
  EXPECT_EQ(SizeName(300), "300B");
  EXPECT_EQ(SizeName(1 << 10), "1KiB");
  EXPECT_EQ(SizeName(1500), "1500B");
  EXPECT_EQ(SizeName(16 << 20), "16MiB");
}

TEST(CellTest, TheMatrixIsEveryPatternWithEverySizeAndNumber) {
  const std::vector<Cell> cells = AllCells();
  EXPECT_EQ(cells.size(), 8u * 8 * 3);
  EXPECT_TRUE(std::is_sorted(cells.begin(), cells.end()));
}

TEST(CellTest, AFilterLeavesWhatItNames) {
  EXPECT_EQ(Names("unary:64:1"), "unary.64B.x1");
  EXPECT_EQ(Names("unary:64"), "unary.64B.x1 unary.64B.x8 unary.64B.x64");
  EXPECT_EQ(Names("read:*:8,unary:4Ki:1").substr(0, 25), "unary.4KiB.x1 read.0B.x8 ");
  EXPECT_EQ(CellsOnly("*")->size(), AllCells().size());
  EXPECT_EQ(CellsOnly("bulk")->size(), 8u * 3);
}

TEST(CellTest, WhatTwoFiltersNameIsThereOnce) {
  EXPECT_EQ(Names("unary:64:1,unary:64B:1"), "unary.64B.x1");
}

TEST(CellTest, AFilterMayNameWhatIsNotInTheMatrix) {
  EXPECT_EQ(Names("unary:128:16"), "unary.128B.x16");
}

TEST(CellTest, AWrongFilterSaysWhatThereIs) {
  EXPECT_NE(Names("unory").find("bulk_checked"), std::string::npos) << Names("unory");
  EXPECT_NE(Names("unary:much").find("\"much\""), std::string::npos);
  EXPECT_NE(Names("unary:64:0").find("1 to 128"), std::string::npos);
  EXPECT_NE(Names("unary:64:1:1").find("PATTERN"), std::string::npos);
  EXPECT_NE(Names("").find("not a pattern"), std::string::npos);
}

TEST(CellTest, WhatMakesNoSenseSaysWhy) {
  EXPECT_EQ(WhyNoCell({Pattern::kUnary, 0, 1}), "") << "an empty message is a message";
  for (const Pattern pattern : {Pattern::kBulk, Pattern::kRead, Pattern::kWrite}) {
    EXPECT_NE(WhyNoCell({pattern, 0, 1}).find("0 bytes"), std::string::npos);
  }
  EXPECT_NE(WhyNoCell({Pattern::kUnary, 1 << 20, 64}).find("16MiB"), std::string::npos);
  EXPECT_EQ(WhyNoCell({Pattern::kUnary, 1 << 20, 16}), "");
  EXPECT_NE(WhyNoCell({Pattern::kCoroutine, 64, 8}).find("one call at a time"), std::string::npos);
}

TEST(CellTest, WhileOneHalfOfAStreamIsConfirmedTheOtherIsOnTheWay) {
  EXPECT_EQ(ConfirmEvery({Pattern::kMessages, 64, 1}), 1u);
  EXPECT_EQ(ConfirmEvery({Pattern::kMessages, 64, 8}), 4u);
  EXPECT_EQ(ConfirmEvery({Pattern::kMessages, 64, 64}), 32u);
}

}  // namespace
}  // namespace weft::bench
