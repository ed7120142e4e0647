#include "examples/fileshare/upload_table.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "core/clock.h"
#include "examples/fileshare/chunk.h"

namespace fileshare {
namespace {

namespace fs = std::filesystem;

class UploadTableTest : public testing::Test {
 protected:
  UploadTableTest() : base_(testing::TempDir() + "/upload_table_test") {
    fs::remove_all(base_);
    fs::create_directories(base_);
    root_ = std::make_unique<Folder>(*Folder::Open(base_));
    table_ = *UploadTable::Open(*root_, clock_);
  }
  ~UploadTableTest() override {
    table_.reset();
    fs::remove_all(base_);
  }

  absl::Status WriteChunk(uint64_t upload, uint64_t chunk, char with) {
    const auto bytes = table_->BytesOf(upload, chunk);
    if (!bytes.ok()) return bytes.status();
    const std::string data(*bytes, with);
    return table_->Write(upload, chunk, reinterpret_cast<const std::byte*>(data.data()), *bytes);
  }
  std::string ContentOf(const std::string& name) {
    std::ifstream file(base_ / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  size_t FilesUnderWay() {
    size_t files = 0;
    for (const auto& entry : fs::directory_iterator(base_ / kUploadsFolder)) {
      files += entry.is_regular_file();
    }
    return files;
  }

  const fs::path base_;
  weft::FakeClock clock_;
  std::unique_ptr<Folder> root_;
  std::unique_ptr<UploadTable> table_;
};

TEST_F(UploadTableTest, ChunksComeInAnyOrderAndTheFileAppearsAtCommit) {
  const uint64_t upload = *table_->Begin("file", 0751, 2 * kChunkBytes + 3);
  EXPECT_TRUE(WriteChunk(upload, 2, 'c').ok());
  EXPECT_TRUE(WriteChunk(upload, 0, 'a').ok());
  EXPECT_EQ(table_->Commit(upload).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_FALSE(fs::exists(base_ / "file"));
  EXPECT_TRUE(WriteChunk(upload, 1, 'b').ok());
  EXPECT_TRUE(WriteChunk(upload, 1, 'b').ok()) << "again: no harm";
  EXPECT_TRUE(table_->Commit(upload).ok());
  EXPECT_EQ(ContentOf("file"),
            std::string(kChunkBytes, 'a') + std::string(kChunkBytes, 'b') + "ccc");
  EXPECT_EQ(root_->Look("file")->mode, 0751u);
  EXPECT_EQ(table_->Commit(upload).code(), absl::StatusCode::kNotFound);
}

TEST_F(UploadTableTest, AChunkTwiceDoesNotStandForAnother) {
  const uint64_t upload = *table_->Begin("file", 0600, 2 * kChunkBytes);
  EXPECT_TRUE(WriteChunk(upload, 0, 'a').ok());
  EXPECT_TRUE(WriteChunk(upload, 0, 'a').ok());
  EXPECT_EQ(table_->Commit(upload).code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(UploadTableTest, ChunksBeyondTheFileAreRefused) {
  const uint64_t upload = *table_->Begin("file", 0600, kChunkBytes);
  EXPECT_EQ(WriteChunk(upload, 1, 'a').code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(WriteChunk(upload, ~uint64_t{0}, 'a').code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(WriteChunk(upload + 1, 0, 'a').code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(table_->Begin("file", 0600, ~uint64_t{0}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(UploadTableTest, AnAbortedUploadLeavesNothing) {
  const uint64_t upload = *table_->Begin("file", 0600, 1);
  EXPECT_EQ(FilesUnderWay(), 1);
  table_->Abort(upload);
  table_->Abort(upload);
  EXPECT_EQ(FilesUnderWay(), 0);
}

TEST_F(UploadTableTest, AnUploadThatRestsIsDropped) {
  const uint64_t resting = *table_->Begin("file", 0600, 1);
  clock_.Advance(kUploadPatienceNs + 1);
  const uint64_t next = *table_->Begin("file", 0600, 1);
  EXPECT_EQ(table_->BytesOf(resting, 0).status().code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(table_->BytesOf(next, 0).ok());
  EXPECT_EQ(FilesUnderWay(), 1);
}

TEST_F(UploadTableTest, UploadsAreBounded) {
  for (size_t i = 0; i < kMaxUploads; ++i) ASSERT_TRUE(table_->Begin("file", 0600, 1).ok());
  EXPECT_EQ(table_->Begin("file", 0600, 1).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(FilesUnderWay(), kMaxUploads);
}

TEST_F(UploadTableTest, AnEmptyFileIsCompleteAtOnce) {
  EXPECT_TRUE(table_->Commit(*table_->Begin("empty", 0600, 0)).ok());
  EXPECT_TRUE(fs::is_empty(base_ / "empty"));
}

TEST_F(UploadTableTest, WhereTheFolderIsNotThereAnUploadDoesNotBegin) {
  EXPECT_EQ(table_->Begin("gone/file", 0600, 1).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(table_->Begin("../file", 0600, 1).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(FilesUnderWay(), 0);
}

TEST_F(UploadTableTest, WhatAKilledServerLeftIsRemovedByTheNext) {
  table_.reset();
  std::ofstream(base_ / kUploadsFolder / "upload-0000000000000001") << "half";
  table_ = *UploadTable::Open(*root_, clock_);
  EXPECT_EQ(FilesUnderWay(), 0);
}

TEST_F(UploadTableTest, OneFolderHasOneServer) {
  EXPECT_EQ(UploadTable::Open(*root_, clock_).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace fileshare
