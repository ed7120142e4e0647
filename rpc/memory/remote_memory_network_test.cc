// Remote memory between real engines, over every path of this machine.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <fstream>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/clock.h"
#include "core/log.h"
#include "rpc/memory/remote_array.h"
#include "rpc/operation/on_engine.h"
#include "rpc/server/exported_memory.h"
#include "rpc/server/server.h"
#include "rpc/testing/probe_service.h"
#include "rpc/testing/records.weft.h"
#include "transport/memory_file.h"
#include "transport/network.h"

namespace weft::test {
namespace {

constexpr size_t kBytes = size_t{1} << 20;

// Echo answers the 8 bytes at the request's number in the server's memory.
class MemoryService final : public ProbeService {
 public:
  absl::Status Echo(ServerContext&, const Data& request, Data* reply) override {
    reply->set_number(LoadLe64(memory.data() + request.number()));
    return absl::OkStatus();
  }
  std::vector<std::byte> memory = std::vector<std::byte>(kBytes);
};

// One server with a thread of its own; channels over the path that the parameter names.
class RemoteMemoryNetworkTest : public testing::TestWithParam<PathKind> {
 protected:
  void SetUp() override {
    server_ = *Server::Create();
    ASSERT_TRUE(server_->AddService(&service_).ok());
    const absl::Status listening = server_->Listen("127.0.0.1:0");
    ASSERT_TRUE(listening.ok()) << listening;
    auto exported = server_->Export(service_.memory, {.rights = kAllRights});
    ASSERT_TRUE(exported.ok()) << exported.status();
    exported_ = *std::move(exported);
    channel_ = OpenChannel();
    memory_ = OpenMemory(*channel_);
    buffer_ = *channel_->AllocateBuffer(kBytes);
  }

  ChannelOptions Options() {
    ChannelOptions options;
    options.link.paths = {GetParam()};
    return options;
  }
  std::unique_ptr<Channel> OpenChannel() {
    auto channel = Channel::Open(server_->address(), Options());
    EXPECT_TRUE(channel.ok()) << channel.status();
    return *std::move(channel);
  }
  std::unique_ptr<RemoteMemory> OpenMemory(Channel& channel) {
    auto memory = RemoteMemory::Open(channel, exported_->handle());
    EXPECT_TRUE(memory.ok()) << memory.status();
    return *std::move(memory);
  }

  // What the server's thread did comes before what this one does next, and the other way round: a
  // transfer itself orders nothing between the threads of one process.
  void MeetServer() { (void)exported_->leases(); }

  void Fill(uint64_t seed) {
    for (size_t i = 0; i < kBytes; i += 8) {
      StoreLe64(buffer_->bytes().data() + i, (seed + i) * 0x9E3779B97F4A7C15);
    }
  }

  MemoryService service_;
  std::unique_ptr<Server> server_;
  std::unique_ptr<ExportedMemory> exported_;
  std::unique_ptr<Channel> channel_;
  std::unique_ptr<Buffer> buffer_;
  std::unique_ptr<RemoteMemory> memory_;
};

TEST_P(RemoteMemoryNetworkTest, BytesOfEverySizeMoveBothWays) {
  Fill(1);
  for (size_t bytes = 1; bytes <= kBytes; bytes = bytes * 3 + 1) {
    const size_t offset = kBytes - bytes;
    ASSERT_EQ(memory_->Write(offset, buffer_->slice(0, bytes)), absl::OkStatus());
    auto read = *channel_->AllocateBuffer(bytes);
    // An atomic's end proves that the write has arrived.
    ASSERT_TRUE(memory_->FetchAdd(0, 0).ok());
    ASSERT_EQ(memory_->Read(offset, read->slice()), absl::OkStatus());
    ASSERT_EQ(std::memcmp(read->bytes().data(), buffer_->bytes().data(), bytes), 0) << bytes;
    MeetServer();
    ASSERT_EQ(std::memcmp(service_.memory.data() + offset, buffer_->bytes().data(), bytes), 0);
  }
}

// The write's end is not awaited, nor is there any other: the handler must find all of it.
TEST_P(RemoteMemoryNetworkTest, ACallFindsWhatWasWrittenBeforeIt) {
  Probe::Stub stub(*channel_);
  int ended = 0;
  for (uint64_t round = 1; round <= 200; ++round) {
    Fill(round);
    const size_t last = (round * 4096) % kBytes;
    memory_->Write(0, buffer_->slice(), [&](const absl::Status& status) {
      EXPECT_TRUE(status.ok()) << status;
      ++ended;
    });
    Data request, reply;
    request.set_number(last);
    const absl::Status called = stub.Echo(request, &reply);
    ASSERT_TRUE(called.ok()) << called;
    ASSERT_EQ(reply.number(), LoadLe64(buffer_->bytes().data() + last)) << round;
    while (ended < static_cast<int>(round)) ASSERT_TRUE(stub.Echo(request, &reply).ok());
  }
}

// Nothing moves unless this thread drives the engine: the call is posted before much has left.
TEST_P(RemoteMemoryNetworkTest, ACallPassesAnUnorderedWrite) {
  if (GetParam() != PathKind::kTcp) GTEST_SKIP() << "elsewhere writes keep their order";
  constexpr size_t kLarge = size_t{32} << 20;  // more than sockets hold
  std::vector<std::byte> large(kLarge);
  auto exported = *server_->Export(large, {.rights = kAllRights});
  auto memory = *RemoteMemory::Open(*channel_, exported->handle());
  auto local = *channel_->AllocateBuffer(kLarge);
  Probe::Stub stub(*channel_);
  Data request, reply;
  request.set_number(0);
  for (const bool ordered : {true, false}) {
    bool ended = false;
    const auto done = [&](const absl::Status& status) {
      EXPECT_TRUE(status.ok()) << status;
      ended = true;
    };
    const RemotePiece piece{0, local->slice()};
    if (ordered) {
      memory->WriteBatch({&piece, 1}, done);
    } else {
      memory->WriteUnordered({&piece, 1}, done);
    }
    ASSERT_TRUE(stub.Echo(request, &reply).ok());
    EXPECT_EQ(ended, ordered);
    while (!ended) ASSERT_TRUE(stub.Echo(request, &reply).ok());
  }
}

TEST_P(RemoteMemoryNetworkTest, BatchesMoveManyPieces) {
  Fill(7);
  std::vector<RemotePiece> pieces;
  for (size_t i = 0; i < kMaxBatchTransfers; ++i) {
    pieces.push_back({(kMaxBatchTransfers - 1 - i) * 1000, buffer_->slice(i * 1000, 1000)});
  }
  ASSERT_EQ(memory_->WriteBatch(pieces), absl::OkStatus());
  ASSERT_TRUE(memory_->FetchAdd(kBytes - 8, 0).ok());
  MeetServer();
  for (const RemotePiece& piece : pieces) {
    ASSERT_EQ(std::memcmp(service_.memory.data() + piece.offset, piece.local.bytes().data(), 1000),
              0);
  }
  auto read = *channel_->AllocateBuffer(kMaxBatchTransfers * 1000);
  for (size_t i = 0; i < pieces.size(); ++i) pieces[i].local = read->slice(i * 1000, 1000);
  ASSERT_EQ(memory_->ReadBatch(pieces), absl::OkStatus());
  EXPECT_EQ(std::memcmp(read->bytes().data(), buffer_->bytes().data(), read->bytes().size()), 0);
}

// 64 reads under way all the time, for a while.
TEST_P(RemoteMemoryNetworkTest, CallbacksKeepManyUnderWay) {
  constexpr uint64_t kReads = 20'000;
  for (size_t i = 0; i < kBytes; i += 64) StoreLe64(service_.memory.data() + i, i);
  MeetServer();
  uint64_t started = 0, ended = 0;
  Waiter all;
  std::function<void(size_t)> next = [&](size_t lane) {
    const uint64_t offset = started++ * 64 % kBytes;
    memory_->Read(offset, buffer_->slice(lane * 64, 64),
                  [&, lane, offset](const absl::Status& status) {
                    EXPECT_TRUE(status.ok()) << status;
                    EXPECT_EQ(LoadLe64(buffer_->bytes().data() + lane * 64), offset);
                    if (++ended == kReads) CoreOf(channel_->engine()).Finish(all);
                    if (started < kReads) next(lane);
                  });
  };
  ASSERT_TRUE(CoreOf(channel_->engine()).Enter());
  for (size_t lane = 0; lane < 64; ++lane) next(lane);
  EXPECT_TRUE(CoreOf(channel_->engine()).Wait(all));
  CoreOf(channel_->engine()).Leave();
}

TEST_P(RemoteMemoryNetworkTest, AtomicsOfSeveralThreadsAndChannelsAddUp) {
  constexpr int kThreads = 3;
  constexpr int kAdds = 300;
  auto other = OpenChannel();
  auto other_memory = OpenMemory(*other);
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      RemoteMemory& memory = t == 0 ? *other_memory : *memory_;
      for (int i = 0; i < kAdds; ++i) {
        const auto before = memory.FetchAdd(64, 1);
        ASSERT_TRUE(before.ok()) << before.status();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(*memory_->FetchAdd(64, 0), uint64_t{kThreads} * kAdds);
  other_memory.reset();
}

// On an engine with a thread of its own: every operation is handed over.
TEST_P(RemoteMemoryNetworkTest, ThreadsUseAnEngineThatDrivesItself) {
  auto engine = *OpenNetworkEngine({});
  auto channel = *Channel::Open(*engine, server_->address(), Options());
  auto memory = OpenMemory(*channel);
  Probe::Stub stub(*channel);
  std::atomic<int> ended{0};
  std::vector<std::thread> threads;
  threads.reserve(3);
  for (uint64_t t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      auto buffer = *channel->AllocateBuffer(4096);
      for (uint64_t i = 1; i <= 200; ++i) {
        StoreLe64(buffer->bytes().data(), i);
        Waiter written;
        memory->Write(t * 64, buffer->slice(0, 8), [&](const absl::Status& status) {
          EXPECT_TRUE(status.ok()) << status;
          ++ended;
          CoreOf(*engine).Finish(written);
        });
        Data request, reply;
        request.set_number(t * 64);
        ASSERT_TRUE(stub.Echo(request, &reply).ok());
        ASSERT_EQ(reply.number(), i);
        CoreOf(*engine).Wait(written);
        ASSERT_EQ(memory->Read(t * 64, buffer->slice(64, 8)), absl::OkStatus());
        ASSERT_EQ(LoadLe64(buffer->bytes().data() + 64), i);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(ended, 600);
  memory.reset();
}

#if !defined(__SANITIZE_THREAD__)  // which sees the race that this is about, in the provider
// A writer that never pauses, and a reader who must never see two of its states at once.
TEST_P(RemoteMemoryNetworkTest, TornRecordsAreNeverReturned) {
  std::vector<SnapshotLayout> records(4);
  auto exported = *server_->Export(BytesOf(records), ExportAs<SnapshotLayout>(kMayRead));
  auto array = *RemoteArray<SnapshotLayout>::Open(*channel_, exported->handle());
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> rounds{0};
  std::thread writer([&] {
    for (uint64_t number = 1; !stop; ++number) {
      for (SnapshotLayout& record : records) {
        RecordWriter<SnapshotLayout> change(record);
        change->numbers.fill(number);
      }
      rounds = number;
    }
  });
  uint64_t aborted = 0;
  const uint64_t indices[] = {0, 1, 2, 3};
  uint64_t last[4] = {};
  for (int i = 0; i < 2000; ++i) {
    SnapshotLayout read[4];
    const absl::Status status = array->ReadMany(indices, read);
    if (absl::IsAborted(status)) {  // allowed, if it stays the exception
      ++aborted;
      continue;
    }
    ASSERT_TRUE(status.ok()) << status;
    for (size_t k = 0; k < 4; ++k) {
      for (uint64_t number : read[k].numbers) ASSERT_EQ(number, read[k].numbers[0]);
      ASSERT_GE(read[k].numbers[0], last[k]) << "time runs forward";
      last[k] = read[k].numbers[0];
    }
  }
  stop = true;
  writer.join();
  EXPECT_LT(aborted, 200u);
  EXPECT_GT(rounds, 0u);
  RecordProperty("torn_reads", std::to_string(array->stats().torn_reads));
  array.reset();
}
#endif

// (The calls here leave the memory alone: reading it at the server, while this thread fills it, was
// a race of the test's own.)
TEST_P(RemoteMemoryNetworkTest, RevokingUnderFireEndsInReclaimedMemory) {
  std::atomic<bool> stop{false};
  std::optional<absl::Status> end;
  std::thread user([&] {
    Probe::Stub stub(*channel_);
    Data reply;
    while (!stop) {
      // Then it drives its engine all the same, so that the owner gets its answers.
      if (end.has_value()) (void)stub.Make(Size(), &reply);
      const absl::Status status = memory_->Write(0, buffer_->slice());
      if (!status.ok() && !end.has_value()) end = status;
    }
  });
  while (exported_->leases() == 0) std::this_thread::yield();
  EXPECT_EQ(exported_->Revoke(1'000'000), ExportedMemory::Revoked::kReclaimed);
  // Nobody writes here any more, whatever the clients do.
  std::memset(service_.memory.data(), 0x5A, kBytes);
  Probe::Stub stub(*channel_);
  Data reply;
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(stub.Make(Size(), &reply).ok());
  for (std::byte byte : service_.memory) ASSERT_EQ(byte, std::byte{0x5A});
  stop = true;
  user.join();
  ASSERT_TRUE(end.has_value());
  EXPECT_TRUE(absl::IsAborted(*end) || absl::IsPermissionDenied(*end) || absl::IsUnavailable(*end))
      << *end;
}

// An operation that was handed over to the engine's thread and failed there at once: its caller
// went on, out of the function, while the engine's thread still read what stood on the caller's
// stack.
TEST_P(RemoteMemoryNetworkTest, WhatFailsAtOnceOnAnotherThreadLeavesTheCallersStackAlone) {
  memory_.reset();  // the only holder is the one below, which answers by itself
  buffer_.reset();
  channel_.reset();
  auto engine = *OpenNetworkEngine({});
  auto channel = *Channel::Open(*engine, server_->address(), Options());
  auto memory = OpenMemory(*channel);
  auto buffer = *channel->AllocateBuffer(64);
  EXPECT_EQ(exported_->Revoke(0), ExportedMemory::Revoked::kReclaimed);
  for (int i = 0; i < 2000; ++i) {
    std::vector<std::thread> threads;  // a fresh stack, that goes away, now and then
    const auto fail = [&] { ASSERT_FALSE(memory->Read(0, buffer->slice()).ok()); };
    if (i % 20 == 0) threads.emplace_back(fail);
    fail();
    for (std::thread& thread : threads) thread.join();
  }
  memory.reset();
}

// An atomic is the work of the owner's engine, which a handler keeps busy.
TEST_P(RemoteMemoryNetworkTest, ADeadlineEndsWhatTheOwnerDoesNotAnswer) {
  auto memory = *RemoteMemory::Open(*channel_, exported_->handle(),
                                    RemoteMemoryOptions{.timeout_us = 20'000});
  std::promise<void> busy, release;
  // Set where it is called: the server has handled calls before.
  RunOnEngine(CoreOf(server_->engine()), [&] {
    service_.look = [&](ServerContext&) {
      busy.set_value();
      release.get_future().wait();
    };
  });
  Data reply;
  Waiter failed;
  Probe::Stub(*channel_).Fail(Failure(), &reply, {}, [&](const absl::Status&) {
    CoreOf(channel_->engine()).Finish(failed);
  });
  busy.get_future().wait();
  const absl::StatusOr<uint64_t> late = memory->FetchAdd(0, 1);
  EXPECT_TRUE(absl::IsDeadlineExceeded(late.status())) << late.status();
  EXPECT_EQ(DeliveryOf(late.status()), Delivery::kMayHaveRun);
  EXPECT_FALSE(memory->WaitReclaimed(0));
  release.set_value();
  EXPECT_TRUE(memory->WaitReclaimed(60'000'000));
  CoreOf(channel_->engine()).Wait(failed);
  EXPECT_EQ(*memory_->FetchAdd(0, 1), 1u) << "it was carried out, late";
}

TEST_P(RemoteMemoryNetworkTest, AnAcknowledgedWriteHasArrivedWhenItEnds) {
  for (uint64_t round = 1; round <= 50; ++round) {
    Fill(round);
    const RemotePiece pieces[] = {{0, buffer_->slice(0, kBytes / 2)},
                                  {kBytes / 2, buffer_->slice(kBytes / 2, kBytes / 2)}};
    ASSERT_EQ(memory_->WriteAcknowledged(pieces), absl::OkStatus());
    MeetServer();
    ASSERT_EQ(std::memcmp(service_.memory.data(), buffer_->bytes().data(), kBytes), 0) << round;
  }
}

// Its engine is driven by its callers, and there are none: on tcp it never says that nothing of it
// is on its way any more.
TEST_P(RemoteMemoryNetworkTest, AHolderThatNobodyDrivesDoesNotKeepTheMemory) {
  ASSERT_EQ(memory_->Read(0, buffer_->slice(0, 64)), absl::OkStatus());
  exported_.reset();
  std::memset(service_.memory.data(), 0x5A, kBytes);
  EXPECT_FALSE(memory_->Read(0, buffer_->slice(0, 64)).ok());
}

// The mappings of a file in memory in this process, which is server and client: "rw-s", "r--s".
std::vector<std::string> MappingsOf(ByteSpan memory) {
  const std::string file = MemoryFile::LinkOf(FindFile(memory).identity);
  std::vector<std::string> access;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find(file) != std::string::npos) access.push_back(line.substr(line.find(' ') + 1, 4));
  }
  std::sort(access.begin(), access.end());
  return access;
}

TEST_P(RemoteMemoryNetworkTest, AllocatedExportsAreMappedByPeersOnThisHostForReadingOnly) {
  constexpr size_t kOddBytes = 10'001;
  auto exported = server_->AllocateExport(kOddBytes, {.rights = kMayRead});
  ASSERT_TRUE(exported.ok()) << exported.status();
  const MutableByteSpan bytes = (*exported)->bytes();
  ASSERT_EQ(bytes.size(), kOddBytes);
  EXPECT_EQ(bytes[kOddBytes - 1], std::byte{0});
  auto memory = *RemoteMemory::Open(*channel_, (*exported)->handle());
  bytes[kOddBytes - 1] = std::byte{7};
  MeetServer();
  ASSERT_EQ(memory->Read(kOddBytes - 8, buffer_->slice(0, 8)), absl::OkStatus());
  EXPECT_EQ(buffer_->bytes()[7], std::byte{7});
  EXPECT_TRUE(absl::IsPermissionDenied(memory->Write(0, buffer_->slice(0, 8))));
  EXPECT_TRUE(absl::IsInvalidArgument(memory->Read(kOddBytes - 7, buffer_->slice(0, 8))));
  std::vector<std::string> expected = {"rw-s"};  // the owner's
  if (GetParam() == PathKind::kShm) expected.insert(expected.begin(), "r--s");
  EXPECT_EQ(MappingsOf(bytes), expected);

  *exported = nullptr;
  EXPECT_FALSE(memory->Read(0, buffer_->slice(0, 8)).ok());
}

TEST_P(RemoteMemoryNetworkTest, AllocatedExportsCanBeWrittenWhereTheyAreExportedForThat) {
  auto exported = *server_->AllocateExport(kBytes, {.rights = kAllRights});
  auto memory = *RemoteMemory::Open(*channel_, exported->handle());
  Fill(3);
  ASSERT_EQ(memory->Write(0, buffer_->slice()), absl::OkStatus());
  ASSERT_TRUE(memory->FetchAdd(0, 1).ok());  // its end proves that the write has arrived
  MeetServer();
  EXPECT_EQ(LoadLe64(exported->bytes().data()), LoadLe64(buffer_->bytes().data()) + 1);
  EXPECT_EQ(std::memcmp(exported->bytes().data() + 8, buffer_->bytes().data() + 8, kBytes - 8), 0);
  if (GetParam() == PathKind::kShm) {
    EXPECT_EQ(MappingsOf(exported->bytes()), (std::vector<std::string>{"rw-s", "rw-s"}));
  }
}

// Over shared memory such reads end inside the call: the engine has its turns all the same.
TEST_P(RemoteMemoryNetworkTest, CallbacksRunWhileAThreadDoesNothingButRead) {
  auto exported = *server_->AllocateExport(kBytes, {.rights = kAllRights});
  auto memory = *RemoteMemory::Open(*channel_, exported->handle());
  bool ran = false;
  memory->FetchAdd(0, 1, [&ran](const absl::StatusOr<uint64_t>& before) {
    EXPECT_TRUE(before.ok()) << before.status();
    ran = true;
  });
  const uint64_t give_up_ns = Clock::Real().NowNs() + 10 * kNsPerSec;
  while (!ran && Clock::Real().NowNs() < give_up_ns) {
    ASSERT_EQ(memory->Read(8, buffer_->slice(0, 64)), absl::OkStatus());
  }
  EXPECT_TRUE(ran);
}

TEST_P(RemoteMemoryNetworkTest, WhatIsDoneAtOnceHasNoCallback) {
  constexpr int kRounds = 500;
  auto exported = *server_->AllocateExport(kBytes, {.rights = kAllRights});
  auto memory = *RemoteMemory::Open(*channel_, exported->handle());
  int at_once = 0;
  int called = 0;
  const auto done = [&](const absl::Status& status) {
    EXPECT_TRUE(status.ok()) << status;
    ++called;
  };
  for (int round = 0; round < kRounds; ++round) {
    StoreLe64(buffer_->bytes().data(), static_cast<uint64_t>(round));
    at_once += memory->WriteNow(8, buffer_->slice(0, 8), done);
    at_once += memory->ReadNow(8, buffer_->slice(8, 8), done);
    while (at_once + called < 2 * (round + 1)) channel_->engine().Poll();
    if (GetParam() == PathKind::kShm) {
      ASSERT_EQ(LoadLe64(buffer_->bytes().data() + 8), static_cast<uint64_t>(round));
    }
  }
  EXPECT_EQ(at_once, GetParam() == PathKind::kShm ? 2 * kRounds : 0);
  for (int turn = 0; turn < 100; ++turn) channel_->engine().Poll();
  EXPECT_EQ(at_once + called, 2 * kRounds);

  std::optional<absl::Status> refused;
  EXPECT_FALSE(memory->ReadNow(kBytes, buffer_->slice(0, 8),
                               [&](const absl::Status& status) { refused = status; }));
  EXPECT_FALSE(refused.has_value()) << "not inside";
  while (!refused.has_value()) channel_->engine().Poll();
  EXPECT_TRUE(absl::IsInvalidArgument(*refused)) << *refused;
}

TEST(AllocateExportTest, ExportsOfNoBytesAreRefusedAndOtherMemoryIsSaidToBeSlower) {
  auto server = *Server::Create();
  EXPECT_TRUE(absl::IsInvalidArgument(server->AllocateExport(0, {}).status()));
  std::vector<std::string> said;
  SetLogSink([&said](const LogRecord& record) { said.emplace_back(record.text); });
  std::vector<std::byte> ordinary(100);
  auto slow = server->Export(ordinary, {});
  auto fast = server->AllocateExport(100, {});
  SetLogSink({});
  ASSERT_TRUE(slow.ok() && fast.ok());
  ASSERT_EQ(said.size(), 1u);
  EXPECT_NE(said[0].find("exporting 100 bytes"), std::string::npos) << said[0];
  EXPECT_NE(said[0].find("AllocateExport"), std::string::npos) << said[0];
}

INSTANTIATE_TEST_SUITE_P(Paths, RemoteMemoryNetworkTest,
                         testing::Values(PathKind::kShm, PathKind::kTcp),
                         [](const auto& info) { return std::string(PathKindName(info.param)); });

}  // namespace
}  // namespace weft::test
