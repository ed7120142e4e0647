#include "examples/kv/client/dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <utility>
#include <vector>

namespace kv::client {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

std::vector<std::pair<std::string, std::string>> Parse(std::string text) {
  const Dataset dataset = Dataset::FromText(std::move(text));
  std::vector<std::pair<std::string, std::string>> pairs;
  for (const Dataset::Pair& pair : dataset.pairs()) pairs.emplace_back(pair.key, pair.value);
  return pairs;
}

TEST(DatasetTest, ATabDividesKeyFromValue) {
  EXPECT_THAT(Parse("key\tvalue\n"), ElementsAre(Pair("key", "value")));
  EXPECT_THAT(Parse("key\ta\tb\n"), ElementsAre(Pair("key", "a\tb")));
  EXPECT_THAT(Parse("key\t\n"), ElementsAre(Pair("key", "")));
}

TEST(DatasetTest, ALineWithoutAKeyHasItsNumberForOne) {
  EXPECT_THAT(Parse("Ångström\n\nzygote\n"),
              ElementsAre(Pair("0000000001", "Ångström"), Pair("0000000002", ""),
                          Pair("0000000003", "zygote")));
  EXPECT_THAT(Parse("\tindented\n"), ElementsAre(Pair("0000000001", "\tindented")));
}

TEST(DatasetTest, AKeyThatIsTooLongIsPartOfTheValue) {
  const std::string longest(1024, 'k');
  EXPECT_THAT(Parse(longest + "\tv"), ElementsAre(Pair(longest, "v")));
  EXPECT_THAT(Parse(longest + "k\tv"), ElementsAre(Pair("0000000001", longest + "k\tv")));
}

TEST(DatasetTest, TheLastLineNeedsNoEnd) {
  EXPECT_THAT(Parse("a\nb"), ElementsAre(Pair("0000000001", "a"), Pair("0000000002", "b")));
  EXPECT_THAT(Parse("a\nb\n"), ElementsAre(Pair("0000000001", "a"), Pair("0000000002", "b")));
  EXPECT_THAT(Parse(""), IsEmpty());
  EXPECT_THAT(Parse("\n"), ElementsAre(Pair("0000000001", "")));
}

TEST(DatasetTest, BytesAreBytes) {
  const std::string line("\0\r\xff", 3);
  EXPECT_THAT(Parse(line + "\n"), ElementsAre(Pair("0000000001", line)));
}

TEST(DatasetTest, OnlyTheLastOfEqualKeysStands) {
  const Dataset dataset = Dataset::FromText("k\t1\nother\t2\nk\t3\nk\t4\n");
  std::vector<bool> replaced;
  for (const Dataset::Pair& pair : dataset.pairs()) replaced.push_back(pair.replaced);
  EXPECT_THAT(replaced, ElementsAre(true, false, true, false));
}

TEST(DatasetTest, MovingKeepsTheValues) {
  Dataset dataset = Dataset::FromText("k\tv\n");
  const Dataset moved = std::move(dataset);
  EXPECT_EQ(moved.pairs()[0].value, "v");
}

TEST(DatasetTest, ReadsFilesAndNamesTheOneThatIsMissing) {
  const std::string path = testing::TempDir() + "/dataset_test.txt";
  std::ofstream(path) << std::string(3'000'000, 'x') << "\nb\n";
  const absl::StatusOr<Dataset> dataset = Dataset::Read(path);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ(dataset->pairs().size(), 2u);
  EXPECT_EQ(dataset->bytes(), 3'000'000u + 1 + 2 * 10);

  const absl::Status missing = Dataset::Read("/no/such/file").status();
  EXPECT_TRUE(absl::IsNotFound(missing)) << missing;
  EXPECT_THAT(std::string(missing.message()), testing::HasSubstr("/no/such/file"));
}

}  // namespace
}  // namespace kv::client
