#include "embed/rocksdb/file_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "embed/rocksdb/file_calls.h"
#include "embed/rocksdb/file_limits.h"
#include "embed/rocksdb/testing/file_client_user.h"
#include "embed/rocksdb/testing/file_server.h"
#include "weft/path.h"

namespace weft::embed {
namespace {

using testing::HasSubstr;

class FileClientTest : public testing::TestWithParam<const char*>, protected FileClientUser {
 protected:
  FileClientTest() : FileClientUser("file_client_test"), other_files_("file_client_test_other") {
    Serve(files_);
    client_ = Connect();
  }
  ~FileClientTest() override { client_.reset(); }  // before its server

  void Serve(const TestFolder& files) {
    FileServer::Options options;
    options.lock_grace_us = 3'600'000'000;
    if (!address_.empty()) options.address = address_;
    server_ = std::make_unique<FileServer>(files.path(), options);
    address_ = server_->address();
  }
  void Restart() {
    server_.reset();
    Serve(files_);
  }
  std::unique_ptr<FileClient> Connect(uint64_t patience_us = 60'000'000) {
    FileClientOptions options;
    options.address = address_;
    options.channel.link.paths = *ParsePathList(GetParam());
    options.patience_us = patience_us;
    auto client = FileClient::Open(options);
    EXPECT_TRUE(client.ok()) << client.status();
    return *std::move(client);
  }

  TestFolder other_files_;
  std::string address_;
  std::unique_ptr<FileServer> server_;
};

TEST_P(FileClientTest, WritesAndReadsFilesOfAllSizes) { WriteAndReadFilesOfAllSizes(); }

TEST_P(FileClientTest, AppendsGoOnWhereARestartedServerHasThem) {
  const auto file = Open("log", Mode::kWriteNew);
  ASSERT_TRUE(client_->Append(*file, AsBytes("before, ")).ok());
  Restart();
  ASSERT_TRUE(client_->Append(*file, AsBytes("between, ")).ok());
  Restart();
  ASSERT_TRUE(client_->Sync(*file).ok());
  ASSERT_TRUE(client_->Append(*file, AsBytes("after"), /*durable=*/true).ok());
  EXPECT_EQ(files_.Content("log"), "before, between, after");
}

TEST_P(FileClientTest, ReadsNeedNoCodeOfTheServerOnceTheFileIsInItsMemory) {
  const std::string text = Text(100'000);
  files_.Put("table", text);
  const auto file = Open("table", Mode::kRead);
  while (client_->one_sided_reads() == 0)
    EXPECT_EQ(Read(*file, 77'777, 100), text.substr(77'777, 100));
  const uint64_t calls = client_->reads_by_calls();
  for (uint64_t offset = 0; offset < text.size(); offset += 1'111) {
    EXPECT_EQ(Read(*file, offset, 20'000), text.substr(offset, 20'000));
  }
  EXPECT_EQ(client_->reads_by_calls(), calls);
  Restart();
  EXPECT_EQ(Read(*file, 5, 50), text.substr(5, 50));
  EXPECT_EQ(client_->reads_by_calls(), calls + 1) << "the new server lends nothing yet";
}

TEST_P(FileClientTest, ManyReadsAtOnceAndAcrossARestart) {
  ReadManyAtOnce(/*rounds=*/20, [this] { Restart(); });
}

TEST_P(FileClientTest, ReadsOfManyPiecesAreOneBatchForEach64) {
  const std::string text = Text(100'000);
  files_.Put("table", text);
  const auto file = Open("table", Mode::kRead);
  while (client_->one_sided_reads() == 0) Read(*file, 0, 1);
  const uint64_t reads = client_->one_sided_reads(), batches = client_->one_sided_batches();
  const uint64_t requests = server_->requests();
  std::vector<std::string> texts(2 * kMaxBatchTransfers + 1, std::string(100, '?'));
  std::vector<PieceToRead> pieces(texts.size());
  for (size_t i = 0; i < texts.size(); ++i) {
    pieces[i].offset = i * 500;
    pieces[i].into = {reinterpret_cast<std::byte*>(texts[i].data()), texts[i].size()};
  }
  client_->ReadMany(*file, absl::MakeSpan(pieces));
  for (size_t i = 0; i < texts.size(); ++i) EXPECT_EQ(texts[i], text.substr(i * 500, 100)) << i;
  EXPECT_EQ(client_->one_sided_reads() - reads, texts.size());
  EXPECT_EQ(client_->one_sided_batches() - batches, 3u);
  EXPECT_EQ(server_->requests(), requests) << "no code of the server's ran for it";
}

// Another epoch, as after a start of the server's host: here of another folder that has the file.
TEST_P(FileClientTest, UnsyncedBytesOfAnEarlierEpochAreDataLoss) {
  const auto synced = Open("synced", Mode::kWriteNew);
  ASSERT_TRUE(client_->Append(*synced, AsBytes("synced")).ok());
  ASSERT_TRUE(client_->Sync(*synced).ok());
  const auto unsynced = Open("unsynced", Mode::kWriteNew);
  ASSERT_TRUE(client_->Append(*unsynced, AsBytes("not")).ok());
  server_.reset();
  for (const char* name : {"synced", "unsynced"}) {
    std::filesystem::rename(files_.file(name), other_files_.file(name));
  }
  Serve(other_files_);
  const absl::Status appended = client_->Append(*unsynced, AsBytes("more"));
  EXPECT_TRUE(absl::IsDataLoss(appended)) << appended;
  EXPECT_THAT(appended.ToString(), HasSubstr("the last 3 bytes of unsynced were not synced"));
  EXPECT_TRUE(absl::IsDataLoss(client_->Sync(*unsynced)));
  EXPECT_TRUE(client_->Append(*synced, AsBytes(", and more")).ok());
  EXPECT_EQ(other_files_.Content("synced"), "synced, and more");
  EXPECT_EQ(other_files_.Content("unsynced"), "not");
}

TEST_P(FileClientTest, AFileThatIsShorterThanWhatWasWrittenIsDataLoss) {
  const auto file = Open("log", Mode::kWriteNew);
  ASSERT_TRUE(client_->Append(*file, AsBytes("12345")).ok());
  server_.reset();
  std::filesystem::resize_file(files_.file("log"), 4);
  Serve(files_);
  const absl::Status appended = client_->Append(*file, AsBytes("6"));
  EXPECT_TRUE(absl::IsDataLoss(appended)) << appended;
  EXPECT_EQ(files_.Content("log"), "1234");
}

TEST_P(FileClientTest, AnotherFileOfThatNameIsNotTakenForIt) {
  files_.Put("table", "first");
  const auto file = Open("table", Mode::kRead);
  EXPECT_EQ(Read(*file, 0, 5), "first");
  server_.reset();
  files_.Put("other", "other");
  std::filesystem::rename(files_.file("other"), files_.file("table"));
  Serve(files_);
  std::byte bytes[5];
  EXPECT_TRUE(absl::IsDataLoss(client_->Read(*file, 0, bytes).status()));
}

TEST_P(FileClientTest, ListsAsManyNamesAsThereAre) {
  std::vector<std::string> names;
  for (uint32_t i = 0; i < 2 * kMaxListedNames + 5; ++i) {
    names.push_back(std::to_string(100'000 + i));
    files_.Put(names.back(), "");
  }
  const auto listed = client_->List("");
  ASSERT_TRUE(listed.ok()) << listed.status();
  EXPECT_EQ(*listed, names);
  ASSERT_TRUE(client_->MakeFolder("empty").ok());
  EXPECT_TRUE(client_->List("empty")->empty());
  EXPECT_TRUE(absl::IsNotFound(client_->List("nowhere").status()));
}

TEST_P(FileClientTest, ALockSurvivesARestartAndKeepsOthersOut) {
  ASSERT_TRUE(client_->Lock("LOCK").ok());
  Restart();
  const auto other = Connect(/*patience_us=*/2'000'000);
  EXPECT_FALSE(other->Lock("LOCK").ok());
  const auto file = Open("log", Mode::kWriteNew);
  EXPECT_TRUE(client_->Append(*file, AsBytes("still the holder")).ok());
  EXPECT_TRUE(client_->Unlock("LOCK").ok());
  const absl::Status locked = Connect()->Lock("LOCK");
  EXPECT_TRUE(locked.ok()) << locked;
}

TEST_P(FileClientTest, WithoutItsServerAnOperationEndsWithAnErrorThatSaysWhy) {
  const auto impatient = Connect(/*patience_us=*/2'000'000);
  server_.reset();
  const absl::Status status = impatient->Stat("file").status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(status.ToString(), HasSubstr("stat file: given up after"));
}

INSTANTIATE_TEST_SUITE_P(Paths, FileClientTest, testing::Values("shm", "tcp"));

// A server whose folders have whatever names it likes.
class LyingCalls final : public FileCalls {
 public:
  using TellNames = absl::FunctionRef<void(const wire::ListRequest&, wire::ListReply*)>;
  explicit LyingCalls(TellNames tell) : tell_(tell) {}

  absl::StatusOr<wire::AttachReply> Attach(const wire::AttachRequest&, uint64_t) override {
    wire::AttachReply reply;
    reply.set_session(1);
    return reply;
  }
  absl::Status List(const wire::ListRequest& request, wire::ListReply* reply, uint64_t) override {
    tell_(request, reply);
    return absl::OkStatus();
  }

  absl::Status Open(const wire::OpenRequest&, wire::OpenReply*, uint64_t) override {
    return NotHere();
  }
  void Close(const wire::CloseRequest&, uint64_t) override {}
  void Read(uint64_t, uint64_t, absl::Span<PieceToRead* const>, uint64_t) override {}
  absl::Status Append(wire::AppendRequest*, ByteSpan, uint64_t) override { return NotHere(); }
  absl::Status Sync(const wire::SyncRequest&, wire::SyncReply*, uint64_t) override {
    return NotHere();
  }
  absl::Status Stat(const wire::StatRequest&, wire::StatReply*, uint64_t) override {
    return NotHere();
  }
  absl::Status Change(const wire::ChangeRequest&, wire::ChangeReply*, uint64_t) override {
    return NotHere();
  }
  absl::Status Lock(const wire::LockRequest&, wire::LockReply*, uint64_t) override {
    return NotHere();
  }
  absl::Status Unlock(const wire::UnlockRequest&, wire::UnlockReply*, uint64_t) override {
    return NotHere();
  }
  std::string Explain() override { return "a lie"; }
  Channel* channel() override { return nullptr; }

 private:
  static absl::Status NotHere() { return absl::UnimplementedError("this server only lists"); }

  TellNames tell_;
};

absl::StatusOr<std::vector<std::string>> ListFrom(LyingCalls::TellNames tell) {
  return (*FileClient::Open({}, std::make_unique<LyingCalls>(tell)))->List("db");
}

// A client believed a server that always had more names, until its memory was full.
TEST(LyingFileServerTest, AFolderThatHasNoEndIsGivenUp) {
  for (const size_t bytes : {size_t{7}, kMaxNameBytes}) {
    uint32_t last = 0;
    size_t told_bytes = 0;
    const auto names = ListFrom([&](const wire::ListRequest&, wire::ListReply* reply) {
      uint32_t told_names = 0;
      for (size_t told = 0; told + bytes <= kMaxListedBytes && told_names < kMaxListedNames;) {
        const std::string number = std::to_string(1'000'000 + ++last);
        reply->add_names(number + std::string(bytes - 7, 'x'));
        told += bytes;
        ++told_names;
        told_bytes += bytes;
      }
      reply->set_has_more(true);
    });
    EXPECT_TRUE(absl::IsResourceExhausted(names.status())) << names.status();
    EXPECT_THAT(names.status().ToString(), HasSubstr("list db: "));
    EXPECT_THAT(names.status().ToString(), HasSubstr("put the files into several folders"));
    EXPECT_LE(last, kMaxFolderNames + kMaxListedNames);
    EXPECT_LE(told_bytes, kMaxFolderBytes + kMaxListedBytes);
  }
}

TEST(LyingFileServerTest, NamesThatNoFileCanHaveAreRefused) {
  for (const char* name : {"", ".", "..", "a/b", "/"}) {
    const auto names =
        ListFrom([&](const wire::ListRequest&, wire::ListReply* reply) { reply->add_names(name); });
    EXPECT_TRUE(absl::IsDataLoss(names.status())) << '"' << name << "\": " << names.status();
  }
}

TEST(LyingFileServerTest, ListsThatDoNotGoOnAreRefused) {
  const auto again = ListFrom([](const wire::ListRequest&, wire::ListReply* reply) {
    reply->add_names("the same");
    reply->set_has_more(true);
  });
  EXPECT_TRUE(absl::IsDataLoss(again.status())) << again.status();
  const auto none =
      ListFrom([](const wire::ListRequest&, wire::ListReply* reply) { reply->set_has_more(true); });
  EXPECT_TRUE(absl::IsDataLoss(none.status())) << none.status();
}

}  // namespace
}  // namespace weft::embed
