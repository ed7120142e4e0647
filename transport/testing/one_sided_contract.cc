// One-sided reads and writes: what they move, in which order, and what they may not touch.

#include <algorithm>
#include <string_view>
#include <vector>

#include "transport/testing/contract_test.h"
#include "transport/testing/region_pair.h"

namespace weft {
namespace {

// Of a span that begins where its region does.
RemoteSpan BeyondTheEnd(RemoteSpan span) {
  span.offset += kRegionBytes - span.length / 2;
  return span;
}

TEST_P(ContractTest, AReadBringsThePeersBytes) {
  Open();
  RegionPair regions(client_, server_end());
  const std::vector<std::byte> before = regions.client_memory;
  for (size_t bytes : {size_t{1}, size_t{8}, size_t{4097}, kRegionBytes - 100}) {
    TestOperation read;
    ASSERT_TRUE(regions.Read(50, regions.Remote(33, bytes), &read).ok());
    ASSERT_TRUE(Run([&] { return read.done(); }));
    EXPECT_TRUE(read.result.ok()) << read.result;
    EXPECT_TRUE(regions.Same(50, 33, bytes));
  }
  // Nothing beside it was touched.
  EXPECT_TRUE(std::equal(before.begin(), before.begin() + 50, regions.client_memory.begin()));
  EXPECT_TRUE(std::equal(before.end() - 50, before.end(), regions.client_memory.end() - 50));
}

TEST_P(ContractTest, AWriteIsSeenWithTheMessageThatFollowsIt) {
  Open();
  RegionPair regions(client_, server_end());
  int seen = 0;
  server_end().on_message = [&](ByteSpan) { seen += regions.Same(0, 1000, 100'000); };
  for (int round = 0; round < 20; ++round) {
    const std::vector<std::byte> fresh = Pattern(static_cast<uint64_t>(round) + 10, kRegionBytes);
    std::copy(fresh.begin(), fresh.end(), regions.client_memory.begin());
    TestOperation write;
    ASSERT_TRUE(regions.Write(0, regions.Remote(1000, 100'000), &write).ok());
    client_.Send("written");
    ASSERT_TRUE(Run([&] { return write.done() && seen == round + 1; })) << "round " << round;
    EXPECT_TRUE(write.result.ok()) << write.result;
  }
}

// Its end comes later than that of a plain one: nobody has to wait for it to send the message.
TEST_P(ContractTest, AnAcknowledgedWriteIsSeenWithTheMessageThatFollowsItsPost) {
  if (world_->is_sealed_by_framing()) {
    GTEST_SKIP() << "sealed by framing: a message may overtake a write (transport/remote_access.h)";
  }
  Open();
  RegionPair regions(client_, server_end());
  int seen = 0;
  server_end().on_message = [&](ByteSpan) { seen += regions.Same(0, 0, kRegionBytes); };
  for (int round = 0; round < 10; ++round) {
    const std::vector<std::byte> fresh = Pattern(static_cast<uint64_t>(round) + 10, kRegionBytes);
    std::copy(fresh.begin(), fresh.end(), regions.client_memory.begin());
    TestOperation write;
    ASSERT_TRUE(regions.WriteAcknowledged(0, regions.Remote(0, kRegionBytes), &write).ok());
    client_.Send("written");
    ASSERT_TRUE(Run([&] { return write.done() && seen == round + 1; })) << "round " << round;
    EXPECT_TRUE(write.result.ok()) << write.result;
    EXPECT_EQ(write.completions, 1);
  }
}

TEST_P(ContractTest, AnUnorderedWriteIsSeenWithTheMessageThatFollowsItsEnd) {
  Open();
  RegionPair regions(client_, server_end());
  int seen = 0;
  server_end().on_message = [&](ByteSpan) { seen += regions.Same(0, 0, kRegionBytes); };
  for (int round = 0; round < 10; ++round) {
    const std::vector<std::byte> fresh = Pattern(static_cast<uint64_t>(round) + 10, kRegionBytes);
    std::copy(fresh.begin(), fresh.end(), regions.client_memory.begin());
    TestOperation write;
    ASSERT_TRUE(regions.WriteUnordered(0, regions.Remote(0, kRegionBytes), &write).ok());
    ASSERT_TRUE(Run([&] { return write.done(); })) << "round " << round;
    EXPECT_TRUE(write.result.ok()) << write.result;
    client_.Send("written");
    ASSERT_TRUE(Run([&] { return seen == round + 1; })) << "round " << round;
  }
}

TEST_P(ContractTest, OperationsBeyondTheLimitAreRefusedAndTakenLater) {
  ConnectOptions options;
  options.link.max_outstanding_operations = 16;
  Open(options);
  RegionPair regions(client_, server_end());
  std::vector<TestOperation> operations(200);
  size_t posted = 0;
  bool refused = false;
  bool pending = false;  // not where the post itself carries operations out: none is outstanding
  while (posted < operations.size()) {
    const absl::Status status =
        regions.Read(posted * 64, regions.Remote(posted * 64, 64), &operations[posted]);
    if (status.ok()) {
      pending = pending || !operations[posted].done();
      ++posted;
      continue;
    }
    ASSERT_TRUE(absl::IsResourceExhausted(status)) << status;
    refused = true;
    const int before = client_.writable_count;
    ASSERT_TRUE(Run([&] { return client_.writable_count > before; }));
  }
  EXPECT_EQ(refused, pending);
  ASSERT_TRUE(Run([&] { return AllDone(operations); }));
  for (const TestOperation& operation : operations) {
    EXPECT_TRUE(operation.result.ok()) << operation.result;
    EXPECT_EQ(operation.completions, 1);
  }
  EXPECT_TRUE(regions.Same(0, 0, operations.size() * 64));
}

TEST_P(ContractTest, BadLocalRangesAreTheCallersFault) {
  Open();
  RegionPair regions(client_, server_end());
  TestOperation op;
  EXPECT_TRUE(absl::IsInvalidArgument(regions.Read(kRegionBytes - 7, regions.Remote(0, 8), &op)));
  EXPECT_TRUE(absl::IsInvalidArgument(regions.Read(kRegionBytes + 1, regions.Remote(0, 8), &op)));
  EXPECT_TRUE(absl::IsInvalidArgument(regions.Write(~size_t{0}, regions.Remote(0, 8), &op)));
  EXPECT_TRUE(absl::IsInvalidArgument(regions.Write(0, regions.Remote(0, 0), &op)));
  RemoteSpan wraps = regions.Remote(0, 8);
  wraps.offset = ~uint64_t{0} - 3;
  EXPECT_TRUE(absl::IsInvalidArgument(regions.Read(0, wraps, &op)));
  EXPECT_EQ(op.completions, 0);
  // And the connection does not mind.
  ASSERT_TRUE(regions.Read(0, regions.Remote(0, 8), &op).ok());
  ASSERT_TRUE(Run([&] { return op.done(); }));
  EXPECT_TRUE(op.result.ok()) << op.result;
}

// What a provider does to the connection then is its own matter; the memory is untouched. (A write
// may complete here before the peer refuses it: OK only says that the local memory is free again.)
TEST_P(ContractTest, WhatIsNotGrantedIsNotTouched) {
  for (bool write : {false, true}) {
    for (auto* change : {&WithWrongKey, &BeyondTheEnd}) {
      SCOPED_TRACE(testing::Message() << (write ? "write" : "read") << " "
                                      << (change == &WithWrongKey ? "with a wrong key" : "beyond"));
      client_ = Endpoint();
      Open();
      RegionPair regions(client_, server_end());
      TestOperation op;
      const RemoteSpan remote = change(regions.Remote(0, 64));
      const absl::Status posted =
          write ? regions.Write(0, remote, &op) : regions.Read(0, remote, &op);
      ASSERT_TRUE(posted.ok()) << posted;
      ASSERT_TRUE(Run([&] { return op.done(); }));
      if (!write) {
        EXPECT_FALSE(op.result.ok());
      }
      EXPECT_EQ(op.completions, 1);
      if (!client_.closed()) client_.connection().Close("next");
      ASSERT_TRUE(Run([&] { return client_.closed() && server_end().closed(); }));
      EXPECT_TRUE(regions.server_memory == Pattern(1, kRegionBytes));
      EXPECT_TRUE(regions.client_memory == Pattern(2, kRegionBytes));
    }
  }
}

TEST_P(ContractTest, AReadOnlyRegionCannotBeWrittenAndAForgottenOneCannotBeRead) {
  Open();
  RegionPair regions(client_, server_end(), Access::kRemoteRead);
  const std::vector<std::byte> before = regions.server_memory.Copy();
  TestOperation read;
  ASSERT_TRUE(regions.Read(0, regions.Remote(0, 64), &read).ok());
  ASSERT_TRUE(Run([&] { return read.done(); }));
  EXPECT_TRUE(read.result.ok()) << read.result;
  const RemoteSpan forgotten = regions.Remote(0, 64);
  regions.server_region.reset();
  TestOperation late;
  ASSERT_TRUE(regions.Read(0, forgotten, &late).ok());
  ASSERT_TRUE(Run([&] { return late.done(); }));
  EXPECT_FALSE(late.result.ok());
  EXPECT_TRUE(regions.server_memory == before);
}

// Whether it can move anything inside the call is the path's affair: over memory that both have
// mapped it does. What is not granted it never touches.
TEST_P(ContractTest, WhatIsMovedNowIsMovedAndNothingElseIs) {
  Open();
  RegionPair regions(client_, server_end(), Access::kRemoteRead);
  RemoteAccess& memory = client_.connection().memory();
  const MutableByteSpan local = MutableByteSpan(regions.client_memory).subspan(10, 64);
  const RemoteSpan remote = regions.Remote(100, local.size());
  const bool moved = memory.MoveNow(TransferKind::kRead, local, remote);
  EXPECT_EQ(regions.Same(10, 100, local.size()), moved);
  if (std::string_view(GetParam().name) == "shm_mapped") {
    EXPECT_TRUE(moved);
  }
  EXPECT_FALSE(memory.MoveNow(TransferKind::kWrite, local, remote));
  EXPECT_FALSE(memory.MoveNow(TransferKind::kRead, local, WithWrongKey(remote)));
  EXPECT_FALSE(memory.MoveNow(TransferKind::kRead, local, BeyondTheEnd(remote)));
  EXPECT_TRUE(regions.server_memory == Pattern(1, kRegionBytes));
  regions.server_region.reset();
  EXPECT_FALSE(memory.MoveNow(TransferKind::kRead, local, remote));
  client_.connection().Close("over");
  EXPECT_FALSE(memory.MoveNow(TransferKind::kRead, local, remote));
}

TEST_P(ContractTest, TransfersAndMessagesOfAllSizesShareTheConnection) {
  acceptor_.keep = client_.keep = false;
  Open();
  RegionPair regions(client_, server_end());
  const size_t large = client_.connection().eager_bytes() + 1;
  std::vector<TestOperation> operations(64);
  for (size_t i = 0; i < operations.size(); ++i) {
    const RemoteSpan remote = regions.Remote(i * 4096, 4096);
    const absl::Status posted = i % 2 == 0 ? regions.Read(i * 4096, remote, &operations[i])
                                           : regions.Write(i * 4096, remote, &operations[i]);
    ASSERT_TRUE(posted.ok()) << posted;
    client_.Send(Pattern(i, i % 2 == 0 ? 100 : large));
    server_end().Send(Pattern(i, i % 2 == 0 ? large : 100));
  }
  ASSERT_TRUE(Run([&] {
    return server_end().received_count == operations.size() &&
           client_.received_count == operations.size() && AllDone(operations);
  }));
  for (const TestOperation& operation : operations) EXPECT_TRUE(operation.result.ok());
  EXPECT_TRUE(regions.Same(0, 0, operations.size() * 4096));
}

}  // namespace
}  // namespace weft
