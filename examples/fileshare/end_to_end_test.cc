// fileshare_server and fileshare_client as a user runs them, over each real path; and a client that
// asks for what it must not have.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/strings.h"
#include "examples/fileshare/chunk.h"
#include "examples/fileshare/fileshare.weft.h"
#include "examples/fileshare/folder.h"
#include "examples/fileshare/tree_maker.h"
#include "examples/testing/server_process.h"
#include "examples/testing/tls_files.h"
#include "weft/bulk.h"
#include "weft/channel.h"
#include "weft/engine.h"
#include "weft/memory.h"

namespace fileshare {
namespace {

namespace fs = std::filesystem;
using examples::Finished;
using examples::ServerProcess;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kServer[] = "examples/fileshare/fileshare_server";
constexpr char kClient[] = "examples/fileshare/fileshare_client";
constexpr char kPlainTcp[] = "examples/fileshare/plain_tcp";
constexpr uint64_t kTreeBytes = 6 << 20;  // with files of several chunks

std::string ContentOf(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void Write(const fs::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

// Everything that a copy has to keep: names, kinds, modes of files, and bytes.
std::map<std::string, std::string> Manifest(const fs::path& root) {
  std::map<std::string, std::string> manifest;
  for (const auto& entry : fs::recursive_directory_iterator(root)) {
    struct stat status = {};
    EXPECT_EQ(lstat(entry.path().c_str(), &status), 0);
    manifest[fs::relative(entry.path(), root)] =
        entry.is_directory() ? "folder"
                             : weft::StrCat(status.st_mode & kModeBits, ContentOf(entry.path()));
  }
  return manifest;
}

// Folders of a test: one that is shared, and others.
class SharedFolderTest : public testing::Test {
 protected:
  SharedFolderTest() : base_(testing::TempDir() + "/fileshare") {
    fs::remove_all(base_);
    fs::create_directories(shared());
    fs::create_directories(base_ / "local");
  }
  ~SharedFolderTest() override { fs::remove_all(base_); }

  fs::path shared() const { return base_ / "shared"; }
  fs::path Tree() {
    const fs::path tree = base_ / "tree";
    fs::create_directories(tree);
    EXPECT_TRUE(MakeTree(*Folder::Open(tree), kTreeBytes, /*seed=*/7).ok());
    return tree;
  }
  void StartServer(const std::vector<std::string>& flags = {}) {
    std::vector<std::string> argv = {kServer, weft::StrCat("--root=", shared().string())};
    argv.insert(argv.end(), flags.begin(), flags.end());
    server_ = std::make_unique<ServerProcess>(argv);
  }

  const fs::path base_;
  std::unique_ptr<ServerProcess> server_;
};

// --- the programs -------------------------------------------------------------------------------

class CopyTest : public SharedFolderTest, public testing::WithParamInterface<const char*> {
 protected:
  Finished Client(const std::vector<std::string>& words) const {
    return examples::RunToEnd(server_->ClientCommand(kClient, GetParam(), words));
  }
};

TEST_P(CopyTest, ATreeGoesInAndOutUnchanged) {
  const fs::path tree = Tree();
  const auto expected = Manifest(tree);
  StartServer();
  const Finished in = Client({"cp", tree, "remote:some"});
  EXPECT_EQ(in.status, 0) << in.output;
  EXPECT_THAT(in.output, HasSubstr(weft::StrCat("over ", GetParam())));
  EXPECT_EQ(Manifest(shared() / "some"), expected);

  const fs::path back = base_ / "local" / "back";
  EXPECT_EQ(Client({"cp", "remote:some", back}).status, 0);
  EXPECT_EQ(Manifest(back), expected);
  EXPECT_EQ(Client({"cp", "remote:some", back}).status, 0) << "over what is there";
  EXPECT_EQ(Manifest(back), expected);
  EXPECT_EQ(Client({"--crc=false", "cp", tree, "remote:"}).status, 0);
  server_->Stop();
  fs::remove_all(shared() / "some");
  fs::remove_all(shared() / ".fileshare-uploads");
  EXPECT_EQ(Manifest(shared()), expected);
}

TEST_P(CopyTest, WithTlsOnlyWhoHasACertificateCopies) {
  Write(base_ / "one", std::string(3 * kChunkBytes + 5, 'x'));
  const examples::TlsFiles files;
  StartServer(files.FlagsOf("server"));
  EXPECT_EQ(Client({"cp", base_ / "one", "remote:two"}).status, 1);
  const auto flags = files.FlagsOf("client");
  const Finished in = Client(examples::With({"cp", base_ / "one", "remote:two"}, flags));
  EXPECT_EQ(in.status, 0) << in.output;
  EXPECT_EQ(Client(examples::With({"cp", "remote:two", base_ / "three"}, flags)).status, 0);
  EXPECT_EQ(ContentOf(base_ / "three"), ContentOf(base_ / "one"));
  server_->Stop();
}

TEST_P(CopyTest, AFileIsCopiedUnderTheNameThatIsGiven) {
  Write(base_ / "one", std::string(3 * kChunkBytes + 5, 'x'));
  StartServer();
  EXPECT_EQ(Client({"cp", base_ / "one", "remote:two"}).status, 0);
  EXPECT_EQ(Client({"cp", "remote:two", base_ / "three"}).status, 0);
  EXPECT_EQ(ContentOf(base_ / "three"), ContentOf(base_ / "one"));
  const Finished list = Client({"ls"});
  EXPECT_THAT(list.output, HasSubstr("3145733  two\n"));
  EXPECT_THAT(list.output, testing::Not(HasSubstr("uploads")));
  EXPECT_EQ(Client({"cp", "remote:gone", base_ / "four"}).status, 1);
  EXPECT_FALSE(fs::exists(base_ / "four"));
  server_->Stop();
}

TEST_P(CopyTest, LinksAreLeftOutOnBothSides) {
  Write(base_ / "secret", "secret");
  fs::create_directories(base_ / "links");
  fs::create_symlink("../secret", base_ / "links" / "here");
  fs::create_symlink("../secret", shared() / "there");
  StartServer();
  EXPECT_EQ(Client({"cp", base_ / "links", "remote:links"}).status, 0);
  EXPECT_TRUE(fs::is_empty(shared() / "links"));
  EXPECT_EQ(Client({"cp", "remote:there", base_ / "stolen"}).status, 1);
  EXPECT_EQ(Client({"cp", "remote:../secret", base_ / "stolen"}).status, 1);
  EXPECT_FALSE(fs::exists(base_ / "stolen"));
  EXPECT_EQ(Client({"cp", base_ / "secret", "remote:there"}).status, 0)
      << "the link is replaced, not followed";
  EXPECT_FALSE(fs::is_symlink(shared() / "there"));
  server_->Stop();
}

TEST_P(CopyTest, AServerForReadingOnlyTakesNothing) {
  Write(shared() / "file", "there");
  StartServer({"--read_only"});
  EXPECT_EQ(Client({"cp", "remote:file", base_ / "copy"}).status, 0);
  EXPECT_EQ(Client({"cp", base_ / "copy", "remote:file"}).status, 1);
  EXPECT_EQ(Client({"cp", base_ / "local", "remote:folder"}).status, 1);
  EXPECT_EQ(Manifest(shared()).size(), 1);
  server_->Stop();
}

INSTANTIATE_TEST_SUITE_P(Paths, CopyTest, testing::Values("shm", "tcp"),
                         [](const auto& info) { return std::string(info.param); });

// --- the service --------------------------------------------------------------------------------

// A client that says whatever it likes.
class ServiceTest : public SharedFolderTest {
 protected:
  void SetUp() override {
    Write(base_ / "secret", "secret");
    Write(shared() / "file", "0123456789");
    fs::create_symlink("../secret", shared() / "link");
    fs::create_symlink("..", shared() / "up");
    StartServer();
    Connect();
  }
  void TearDown() override {
    stub_.reset();
    channel_.reset();
    engine_.reset();
    if (server_ != nullptr) server_->Stop();
  }
  void Connect() {
    weft::EngineOptions options;
    options.drive = weft::EngineOptions::Drive::kCaller;
    engine_ = *weft::OpenNetworkEngine(options);
    channel_ = *weft::Channel::Open(*engine_, server_->address());
    stub_ = std::make_unique<FileShare::Stub>(*channel_);
  }

  // What Read() of the whole file gives, or the error.
  absl::StatusOr<std::string> Read(const std::string& path, uint64_t version = 0,
                                   uint64_t offset = 0, uint32_t bytes = 100) {
    const auto memory = weft::Buffer::Of(*engine_, memory_);
    ReadRequest request;
    ReadReply reply;
    request.set_path(path);
    request.set_version(version);
    request.set_offset(offset);
    request.set_bytes(bytes);
    weft::BulkCall bulk(*channel_);
    bulk.Receive(memory->slice());
    weft::CallOptions call;
    call.bulk = &bulk;
    if (absl::Status status = stub_->Read(request, &reply, call); !status.ok()) return status;
    const auto received = bulk.Received(reply.data());
    if (!received.ok()) return received.status();
    return std::string(reinterpret_cast<const char*>(received->data()), received->size());
  }
  uint64_t Begin(const std::string& path, uint64_t bytes) {
    BeginRequest request;
    BeginReply reply;
    request.set_path(path);
    request.set_mode(0644);
    request.set_bytes(bytes);
    EXPECT_TRUE(stub_->Begin(request, &reply).ok());
    return reply.upload();
  }
  absl::Status WriteChunk(uint64_t upload, uint64_t chunk, size_t bytes) {
    const auto memory = weft::Buffer::Of(*engine_, memory_);
    WriteRequest request;
    WriteReply reply;
    request.set_upload(upload);
    request.set_chunk(chunk);
    weft::BulkCall bulk(*channel_);
    bulk.Send(memory->slice(0, bytes), request.mutable_data());
    weft::CallOptions call;
    call.bulk = &bulk;
    return stub_->Write(request, &reply, call);
  }
  absl::Status Commit(uint64_t upload) {
    CommitRequest request;
    CommitReply reply;
    request.set_upload(upload);
    return stub_->Commit(request, &reply);
  }

  std::vector<std::byte> memory_ = std::vector<std::byte>(kChunkBytes, std::byte{'m'});
  std::unique_ptr<weft::Engine> engine_;
  std::unique_ptr<weft::Channel> channel_;
  std::unique_ptr<FileShare::Stub> stub_;
};

TEST_F(ServiceTest, NothingOutsideOfTheSharedFolderIsRead) {
  EXPECT_EQ(*Read("file"), "0123456789");
  for (const std::string path : {"../secret", "/etc/passwd", "link", "up/secret", "up", "",
                                 "./file", "file/", ".fileshare-uploads/x", ".fileshare-uploads"}) {
    EXPECT_FALSE(Read(path).ok()) << path;
  }
  EXPECT_EQ(Read("link").status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Read("../secret").status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(ServiceTest, NothingOutsideOfTheSharedFolderIsWritten) {
  for (const std::string path : {"../new", "/tmp/new", "up/new", ".fileshare-uploads/new", ""}) {
    PutRequest request;
    PutReply reply;
    request.set_path(path);
    EXPECT_FALSE(stub_->Put(request, &reply).ok()) << path;
    BeginRequest begin;
    BeginReply begun;
    begin.set_path(path);
    EXPECT_FALSE(stub_->Begin(begin, &begun).ok()) << path;
    MakeFolderRequest folder;
    MakeFolderReply made;
    folder.set_path(path);
    EXPECT_FALSE(stub_->MakeFolder(folder, &made).ok()) << path;
  }
  EXPECT_FALSE(fs::exists(base_ / "new"));
}

TEST_F(ServiceTest, PartsOfAFileAreReadWhereTheyAre) {
  EXPECT_EQ(*Read("file", 0, 3, 4), "3456");
  EXPECT_EQ(*Read("file", 0, 8, 100), "89");
  EXPECT_EQ(*Read("file", 0, 10, 100), "");
  EXPECT_FALSE(Read("file", 0, ~uint64_t{0}, 1).ok());
  EXPECT_FALSE(Read("file", 0, 0, kChunkBytes + 1).ok());
}

TEST_F(ServiceTest, AFileThatHasChangedIsNotReadHalfOldHalfNew) {
  StatRequest request;
  StatReply reply;
  request.set_path("file");
  ASSERT_TRUE(stub_->Stat(request, &reply).ok());
  EXPECT_EQ(*Read("file", reply.attributes().version()), "0123456789");
  Write(shared() / "file", "changed");
  EXPECT_EQ(Read("file", reply.attributes().version()).status().code(), absl::StatusCode::kAborted);
}

TEST_F(ServiceTest, AnUploadIsSeenByNobodyUntilItIsCommitted) {
  const uint64_t upload = Begin("new", kChunkBytes + 1);
  EXPECT_TRUE(WriteChunk(upload, 1, 1).ok());
  EXPECT_FALSE(Read("new").ok());
  EXPECT_EQ(Commit(upload).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(WriteChunk(upload, 0, kChunkBytes).ok());
  EXPECT_TRUE(Commit(upload).ok());
  EXPECT_EQ(ContentOf(shared() / "new"), std::string(kChunkBytes + 1, 'm'));
}

TEST_F(ServiceTest, ChunksOfTheWrongLengthAreRefused) {
  const uint64_t upload = Begin("new", kChunkBytes + 1);
  EXPECT_EQ(WriteChunk(upload, 0, 1).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(WriteChunk(upload, 1, 2).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(WriteChunk(upload, 2, 1).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(WriteChunk(upload + 1, 0, 1).code(), absl::StatusCode::kNotFound);
}

// An upload whose client and server are gone leaves a file that nobody sees; the next server
// removes it.
TEST_F(ServiceTest, WhatAKilledServerWasWritingIsGone) {
  const uint64_t upload = Begin("new", kChunkBytes);
  EXPECT_TRUE(WriteChunk(upload, 0, kChunkBytes).ok());
  EXPECT_EQ(Manifest(shared() / ".fileshare-uploads").size(), 1);
  server_->Signal(SIGKILL);
  EXPECT_EQ(server_->Wait(), -SIGKILL);
  EXPECT_FALSE(fs::exists(shared() / "new"));
  StartServer();
  EXPECT_TRUE(fs::is_empty(shared() / ".fileshare-uploads"));
}

// --- what it is compared with -------------------------------------------------------------------

class PlainTcpTest : public SharedFolderTest {};

TEST_F(PlainTcpTest, ATreeGoesInAndOutUnchanged) {
  const fs::path tree = Tree();
  const auto expected = Manifest(tree);
  const ServerProcess server({kPlainTcp, "serve", shared()});
  const std::string& port = server.address();
  EXPECT_EQ(examples::RunToEnd({kPlainTcp, "put", port, tree}).status, 0);
  EXPECT_EQ(Manifest(shared()), expected);
  EXPECT_EQ(examples::RunToEnd({kPlainTcp, "get", port, base_ / "local", "2"}).status, 0);
  EXPECT_EQ(Manifest(base_ / "local"), expected);
}

TEST(CommandLineTest, WhatIsWrongIsSaidSo) {
  EXPECT_EQ(examples::RunToEnd({kServer}).status, 2);
  EXPECT_EQ(examples::RunToEnd({kServer, "--root=/nonexistent"}).status, 1);
  EXPECT_EQ(examples::RunToEnd({kClient, "--server=127.0.0.1:1"}).status, 2);
  EXPECT_EQ(examples::RunToEnd({kClient, "--server=127.0.0.1:1", "cp", "a", "b"}).status, 2);
  EXPECT_EQ(examples::RunToEnd({kClient, "--server=127.0.0.1:1", "ls"}).status, 1);
  EXPECT_EQ(examples::RunToEnd({kPlainTcp}).status, 2);
}

}  // namespace
}  // namespace fileshare
