#include "embed/rocksdb/file_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <fstream>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "embed/rocksdb/file_limits.h"
#include "embed/rocksdb/testing/file_server.h"
#include "weft/bulk.h"
#include "weft/channel.h"
#include "weft/memory.h"
#include "weft/remote_memory.h"
#include "weft/stream.h"

namespace weft::embed {
namespace {

// What the medium does in this program: fdatasync(2) below.
std::atomic<int> medium_error{0};         // what each sync fails with; 0: none
std::atomic<int> syncs{0};                // how many have begun
std::atomic<int64_t> bytes_at_last_sync;  // of its file, when it began

}  // namespace
}  // namespace weft::embed

// Instead of libc's, for the server, which runs in this program.
extern "C" int fdatasync(int file) {
  using namespace weft::embed;
  ++syncs;
  struct stat facts = {};
  if (::fstat(file, &facts) == 0) bytes_at_last_sync = facts.st_size;
  if (const int error = medium_error; error != 0) {
    errno = error;
    return -1;
  }
  return static_cast<int>(::syscall(SYS_fdatasync, file));
}

namespace weft::embed {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr CallOptions kPatient = {.timeout_us = 60'000'000};
constexpr uint64_t kNeverOver = 3'600'000'000;

// One connection, by the protocol itself: what the file client never sends, too.
class Client {
 public:
  explicit Client(const std::string& address)
      : channel_(*Channel::Open(address)), stub_(*channel_) {}

  void BeginToAttach(char id, const std::vector<wire::HeldLock>& locks = {}) {
    wire::AttachRequest request;
    request.set_client(std::string(kFileClientIdBytes, id));
    for (const wire::HeldLock& lock : locks) *request.add_locks() = lock;
    stream_ = std::make_unique<ClientReader<wire::AttachReply>>(stub_.Attach(request));
  }
  bool IsAttached() { return stream_->Read(&told_); }
  bool Attach(char id, const std::vector<wire::HeldLock>& locks = {}) {
    BeginToAttach(id, locks);
    return IsAttached();
  }
  // How the session has ended.
  absl::Status End() {
    wire::AttachReply none;
    while (stream_->Read(&none)) {
    }
    return stream_->Finish();
  }
  std::vector<std::string> lost() const {
    return {told_.lost_locks().begin(), told_.lost_locks().end()};
  }
  uint64_t session() const { return told_.session(); }

  absl::StatusOr<uint64_t> Open(const std::string& name, wire::OpenRequest::Mode mode) {
    wire::OpenRequest request;
    request.set_session(session());
    request.set_name(name);
    request.set_mode(mode);
    wire::OpenReply reply;
    const absl::Status status = stub_.Open(request, &reply, kPatient);
    if (!status.ok()) return status;
    return reply.handle();
  }
  absl::Status Close(uint64_t handle) {
    wire::CloseReply reply;
    return stub_.Close(Of<wire::CloseRequest>(handle), &reply, kPatient);
  }
  absl::Status Sync(uint64_t handle) {
    wire::SyncReply reply;
    return stub_.Sync(Of<wire::SyncRequest>(handle), &reply, kPatient);
  }
  absl::Status Append(uint64_t handle, uint64_t offset, const std::string& data,
                      bool durable = false) {
    auto request = Of<wire::AppendRequest>(handle);
    request.set_offset(offset);
    request.set_inline_data(data);
    request.set_durable(durable);
    wire::AppendReply reply;
    return stub_.Append(request, &reply, kPatient);
  }
  // The call lends `bytes`, and says that it lends `claimed`.
  absl::Status AppendLent(uint64_t handle, size_t bytes, uint64_t claimed, bool durable = false) {
    const auto buffer = *channel_->AllocateBuffer(bytes);
    BulkCall bulk(*channel_);
    auto request = Of<wire::AppendRequest>(handle);
    request.set_durable(durable);
    bulk.Send(buffer->slice(), request.mutable_lent_data());
    request.mutable_lent_data()->set_length(claimed);
    CallOptions options = kPatient;
    options.bulk = &bulk;
    wire::AppendReply reply;
    return stub_.Append(request, &reply, options);
  }
  absl::StatusOr<std::string> Read(uint64_t handle, uint64_t offset, uint32_t bytes) {
    auto request = Of<wire::ReadRequest>(handle);
    request.set_offset(offset);
    request.set_bytes(bytes);
    wire::ReadReply reply;
    const absl::Status status = stub_.Read(request, &reply, kPatient);
    if (!status.ok()) return status;
    return reply.inline_data();
  }
  absl::StatusOr<RemoteRegion> Lend(uint64_t handle) {
    wire::LendReply reply;
    const absl::Status status = stub_.Lend(Of<wire::LendRequest>(handle), &reply, kPatient);
    if (!status.ok()) return status;
    return reply.file();
  }
  absl::Status Change(int kind, const std::string& name, const std::string& to = "") {
    wire::ChangeRequest request;
    request.set_session(session());
    request.set_kind(static_cast<wire::ChangeRequest::Kind>(kind));
    request.set_name(name);
    request.set_to(to);
    wire::ChangeReply reply;
    return stub_.Change(request, &reply, kPatient);
  }
  absl::StatusOr<wire::HeldLock> Lock(const std::string& name) {
    wire::LockRequest request;
    request.set_session(session());
    request.set_name(name);
    wire::LockReply reply;
    const absl::Status status = stub_.Lock(request, &reply, kPatient);
    if (!status.ok()) return status;
    wire::HeldLock held;
    held.set_name(name);
    held.set_generation(reply.generation());
    return held;
  }
  // Asks for all before one is answered; how many it got.
  size_t LockAtOnce(const std::vector<std::string>& names) {
    std::vector<wire::LockReply> replies(names.size());
    size_t ended = 0;
    size_t given = 0;
    for (size_t i = 0; i < names.size(); ++i) {
      wire::LockRequest request;
      request.set_session(session());
      request.set_name(names[i]);
      stub_.Lock(request, &replies[i], kPatient, [&](const absl::Status& status) {
        if (status.ok()) ++given;
        ++ended;
      });
    }
    channel_->engine().RunUntil([&] { return ended == names.size(); });
    return given;
  }
  absl::Status Unlock(const std::string& name) {
    wire::UnlockRequest request;
    request.set_session(session());
    request.set_name(name);
    wire::UnlockReply reply;
    return stub_.Unlock(request, &reply, kPatient);
  }
  Channel& channel() { return *channel_; }

 private:
  // Of one of the session's files.
  template <class Request>
  Request Of(uint64_t handle) const {
    Request request;
    request.set_session(session());
    request.set_handle(handle);
    return request;
  }

  const std::unique_ptr<Channel> channel_;
  const wire::Files::Stub stub_;
  wire::AttachReply told_;
  std::unique_ptr<ClientReader<wire::AttachReply>> stream_;
};

class FileServiceTest : public testing::Test {
 protected:
  FileServiceTest() : files_("file_service_test") { Restart(0); }
  void Restart(uint64_t lock_grace_us) {
    server_.reset();
    FileServer::Options options;
    options.lock_grace_us = lock_grace_us;
    server_ = std::make_unique<FileServer>(files_.path(), options);
  }
  std::unique_ptr<Client> Attached(char id, const std::vector<wire::HeldLock>& locks = {}) {
    auto client = std::make_unique<Client>(server_->address());
    EXPECT_TRUE(client->Attach(id, locks)) << client->End();
    return client;
  }

  TestFolder files_;
  std::unique_ptr<FileServer> server_;
};

TEST_F(FileServiceTest, NothingIsDoneWithoutASession) {
  files_.Put("file", "text");
  Client client(server_->address());
  EXPECT_TRUE(absl::IsAborted(client.Open("file", wire::OpenRequest::READ).status()));
  EXPECT_TRUE(absl::IsAborted(client.Change(wire::ChangeRequest::REMOVE, "file")));
  EXPECT_TRUE(absl::IsAborted(client.Lock("LOCK").status()));
  EXPECT_EQ(files_.Content("file"), "text");
}

TEST_F(FileServiceTest, TheSameAppendAgainDoublesNothing) {
  const auto client = Attached('a');
  const uint64_t handle = *client->Open("log", wire::OpenRequest::WRITE_NEW);
  EXPECT_TRUE(client->Append(handle, 0, "one").ok());
  EXPECT_TRUE(client->Append(handle, 3, "two").ok());
  EXPECT_TRUE(client->Append(handle, 3, "two").ok());
  EXPECT_EQ(files_.Content("log"), "onetwo");
  EXPECT_TRUE(absl::IsDataLoss(client->Append(handle, 7, "x"))) << "a hole";
  EXPECT_EQ(files_.Content("log"), "onetwo");
}

// What a database has been told is synced, it never writes again. So the answer is what the medium
// has said, and cannot have left before.
TEST_F(FileServiceTest, TheAnswerToASyncIsTheMediums) {
  enum class Way { kSync, kDurableAppend, kDurableLentAppend };
  constexpr size_t kLentBytes = 100'000;
  const auto synced = [](Client& client, uint64_t handle, Way way) {
    switch (way) {
      case Way::kSync: {
        const absl::Status appended = client.Append(handle, 0, "log");
        return appended.ok() ? client.Sync(handle) : appended;
      }
      case Way::kDurableAppend:
        return client.Append(handle, 0, "log", /*durable=*/true);
      case Way::kDurableLentAppend:
        return client.AppendLent(handle, kLentBytes, kLentBytes, /*durable=*/true);
    }
    return absl::UnknownError("no such way");
  };
  for (const Way way : {Way::kSync, Way::kDurableAppend, Way::kDurableLentAppend}) {
    SCOPED_TRACE(static_cast<int>(way));
    const int64_t bytes = way == Way::kDurableLentAppend ? int64_t{kLentBytes} : 3;
    // After an error of the medium sessions of before are over.
    const auto client = Attached('a');
    const uint64_t handle = *client->Open("log", wire::OpenRequest::WRITE_NEW);
    const int before = syncs;
    const absl::Status well = synced(*client, handle, way);
    EXPECT_TRUE(well.ok()) << well;
    EXPECT_EQ(syncs, before + 1);
    EXPECT_EQ(bytes_at_last_sync, bytes) << "what was appended is written before it is synced";
    medium_error = EIO;
    const absl::Status failed = synced(*client, handle, way);
    medium_error = 0;
    EXPECT_TRUE(absl::IsDataLoss(failed)) << failed;
    EXPECT_EQ(syncs, before + 2);
  }
}

TEST_F(FileServiceTest, AnAppendThatNeedNotBeDurableWaitsForNoMedium) {
  const auto client = Attached('a');
  const uint64_t handle = *client->Open("log", wire::OpenRequest::WRITE_NEW);
  const int before = syncs;
  medium_error = EIO;
  EXPECT_TRUE(client->Append(handle, 0, "log").ok());
  medium_error = 0;
  EXPECT_EQ(syncs, before);
}

TEST_F(FileServiceTest, HandlesEndWithTheirSession) {
  const auto client = Attached('a');
  const uint64_t handle = *client->Open("log", wire::OpenRequest::WRITE_NEW);
  const uint64_t earlier = client->session();
  const auto again = Attached('a');
  EXPECT_TRUE(absl::IsAborted(client->End()));
  EXPECT_NE(again->session(), earlier);
  EXPECT_TRUE(absl::IsAborted(client->Append(handle, 0, "late")));
  EXPECT_TRUE(absl::IsNotFound(again->Append(handle, 0, "with the handle of another session")));
  EXPECT_EQ(files_.Content("log"), "");
}

TEST_F(FileServiceTest, WhatMakesNoSenseIsRefused) {
  files_.Put("file", "text");
  const auto client = Attached('a');
  for (const int mode : {0, 4, 77}) {
    const auto opened = client->Open("new", static_cast<wire::OpenRequest::Mode>(mode));
    EXPECT_TRUE(absl::IsInvalidArgument(opened.status())) << opened.status();
  }
  EXPECT_TRUE(
      absl::IsInvalidArgument(client->Open("../secret", wire::OpenRequest::WRITE_NEW).status()));
  const uint64_t reads = *client->Open("file", wire::OpenRequest::READ);
  EXPECT_TRUE(absl::IsInvalidArgument(client->Append(reads, 0, "x"))) << "open for reading";
  EXPECT_TRUE(absl::IsNotFound(client->Read(reads + 1, 0, 1).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(client->Read(reads, 0, kMaxFilePayloadBytes + 1).status()));
  EXPECT_FALSE(client->Read(reads, 0, kMaxInlineFileBytes + 1).ok()) << "and nothing lent";
  EXPECT_EQ(*client->Read(reads, ~uint64_t{0}, 10), "") << "beyond what a file may have";
  const uint64_t writes = *client->Open("new", wire::OpenRequest::WRITE_NEW);
  EXPECT_TRUE(absl::IsInvalidArgument(client->Append(writes, ~uint64_t{0}, "x")));
  EXPECT_TRUE(absl::IsInvalidArgument(
      client->Append(writes, 0, std::string(kMaxInlineFileBytes + 1, 'x'))));
  EXPECT_TRUE(absl::IsInvalidArgument(client->AppendLent(writes, 4096, kMaxFilePayloadBytes + 1)));
  EXPECT_FALSE(client->AppendLent(writes, 4096, 8192).ok()) << "more than is lent";
  EXPECT_TRUE(absl::IsInvalidArgument(client->Change(77, "file")));
  EXPECT_EQ(files_.Content("new"), "");
  EXPECT_EQ(files_.Content("file"), "text");
}

TEST_F(FileServiceTest, ASessionHasSoManyFilesAndNoMore) {
  rlimit limit = {};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  limit.rlim_cur = limit.rlim_max;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  if (limit.rlim_max < 2 * kMaxOpenFiles) GTEST_SKIP() << "the system has too few descriptors";
  Restart(0);  // it looks at the limit when it begins
  files_.Put("file", "text");
  const auto client = Attached('a');
  for (uint32_t i = 0; i < kMaxOpenFiles; ++i) {
    const auto opened = client->Open("file", wire::OpenRequest::READ);
    ASSERT_TRUE(opened.ok()) << opened.status() << " " << i;
  }
  const auto beyond = client->Open("file", wire::OpenRequest::READ);
  EXPECT_TRUE(absl::IsResourceExhausted(beyond.status())) << beyond.status();
  EXPECT_TRUE(client->Close(1).ok());
  EXPECT_TRUE(client->Open("file", wire::OpenRequest::READ).ok());
}

// Some sessions with all the files that one may have took the last descriptor of the process, and
// nobody could connect any more. What is being closed counts: it was closed behind all that others
// had asked for.
TEST_F(FileServiceTest, AllSessionsTogetherLeaveDescriptorsForOthers) {
  server_.reset();
  FileServer::Options options;
  options.max_open_files = 8;
  server_ = std::make_unique<FileServer>(files_.path(), options);
  files_.Put("file", "text");
  const auto one = Attached('a');
  const auto other = Attached('b');
  uint64_t handle = 0;
  for (int i = 0; i < 7; ++i) {  // both come from one host, which leaves an eighth to others
    const auto opened = (i % 2 == 0 ? one : other)->Open("file", wire::OpenRequest::READ);
    ASSERT_TRUE(opened.ok()) << opened.status();
    if (i == 0) handle = *opened;
  }
  EXPECT_TRUE(absl::IsResourceExhausted(one->Open("file", wire::OpenRequest::READ).status()));
  EXPECT_TRUE(absl::IsResourceExhausted(other->Open("file", wire::OpenRequest::READ).status()));
  EXPECT_TRUE(other->Lock("LOCK").ok());
  EXPECT_TRUE(Attached('c')->Change(wire::ChangeRequest::SYNC_FOLDER, "").ok());
  ASSERT_TRUE(one->Close(handle).ok());
  auto again = other->Open("file", wire::OpenRequest::READ);
  while (absl::IsResourceExhausted(again.status())) {  // until it is closed
    again = other->Open("file", wire::OpenRequest::READ);
  }
  EXPECT_TRUE(again.ok()) << again.status();
}

// --- locks ---------------------------------------------------------------------------------------

// Those on their way did not count: a client that asked for many at once had 100 and more, and
// could not attach again, for it named too many.
TEST_F(FileServiceTest, ASessionHasSoManyLocksThoughItAsksForAllAtOnce) {
  std::vector<std::string> names;
  for (uint32_t i = 0; i < 3 * kMaxLocks; ++i) names.push_back("LOCK" + std::to_string(i));
  const auto client = Attached('a');
  EXPECT_EQ(client->LockAtOnce(names), kMaxLocks);
  EXPECT_TRUE(absl::IsResourceExhausted(client->Lock("another").status()));
}

TEST_F(FileServiceTest, ALockIsOneClients) {
  const auto one = Attached('a');
  const auto other = Attached('b');
  EXPECT_TRUE(one->Lock("LOCK").ok());
  const auto refused = other->Lock("LOCK");
  EXPECT_TRUE(absl::IsFailedPrecondition(refused.status())) << refused.status();
  EXPECT_TRUE(absl::IsFailedPrecondition(one->Lock("LOCK").status())) << "its own, again";
  EXPECT_TRUE(one->Unlock("LOCK").ok());
  EXPECT_TRUE(other->Lock("LOCK").ok());
}

// Locks of many sessions were in no account: they took the last descriptor of the process.
TEST_F(FileServiceTest, LocksOfAllSessionsTogetherLeaveSomeToOtherClients) {
  server_.reset();
  FileServer::Options options;
  options.max_open_files = 8;  // and kMaxLocks locks
  server_ = std::make_unique<FileServer>(files_.path(), options);
  const auto one = Attached('a');
  const auto other = Attached('b');
  for (uint32_t i = 0; i < kMaxLocks - kMaxLocks / 8; ++i) {
    const auto locked = (i % 2 == 0 ? one : other)->Lock("lock" + std::to_string(i));
    ASSERT_TRUE(locked.ok()) << locked.status();
  }
  const auto refused = other->Lock("another");
  EXPECT_TRUE(absl::IsResourceExhausted(refused.status())) << refused.status();
  EXPECT_TRUE(one->Unlock("lock0").ok());
  auto again = other->Lock("another");
  while (absl::IsResourceExhausted(again.status())) again = other->Lock("another");
  EXPECT_TRUE(again.ok()) << again.status();
}

// The record of a lock was written into any file that a client named as one.
TEST_F(FileServiceTest, AFileThatHasMoreThanALocksRecordIsNoLock) {
  const std::string table(100, 'A');
  files_.Put("table", table);
  const auto client = Attached('a');
  const auto refused = client->Lock("table");
  EXPECT_TRUE(absl::IsFailedPrecondition(refused.status())) << refused.status();
  std::string read;
  std::getline(std::ifstream(files_.path() + "/table"), read);
  EXPECT_EQ(read, table);
}

TEST_F(FileServiceTest, ALockEndsWithItsConnection) {
  auto one = Attached('a');
  EXPECT_TRUE(one->Lock("LOCK").ok());
  one.reset();
  const auto other = Attached('b');
  absl::StatusOr<wire::HeldLock> lock = other->Lock("LOCK");
  // The server has to notice.
  while (absl::IsFailedPrecondition(lock.status())) lock = other->Lock("LOCK");
  EXPECT_TRUE(lock.ok()) << lock.status();
}

TEST_F(FileServiceTest, AClientThatComesBackHasItsLockAgain) {
  auto one = Attached('a');
  const wire::HeldLock lock = *one->Lock("LOCK");
  one = Attached('a', {lock});
  EXPECT_THAT(one->lost(), IsEmpty());
  EXPECT_TRUE(absl::IsFailedPrecondition(Attached('b')->Lock("LOCK").status()));
  EXPECT_TRUE(one->Open("file", wire::OpenRequest::WRITE_NEW).ok());
}

TEST_F(FileServiceTest, ALateWriterIsFenced) {
  auto late = Attached('a');
  const uint64_t handle = *late->Open("log", wire::OpenRequest::WRITE_NEW);
  const wire::HeldLock lock = *late->Lock("LOCK");
  // Its session ends, as by a loss of the connection, and somebody else has the lock for a while.
  late->BeginToAttach('a');
  ASSERT_TRUE(late->IsAttached());
  const auto other = Attached('b');
  ASSERT_TRUE(other->Lock("LOCK").ok());
  ASSERT_TRUE(other->Unlock("LOCK").ok());

  EXPECT_TRUE(absl::IsNotFound(late->Append(handle, 0, "late")));
  ASSERT_TRUE(late->Attach('a', {lock}));
  EXPECT_THAT(late->lost(), ElementsAre("LOCK"));
  const auto opened = late->Open("log", wire::OpenRequest::WRITE_EXISTING);
  EXPECT_TRUE(absl::IsFailedPrecondition(opened.status())) << opened.status();
  EXPECT_THAT(opened.status().ToString(), HasSubstr("has lost its lock"));
  EXPECT_TRUE(absl::IsFailedPrecondition(late->Change(wire::ChangeRequest::REMOVE, "log")));
  EXPECT_TRUE(late->Open("log", wire::OpenRequest::READ).ok());
  EXPECT_EQ(files_.Content("log"), "");
  EXPECT_TRUE(late->Unlock("LOCK").ok()) << "it knows now";
  EXPECT_TRUE(late->Lock("LOCK").ok());
  EXPECT_TRUE(late->Open("log", wire::OpenRequest::WRITE_EXISTING).ok());
}

TEST_F(FileServiceTest, ARestartedServerKeepsLocksForTheirClients) {
  auto one = Attached('a');
  const wire::HeldLock lock = *one->Lock("LOCK");
  ASSERT_TRUE(one->Lock("OTHER").ok());
  ASSERT_TRUE(one->Unlock("OTHER").ok());
  one.reset();
  Restart(kNeverOver);
  const auto other = Attached('b');
  const auto refused = other->Lock("LOCK");
  EXPECT_TRUE(absl::IsResourceExhausted(refused.status())) << refused.status();
  EXPECT_TRUE(other->Lock("OTHER").ok()) << "nobody had it";
  wire::HeldLock guessed = lock;
  guessed.set_generation(lock.generation() + 1);
  EXPECT_THAT(Attached('c', {guessed})->lost(), ElementsAre("LOCK"));
  const auto back = Attached('a', {lock});
  EXPECT_THAT(back->lost(), IsEmpty());
  EXPECT_TRUE(absl::IsFailedPrecondition(other->Lock("LOCK").status()));
}

TEST_F(FileServiceTest, AfterTheGraceTheLockIsForAll) {
  auto one = Attached('a');
  const wire::HeldLock lock = *one->Lock("LOCK");
  one.reset();
  Restart(0);
  EXPECT_TRUE(Attached('b')->Lock("LOCK").ok());
  EXPECT_THAT(Attached('a', {lock})->lost(), ElementsAre("LOCK"));
}

// --- files in memory -----------------------------------------------------------------------------

class Reader {
 public:
  Reader(Client& client, const RemoteRegion& region)
      : buffer_(*client.channel().AllocateBuffer(4096)),
        memory_(*RemoteMemory::Open(client.channel(), region)) {}
  absl::StatusOr<std::string> Read(uint64_t offset, size_t bytes) {
    const absl::Status status = memory_->Read(offset, buffer_->slice(0, bytes));
    if (!status.ok()) return status;
    return std::string(reinterpret_cast<const char*>(buffer_->bytes().data()), bytes);
  }
  uint64_t size() const { return memory_->size(); }

 private:
  const std::unique_ptr<Buffer> buffer_;
  const std::unique_ptr<RemoteMemory> memory_;
};

TEST_F(FileServiceTest, AFileIsReadOutOfTheServersMemory) {
  files_.Put("table", "the whole table");
  const auto client = Attached('a');
  const uint64_t handle = *client->Open("table", wire::OpenRequest::READ);
  const auto region = client->Lend(handle);
  ASSERT_TRUE(region.ok()) << region.status();
  Reader reader(*client, *region);
  EXPECT_EQ(reader.size(), 15u);
  EXPECT_EQ(*reader.Read(4, 5), "whole");
  EXPECT_TRUE(absl::IsInvalidArgument(reader.Read(10, 6).status()));
}

TEST_F(FileServiceTest, AFileThatChangesIsNotReadOutOfMemoryAnyMore) {
  files_.Put("table", "the first table");
  const auto client = Attached('a');
  const uint64_t handle = *client->Open("table", wire::OpenRequest::READ);
  Reader reader(*client, *client->Lend(handle));
  EXPECT_EQ(*reader.Read(4, 5), "first");
  const uint64_t writes = *client->Open("table", wire::OpenRequest::WRITE_NEW);
  EXPECT_FALSE(reader.Read(4, 5).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(client->Lend(handle).status())) << "it is being written";
  ASSERT_TRUE(client->Append(writes, 0, "the other table").ok());
  ASSERT_TRUE(client->Close(writes).ok());
  const uint64_t again = *client->Open("table", wire::OpenRequest::READ);
  absl::StatusOr<RemoteRegion> region = client->Lend(again);
  // The handle is closed a moment after its answer.
  while (absl::IsInvalidArgument(region.status())) region = client->Lend(again);
  ASSERT_TRUE(region.ok()) << region.status();
  EXPECT_EQ(*Reader(*client, *region).Read(4, 5), "other");
}

TEST_F(FileServiceTest, MemoryForFilesHasABound) {
  files_.Put("one", std::string(40 << 20, '1'));
  files_.Put("two", std::string(40 << 20, '2'));
  files_.Put("huge", "");
  std::filesystem::resize_file(files_.file("huge"), 65 << 20);
  const auto client = Attached('a');
  const uint64_t one = *client->Open("one", wire::OpenRequest::READ);
  const uint64_t two = *client->Open("two", wire::OpenRequest::READ);
  const uint64_t huge = *client->Open("huge", wire::OpenRequest::READ);
  EXPECT_TRUE(absl::IsInvalidArgument(client->Lend(huge).status()));
  ASSERT_TRUE(client->Lend(one).ok());
  EXPECT_EQ(server_->lent().bytes(), 40u << 20);
  EXPECT_TRUE(absl::IsResourceExhausted(client->Lend(two).status()));
  ASSERT_TRUE(client->Close(one).ok());
  EXPECT_TRUE(client->Lend(two).ok()) << "nobody reads the first one any more";
  EXPECT_EQ(server_->lent().bytes(), 40u << 20);
}

}  // namespace
}  // namespace weft::embed
