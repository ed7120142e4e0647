// A FileClient over gRPC: what a comparison of both ways rests upon is that both do the same.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "embed/rocksdb/file_client.h"
#include "embed/rocksdb/file_limits.h"
#include "embed/rocksdb/over_grpc/grpc_file_calls.h"
#include "embed/rocksdb/over_grpc/grpc_file_server.h"
#include "embed/rocksdb/testing/file_server.h"

namespace weft::embed {
namespace {

using Mode = FileClient::Mode;

// Bytes that differ from place to place.
std::string Text(size_t bytes) {
  std::string text(bytes, '\0');
  for (size_t i = 0; i < bytes; ++i) text[i] = static_cast<char>('a' + (i * i + i / 251) % 26);
  return text;
}

class GrpcFilesTest : public testing::Test {
 protected:
  GrpcFilesTest() : files_("grpc_files_test") {
    Restart();
    client_ = Connect();
  }

  void Restart() {
    server_.reset();
    folder_.reset();
    folder_ = *ServedFolder::Open(files_.path(), /*read_only=*/false);
    GrpcFileServer::Options options;
    options.threads = 2;
    if (!address_.empty()) options.address = address_;
    auto server = GrpcFileServer::Start(*folder_, options);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    address_ = server_->address();
  }
  std::unique_ptr<FileClient> Connect() {
    FileClientOptions options;
    options.patience_us = 60'000'000;
    auto client = FileClient::Open(options, OpenGrpcFileCalls(address_, /*spin_ns=*/0));
    EXPECT_TRUE(client.ok()) << client.status();
    return *std::move(client);
  }
  std::unique_ptr<FileClient::File> Open(const std::string& name, Mode mode) {
    auto file = client_->OpenFile(name, mode);
    EXPECT_TRUE(file.ok()) << file.status();
    return *std::move(file);
  }
  std::string Read(FileClient::File& file, uint64_t offset, size_t bytes) {
    std::string text(bytes, '?');
    const auto got =
        client_->Read(file, offset, {reinterpret_cast<std::byte*>(text.data()), text.size()});
    EXPECT_TRUE(got.ok()) << got.status();
    return text.substr(0, got.value_or(0));
  }

  TestFolder files_;
  std::string address_;
  std::unique_ptr<ServedFolder> folder_;
  std::unique_ptr<GrpcFileServer> server_;
  std::unique_ptr<FileClient> client_;
};

TEST_F(GrpcFilesTest, WritesAndReadsFilesOfAllSizes) {
  for (const size_t bytes : {size_t{0}, size_t{1}, kMaxInlineFileBytes, kMaxInlineFileBytes + 1,
                             kMaxFilePayloadBytes, 3 * kMaxFilePayloadBytes + 7}) {
    const std::string text = Text(bytes);
    const auto writes = Open("file", Mode::kWriteNew);
    ASSERT_TRUE(client_->Append(*writes, AsBytes(text)).ok());
    ASSERT_TRUE(client_->Sync(*writes).ok());
    EXPECT_EQ(files_.Content("file"), text);
    ASSERT_TRUE(client_->Close(*writes).ok());
    const auto reads = Open("file", Mode::kRead);
    EXPECT_EQ(Read(*reads, 0, bytes + 10), text);
    const size_t last = bytes == 0 ? 0 : bytes - 1;
    EXPECT_EQ(Read(*reads, last, 10), text.substr(last));
    EXPECT_EQ(Read(*reads, bytes + 5, 10), "");
  }
  EXPECT_EQ(client_->one_sided_reads(), 0u) << "gRPC has none";
}

TEST_F(GrpcFilesTest, ManyReadsAtOnceAndAcrossARestart) {
  const std::string text = Text(5 << 20);
  files_.Put("table", text);
  const auto file = Open("table", Mode::kRead);
  for (int round = 0; round < 4; ++round) {
    std::vector<std::string> texts(150);
    std::vector<PieceToRead> pieces(texts.size());
    for (size_t i = 0; i < texts.size(); ++i) {
      texts[i].resize(i == 3 ? (3 << 20) : 10 + 300 * i, '?');
      pieces[i].offset = i * 40'000;
      pieces[i].into = {reinterpret_cast<std::byte*>(texts[i].data()), texts[i].size()};
    }
    client_->ReadMany(*file, absl::MakeSpan(pieces));
    for (size_t i = 0; i < texts.size(); ++i) {
      ASSERT_TRUE(pieces[i].status.ok()) << pieces[i].status;
      const std::string want =
          pieces[i].offset > text.size() ? "" : text.substr(pieces[i].offset, texts[i].size());
      ASSERT_EQ(texts[i].substr(0, pieces[i].got), want) << i;
    }
    if (round == 2) Restart();
  }
}

TEST_F(GrpcFilesTest, NamesAreWhatTheyAreOverWeft) {
  ASSERT_TRUE(client_->MakeFolder("db").ok());
  EXPECT_TRUE(absl::IsAlreadyExists(client_->MakeFolder("db")));
  std::vector<std::string> names;
  for (uint32_t i = 0; i < kMaxListedNames + 5; ++i) {
    names.push_back(std::to_string(100'000 + i));
    files_.Put("db/" + names.back(), "x");
  }
  const auto listed = client_->List("db");
  ASSERT_TRUE(listed.ok()) << listed.status();
  EXPECT_EQ(*listed, names);
  ASSERT_TRUE(client_->Rename("db/100000", "db/first").ok());
  EXPECT_TRUE(absl::IsNotFound(client_->Stat("db/100000").status()));
  EXPECT_EQ(client_->Stat("db/first")->bytes, 1u);
  ASSERT_TRUE(client_->Remove("db/first").ok());
  EXPECT_TRUE(absl::IsNotFound(client_->OpenFile("db/first", Mode::kRead).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(client_->Stat("../secret").status()));
}

TEST_F(GrpcFilesTest, ALockIsOneClientsAndEndsWithItsSession) {
  ASSERT_TRUE(client_->Lock("LOCK").ok());
  const auto other = Connect();
  EXPECT_TRUE(absl::IsFailedPrecondition(other->Lock("LOCK")));
  client_.reset();
  absl::Status locked = other->Lock("LOCK");
  while (absl::IsFailedPrecondition(locked)) locked = other->Lock("LOCK");  // it has to notice
  EXPECT_TRUE(locked.ok()) << locked;
}

TEST_F(GrpcFilesTest, AServerEndsWithClientsThatAreConnected) {
  const auto file = Open("log", Mode::kWriteNew);
  ASSERT_TRUE(client_->Append(*file, AsBytes("before, ")).ok());
  Restart();
  ASSERT_TRUE(client_->Append(*file, AsBytes("after")).ok());
  EXPECT_EQ(files_.Content("log"), "before, after");
}

}  // namespace
}  // namespace weft::embed
