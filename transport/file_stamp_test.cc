#include "transport/file_stamp.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <limits>
#include <optional>
#include <string>

namespace weft {
namespace {

constexpr int64_t kFarOff = std::numeric_limits<int64_t>::max();

class FileStampTest : public ::testing::Test {
 protected:
  FileStampTest() { ::unlink(path_.c_str()); }  // a run that was killed may have left it
  ~FileStampTest() override { ::unlink(path_.c_str()); }
  void Write(const std::string& text) { std::ofstream(path_, std::ios::binary) << text; }

  const std::string path_ = ::testing::TempDir() + "/weft_file_stamp";
  std::optional<FileStamp> seen_;
};

// With times of its own: a machine may stand still for seconds, and its clock may step.
TEST_F(FileStampTest, AFileThatHasJustChangedIsReadAgainUntilItIsOld) {
  Write("one");
  ASSERT_TRUE(LookForChange(path_, &seen_, kFarOff));
  ASSERT_TRUE(seen_.has_value());
  EXPECT_EQ(seen_->bytes, 3);
  const int64_t changed_ns = seen_->changed_ns;
  seen_.reset();
  EXPECT_TRUE(LookForChange(path_, &seen_, changed_ns + 1'900'000'000));
  EXPECT_TRUE(LookForChange(path_, &seen_, changed_ns + 1'900'000'000)) << "it was young";
  EXPECT_TRUE(LookForChange(path_, &seen_, changed_ns + 2'100'000'000)) << "it was young";
  EXPECT_FALSE(LookForChange(path_, &seen_, changed_ns + 2'200'000'000));
}

TEST_F(FileStampTest, AnOldOneIsTheSameUntilItChanges) {
  Write("one");
  EXPECT_TRUE(LookForChange(path_, &seen_, kFarOff));
  EXPECT_FALSE(LookForChange(path_, &seen_, kFarOff));
  Write("two and more");
  EXPECT_TRUE(LookForChange(path_, &seen_, kFarOff));
}

TEST_F(FileStampTest, OneThatIsNotThereIsTheSameUntilItIs) {
  EXPECT_TRUE(LookForChange(path_, &seen_));
  EXPECT_FALSE(LookForChange(path_, &seen_));
  Write("");
  EXPECT_TRUE(LookForChange(path_, &seen_));
}

}  // namespace
}  // namespace weft
