#include "examples/fileshare/folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "examples/fileshare/atomic_file.h"
#include "examples/fileshare/relative_path.h"

namespace fileshare {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;

std::string ContentOf(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// A shared folder beside a secret, and somebody who looks for ways from one to the other.
class FolderTest : public testing::Test {
 protected:
  FolderTest() : base_(testing::TempDir() + "/folder_test") {
    fs::remove_all(base_);
    fs::create_directories(base_ / "shared" / "inner");
    fs::create_directories(base_ / "outside");
    Write("outside/secret", "secret");
    Write("shared/file", "hello");
    Write("shared/inner/deep", "deep");
  }
  ~FolderTest() override { fs::remove_all(base_); }

  void Write(const std::string& path, const std::string& text) {
    std::ofstream(base_ / path, std::ios::binary) << text;
  }
  void Link(const std::string& target, const std::string& path) {
    fs::create_symlink(target, base_ / path);
  }
  Folder Shared() { return *Folder::Open(base_ / "shared"); }

  absl::StatusCode OpenCode(const std::string& path) {
    return Shared().OpenFile(path).status().code();
  }

  const fs::path base_;
};

TEST_F(FolderTest, FilesAreReadAtAnyOffset) {
  const auto file = Shared().OpenFile("file");
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->info.bytes, 5);
  std::byte bytes[16];
  EXPECT_EQ(*file->ReadAt(1, bytes, 3), 3);
  EXPECT_EQ(std::string(reinterpret_cast<char*>(bytes), 3), "ell");
  EXPECT_EQ(*file->ReadAt(3, bytes, 16), 2) << "fewer at the end";
  EXPECT_EQ(*file->ReadAt(99, bytes, 16), 0);
  EXPECT_TRUE(Shared().OpenFile("inner/deep").ok());
}

TEST_F(FolderTest, NoPathLeadsOut) {
  for (const std::string path :
       {"../outside/secret", "inner/../../outside/secret", "..", ".", "./file", "inner/..",
        "/etc/passwd", "//file", "inner//deep", "inner/", "/", "file/", "inner/./deep"}) {
    EXPECT_EQ(OpenCode(path), absl::StatusCode::kInvalidArgument) << path;
    EXPECT_EQ(Shared().Look(path).status().code(), absl::StatusCode::kInvalidArgument) << path;
    EXPECT_EQ(Shared().Walk(path).status().code(), absl::StatusCode::kInvalidArgument) << path;
    EXPECT_EQ(Shared().MakeFolder(path, 0700).code(), absl::StatusCode::kInvalidArgument) << path;
  }
  EXPECT_EQ(OpenCode(std::string("file\0x", 6)), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(OpenCode(std::string(kMaxNameBytes + 1, 'n')), absl::StatusCode::kInvalidArgument);
  std::string deep = "a";
  for (size_t i = 0; i < kMaxDepth; ++i) deep += "/a";
  EXPECT_EQ(OpenCode(deep), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(OpenCode(""), absl::StatusCode::kInvalidArgument);
}

TEST_F(FolderTest, NoLinkIsFollowedWhereverItStands) {
  Link((base_ / "outside").string(), "shared/absolute");
  Link("../outside", "shared/relative");
  Link("../outside/secret", "shared/to_file");
  Link("file", "shared/to_sibling");
  Link("inner", "shared/to_inner");
  for (const std::string path :
       {"absolute/secret", "relative/secret", "to_file", "to_sibling", "to_inner/deep"}) {
    EXPECT_EQ(OpenCode(path), absl::StatusCode::kFailedPrecondition) << path;
  }
  EXPECT_FALSE(Shared().Walk("absolute").ok());
  EXPECT_FALSE(Shared().MakeFolder("absolute/new", 0700).ok());
  EXPECT_FALSE(Shared().MakeFolder("absolute", 0700).ok());
  EXPECT_FALSE(fs::exists(base_ / "outside" / "new"));
}

TEST_F(FolderTest, OnlyFilesAndFoldersAreListed) {
  Link("file", "shared/link");
  ASSERT_EQ(mkfifo((base_ / "shared/pipe").c_str(), 0600), 0);
  std::vector<std::string> names;
  const auto entries = Shared().List("", 100);
  for (const Entry& entry : *entries) names.push_back(entry.name);
  EXPECT_THAT(names, ElementsAre("file", "inner"));
  EXPECT_EQ(OpenCode("pipe"), absl::StatusCode::kFailedPrecondition) << "and it did not hang";
  EXPECT_EQ(OpenCode("inner"), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(OpenCode("gone"), absl::StatusCode::kNotFound);
}

TEST_F(FolderTest, AListGoesOnAfterTheLastName) {
  for (int i = 0; i < 10; ++i) Write("shared/n" + std::to_string(i), "");
  const auto first = Shared().List("inner", 3);
  ASSERT_EQ(first->size(), 3);
  EXPECT_EQ((*first)[2].name, "n2");
  EXPECT_EQ((*Shared().List("n2", 3))[0].name, "n3");
  EXPECT_EQ(Shared().List("n9", 3)->size(), 0);
}

// All names of a folder were in memory before the first of them were told, for each request: who
// could write there made a million, and asked for them eight at a time.
TEST_F(FolderTest, OfManyNamesTheFirstAreListedAndThenTheNext) {
  const auto name_of = [](int number) { return "n" + std::to_string(1'000 + number); };
  std::vector<std::string> wanted = {"file", "inner"};
  for (int i = 0; i < 200; ++i) {
    wanted.push_back(name_of(i));
    Write("shared/" + name_of(i * 77 % 200), "");
    Link("file", "shared/link" + std::to_string(i));  // which is not listed, and takes no room
  }
  std::vector<std::string> names;
  for (size_t told = 7; told == 7;) {
    const auto entries = Shared().List(names.empty() ? "" : names.back(), 7);
    ASSERT_TRUE(entries.ok()) << entries.status();
    for (const Entry& entry : *entries) names.push_back(entry.name);
    told = entries->size();
  }
  EXPECT_EQ(names, wanted);
}

TEST_F(FolderTest, AChangedFileHasAnotherVersion) {
  const uint64_t before = Shared().Look("file")->version;
  EXPECT_EQ(Shared().Look("file")->version, before);
  Write("shared/file", "hello, longer");
  EXPECT_NE(Shared().Look("file")->version, before);
}

TEST_F(FolderTest, AFileIsNotThereBeforeItsCommit) {
  const Folder shared = Shared();
  {
    auto file = AtomicFile::Create(shared, ".temporary-");
    ASSERT_TRUE(file.ok()) << file.status();
    const std::string text = "new";
    ASSERT_TRUE((*file)->WriteAt(2, reinterpret_cast<const std::byte*>(text.data()), 3).ok());
    ASSERT_TRUE((*file)->WriteAt(0, reinterpret_cast<const std::byte*>(text.data()), 2).ok());
    EXPECT_EQ(ContentOf(base_ / "shared/file"), "hello");
    ASSERT_TRUE((*file)->Commit(shared, "file", 0640).ok());
  }
  EXPECT_EQ(ContentOf(base_ / "shared/file"), "nenew");
  EXPECT_EQ(shared.Look("file")->mode, 0640u);
  EXPECT_EQ(shared.List("", 100)->size(), 2) << "nothing else is left";
}

TEST_F(FolderTest, WhatIsNotCommittedLeavesNothing) {
  const Folder shared = Shared();
  ASSERT_TRUE(AtomicFile::Create(shared, ".temporary-").ok());
  EXPECT_EQ(shared.List("", 100)->size(), 2);
}

// A file's name where a folder is: the rename fails, and nothing is left.
TEST_F(FolderTest, AFolderIsNotReplacedByAFile) {
  const Folder shared = Shared();
  {
    auto file = AtomicFile::Create(shared, ".temporary-");
    EXPECT_FALSE((*file)->Commit(shared, "inner", 0600).ok());
  }
  EXPECT_EQ(shared.List("", 100)->size(), 2);
  EXPECT_TRUE(shared.OpenFile("inner/deep").ok());
}

}  // namespace
}  // namespace fileshare
