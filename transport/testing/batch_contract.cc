// Batches of one-sided transfers, and a write with a message behind it: all or nothing, and one
// completion.

#include <algorithm>
#include <vector>

#include "transport/testing/contract_test.h"
#include "transport/testing/post.h"
#include "transport/testing/region_pair.h"

namespace weft {
namespace {

// `count` pieces of `bytes`: local ones side by side, remote ones `stride` apart.
std::vector<Transfer> Pieces(const RegionPair& regions, size_t count, size_t bytes, size_t stride) {
  std::vector<Transfer> pieces;
  for (size_t i = 0; i < count; ++i) {
    pieces.push_back({regions.client_region.get(), i * bytes,
                      regions.server_region->remote().Slice(i * stride, bytes)});
  }
  return pieces;
}

TEST_P(ContractTest, ABatchOfReadsBringsEveryPieceAndCompletesOnce) {
  Open();
  RegionPair regions(client_, server_end());
  const std::vector<std::byte> before = regions.client_memory;
  for (const size_t count : {size_t{1}, size_t{16}, kMaxBatchTransfers}) {
    TestOperation read;
    ASSERT_TRUE(ReadBatch(client_.connection(), Pieces(regions, count, 64, 10'000), &read).ok());
    ASSERT_TRUE(Run([&] { return read.done(); }));
    EXPECT_TRUE(read.result.ok()) << read.result;
    for (size_t i = 0; i < count; ++i) EXPECT_TRUE(regions.Same(i * 64, i * 10'000, 64));
    EXPECT_TRUE(std::equal(before.begin() + static_cast<ptrdiff_t>(count) * 64, before.end(),
                           regions.client_memory.begin() + static_cast<ptrdiff_t>(count) * 64));
    EXPECT_EQ(read.completions, 1);
  }
}

TEST_P(ContractTest, ABatchOfWritesScattersAndANeighbouringOneGathers) {
  Open();
  RegionPair regions(client_, server_end());
  TestOperation scatter;
  TestOperation gather;
  ASSERT_TRUE(WriteBatch(client_.connection(), Pieces(regions, 20, 1000, 5000), &scatter).ok());
  std::vector<Transfer> pieces;  // from everywhere here to one range there
  for (size_t i = 0; i < 20; ++i) {
    pieces.push_back(
        {regions.client_region.get(), 500'000 + i * 3000, regions.Remote(200'000 + i * 100, 100)});
  }
  ASSERT_TRUE(WriteBatch(client_.connection(), pieces, &gather).ok());
  client_.Send("after");  // a message that arrives behind them tells that they are there
  ASSERT_TRUE(
      Run([&] { return scatter.done() && gather.done() && server_end().received_count == 1; }));
  EXPECT_TRUE(scatter.result.ok()) << scatter.result;
  EXPECT_TRUE(gather.result.ok()) << gather.result;
  for (size_t i = 0; i < 20; ++i) {
    EXPECT_TRUE(regions.Same(i * 1000, i * 5000, 1000));
    EXPECT_TRUE(regions.Same(500'000 + i * 3000, 200'000 + i * 100, 100));
  }
}

TEST_P(ContractTest, ABatchMayBeLargerThanWhatMovesAtOnce) {
  Open();
  RegionPair regions(client_, server_end());
  TestOperation read;
  ASSERT_TRUE(ReadBatch(client_.connection(), Pieces(regions, 10, 100'000, 100'000), &read).ok());
  ASSERT_TRUE(Run([&] { return read.done(); }));
  EXPECT_TRUE(read.result.ok()) << read.result;
  EXPECT_TRUE(regions.Same(0, 0, 1'000'000));
}

TEST_P(ContractTest, ABatchIsTakenAsAWholeOrNotAtAll) {
  ConnectOptions options;
  options.link.max_outstanding_operations = 16;
  Open(options);
  RegionPair regions(client_, server_end());
  TestOperation first;
  TestOperation refused;
  TestOperation single;
  ASSERT_TRUE(ReadBatch(client_.connection(), Pieces(regions, 10, 64, 64), &first).ok());
  const absl::Status status =
      ReadBatch(client_.connection(), Pieces(regions, 7, 64, 100'000), &refused);
  if (first.done()) {
    // The post itself carried it out, as over shared memory: nothing is outstanding.
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_TRUE(refused.done());
    refused = TestOperation();
  } else {
    EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
    ASSERT_TRUE(regions.Read(1000, regions.Remote(1000, 64), &single).ok());
    ASSERT_TRUE(Run([&] { return first.done() && single.done() && client_.writable_count > 0; }));
    EXPECT_EQ(refused.completions, 0);
  }
  ASSERT_TRUE(ReadBatch(client_.connection(), Pieces(regions, 16, 64, 64), &refused).ok());
  ASSERT_TRUE(Run([&] { return refused.done(); }));
  EXPECT_TRUE(refused.result.ok()) << refused.result;
  EXPECT_TRUE(absl::IsInvalidArgument(
      ReadBatch(client_.connection(), Pieces(regions, 17, 64, 64), &refused)));
}

TEST_P(ContractTest, AWrongBatchIsTheCallersFaultAndMovesNothing) {
  Open();
  RegionPair regions(client_, server_end());
  Connection& connection = client_.connection();
  TestOperation op;
  EXPECT_TRUE(absl::IsInvalidArgument(ReadBatch(connection, {}, &op)));
  EXPECT_TRUE(absl::IsInvalidArgument(
      ReadBatch(connection, Pieces(regions, kMaxBatchTransfers + 1, 8, 8), &op)));
  for (int wrong = 0; wrong < 4; ++wrong) {
    std::vector<Transfer> pieces = Pieces(regions, 3, 64, 64);
    if (wrong == 0) pieces[2].local = nullptr;
    if (wrong == 1) pieces[2].local_offset = kRegionBytes - 63;
    if (wrong == 2) pieces[2].remote.length = 0;
    if (wrong == 3) pieces[2].remote.offset = ~uint64_t{0} - 3;
    EXPECT_TRUE(absl::IsInvalidArgument(WriteBatch(connection, pieces, &op))) << wrong;
  }
  EXPECT_EQ(op.completions, 0);
  ASSERT_TRUE(ReadBatch(connection, Pieces(regions, 3, 64, 64), &op).ok());
  ASSERT_TRUE(Run([&] { return op.done(); }));
  EXPECT_TRUE(op.result.ok()) << op.result;
  CloseClient();
  EXPECT_EQ(op.completions, 1);
  EXPECT_TRUE(regions.server_memory == Pattern(1, kRegionBytes));
}

// The others may have been carried out; the memory that was not granted is untouched.
TEST_P(ContractTest, OnePieceThatIsNotGrantedFailsTheBatchOnce) {
  Open();
  RegionPair regions(client_, server_end());
  constexpr size_t kWrong = 7;
  constexpr size_t kBytes = 64;
  std::vector<Transfer> pieces = Pieces(regions, 16, kBytes, kBytes);
  pieces[kWrong].remote = WithWrongKey(pieces[kWrong].remote);
  TestOperation read;
  ASSERT_TRUE(ReadBatch(client_.connection(), pieces, &read).ok());
  ASSERT_TRUE(Run([&] { return read.done(); }));
  EXPECT_FALSE(read.result.ok());
  if (!client_.closed()) client_.connection().Close("enough");
  ASSERT_TRUE(Run([&] { return client_.closed(); }));
  EXPECT_EQ(read.completions, 1);
  EXPECT_TRUE(std::equal(regions.client_memory.begin() + kWrong * kBytes,
                         regions.client_memory.begin() + (kWrong + 1) * kBytes,
                         Pattern(2, kRegionBytes).begin() + kWrong * kBytes));
}

TEST_P(ContractTest, ABatchThatTheEndCutsOffCompletesOnce) {
  Open();
  RegionPair regions(client_, server_end());
  TestOperation read;
  ASSERT_TRUE(ReadBatch(client_.connection(), Pieces(regions, 10, 100'000, 100'000), &read).ok());
  client_.connection().Close("enough");
  ASSERT_TRUE(Run([&] { return client_.closed() && server_end().closed(); }));
  EXPECT_EQ(read.completions, 1);
}

TEST_P(ContractTest, AMessageBehindAWriteFindsItThere) {
  Open();
  RegionPair regions(client_, server_end());
  int seen = 0;
  server_end().on_message = [&](ByteSpan message) {
    seen += message.size() == 5 && regions.Same(0, 0, 2000) && regions.Same(2000, 20'000, 2000);
  };
  for (int round = 0; round < 20; ++round) {
    const std::vector<std::byte> fresh = Pattern(static_cast<uint64_t>(round) + 10, kRegionBytes);
    std::copy(fresh.begin(), fresh.end(), regions.client_memory.begin());
    TestOperation write;
    ASSERT_TRUE(WriteThenSend(client_.connection(), Pieces(regions, 2, 2000, 20'000),
                              AsBytes("there"), &write)
                    .ok());
    ASSERT_TRUE(Run([&] { return write.done() && seen == round + 1; })) << "round " << round;
    EXPECT_TRUE(write.result.ok()) << write.result;
  }
}

TEST_P(ContractTest, AWriteThenSendIsBothOrNeither) {
  ConnectOptions options;
  options.link.max_outstanding_operations = 16;
  Open(options);
  RegionPair regions(client_, server_end());
  Connection& connection = client_.connection();
  TestOperation op;
  const std::vector<std::byte> too_long(connection.eager_bytes() + 1);
  EXPECT_TRUE(absl::IsInvalidArgument(
      WriteThenSend(connection, Pieces(regions, 1, 64, 64), too_long, &op)));
  EXPECT_TRUE(
      absl::IsInvalidArgument(WriteThenSend(connection, Pieces(regions, 1, 64, 64), {}, &op)));
  EXPECT_TRUE(absl::IsInvalidArgument(WriteThenSend(connection, {}, AsBytes("no"), &op)));
  TestOperation first;
  ASSERT_TRUE(ReadBatch(connection, Pieces(regions, 16, 64, 64), &first).ok());
  // Where the post itself carried that out, as over shared memory, nothing is outstanding.
  if (!first.done()) {
    EXPECT_TRUE(absl::IsResourceExhausted(
        WriteThenSend(connection, Pieces(regions, 1, 64, 64), AsBytes("no"), &op)));
  }
  client_.Send("only this");
  ASSERT_TRUE(Run([&] { return first.done() && server_end().received_count == 1; }));
  CloseClient();
  EXPECT_EQ(op.completions, 0);
  EXPECT_EQ(server_end().received_count, 1u);
}

// Credits run out first here: then nothing may have been written.
TEST_P(ContractTest, AWriteWithoutRoomForItsMessageIsNotPosted) {
  Open();
  RegionPair regions(client_, server_end());
  Connection& connection = client_.connection();
  std::vector<std::unique_ptr<TestOperation>> taken;
  absl::Status status;
  for (int i = 0; i < 1000 && status.ok(); ++i) {
    taken.push_back(std::make_unique<TestOperation>());
    status = WriteThenSend(connection, Pieces(regions, 1, 8, 8), AsBytes("w"), taken.back().get());
  }
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  TestOperation* const refused = taken.back().get();
  ASSERT_TRUE(Run([&] {
    return server_end().received_count == taken.size() - 1 && client_.writable_count > 0;
  }));
  CloseClient();
  for (const auto& op : taken) EXPECT_EQ(op->completions, op.get() == refused ? 0 : 1);
}

}  // namespace
}  // namespace weft
