#include "transport/read_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <string>

namespace weft {
namespace {

class ReadRegularFileTest : public testing::Test {
 protected:
  ReadRegularFileTest() { ::unlink(path_.c_str()); }
  ~ReadRegularFileTest() override { ::unlink(path_.c_str()); }

  void Write(const std::string& text) { std::ofstream(path_, std::ios::binary) << text; }
  absl::Status ErrorOf(const std::string& path) {
    return ReadRegularFile(path, 7, "the list").status();
  }

  const std::string path_ = testing::TempDir() + "/weft_read_file";
};

TEST_F(ReadRegularFileTest, HasAllOfAFileUpToTheBound) {
  for (const std::string& text : {std::string(), std::string("a\0line\n", 7)}) {
    Write(text);
    const absl::StatusOr<std::string> read = ReadRegularFile(path_, 7, "the list");
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(*read, text);
  }
}

TEST_F(ReadRegularFileTest, AFileThatIsTooLargeIsRefused) {
  Write("12345678");
  EXPECT_EQ(ErrorOf(path_), absl::InvalidArgumentError("the list has more than 7 bytes"));
}

TEST_F(ReadRegularFileTest, AMissingFileIsNotFound) {
  const absl::Status missing = ErrorOf(path_);
  EXPECT_TRUE(absl::IsNotFound(missing)) << missing;
  EXPECT_EQ(missing.message().find("open the list: "), 0u) << missing;
}

// open(2) waits for a pipe's writer, read(2) for what it writes.
TEST_F(ReadRegularFileTest, APipeIsRefusedAndNotWaitedFor) {
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  EXPECT_EQ(ErrorOf(path_), absl::InvalidArgumentError("the list is no regular file"));
}

TEST_F(ReadRegularFileTest, AFolderAndADeviceAreRefused) {
  for (const std::string& path : {testing::TempDir(), std::string("/dev/zero")}) {
    EXPECT_EQ(ErrorOf(path), absl::InvalidArgumentError("the list is no regular file")) << path;
  }
}

}  // namespace
}  // namespace weft
