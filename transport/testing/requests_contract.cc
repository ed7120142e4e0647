// Atomics and probes: what they do, in which order, and what they may not touch.

#include <algorithm>
#include <atomic>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "transport/testing/contract_test.h"
#include "transport/testing/post.h"

namespace weft {
namespace {

constexpr size_t kWords = 64;

// Memory of the server that the client may change. Destroyed before the engines, because tests make
// it inside their body.
class Words {
 public:
  explicit Words(Endpoint& server, Access access = Access::kRemoteReadWrite) {
    auto registered = server.connection().memory().Register(
        {reinterpret_cast<std::byte*>(memory), sizeof(memory)}, access);
    EXPECT_TRUE(registered.ok()) << registered.status();
    if (registered.ok()) region = *std::move(registered);
  }
  RemoteSpan Remote(size_t word) const { return region->remote().Slice(word * 8, 8); }

  uint64_t memory[kWords] = {};
  std::unique_ptr<Region> region;
};

bool AllDone(const std::vector<TestAtomic>& operations) {
  return std::all_of(operations.begin(), operations.end(), [](auto& op) { return op.done(); });
}

TEST_P(ContractTest, FetchAddAddsAndReturnsWhatWasThere) {
  Open();
  Words words(server_end());
  words.memory[3] = 40;
  TestAtomic first;
  TestAtomic second;
  ASSERT_TRUE(client_.connection().memory().FetchAdd(words.Remote(3), 2, &first).ok());
  ASSERT_TRUE(client_.connection().memory().FetchAdd(words.Remote(3), ~uint64_t{0}, &second).ok());
  EXPECT_FALSE(first.done());  // callbacks come from Poll()
  ASSERT_TRUE(Run([&] { return second.done(); }));
  EXPECT_TRUE(first.result.ok() && second.result.ok()) << first.result << second.result;
  EXPECT_EQ(first.before, 40u);
  EXPECT_EQ(second.before, 42u);
  EXPECT_EQ(words.memory[3], 41u);  // the sum wraps
  EXPECT_EQ(words.memory[2], 0u);
  EXPECT_EQ(words.memory[4], 0u);
}

TEST_P(ContractTest, CompareSwapSwapsOnlyWhatWasExpected) {
  Open();
  Words words(server_end());
  words.memory[kWords - 1] = 7;
  TestAtomic wrong;
  TestAtomic right;
  const RemoteSpan last = words.Remote(kWords - 1);
  ASSERT_TRUE(client_.connection().memory().CompareSwap(last, 8, 100, &wrong).ok());
  ASSERT_TRUE(client_.connection().memory().CompareSwap(last, 7, 101, &right).ok());
  ASSERT_TRUE(Run([&] { return right.done(); }));
  EXPECT_TRUE(wrong.result.ok()) << wrong.result;
  EXPECT_EQ(wrong.before, 7u);
  EXPECT_EQ(right.before, 7u);
  EXPECT_EQ(words.memory[kWords - 1], 101u);
}

// Two connections, and the owner itself.
TEST_P(ContractTest, NoUpdateIsLost) {
  Open();
  Words words(server_end());
  Endpoint other;
  Connect(other);
  ASSERT_TRUE(Run([&] { return other.opened() || other.closed(); }));
  ASSERT_TRUE(other.opened());
  constexpr size_t kRounds = 20;
  constexpr size_t kEach = 40;
  std::set<uint64_t> seen;
  const std::atomic_ref<uint64_t> cell(words.memory[0]);
  for (size_t round = 0; round < kRounds; ++round) {
    std::vector<TestAtomic> operations(2 * kEach);
    for (size_t i = 0; i < operations.size(); ++i) {
      Endpoint& end = i % 2 == 0 ? client_ : other;
      ASSERT_TRUE(end.connection().memory().FetchAdd(words.Remote(0), 1, &operations[i]).ok());
    }
    seen.insert(cell.fetch_add(1));
    ASSERT_TRUE(Run([&] { return AllDone(operations); }));
    for (const TestAtomic& operation : operations) {
      EXPECT_TRUE(operation.result.ok()) << operation.result;
      seen.insert(operation.before);
    }
  }
  constexpr uint64_t kSum = kRounds * (2 * kEach + 1);
  EXPECT_EQ(cell.load(), kSum);
  EXPECT_EQ(seen.size(), kSum) << "two of them saw the same value";
  EXPECT_EQ(*seen.rbegin(), kSum - 1);
  other.connection().Close("done");
  ASSERT_TRUE(Run([&] { return other.closed(); }));
}

TEST_P(ContractTest, AnAtomicComesBetweenTheMessagesBeforeAndAfterIt) {
  Open();
  Words words(server_end());
  std::vector<uint64_t> when_delivered;
  server_end().on_message = [&](ByteSpan) { when_delivered.push_back(words.memory[0]++); };
  std::vector<TestAtomic> operations(20);
  for (TestAtomic& operation : operations) {
    client_.Send("before");
    ASSERT_TRUE(client_.connection().memory().FetchAdd(words.Remote(0), 1, &operation).ok());
  }
  client_.Send("last");
  ASSERT_TRUE(Run([&] { return AllDone(operations) && when_delivered.size() == 21; }));
  for (uint64_t i = 0; i < operations.size(); ++i) {
    EXPECT_EQ(when_delivered[i], 2 * i);
    EXPECT_EQ(operations[i].before, 2 * i + 1);
  }
  EXPECT_EQ(when_delivered.back(), 40u);
}

TEST_P(ContractTest, AnAtomicSeesTheWritesPostedBeforeIt) {
  Open();
  Words words(server_end());
  uint64_t local = 0;
  const auto region = client_.connection().memory().Register(
      {reinterpret_cast<std::byte*>(&local), sizeof(local)}, Access::kLocalOnly);
  ASSERT_TRUE(region.ok()) << region.status();
  for (uint64_t round = 1; round <= 50; ++round) {
    local = round * 1000;
    TestOperation write;
    TestAtomic add;
    ASSERT_TRUE(Write(client_.connection(), **region, 0, words.Remote(5), &write).ok());
    ASSERT_TRUE(client_.connection().memory().FetchAdd(words.Remote(5), 1, &add).ok());
    ASSERT_TRUE(Run([&] { return write.done() && add.done(); }));
    EXPECT_EQ(add.before, round * 1000);
    // And a read that is posted when the atomic is complete sees what it did.
    TestOperation read;
    ASSERT_TRUE(Read(client_.connection(), **region, 0, words.Remote(5), &read).ok());
    ASSERT_TRUE(Run([&] { return read.done(); }));
    EXPECT_EQ(local, round * 1000 + 1);
  }
}

TEST_P(ContractTest, TheReplyComesAfterWhatThePeerSentBefore) {
  Open();
  Words words(server_end());
  server_end().on_message = [&](ByteSpan) { server_end().Send("sent before executing"); };
  uint64_t received_before = 0;
  TestAtomic add;
  add.on_complete = [&] { received_before = client_.received_count; };
  client_.Send("send");
  ASSERT_TRUE(client_.connection().memory().FetchAdd(words.Remote(0), 1, &add).ok());
  ASSERT_TRUE(Run([&] { return add.done(); }));
  EXPECT_EQ(received_before, 1u);
}

// All of it gets one answer, and the connection goes on.
TEST_P(ContractTest, AnAtomicOnWhatIsNotGrantedIsRefusedAndNothingElseHappens) {
  Open();
  Words words(server_end());
  Words read_only(server_end(), Access::kRemoteRead);
  Words write_only(server_end(), Access::kRemoteWrite);
  RemoteSpan forgotten;
  {
    Words temporary(server_end());
    forgotten = temporary.Remote(0);
  }
  const RemoteSpan good = words.Remote(0);
  const uint64_t base = words.region->remote().offset;
  std::vector<RemoteSpan> bad = {
      {good.key ^ 0x5555, good.offset, 8},
      {good.key, base + sizeof(words.memory), 8},
      {good.key, base + sizeof(words.memory) - 4, 8},
      {good.key, base - 8, 8},
      {good.key, base + 1, 8},
      {good.key, base + 4, 8},
      {good.key, ~uint64_t{0}, 8},
      {good.key, ~uint64_t{7}, 8},
      {good.key, base + (uint64_t{1} << 63), 8},
      read_only.Remote(0),
      write_only.Remote(0),
      forgotten,
  };
  std::string refusal;
  for (const RemoteSpan& remote : bad) {
    SCOPED_TRACE(testing::Message() << "offset " << remote.offset);
    TestAtomic add;
    TestAtomic swap;
    ASSERT_TRUE(client_.connection().memory().FetchAdd(remote, 1, &add).ok());
    ASSERT_TRUE(client_.connection().memory().CompareSwap(remote, 0, 1, &swap).ok());
    ASSERT_TRUE(Run([&] { return swap.done(); }));
    EXPECT_TRUE(absl::IsPermissionDenied(add.result)) << add.result;
    if (refusal.empty()) refusal = add.result.ToString();
    EXPECT_EQ(add.result.ToString(), refusal);
    EXPECT_EQ(swap.result.ToString(), refusal);
    EXPECT_EQ(add.completions + swap.completions, 2);
    EXPECT_EQ(add.before, 0u);
  }
  for (const Words* all : {&words, &read_only, &write_only}) {
    EXPECT_TRUE(std::all_of(std::begin(all->memory), std::end(all->memory),
                            [](uint64_t word) { return word == 0; }));
  }
  TestAtomic add;
  ASSERT_TRUE(client_.connection().memory().FetchAdd(good, 1, &add).ok());
  ASSERT_TRUE(Run([&] { return add.done(); }));
  EXPECT_TRUE(add.result.ok()) << add.result;
  EXPECT_FALSE(client_.closed() || server_end().closed());
}

TEST_P(ContractTest, AnAtomicOnOtherThanEightBytesIsTheCallersFault) {
  Open();
  Words words(server_end());
  TestAtomic op;
  for (const uint64_t bytes : {0, 4, 16}) {
    const RemoteSpan remote = words.region->remote().Slice(0, bytes);
    EXPECT_TRUE(absl::IsInvalidArgument(client_.connection().memory().FetchAdd(remote, 1, &op)));
    EXPECT_TRUE(
        absl::IsInvalidArgument(client_.connection().memory().CompareSwap(remote, 0, 1, &op)));
  }
  EXPECT_EQ(op.completions, 0);
}

TEST_P(ContractTest, RequestsBeyondTheLimitAreRefusedAndTakenLater) {
  Open();
  Words words(server_end());
  std::vector<TestAtomic> operations(3 * kMaxRequests);
  bool refused = false;
  for (size_t posted = 0; posted < operations.size();) {
    const absl::Status status =
        client_.connection().memory().FetchAdd(words.Remote(0), 1, &operations[posted]);
    if (status.ok()) {
      ++posted;
      EXPECT_TRUE(refused || posted <= kMaxRequests);
      continue;
    }
    ASSERT_TRUE(absl::IsResourceExhausted(status)) << status;
    refused = true;
    const int before = client_.writable_count;
    ASSERT_TRUE(Run([&] { return client_.writable_count > before; }));
  }
  EXPECT_TRUE(refused);
  ASSERT_TRUE(Run([&] { return AllDone(operations); }));
  for (size_t i = 0; i < operations.size(); ++i) {
    EXPECT_EQ(operations[i].completions, 1);
    EXPECT_EQ(operations[i].before, i) << "not in the order of posts";
  }
}

// With the smallest window every reply waits for a credit, among messages both ways.
TEST_P(ContractTest, RequestsOfBothSidesShareTheConnectionWithMessages) {
  acceptor_.keep = client_.keep = false;
  ConnectOptions connect;
  connect.link.window_slots = 4;
  ListenOptions listen;
  listen.link.window_slots = 4;
  Open(connect, listen);
  Words of_server(server_end());
  Words of_client(client_);
  size_t asked_client = 0;
  size_t asked_server = 0;
  constexpr size_t kCount = 500;
  std::vector<TestAtomic> by_client(kCount);
  std::vector<TestAtomic> by_server(kCount);
  const auto ask = [](Endpoint& end, const RemoteSpan& remote, std::vector<TestAtomic>& operations,
                      size_t* asked) {
    while (*asked < kCount &&
           end.connection().memory().FetchAdd(remote, 1, &operations[*asked]).ok()) {
      if (++*asked % 3 == 0) end.Send(Pattern(*asked, *asked * 10));
    }
  };
  ASSERT_TRUE(Run([&] {
    ask(client_, of_server.Remote(0), by_client, &asked_client);
    ask(server_end(), of_client.Remote(0), by_server, &asked_server);
    return AllDone(by_client) && AllDone(by_server);
  }));
  EXPECT_EQ(of_server.memory[0], kCount);
  EXPECT_EQ(of_client.memory[0], kCount);
  ASSERT_TRUE(Run([&] {
    return client_.received_count == kCount / 3 && server_end().received_count == kCount / 3;
  }));
}

TEST_P(ContractTest, RequestsEndWithTheirConnectionOnceAndBeforeIt) {
  for (const bool by_peer : {false, true}) {
    client_ = Endpoint();
    Open();
    Words words(server_end());
    std::vector<TestAtomic> operations(kMaxRequests - 1);
    for (TestAtomic& operation : operations) {
      ASSERT_TRUE(client_.connection().memory().FetchAdd(words.Remote(0), 1, &operation).ok());
    }
    TestOperation probe;
    ASSERT_TRUE(client_.connection().memory().Probe(&probe).ok());
    bool all_done_first = false;
    client_.on_closed = [&] { all_done_first = AllDone(operations) && probe.done(); };
    (by_peer ? server_end() : client_).connection().Close("in the middle");
    TestAtomic late;
    if (!by_peer) {
      EXPECT_EQ(client_.connection().memory().FetchAdd(words.Remote(0), 1, &late).code(),
                absl::StatusCode::kFailedPrecondition);
    }
    ASSERT_TRUE(Run([&] { return client_.closed() && server_end().closed(); }));
    EXPECT_TRUE(all_done_first);
    for (const TestAtomic& operation : operations) {
      EXPECT_EQ(operation.completions, 1);
      EXPECT_TRUE(operation.result.ok() || operation.result == client_.why()) << operation.result;
    }
    EXPECT_EQ(probe.completions, 1);
    EXPECT_EQ(late.completions, 0);
  }
}

TEST_P(ContractTest, CloseInsideACompletionIsHeard) {
  Open();
  Words words(server_end());
  std::vector<TestAtomic> operations(3);
  operations[1].on_complete = [&] {
    if (!client_.closed() && operations[1].result.ok()) client_.connection().Close("enough");
  };
  for (TestAtomic& operation : operations) {
    ASSERT_TRUE(client_.connection().memory().FetchAdd(words.Remote(0), 1, &operation).ok());
  }
  ASSERT_TRUE(Run([&] { return client_.closed() && server_end().closed(); }));
  for (const TestAtomic& operation : operations) EXPECT_EQ(operation.completions, 1);
  EXPECT_TRUE(absl::IsCancelled(operations[2].result)) << operations[2].result;
}

TEST_P(ContractTest, AProbeIsAnsweredByThePeersTransportAlone) {
  Open();
  TestOperation probe;
  ASSERT_TRUE(client_.connection().memory().Probe(&probe).ok());
  client_.connection().Flush();
  world_->RunClientOnly();
  EXPECT_FALSE(probe.done()) << "by whom?";
  ASSERT_TRUE(Run([&] { return probe.done(); }));
  EXPECT_TRUE(probe.result.ok()) << probe.result;
  EXPECT_EQ(server_end().received_count, 0u);
  EXPECT_EQ(client_.received_count, 0u);
}

}  // namespace
}  // namespace weft
