// Remote memory through channels, on a simulated network: what it does, what it refuses, and what
// becomes of leases when time passes or connections end.
#include "rpc/memory/remote_memory.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "rpc/server/exported_memory.h"
#include "rpc/testing/rpc_test.h"
#include "transport/local_memory.h"
#include "weft/status.h"

namespace weft::test {
namespace {

constexpr size_t kBytes = 4096;

class RemoteMemoryTest : public RpcTest {
 protected:
  explicit RemoteMemoryTest(const SimOptions& options = {}) : RpcTest(/*seed=*/1, options) {}
  ~RemoteMemoryTest() override {
    memory_.reset();
    buffer_.reset();
    exported_.reset();
  }

  void StartWithMemory(Rights rights = kAllRights, const ServerOptions& server = {}) {
    Start({}, server);
    for (size_t i = 0; i < kBytes; ++i) owned_[i] = static_cast<std::byte>(i * 7);
    ExportOptions options;
    options.rights = rights;
    exported_ = *server_->Export(owned_, options);
    buffer_ = *channel_->AllocateBuffer(kBytes);
    Clear();
  }

  absl::Status Open(const RemoteRegion& region, RemoteMemoryOptions options = {}) {
    memory_.reset();
    auto memory = RemoteMemory::Open(*channel_, region, options);
    if (memory.ok()) memory_ = *std::move(memory);
    return memory.status();
  }
  absl::Status Open(RemoteMemoryOptions options = {}) { return Open(exported_->handle(), options); }

  void Clear() { std::memset(buffer_->bytes().data(), 0, kBytes); }
  Slice slice(size_t offset, size_t length) { return buffer_->slice(offset, length); }
  // The buffer and the memory agree in [offset, offset + length) of the memory.
  bool Same(size_t buffer_offset, size_t offset, size_t length) {
    return std::memcmp(buffer_->bytes().data() + buffer_offset, owned_.data() + offset, length) ==
           0;
  }
  void Fill(size_t offset, size_t length, int byte) {
    std::memset(buffer_->bytes().data() + offset, byte, length);
  }
  uint64_t NumberAt(size_t offset) { return LoadLe64(owned_.data() + offset); }
  // More than there may be proofs on their way. `behind_each` starts something else.
  void ManyAcknowledgedWritesFindRoom(Function<void()> behind_each) {
    constexpr size_t kWrites = 300;
    StartWithMemory();
    ASSERT_EQ(Open(), absl::OkStatus());
    Fill(0, kBytes, 'a');
    size_t ended = 0;
    for (size_t i = 0; i < kWrites; ++i) {
      const RemotePiece piece = {i * 8, slice(i * 8, 8)};
      memory_->WriteAcknowledged({&piece, 1}, [&, i](const absl::Status& status) {
        EXPECT_TRUE(status.ok()) << status;
        EXPECT_TRUE(Same(i * 8, i * 8, 8));
        ++ended;
      });
      behind_each();
    }
    ASSERT_TRUE(RunUntil([&] { return ended == kWrites; }));
    EXPECT_TRUE(StillConnected());
  }
  bool StillConnected() { return stub_->Echo(Data(), &reply_).ok() && stats().connects == 1; }
  ChannelStats stats() { return channel_->stats(); }

  Data reply_;
  alignas(64) std::array<std::byte, kBytes> owned_ = {};
  std::unique_ptr<ExportedMemory> exported_;
  std::unique_ptr<Buffer> buffer_;
  std::unique_ptr<RemoteMemory> memory_;
};

// --- operations ----------------------------------------------------------------------------------

TEST_F(RemoteMemoryTest, ReadsAndWritesInPlace) {
  StartWithMemory();
  ASSERT_EQ(Open(), absl::OkStatus());
  EXPECT_EQ(memory_->size(), kBytes);
  EXPECT_EQ(memory_->rights(), kAllRights);
  ASSERT_EQ(memory_->Read(100, slice(10, 50)), absl::OkStatus());
  EXPECT_TRUE(Same(10, 100, 50));
  Fill(0, 64, 'x');
  ASSERT_EQ(memory_->Write(kBytes - 64, slice(0, 64)), absl::OkStatus());
  ASSERT_TRUE(StillConnected());  // its reply proves that the write has arrived
  EXPECT_TRUE(Same(0, kBytes - 64, 64));
}

TEST_F(RemoteMemoryTest, BatchesScatterAndGather) {
  StartWithMemory();
  ASSERT_EQ(Open(), absl::OkStatus());
  std::vector<RemotePiece> pieces;
  for (size_t i = 0; i < kMaxBatchTransfers; ++i) {
    pieces.push_back({(kMaxBatchTransfers - 1 - i) * 64, slice(i * 64, 64)});
  }
  ASSERT_EQ(memory_->ReadBatch(pieces), absl::OkStatus());
  for (const RemotePiece& piece : pieces) {
    EXPECT_TRUE(Same(piece.local.offset - buffer_->slice().offset, piece.offset, 64));
  }
  Fill(0, kBytes, 'y');
  ASSERT_EQ(memory_->WriteBatch(pieces), absl::OkStatus());
  ASSERT_TRUE(StillConnected());
  EXPECT_TRUE(Same(0, 0, kBytes));
}

TEST_F(RemoteMemoryTest, AtomicsAnswerWhatWasThere) {
  StartWithMemory();
  ASSERT_EQ(Open(), absl::OkStatus());
  StoreLe64(owned_.data() + 8, 40);
  EXPECT_EQ(*memory_->FetchAdd(8, 2), 40u);
  EXPECT_EQ(*memory_->CompareSwap(8, 41, 1), 42u);
  EXPECT_EQ(NumberAt(8), 42u);
  EXPECT_EQ(*memory_->CompareSwap(8, 42, 1), 42u);
  EXPECT_EQ(NumberAt(8), 1u);
}

TEST_F(RemoteMemoryTest, CallbacksRunOnceAndNeverInside) {
  StartWithMemory();
  ASSERT_EQ(Open(), absl::OkStatus());
  int ended = 0;
  const auto done = [&](const absl::Status& status) {
    EXPECT_TRUE(status.ok()) << status;
    ++ended;
  };
  for (int i = 0; i < 300; ++i) memory_->Read(0, slice(0, 8), done);
  memory_->FetchAdd(0, 1, [&](const absl::StatusOr<uint64_t>& before) {
    EXPECT_TRUE(before.ok());
    ++ended;
  });
  std::optional<absl::Status> refused;
  memory_->Read(kBytes, slice(0, 8), [&](const absl::Status& status) { refused = status; });
  EXPECT_EQ(ended, 0);
  EXPECT_FALSE(refused.has_value());
  ASSERT_TRUE(RunUntil([&] { return ended == 301 && refused.has_value(); }));
  EXPECT_TRUE(absl::IsInvalidArgument(*refused)) << *refused;
}

TEST_F(RemoteMemoryTest, BlockingFormsInsideACallbackAreRefused) {
  StartWithMemory();
  ASSERT_EQ(Open(), absl::OkStatus());
  std::optional<absl::Status> inside, opened;
  memory_->Read(0, slice(0, 8), [&](const absl::Status&) {
    inside = memory_->Read(0, slice(0, 8));
    opened = RemoteMemory::Open(*channel_, exported_->handle()).status();
  });
  ASSERT_TRUE(RunUntil([&] { return opened.has_value(); }));
  EXPECT_TRUE(absl::IsFailedPrecondition(*inside)) << *inside;
  EXPECT_TRUE(absl::IsFailedPrecondition(*opened)) << *opened;
}

// --- write, then notify --------------------------------------------------------------------------

TEST_F(RemoteMemoryTest, ACallFindsWhatWasWrittenBeforeIt) {
  StartWithMemory();
  ASSERT_EQ(Open(), absl::OkStatus());
  for (int round = 1; round <= 20; ++round) {
    Fill(0, kBytes, round);
    Outcome write, call;
    memory_->Write(0, slice(0, kBytes), write.Callback());
    stub_->Hold(Data(), &call.reply, {}, call.Callback());
    ASSERT_TRUE(RunUntil([&] { return !service_.held.empty(); }));
    EXPECT_TRUE(Same(0, 0, kBytes)) << round;
    service_.Release();
    ASSERT_TRUE(RunUntil([&] { return write.done() && call.done(); }));
  }
}

TEST_F(RemoteMemoryTest, AnAcknowledgedWriteHasArrivedWhenItEnds) {
  StartWithMemory();
  ASSERT_EQ(Open(), absl::OkStatus());
  for (int round = 1; round <= 20; ++round) {
    Fill(0, kBytes, round);
    const RemotePiece pieces[] = {{0, slice(0, 1000)}, {1000, slice(1000, kBytes - 1000)}};
    ASSERT_EQ(memory_->WriteAcknowledged(pieces), absl::OkStatus());
    ASSERT_TRUE(Same(0, 0, kBytes)) << round;
  }
}

// As over verbs: the owner's card proves what has arrived, and its engine may be busy elsewhere.
class RemoteMemoryOfCardsTest : public RemoteMemoryTest {
 protected:
  static constexpr uint64_t kBusyNs = 10 * kNsPerSec;  // with one batch

  RemoteMemoryOfCardsTest() : RemoteMemoryTest(Cards()) {}

  static SimOptions Cards() {
    SimOptions options;
    options.reads_prove_writes = true;
    return options;
  }
  // How long an acknowledged write takes when it has a lease and the owner's engine is busy.
  uint64_t AcknowledgedNs() {
    EXPECT_EQ(memory_->Write(0, slice(0, 8)), absl::OkStatus());
    EXPECT_TRUE(StillConnected());
    network_.SlowDown("server", kBusyNs);
    Fill(0, kBytes, 'c');
    const uint64_t begin_ns = network_.clock().NowNs();
    const RemotePiece pieces[] = {{0, slice(0, 1000)}, {1000, slice(1000, kBytes - 1000)}};
    EXPECT_EQ(memory_->WriteAcknowledged(pieces), absl::OkStatus());
    EXPECT_TRUE(Same(0, 0, kBytes));
    return network_.clock().NowNs() - begin_ns;
  }
};

TEST_F(RemoteMemoryOfCardsTest, AnAcknowledgedWriteWaitsForNoEngine) {
  StartWithMemory();
  ASSERT_EQ(Open(), absl::OkStatus());
  EXPECT_LT(AcknowledgedNs(), kNsPerMs);
}

TEST_F(RemoteMemoryOfCardsTest, WithoutTheRightToReadTheEngineAnswers) {
  StartWithMemory(kMayWrite);
  ASSERT_EQ(Open(), absl::OkStatus());
  EXPECT_GE(AcknowledgedNs(), kBusyNs);
}

TEST_F(RemoteMemoryOfCardsTest, ManyAcknowledgedWritesFindRoomInTheEnd) {
  ManyAcknowledgedWritesFindRoom([] {});
}

// Its registration is there for the channel's next RemoteMemory.
TEST_F(RemoteMemoryOfCardsTest, ProofsReadToAByteOfTheChannel) {
  StartWithMemory();
  const LocalMemory& byte = internal::ConnectionOf(*channel_).SpareByte();
  const auto page_bytes = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(byte.bytes().data()) % page_bytes, 0u) << "a page's first";
  EXPECT_FALSE(byte.has_regions());
  const RemotePiece piece = {0, slice(0, 8)};
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(Open(), absl::OkStatus());
    ASSERT_EQ(memory_->WriteAcknowledged({&piece, 1}), absl::OkStatus());
    memory_.reset();
    EXPECT_TRUE(byte.has_regions());
  }
}

// The read behind the write may be done inside its post, as over memory that is mapped.
TEST_F(RemoteMemoryOfCardsTest, AProofMayBeThereAtOnce) {
  SimOptions options = Cards();
  options.done_at_once_percent = 50;
  SimNetwork network(/*seed=*/2, options);
  auto server = *Server::Create(CoreOf(network.Node("server")), {});
  ASSERT_EQ(server->Listen("sim:server"), absl::OkStatus());
  auto exported = *server->Export(owned_, {.rights = kAllRights});
  auto channel = *Channel::Open(CoreOf(network.Node("client")), "sim:server", {});
  auto memory = *RemoteMemory::Open(*channel, exported->handle());
  auto buffer = *channel->AllocateBuffer(8);
  for (uint64_t round = 1; round <= 100; ++round) {
    StoreLe64(buffer->bytes().data(), round);
    const RemotePiece piece = {8, buffer->slice(0, 8)};
    ASSERT_EQ(memory->WriteAcknowledged({&piece, 1}), absl::OkStatus());
    ASSERT_EQ(NumberAt(8), round);
  }
}

TEST_F(RemoteMemoryTest, ManyAcknowledgedWritesFindRoomInTheEnd) {
  ManyAcknowledgedWritesFindRoom(
      [&] { memory_->FetchAdd(kBytes - 8, 1, [](const absl::StatusOr<uint64_t>&) {}); });
}

TEST_F(RemoteMemoryTest, AnAcknowledgedWriteThatLosesItsConnectionMayHaveArrived) {
  StartWithMemory();
  ASSERT_EQ(Open(), absl::OkStatus());
  Fill(0, 8, 'l');
  int ended = 0;
  int sent = 0;
  network_.Cut("server", "client");  // what is written arrives, and no answer
  for (int i = 0; i < 100; ++i) {
    const RemotePiece piece = {0, slice(0, 8)};
    memory_->WriteAcknowledged(absl::MakeConstSpan(&piece, 1), [&](const absl::Status& status) {
      EXPECT_TRUE(absl::IsUnavailable(status)) << status;
      const bool may_have_run = DeliveryOf(status) == Delivery::kMayHaveRun;
      EXPECT_EQ(may_have_run,
                status.message().find("(it may have been carried out)") != absl::string_view::npos)
          << status;
      sent += may_have_run;
      ++ended;
    });
  }
  ASSERT_TRUE(RunUntil([&] { return ended == 100; }));
  EXPECT_GT(sent, 0);
  EXPECT_TRUE(Same(0, 0, 8));
  memory_.reset();
  EXPECT_EQ(ended, 100);
}

TEST_F(RemoteMemoryTest, DestroyingItWaitsForAcknowledgements) {
  StartWithMemory();
  ASSERT_EQ(Open(), absl::OkStatus());
  Fill(0, kBytes, 'd');
  int ended = 0;
  for (int i = 0; i < 100; ++i) {
    const RemotePiece piece = {0, slice(0, kBytes)};
    memory_->WriteAcknowledged(absl::MakeConstSpan(&piece, 1), [&](const absl::Status& status) {
      EXPECT_TRUE(status.ok() || absl::IsCancelled(status)) << status;
      ++ended;
    });
  }
  memory_.reset();
  EXPECT_EQ(ended, 100);
  EXPECT_TRUE(Same(0, 0, kBytes));
}

// The write waits for a lease, which takes longer than a call.
TEST_F(RemoteMemoryTest, ACallWaitsForAWriteThatHasToWait) {
  StartWithMemory();
  ASSERT_EQ(Open({.resolve_at_once = false}), absl::OkStatus());
  Fill(0, kBytes, 'w');
  Outcome write, call;
  memory_->Write(0, slice(0, kBytes), write.Callback());
  stub_->Hold(Data(), &call.reply, {}, call.Callback());
  ASSERT_TRUE(RunUntil([&] { return !service_.held.empty(); }));
  EXPECT_TRUE(Same(0, 0, kBytes));
  service_.Release();
  ASSERT_TRUE(RunUntil([&] { return call.done(); }));
  EXPECT_TRUE(write.status->ok()) << *write.status;
}

TEST_F(RemoteMemoryTest, CallsGoOnAfterAWriteThatIsRefused) {
  StartWithMemory();
  RemoteRegion forged = exported_->handle();
  (*forged.mutable_capability())[50] ^= 1;
  ASSERT_EQ(Open(forged, {.resolve_at_once = false}), absl::OkStatus());
  Outcome write, call;
  memory_->Write(0, slice(0, 8), write.Callback());
  stub_->Echo(Data(), &call.reply, {}, call.Callback());
  ASSERT_TRUE(RunUntil([&] { return call.done(); }));
  EXPECT_TRUE(call.status->ok()) << *call.status;
  EXPECT_TRUE(absl::IsPermissionDenied(*write.status)) << *write.status;
}

// --- what is refused here ------------------------------------------------------------------------

TEST_F(RemoteMemoryTest, BoundsAreCheckedBeforeAnythingIsSent) {
  StartWithMemory();
  ASSERT_EQ(Open(), absl::OkStatus());
  const std::string text(memory_->Read(kBytes - 7, slice(0, 8)).message());
  EXPECT_EQ(text,
            "8 bytes at offset 4089 do not lie in the 4096 bytes of the remote memory (not "
            "sent)");
  EXPECT_TRUE(absl::IsInvalidArgument(memory_->Write(~uint64_t{0}, slice(0, 8))));
  EXPECT_TRUE(absl::IsInvalidArgument(memory_->Read(~uint64_t{0} - 3, slice(0, 8))));
  EXPECT_TRUE(absl::IsInvalidArgument(memory_->Read(0, slice(0, 0))));
  EXPECT_TRUE(absl::IsInvalidArgument(memory_->Read(0, {})));
  LocalMemory* const slab = buffer_->slice().memory;
  EXPECT_TRUE(absl::IsInvalidArgument(memory_->Read(0, {slab, slab->bytes().size() - 4, 8})));
  EXPECT_TRUE(absl::IsInvalidArgument(memory_->Read(0, slice(kBytes, 1))));
  EXPECT_TRUE(absl::IsInvalidArgument(memory_->ReadBatch({})));
  EXPECT_TRUE(absl::IsInvalidArgument(memory_->FetchAdd(4, 1).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(memory_->FetchAdd(kBytes, 1).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(memory_->CompareSwap(~uint64_t{7}, 1, 2).status()));
  EXPECT_TRUE(StillConnected());
}

TEST_F(RemoteMemoryTest, RightsAreCheckedBeforeAnythingIsSent) {
  StartWithMemory(kMayRead);
  ASSERT_EQ(Open(), absl::OkStatus());
  EXPECT_EQ(memory_->Read(0, slice(0, 8)), absl::OkStatus());
  const absl::Status refused = memory_->Write(0, slice(0, 8));
  EXPECT_TRUE(absl::IsPermissionDenied(refused));
  EXPECT_EQ(refused.message(),
            "the operation needs the right to write; the handle grants: read (not sent)");
  EXPECT_TRUE(absl::IsPermissionDenied(memory_->FetchAdd(0, 1).status()));
  EXPECT_TRUE(StillConnected());
}

TEST_F(RemoteMemoryTest, OptionsHaveBounds) {
  StartWithMemory();
  EXPECT_TRUE(absl::IsInvalidArgument(Open({.lease_us = 999'999})));
  EXPECT_TRUE(absl::IsInvalidArgument(Open({.lease_us = 60'000'001})));
  EXPECT_TRUE(absl::IsInvalidArgument(Open({.max_waiting = 0})));
  RemoteRegion nothing;
  EXPECT_TRUE(absl::IsInvalidArgument(Open(nothing)));
}

// --- what the owner refuses ----------------------------------------------------------------------

// A bad handle is asked about once: eight times would end the session.
TEST_F(RemoteMemoryTest, AForgedHandleIsAskedAboutOnce) {
  StartWithMemory();
  RemoteRegion forged = exported_->handle();
  (*forged.mutable_capability())[16] ^= 8;  // another offset
  EXPECT_TRUE(absl::IsPermissionDenied(Open(forged)));
  ASSERT_EQ(Open(forged, {.resolve_at_once = false}), absl::OkStatus());
  for (int i = 0; i < 50; ++i) {
    EXPECT_TRUE(absl::IsPermissionDenied(memory_->Read(0, slice(0, 8))));
  }
  EXPECT_TRUE(StillConnected());
}

TEST_F(RemoteMemoryTest, DifferentLayoutsMeetAnErrorThatNamesBoth) {
  StartWithMemory();
  exported_ = *server_->Export(owned_, {.layout = 0xAA, .layout_name = "bank.Account"});
  const absl::Status differs = Open({.layout = 0xBB});
  EXPECT_TRUE(absl::IsFailedPrecondition(differs)) << differs;
  EXPECT_NE(differs.message().find("bank.Account"), absl::string_view::npos) << differs;
  EXPECT_EQ(Open({.layout = 0xAA}), absl::OkStatus());
}

TEST_F(RemoteMemoryTest, TenantsCannotUseEachOthersHandles) {
  ServerOptions options;
  options.tenant_of = [](const PathInfo&) { return 7u; };
  StartWithMemory(kAllRights, options);
  EXPECT_TRUE(absl::IsPermissionDenied(Open()));  // the default tenant's
  const auto derived = exported_->Derive({.length = 64, .tenant = 7});
  ASSERT_TRUE(derived.ok());
  EXPECT_EQ(Open(*derived), absl::OkStatus());
}

TEST_F(RemoteMemoryTest, DerivedHandlesReachTheirPartOnly) {
  StartWithMemory();
  const auto derived = exported_->Derive({.offset = 1024, .length = 64});
  ASSERT_TRUE(derived.ok()) << derived.status();
  ASSERT_EQ(Open(*derived), absl::OkStatus());
  EXPECT_EQ(memory_->size(), 64u);
  EXPECT_EQ(memory_->rights(), kMayRead);
  ASSERT_EQ(memory_->Read(32, slice(0, 32)), absl::OkStatus());
  EXPECT_TRUE(Same(0, 1024 + 32, 32));
  EXPECT_TRUE(absl::IsInvalidArgument(memory_->Read(33, slice(0, 32))));
  EXPECT_TRUE(absl::IsInvalidArgument(exported_->Derive({.offset = kBytes, .length = 1}).status()));
}

TEST_F(RemoteMemoryTest, AHolderGetsNarrowerHandlesOfItsOwner) {
  StartWithMemory();
  ASSERT_EQ(Open(), absl::OkStatus());
  const auto derived = memory_->Derive(512, 128, kMayRead);
  ASSERT_TRUE(derived.ok()) << derived.status();
  EXPECT_TRUE(absl::IsPermissionDenied(memory_->Derive(0, kBytes + 1, kMayRead).status()) ||
              absl::IsInvalidArgument(memory_->Derive(0, kBytes + 1, kMayRead).status()));
  ASSERT_EQ(Open(*derived), absl::OkStatus());
  EXPECT_EQ(memory_->size(), 128u);
  ASSERT_EQ(memory_->Read(0, slice(0, 128)), absl::OkStatus());
  EXPECT_TRUE(Same(0, 512, 128));
  EXPECT_TRUE(absl::IsPermissionDenied(memory_->Write(0, slice(0, 8))));
}

// --- time ----------------------------------------------------------------------------------------

TEST_F(RemoteMemoryTest, ALeaseIsRenewedWhileItIsUsed) {
  StartWithMemory();
  ASSERT_EQ(Open({.lease_us = 1'000'000}), absl::OkStatus());
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(memory_->Read(0, slice(0, 8)), absl::OkStatus());
    network_.RunFor(100 * kNsPerMs);
    ASSERT_EQ(exported_->leases(), 1u);
  }
  EXPECT_TRUE(StillConnected());
}

TEST_F(RemoteMemoryTest, AnIdleLeaseLapsesAndTheNextUseAsksAgain) {
  StartWithMemory();
  ASSERT_EQ(Open({.lease_us = 1'000'000}), absl::OkStatus());
  for (int i = 0; i < 3; ++i) {
    network_.RunFor(10 * kNsPerSec);
    EXPECT_EQ(exported_->leases(), 0u);
    Clear();
    ASSERT_EQ(memory_->Read(64, slice(0, 64)), absl::OkStatus());
    EXPECT_TRUE(Same(0, 64, 64));
  }
  EXPECT_TRUE(StillConnected());
}

TEST_F(RemoteMemoryTest, AHandleEndsWithItsTime) {
  StartWithMemory();
  ASSERT_EQ(Open(*exported_->Derive({.length = 64, .lifetime_us = 2'000'000})), absl::OkStatus());
  EXPECT_EQ(memory_->Read(0, slice(0, 8)), absl::OkStatus());
  network_.RunFor(3 * kNsPerSec);
  EXPECT_TRUE(absl::IsPermissionDenied(memory_->Read(0, slice(0, 8))));
  EXPECT_TRUE(StillConnected());
}

TEST_F(RemoteMemoryTest, ARevokedHandleIsNoGoodForEver) {
  StartWithMemory();
  ASSERT_EQ(Open(), absl::OkStatus());
  EXPECT_EQ(exported_->Revoke(0), ExportedMemory::Revoked::kReclaimed);
  EXPECT_TRUE(exported_->reclaimed());
  network_.Settle();
  for (int i = 0; i < 20; ++i) {
    EXPECT_TRUE(absl::IsAborted(memory_->Read(0, slice(0, 8))));
  }
  EXPECT_TRUE(absl::IsPermissionDenied(Open()));
  EXPECT_TRUE(StillConnected());
}

// A wire on which operations take longer than their lease. Questions about leases pass what is
// moved, as over verbs and tcp, in which half of a lease is enough for them.
class RemoteMemoryOnASlowWireTest : public RemoteMemoryTest {
 protected:
  static constexpr uint64_t kLeaseNs = kNsPerSec;
  static constexpr uint64_t kOperationNs = 3 * kLeaseNs;  // at least: kBytes take 3.2 s

  RemoteMemoryOnASlowWireTest() : RemoteMemoryTest(Apart()) {}

  static SimOptions Apart() {
    SimOptions options;
    options.control_apart = true;
    options.reads_prove_writes = true;
    options.keep_trace = true;
    return options;
  }
  absl::Status OpenBriefly(const RemoteRegion& region) {
    return Open(region, {.lease_us = kLeaseNs / kNsPerUs});
  }
  void StartWithALease() {
    StartWithMemory();
    ASSERT_EQ(OpenBriefly(exported_->handle()), absl::OkStatus());
    Fill(0, kBytes, 's');
  }
  void MakeSlow(const std::string& from, const std::string& to, uint64_t delay_ns = 10'000) {
    network_.SetWire(from, to, {.delay_ns = delay_ns, .bytes_per_s = 1300});
  }
  void MakeFast() { network_.SetWire("client", "server", {}); }
  // Begins to write all, which takes so long.
  void BeginToWrite(Outcome* write) {
    MakeSlow("client", "server");
    memory_->Write(0, slice(0, kBytes), write->Callback());
  }
  // The client's lease holds, with what was posted under it.
  bool IsHeld() { return exported_->leases() == 1; }
  // What the client has asked the owner about leases, and that has arrived: for each lease one
  // question, and its renewals.
  int64_t Questions() {
    const std::vector<std::string>& trace = network_.trace();
    return std::count_if(trace.begin(), trace.end(), [](const std::string& line) {
      return line.find(" client > server: grant,") != std::string::npos;
    });
  }
  static void ExpectEndedLease(const absl::Status& status) {
    EXPECT_TRUE(absl::IsUnavailable(status)) << status;
    EXPECT_NE(status.message().find("ended before the operation"), absl::string_view::npos)
        << status;
    EXPECT_EQ(DeliveryOf(status), Delivery::kMayHaveRun);
  }
};

// The story: a lease was renewed when an operation began, and the owner closed it in the midst of
// one that took long.
TEST_F(RemoteMemoryOnASlowWireTest, AnOperationMayTakeThreeTimesItsLease) {
  StartWithALease();
  MakeSlow("client", "server");
  const uint64_t begin_ns = network_.clock().NowNs();
  ASSERT_EQ(memory_->Write(0, slice(0, kBytes)), absl::OkStatus());
  EXPECT_GE(network_.clock().NowNs() - begin_ns, kOperationNs);
  EXPECT_TRUE(Same(0, 0, kBytes));
  EXPECT_TRUE(IsHeld());
  EXPECT_TRUE(StillConnected());
}

TEST_F(RemoteMemoryOnASlowWireTest, SoMayAReadAndABatchThatIsAcknowledged) {
  StartWithALease();
  std::vector<RemotePiece> pieces;
  for (size_t i = 0; i < kMaxBatchTransfers; ++i) pieces.push_back({i * 64, slice(i * 64, 64)});
  MakeSlow("client", "server");
  ASSERT_EQ(memory_->WriteAcknowledged(pieces), absl::OkStatus());
  EXPECT_TRUE(Same(0, 0, kBytes));
  EXPECT_TRUE(IsHeld());
  MakeFast();
  MakeSlow("server", "client");
  Clear();
  const uint64_t begin_ns = network_.clock().NowNs();
  ASSERT_EQ(memory_->Read(0, slice(0, kBytes)), absl::OkStatus());
  EXPECT_GE(network_.clock().NowNs() - begin_ns, kOperationNs);
  EXPECT_TRUE(Same(0, 0, kBytes));
  EXPECT_TRUE(IsHeld());
}

TEST_F(RemoteMemoryOnASlowWireTest, SoMayManyThatWaitForTheirTurn) {
  StartWithALease();
  MakeSlow("client", "server");
  int ended = 0;
  bool held = true;
  for (size_t i = 0; i < 300; ++i) {
    memory_->Write(i * 8, slice(i * 8, 8), [&](const absl::Status& status) {
      EXPECT_TRUE(status.ok()) << status;
      ++ended;
    });
  }
  const uint64_t begin_ns = network_.clock().NowNs();
  ASSERT_TRUE(RunUntil([&] {
    held = held && IsHeld();
    return ended == 300;
  }));
  EXPECT_GE(network_.clock().NowNs() - begin_ns, kOperationNs);
  EXPECT_TRUE(held);
  EXPECT_TRUE(Same(0, 0, 300 * 8));
}

TEST_F(RemoteMemoryOnASlowWireTest, WithNothingUnderWayNoRenewalIsAskedFor) {
  StartWithALease();
  ASSERT_EQ(memory_->Read(0, slice(0, 8)), absl::OkStatus());
  EXPECT_EQ(Questions(), 1) << "for the lease";
  network_.RunFor(10 * kLeaseNs);
  EXPECT_EQ(Questions(), 1);
  EXPECT_EQ(exported_->leases(), 0u);
  ASSERT_EQ(memory_->Read(0, slice(0, 8)), absl::OkStatus());
  EXPECT_EQ(Questions(), 2);
}

// Each half of a lease at the most.
TEST_F(RemoteMemoryOnASlowWireTest, ManyOperationsAskForNoMoreRenewalsThanOne) {
  StartWithALease();
  for (int i = 0; i < 1000; ++i) {
    ASSERT_EQ(memory_->Read(0, slice(0, 8)), absl::OkStatus());
    network_.RunFor(kLeaseNs / 100);
  }
  EXPECT_GE(Questions(), 10);
  EXPECT_LE(Questions(), 25);
  EXPECT_TRUE(IsHeld());
}

TEST_F(RemoteMemoryOnASlowWireTest, AHandleThatExpiresMeanwhileEndsTheOperation) {
  StartWithMemory();
  const auto brief = exported_->Derive(
      {.length = kBytes, .rights = kAllRights, .lifetime_us = 2 * kLeaseNs / kNsPerUs});
  ASSERT_TRUE(brief.ok()) << brief.status();
  ASSERT_EQ(OpenBriefly(*brief), absl::OkStatus());
  Fill(0, kBytes, 's');
  MakeSlow("client", "server");
  ExpectEndedLease(memory_->Write(0, slice(0, kBytes)));
  EXPECT_FALSE(Same(0, 0, kBytes));
  EXPECT_EQ(exported_->leases(), 0u);
  EXPECT_LT(Questions(), 30) << "they come to an end with the handle";
  MakeFast();
  EXPECT_TRUE(absl::IsPermissionDenied(memory_->Read(0, slice(0, 8))));
  EXPECT_TRUE(StillConnected());
}

TEST_F(RemoteMemoryOnASlowWireTest, ARevokeMeanwhileEndsTheOperation) {
  StartWithALease();
  Outcome write;
  BeginToWrite(&write);
  network_.RunFor(2 * kLeaseNs);
  EXPECT_TRUE(IsHeld());
  EXPECT_EQ(exported_->Revoke(0), ExportedMemory::Revoked::kReclaimed);
  ASSERT_TRUE(RunUntil([&] { return write.done(); }));
  EXPECT_EQ(*write.status,
            WithDelivery(absl::AbortedError(
                             "the owner has revoked the lease (it may have been carried out)"),
                         Delivery::kMayHaveRun));
  EXPECT_FALSE(Same(0, 0, kBytes));
}

TEST_F(RemoteMemoryOnASlowWireTest, AHolderThatStandsStillLosesItsLease) {
  StartWithALease();
  Outcome write;
  BeginToWrite(&write);
  network_.Freeze("client");
  network_.RunFor(kLeaseNs + kLeaseNs / 2);
  EXPECT_EQ(exported_->leases(), 0u);
  network_.Thaw("client");
  ASSERT_TRUE(RunUntil([&] { return write.done(); }));
  ExpectEndedLease(*write.status);
  EXPECT_FALSE(Same(0, 0, kBytes));
  MakeFast();
  EXPECT_EQ(memory_->Write(0, slice(0, 8)), absl::OkStatus());
  EXPECT_TRUE(StillConnected());
}

// That a lease has ended early once says nothing of a later refusal.
TEST_F(RemoteMemoryOnASlowWireTest, WhatIsRefusedUnderALaterLeaseIsNotToldAsTheEndOfAnEarlierOne) {
  StartWithALease();
  Outcome write;
  BeginToWrite(&write);
  network_.Freeze("client");
  network_.RunFor(kLeaseNs + kLeaseNs / 2);
  network_.Thaw("client");
  ASSERT_TRUE(RunUntil([&] { return write.done(); }));
  ExpectEndedLease(*write.status);
  MakeFast();
  ASSERT_EQ(memory_->Write(0, slice(0, 8)), absl::OkStatus());
  network_.Settle();
  // The word of the revoke is under way for longer than the answer to a read behind it.
  network_.SetWire("server", "client", {.delay_ns = kLeaseNs / 4});
  EXPECT_EQ(exported_->Revoke(0), ExportedMemory::Revoked::kReclaimed);
  network_.SetWire("server", "client", {});
  const absl::Status refused = memory_->Read(0, slice(0, 8));
  EXPECT_TRUE(absl::IsPermissionDenied(refused)) << refused;
}

TEST_F(RemoteMemoryOnASlowWireTest, AfterARenewalThatCameTooLateTheNextUseAsksAgain) {
  StartWithALease();
  MakeSlow("client", "server", /*delay_ns=*/kLeaseNs * 6 / 10);
  ExpectEndedLease(memory_->Write(0, slice(0, kBytes)));
  EXPECT_FALSE(Same(0, 0, kBytes));
  MakeFast();
  EXPECT_EQ(memory_->Write(0, slice(0, kBytes)), absl::OkStatus());
  EXPECT_TRUE(StillConnected());
  EXPECT_TRUE(Same(0, 0, kBytes));
}

TEST_F(RemoteMemoryOnASlowWireTest, TheDestructorLetsAnOperationEndThatOutlastsItsLease) {
  StartWithALease();
  Outcome write;
  BeginToWrite(&write);
  memory_.reset();
  ASSERT_TRUE(write.done());
  EXPECT_EQ(*write.status, absl::OkStatus());
  EXPECT_TRUE(Same(0, 0, kBytes));
  network_.Settle();
  EXPECT_EQ(exported_->leases(), 0u);
}

// It waits for a call that runs, and its clients have their leases for so long.
TEST_F(RemoteMemoryOnASlowWireTest, AServerThatShutsDownRenewsLeasesWithinItsGrace) {
  StartWithALease();
  Outcome write, call;
  stub_->Hold(Data(), &call.reply, {}, call.Callback());
  ASSERT_TRUE(RunUntil([&] { return !service_.held.empty(); }));
  service_.held.front().context().OnCancel([this] { service_.Release(absl::CancelledError()); });
  BeginToWrite(&write);
  server_->Shutdown(/*grace_us=*/20'000'000);
  ASSERT_TRUE(RunUntil([&] { return write.done() && call.done(); }));
  EXPECT_EQ(*write.status, absl::OkStatus());
  EXPECT_TRUE(Same(0, 0, kBytes));
}

// Of operations it knows nothing.
TEST_F(RemoteMemoryOnASlowWireTest, AServerThatShutsDownWaitsForNoRenewal) {
  StartWithALease();
  Outcome write;
  BeginToWrite(&write);
  server_->Shutdown(/*grace_us=*/20'000'000);
  ASSERT_TRUE(RunUntil([&] { return write.done(); }));
  EXPECT_TRUE(absl::IsUnavailable(*write.status)) << *write.status;
  EXPECT_EQ(DeliveryOf(*write.status), Delivery::kMayHaveRun);
  EXPECT_FALSE(Same(0, 0, kBytes));
}

// --- loss ----------------------------------------------------------------------------------------

TEST_F(RemoteMemoryTest, AfterALossTheNextUseConnectsAndAsksAgain) {
  StartWithMemory();
  ASSERT_EQ(Open(), absl::OkStatus());
  network_.Partition("client", "server");
  Outcome read, write, waiting;
  memory_->Read(0, slice(0, 8), read.Callback());
  memory_->Write(0, slice(8, 8), write.Callback());
  ASSERT_TRUE(RunUntil([&] { return read.done() && write.done(); }));
  EXPECT_TRUE(absl::IsUnavailable(*read.status));
  EXPECT_NE(read.status->message().find("safe to retry"), absl::string_view::npos);
  EXPECT_TRUE(absl::IsUnavailable(*write.status));
  EXPECT_NE(write.status->message().find("may have been carried out"), absl::string_view::npos);
  network_.Heal("client", "server");
  network_.RunFor(kNsPerSec);
  Clear();
  absl::Status again;
  for (int i = 0; i < 10 && !(again = memory_->Read(0, slice(0, 64))).ok(); ++i) {
    network_.RunFor(kNsPerSec);
  }
  EXPECT_EQ(again, absl::OkStatus());
  EXPECT_TRUE(Same(0, 0, 64));
  EXPECT_EQ(stats().connects, 2u);
}

TEST_F(RemoteMemoryTest, WithoutAServerEveryUseSaysSo) {
  StartWithMemory();
  ASSERT_EQ(Open(), absl::OkStatus());
  KillServer();
  network_.RunFor(kNsPerSec);
  const absl::Status gone = memory_->Read(0, slice(0, 8));
  EXPECT_TRUE(absl::IsUnavailable(gone)) << gone;
  EXPECT_NE(gone.message().find("no server at sim:server"), absl::string_view::npos) << gone;
}

TEST_F(RemoteMemoryTest, TheQueueOfThoseThatWaitIsBounded) {
  StartWithMemory();
  ASSERT_EQ(Open({.resolve_at_once = false, .max_waiting = 2}), absl::OkStatus());
  Outcome outcomes[4];
  for (Outcome& outcome : outcomes) memory_->Read(0, slice(0, 8), outcome.Callback());
  ASSERT_TRUE(RunUntil([&] {
    return outcomes[0].done() && outcomes[1].done() && outcomes[2].done() && outcomes[3].done();
  }));
  EXPECT_TRUE(outcomes[0].status->ok() && outcomes[1].status->ok());
  EXPECT_TRUE(absl::IsResourceExhausted(*outcomes[2].status)) << *outcomes[2].status;
  EXPECT_TRUE(absl::IsResourceExhausted(*outcomes[3].status));
}

// The destructor would never return if it let such an operation start.
TEST_F(RemoteMemoryTest, DestroyingItRefusesWhatACallbackStartsAgain) {
  StartWithMemory();
  ASSERT_EQ(Open(), absl::OkStatus());
  RemoteMemory& memory = *memory_;
  int reads = 0;
  absl::Status last;
  Function<void()> read_on = [&] {
    ++reads;
    memory.Read(0, slice(0, 8), [&](absl::Status status) {
      last = std::move(status);
      if (last.ok() || absl::IsCancelled(last)) read_on();
    });
  };
  read_on();
  memory_.reset();
  EXPECT_EQ(reads, 2);
  EXPECT_TRUE(absl::IsFailedPrecondition(last)) << last;
}

TEST_F(RemoteMemoryTest, DestroyingItEndsWhatWaitsAndReturnsTheLease) {
  StartWithMemory();
  ASSERT_EQ(Open({.resolve_at_once = false}), absl::OkStatus());
  Outcome waiting;
  memory_->Read(0, slice(0, 8), waiting.Callback());
  memory_.reset();
  ASSERT_TRUE(waiting.done());
  EXPECT_TRUE(absl::IsCancelled(*waiting.status)) << *waiting.status;

  ASSERT_EQ(Open(), absl::OkStatus());
  Outcome posted;
  memory_->Read(0, slice(0, 8), posted.Callback());
  memory_.reset();
  ASSERT_TRUE(posted.done());
  EXPECT_TRUE(posted.status->ok()) << *posted.status;
  network_.Settle();
  EXPECT_EQ(exported_->leases(), 0u);
}

// More than the connection takes at once: what has no room waits its turn.
TEST_F(RemoteMemoryTest, EveryOperationFindsRoomInTheEnd) {
  StartWithMemory();
  ASSERT_EQ(Open(), absl::OkStatus());
  int ended = 0;
  for (int i = 0; i < 500; ++i) {
    memory_->FetchAdd(0, 1, [&](const absl::StatusOr<uint64_t>& before) {
      EXPECT_TRUE(before.ok()) << before.status();
      ++ended;
    });
    memory_->Read(64, slice(0, 64), [&](const absl::Status& status) {
      EXPECT_TRUE(status.ok()) << status;
      ++ended;
    });
  }
  ASSERT_TRUE(RunUntil([&] { return ended == 1000; }));
  EXPECT_TRUE(StillConnected());
}

}  // namespace
}  // namespace weft::test
