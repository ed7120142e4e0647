// A FileClient over gRPC: what a comparison of both ways rests upon is that both do the same.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "embed/rocksdb/file_client.h"
#include "embed/rocksdb/file_limits.h"
#include "embed/rocksdb/over_grpc/grpc_file_calls.h"
#include "embed/rocksdb/over_grpc/grpc_file_server.h"
#include "embed/rocksdb/testing/file_client_user.h"

namespace weft::embed {
namespace {

class GrpcFilesTest : public testing::Test, protected FileClientUser {
 protected:
  GrpcFilesTest() : FileClientUser("grpc_files_test") {
    Restart();
    client_ = Connect();
  }
  ~GrpcFilesTest() override { client_.reset(); }  // before its server

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

  std::string address_;
  std::unique_ptr<ServedFolder> folder_;
  std::unique_ptr<GrpcFileServer> server_;
};

TEST_F(GrpcFilesTest, WritesAndReadsFilesOfAllSizes) {
  WriteAndReadFilesOfAllSizes();
  EXPECT_EQ(client_->one_sided_reads(), 0u) << "gRPC has none";
}

TEST_F(GrpcFilesTest, ManyReadsAtOnceAndAcrossARestart) {
  ReadManyAtOnce(/*rounds=*/4, [this] { Restart(); });
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
