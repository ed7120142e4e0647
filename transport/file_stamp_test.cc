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

TEST_F(FileStampTest, AFileThatHasJustChangedHasNone) {
  Write("one");
  EXPECT_EQ(LookAtFile(path_).bytes, 3);
  EXPECT_FALSE(UnlessYoung(LookAtFile(path_)).has_value());
  EXPECT_NE(LookAtFile(path_), UnlessYoung(LookAtFile(path_))) << "it is to be read again";
}

TEST_F(FileStampTest, AnOldOneHasTheSameUntilItChanges) {
  const std::string old = "/etc/passwd";  // nobody writes it while tests run
  const std::optional<FileStamp> stamp = UnlessYoung(LookAtFile(old));
  ASSERT_TRUE(stamp.has_value());
  EXPECT_EQ(LookAtFile(old), stamp);
  FileStamp changed = *stamp;
  ++changed.changed_ns;
  EXPECT_NE(changed, stamp);
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
