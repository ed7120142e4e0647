#include "transport/file_stamp.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <optional>
#include <string>

namespace weft {
namespace {

class FileStampTest : public ::testing::Test {
 protected:
  ~FileStampTest() override { ::unlink(path_.c_str()); }
  void Write(const std::string& text) { std::ofstream(path_, std::ios::binary) << text; }

  const std::string path_ = ::testing::TempDir() + "/weft_file_stamp";
};

// With times of its own: a machine may stand still for a second, and its clock may step.
TEST_F(FileStampTest, AFileThatHasJustChangedHasNone) {
  Write("one");
  const FileStamp stamp = LookAtFile(path_);
  EXPECT_EQ(stamp.bytes, 3);
  const std::optional<FileStamp> young = UnlessYoung(stamp, stamp.changed_ns + 900'000'000);
  EXPECT_FALSE(young.has_value());
  EXPECT_NE(LookAtFile(path_), young) << "it is to be read again";
}

TEST_F(FileStampTest, AnOldOneHasTheSameUntilItChanges) {
  Write("one");
  const FileStamp stamp = LookAtFile(path_);
  const std::optional<FileStamp> old = UnlessYoung(stamp, stamp.changed_ns + 1'100'000'000);
  ASSERT_TRUE(old.has_value());
  EXPECT_EQ(LookAtFile(path_), old);
  Write("two and more");
  EXPECT_NE(LookAtFile(path_), old);
}

TEST_F(FileStampTest, OneThatIsNotThereIsTheSameUntilItIs) {
  const std::optional<FileStamp> stamp = UnlessYoung(LookAtFile(path_));
  ASSERT_TRUE(stamp.has_value());
  EXPECT_EQ(LookAtFile(path_), stamp);
  Write("");
  EXPECT_NE(LookAtFile(path_), stamp);
}

}  // namespace
}  // namespace weft
