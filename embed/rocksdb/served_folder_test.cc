#include "embed/rocksdb/served_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "embed/rocksdb/file_limits.h"
#include "embed/rocksdb/testing/file_server.h"

namespace weft::embed {
namespace {

using Mode = ServedFolder::Mode;
using testing::ElementsAre;
using testing::HasSubstr;

class ServedFolderTest : public testing::Test {
 protected:
  ServedFolderTest() : outside_("outside"), files_("served_folder_test") {
    outside_.Put("secret", "secret");
    folder_ = *ServedFolder::Open(files_.path(), false);
  }
  absl::StatusCode OpenCode(const std::string& name, Mode mode = Mode::kRead) {
    return folder_->OpenFile(name, mode).status().code();
  }
  static std::string Read(const Descriptor& file, uint64_t offset, size_t bytes) {
    std::string text(bytes, '?');
    const auto got =
        ServedFolder::Read(file, offset, {reinterpret_cast<std::byte*>(text.data()), text.size()});
    EXPECT_TRUE(got.ok()) << got.status();
    return text.substr(0, got.value_or(0));
  }

  TestFolder outside_;
  TestFolder files_;
  std::unique_ptr<ServedFolder> folder_;
};

TEST_F(ServedFolderTest, KeepsWhatWasWritten) {
  ASSERT_TRUE(folder_->MakeFolder("db").ok());
  const auto file = folder_->OpenFile("db/000001.log", Mode::kWriteNew);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_TRUE(folder_->WriteAt(*file, 0, AsBytes("one, ")).ok());
  EXPECT_TRUE(folder_->WriteAt(*file, 5, AsBytes("two")).ok());
  EXPECT_TRUE(folder_->Sync(*file).ok());
  EXPECT_TRUE(folder_->SyncFolder("db").ok());
  EXPECT_EQ(files_.Content("db/000001.log"), "one, two");
  EXPECT_EQ(Read(*file, 5, 100), "two") << "up to the file's end";
  EXPECT_EQ(Read(*file, 100, 1), "");
  const auto again = folder_->OpenFile("db/000001.log", Mode::kWriteExisting);
  EXPECT_EQ(ServedFolder::FactsOf(*again)->bytes, 8u);
  EXPECT_EQ(ServedFolder::FactsOf(*again)->identity, folder_->Stat("db/000001.log")->identity);
}

TEST_F(ServedFolderTest, BytesThatWereWrittenAndAreGoneAreNoticedByTheNextAppend) {
  const auto file = folder_->OpenFile("log", Mode::kWriteNew);
  ASSERT_TRUE(folder_->WriteAt(*file, 0, AsBytes("12345")).ok());
  std::filesystem::resize_file(files_.file("log"), 3);
  const absl::Status late = folder_->WriteAt(*file, 5, AsBytes("6"));
  EXPECT_TRUE(absl::IsDataLoss(late)) << late;
  EXPECT_EQ(files_.Content("log"), "123");
}

TEST_F(ServedFolderTest, NamesThatAreNoneAreRefused) {
  files_.Put("file", "text");
  const std::string too_long(kMaxNameBytes + 1, 'x');
  std::string too_deep = "x";
  for (size_t i = 0; i < kMaxNameParts; ++i) too_deep += "/x";
  for (const std::string& name :
       {std::string(".."), std::string("../outside/secret"), std::string("a/../../x"),
        std::string("/etc/passwd"), std::string("a//b"), std::string("./file"),
        std::string("file/."), std::string("file/"), std::string("fi\0le", 5), too_long, too_deep,
        std::string()}) {
    for (const Mode mode : {Mode::kRead, Mode::kWriteNew, Mode::kLock}) {
      EXPECT_EQ(OpenCode(name, mode), absl::StatusCode::kInvalidArgument) << name;
    }
    EXPECT_TRUE(absl::IsInvalidArgument(folder_->Remove(name))) << name;
    EXPECT_TRUE(absl::IsInvalidArgument(folder_->RemoveFolder(name))) << name;
    EXPECT_TRUE(absl::IsInvalidArgument(folder_->Rename("file", name))) << name;
    EXPECT_TRUE(absl::IsInvalidArgument(folder_->Link("file", name))) << name;
  }
  EXPECT_EQ(files_.Content("file"), "text");
}

TEST_F(ServedFolderTest, NoLinkLeadsOutOfTheFolder) {
  const std::string secret = outside_.file("secret");
  std::filesystem::create_symlink(secret, files_.file("link"));
  std::filesystem::create_directory_symlink(outside_.path(), files_.file("folder"));
  for (const Mode mode : {Mode::kRead, Mode::kWriteNew, Mode::kWriteExisting, Mode::kLock}) {
    EXPECT_EQ(OpenCode("link", mode), absl::StatusCode::kPermissionDenied);
    EXPECT_EQ(OpenCode("folder/secret", mode), absl::StatusCode::kPermissionDenied);
  }
  EXPECT_TRUE(absl::IsPermissionDenied(folder_->Stat("link").status()));
  EXPECT_TRUE(absl::IsPermissionDenied(folder_->Stat("folder/secret").status()));
  EXPECT_TRUE(absl::IsPermissionDenied(folder_->List("folder").status()));
  EXPECT_TRUE(absl::IsPermissionDenied(folder_->Remove("folder/secret")));
  EXPECT_TRUE(absl::IsPermissionDenied(folder_->Truncate("link", 0)));
  EXPECT_TRUE(absl::IsPermissionDenied(folder_->MakeFolder("folder/new")));
  EXPECT_EQ(outside_.Content("secret"), "secret");
  EXPECT_FALSE(std::filesystem::exists(outside_.file("new")));
}

// The opening of a FIFO waits for its other end, for ever.
TEST_F(ServedFolderTest, WhatIsNoFileIsNotOpened) {
  ASSERT_EQ(::mkfifo(files_.file("fifo").c_str(), 0600), 0);
  EXPECT_EQ(OpenCode("fifo"), absl::StatusCode::kInvalidArgument);
  ASSERT_TRUE(folder_->MakeFolder("folder").ok());
  EXPECT_EQ(OpenCode("folder"), absl::StatusCode::kInvalidArgument);
}

TEST_F(ServedFolderTest, ListsInOrder) {
  EXPECT_TRUE(folder_->List("")->names.empty());
  for (const char* name : {"b", "c", "a"}) files_.Put(name, name);
  EXPECT_THAT(folder_->List("")->names, ElementsAre("a", "b", "c"));
  EXPECT_FALSE(folder_->List("")->has_more);
  EXPECT_THAT(folder_->List("", "a")->names, ElementsAre("b", "c"));
  EXPECT_TRUE(folder_->List("", "c")->names.empty());
  EXPECT_TRUE(absl::IsNotFound(folder_->List("d").status()));
}

// All names of a folder were in memory before the first 1024 of them were told, for each request:
// clients could make a million, and ask for them eight at a time.
TEST_F(ServedFolderTest, OfManyNamesTheFirstAreListedAndThenTheNext) {
  // Long ones, of which fewer fit than of short ones; made in no order.
  constexpr int kLong = 1200;
  constexpr int kShort = 1500;
  std::vector<std::string> wanted;
  const auto name_of = [](int number) {
    const std::string digits = std::to_string(10'000 + number);
    return number < kLong ? "a" + digits + std::string(240, 'x') : "b" + digits;
  };
  for (int i = 0; i < kLong + kShort; ++i) wanted.push_back(name_of(i));
  for (int i = 0; i < kLong + kShort; ++i) {
    files_.Put(name_of(static_cast<int>(i * 1009L % (kLong + kShort))), "");
  }
  std::vector<std::string> names;
  bool has_more = true;
  while (has_more) {
    const auto listing = folder_->List("", names.empty() ? "" : names.back());
    ASSERT_TRUE(listing.ok()) << listing.status();
    size_t bytes = 0;
    for (const std::string& name : listing->names) bytes += name.size();
    EXPECT_LE(listing->names.size(), kMaxListedNames);
    EXPECT_LE(bytes, kMaxListedBytes);
    ASSERT_FALSE(listing->names.empty());
    names.insert(names.end(), listing->names.begin(), listing->names.end());
    has_more = listing->has_more;
  }
  EXPECT_EQ(names, wanted);
}

TEST_F(ServedFolderTest, NamesChange) {
  files_.Put("a", "first");
  files_.Put("b", "second");
  EXPECT_TRUE(folder_->Rename("a", "b").ok());
  EXPECT_EQ(files_.Content("b"), "first");
  EXPECT_TRUE(folder_->Link("b", "c").ok());
  EXPECT_EQ(folder_->Stat("c")->links, 2u);
  EXPECT_TRUE(absl::IsAlreadyExists(folder_->Link("b", "c")));
  EXPECT_TRUE(folder_->Truncate("c", 2).ok());
  EXPECT_EQ(files_.Content("b"), "fi");
  EXPECT_TRUE(folder_->Remove("b").ok());
  EXPECT_TRUE(absl::IsNotFound(folder_->Remove("b")));
  EXPECT_TRUE(absl::IsAlreadyExists(folder_->MakeFolder("")));
  EXPECT_TRUE(folder_->MakeFolder("d").ok());
  EXPECT_TRUE(folder_->Rename("c", "d/c").ok());
  EXPECT_TRUE(absl::IsInvalidArgument(folder_->RemoveFolder("d"))) << "it is not empty";
  EXPECT_TRUE(folder_->Remove("d/c").ok());
  EXPECT_TRUE(folder_->RemoveFolder("d").ok());
}

TEST_F(ServedFolderTest, OneProcessMayWriteOrSeveralMayRead) {
  const absl::Status second = ServedFolder::Open(files_.path(), true).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(second)) << second;
  EXPECT_THAT(second.ToString(), HasSubstr("served by another process"));
  folder_.reset();
  const auto one = ServedFolder::Open(files_.path(), true);
  const auto other = ServedFolder::Open(files_.path(), true);
  ASSERT_TRUE(one.ok() && other.ok());
  EXPECT_EQ((*one)->OpenFile("x", Mode::kWriteNew).status().code(),
            absl::StatusCode::kPermissionDenied);
  EXPECT_TRUE(absl::IsPermissionDenied((*one)->MakeFolder("x")));
  EXPECT_EQ((*one)->epoch(), (*other)->epoch());
}

TEST_F(ServedFolderTest, TheEpochIsThatOfTheBootAndTheFolder) {
  const uint64_t epoch = folder_->epoch();
  folder_ = nullptr;
  EXPECT_EQ((*ServedFolder::Open(files_.path(), false))->epoch(), epoch);
  EXPECT_NE((*ServedFolder::Open(outside_.path(), false))->epoch(), epoch);
}

}  // namespace
}  // namespace weft::embed
