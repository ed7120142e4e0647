// Sealed connections: what becomes of them when somebody on the way changes, repeats or leaves out
// what is sent, and what they do where encryption is required.

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "transport/framing/batch.h"
#include "transport/framing/large_line.h"
#include "transport/framing/seal.h"
#include "transport/sim/sim_fixture.h"
#include "transport/testing/post.h"

namespace weft {
namespace {

using Batch = std::vector<std::byte>;

SimOptions Sealed(bool only = false) {
  SimOptions options;
  options.sealed = true;
  options.only_sealed = only;
  return options;
}

class SealedTest : public SimTest {
 protected:
  SealedTest() : SimTest(Sealed()) { Listen("db"); }

  // Both ends of the pair have closed, the receiver for what has come; others have not noticed.
  void ExpectEnds(Endpoint& sender, Endpoint& receiver) {
    ASSERT_TRUE(Run([&] { return sender.closed() && receiver.closed(); }));
    EXPECT_TRUE(absl::IsDataLoss(receiver.why())) << receiver.why();
    EXPECT_EQ(receiver.received_count, 0u);
  }
};

TEST_F(SealedTest, NothingOfAMessageCanBeReadOnTheWay) {
  const auto [client, server] = Pair("app", "db");
  Batch seen;
  network_->Corrupt("app", "db", [&](Batch& batch) { seen = batch; });
  client->Send("a secret");
  ASSERT_TRUE(Run([s = server] { return s->received_count == 1; }));
  EXPECT_EQ(AsStringView(seen).find("secret"), std::string_view::npos);
  EXPECT_EQ(AsStringView(server->received[0]), "a secret");
}

TEST_F(SealedTest, AnyByteThatIsChangedEndsItsConnectionAndNoOther) {
  const auto [bystander, bystander_server] = Pair("app", "db");
  const size_t bytes =
      kBatchHeaderBytes + FrameBytes(5) + Seal::kTagBytes;  // of a batch with one message
  for (size_t at = 0; at < bytes; ++at) {
    const auto [client, server] = Pair("app", "db");
    network_->Corrupt("app", "db", [at, bytes](Batch& batch) {
      ASSERT_EQ(batch.size(), bytes);
      batch[at] ^= std::byte{0x10};
    });
    client->Send("12345");
    ExpectEnds(*client, *server);
  }
  bystander->Send("still here");
  ASSERT_TRUE(Run([s = bystander_server] { return s->received_count == 1; }));
}

TEST_F(SealedTest, ABatchThatIsCutOrLongerEndsItsConnection) {
  for (const int change : {-100, -17, -16, -8, -1, 1, 8, 16}) {
    const auto [client, server] = Pair("app", "db");
    network_->Corrupt("app", "db", [change](Batch& batch) {
      const auto bytes = static_cast<int>(batch.size()) + change;
      batch.resize(bytes < 16 ? 16 : static_cast<size_t>(bytes));
    });
    client->Send("12345");
    ExpectEnds(*client, *server);
  }
}

TEST_F(SealedTest, ABatchThatComesAgainInThePlaceOfAnotherEndsItsConnection) {
  const auto [client, server] = Pair("app", "db");
  Batch first;
  network_->Corrupt("app", "db", [&](Batch& batch) { first = batch; });
  client->Send("pay 5 to A");
  ASSERT_TRUE(Run([s = server] { return s->received_count == 1; }));
  // Once as it is, once with the number of the one that it replaces.
  network_->Corrupt("app", "db", [&](Batch& batch) {
    const uint32_t number = LoadLe32(&batch[12]);
    batch = first;
    StoreLe32(&batch[12], number);
  });
  client->Send("pay 6 to B");
  ASSERT_TRUE(Run([c = client, s = server] { return c->closed() && s->closed(); }));
  EXPECT_TRUE(absl::IsDataLoss(server->why())) << server->why();
  EXPECT_EQ(server->received_count, 1u);
}

TEST_F(SealedTest, OneConnectionsBatchIsNotAnothers) {
  const auto [client, server] = Pair("app", "db");
  const auto [other, other_server] = Pair("app", "db");
  Batch taken;
  network_->Corrupt("app", "db", [&](Batch& batch) { taken = batch; });
  client->Send("12345");
  ASSERT_TRUE(Run([s = server] { return s->received_count == 1; }));
  network_->Corrupt("app", "db", [&](Batch& batch) {
    std::copy_n(batch.begin(), 8, taken.begin());  // whose it is
    batch = taken;
  });
  other->Send("12345");
  ExpectEnds(*other, *other_server);
  EXPECT_FALSE(server->closed());
}

// Batches of a direction have 2^18 to a key.
TEST_F(SealedTest, ConnectionsOutliveTheLimitOfAKey) {
  const auto [client, server] = Pair("app", "db");
  server->keep = false;
  constexpr uint64_t kBatches = Seal::RecordsPerKey(uint64_t{1} << 20) + 1000;
  for (uint64_t i = 0; i < kBatches; ++i) {
    while (!client->TrySend(AsBytes("x")).ok()) network_->RunFor(100'000);
    client->connection().Flush();
  }
  ASSERT_TRUE(Run([s = server] { return s->received_count == kBatches; }));
  EXPECT_GE(client->connection().stats().batches_sent, kBatches);
  EXPECT_FALSE(client->closed() || server->closed());
}

// An atomic or a probe opened a batch, and what was appended to that left before the message that
// waited behind a write.
TEST_F(SealedTest, NothingOvertakesAMessageThatWaitsBehindAWrite) {
  const auto [client, server] = Pair("app", "db");
  std::vector<std::byte> there(1'000'000);
  std::vector<std::byte> here = Pattern(1, there.size());
  auto lent = server->connection().memory().Register(there, Access::kRemoteReadWrite);
  auto local = client->connection().memory().Register(here, Access::kLocalOnly);
  ASSERT_TRUE(lent.ok() && local.ok());
  const Transfer transfer = {local->get(), 0, (*lent)->remote()};
  RemoteAccess& memory = client->connection().memory();
  TestOperation write;
  ASSERT_TRUE(
      memory.WriteThenSend(absl::MakeConstSpan(&transfer, 1), AsBytes("behind"), &write).ok());
  const RemoteSpan word = transfer.remote.Slice(0, 8);
  TestAtomic atomic;
  TestOperation probe;
  EXPECT_TRUE(absl::IsResourceExhausted(memory.FetchAdd(word, 1, &atomic)));
  EXPECT_TRUE(absl::IsResourceExhausted(memory.CompareSwap(word, 1, 2, &atomic)));
  EXPECT_TRUE(absl::IsResourceExhausted(memory.Probe(&probe)));
  std::byte* const small = client->connection().Append(5).data;
  EXPECT_EQ(small, nullptr);
  if (small != nullptr) std::copy_n(AsBytes("small").data(), 5, small);
  ASSERT_TRUE(Run([&, s = server] { return write.done() && s->received_count > 0; }));
  EXPECT_EQ(AsStringView(server->received[0]), "behind");
  EXPECT_EQ(there, here);
  EXPECT_GE(client->writable_count, 1);
  ASSERT_TRUE(memory.FetchAdd(word, 1, &atomic).ok());
  ASSERT_TRUE(Run([&] { return atomic.done(); }));
  EXPECT_TRUE(atomic.result.ok()) << atomic.result;
  EXPECT_EQ(atomic.before, LoadLe64(here.data()));
  local->reset();
  lent->reset();
}

// Sends a message in each of the turns that an engine takes without time going on, and counts those
// in which something holds. By way of another engine, for a turn runs what is posted in it as well.
class InEachTurn {
 public:
  InEachTurn(Engine* engine, Engine* other, Endpoint* sender, Function<bool()> holds)
      : engine_(*engine), other_(*other), sender_(*sender), holds_(std::move(holds)) {}

  void Begin() {
    left_ = kTurns;
    engine_.Post([this] { Turn(); });
  }
  int turns() const { return turns_; }
  int sent() const { return sent_; }  // in them

 private:
  static constexpr int kTurns = 100;

  void Turn() {
    if (holds_()) {
      ++turns_;
      if (sender_.TrySend(AsBytes("x")).ok()) ++sent_;
      sender_.connection().Flush();
    }
    if (--left_ == 0) return;
    other_.Post([this] { engine_.Post([this] { Turn(); }); });
  }

  Engine& engine_;
  Engine& other_;
  Endpoint& sender_;
  Function<bool()> holds_;
  int left_ = 0;
  int turns_ = 0;
  int sent_ = 0;
};

// A large message was sealed whole, and opened whole, in one turn of the engine, which did nothing
// else for 30 ms where it had 64 MiB.
TEST_F(SealedTest, OthersHaveTheirTurnsWhileALargeMessageIsSealedAndOpened) {
  const auto [client, server] = Pair("app", "db");
  const auto [other, other_server] = Pair("app", "db");
  constexpr int kPieces = 12;
  const Batch message = Pattern(1, kPieces * kLargePieceBytes);
  const uint64_t before = client->connection().stats().batches_sent;
  const auto is_sealing = [&, c = client] {
    return c->connection().stats().batches_sent == before;
  };
  Engine* const app = &network_->Node("app");
  Engine* const db = &network_->Node("db");
  InEachTurn sealing(app, db, other, is_sealing);
  sealing.Begin();
  ASSERT_TRUE(client->TrySend(message).ok());
  ASSERT_TRUE(Run([&] { return !is_sealing(); }));
  EXPECT_GE(sealing.turns(), kPieces - 1);
  EXPECT_GE(sealing.sent(), kPieces - 1);

  // It has come at some moment, at which the engine goes on and on until it is delivered.
  InEachTurn opening(db, app, other_server, [s = server] { return s->received_count == 0; });
  int turns_before = 0;
  ASSERT_TRUE(Run([&, s = server] {
    if (s->received_count > 0) return true;
    turns_before = opening.turns();
    opening.Begin();
    return false;
  }));
  EXPECT_GE(opening.turns() - turns_before, kPieces - 1);
  EXPECT_LT(opening.turns() - turns_before, 2 * kPieces) << "the test counts turns";
  EXPECT_EQ(server->received[0], message);
}

class LargeLineTest : public SimTest {
 protected:
  LargeLineTest() : SimTest(AtOnce()) { Listen("db"); }

  static SimOptions AtOnce() {
    SimOptions options;
    options.done_at_once_percent = 100;  // as over shm: what is read tells of itself by an event
    return options;
  }
};

// A connection that was told of anything else in the turn had its piece as soon as the one before
// it had left the line: one message more from each, and all had theirs in one turn.
TEST_F(LargeLineTest, OneHasAPieceInATurnWhateverElseTheOthersAreToldIn) {
  constexpr int kPairs = 4;
  constexpr size_t kBytes = 8180;  // more than a batch takes; two of them are read at one time
  std::vector<std::pair<Endpoint*, Endpoint*>> pairs;
  for (int i = 0; i < kPairs; ++i) pairs.push_back(Pair("app", "db"));
  network_->Settle();
  network_->Freeze("db");  // its turns are taken by hand
  for (const uint64_t number : {1, 2}) {
    for (const auto& [client, server] : pairs) {
      ASSERT_TRUE(client->TrySend(Pattern(number, kBytes)).ok());
      client->connection().Flush();
      ASSERT_EQ(client->connection().stats().large_sent, number);
    }
    network_->RunFor(kNsPerMs);
  }
  const auto have_received = [&pairs] {
    return std::count_if(pairs.begin(), pairs.end(),
                         [](const auto& pair) { return pair.second->received_count > 0; });
  };
  Engine& db = network_->Node("db");
  db.Poll(kPairs);  // the first offers of all
  ASSERT_EQ(have_received(), 1);
  db.Poll(kPairs);  // the second ones
  EXPECT_LE(have_received(), 2);
  network_->Thaw("db");
  ASSERT_TRUE(Run([&pairs] {
    return std::all_of(pairs.begin(), pairs.end(),
                       [](const auto& pair) { return pair.second->received_count == 2; });
  }));
}

class OnlySealedTest : public SimTest {
 protected:
  OnlySealedTest() : SimTest(Sealed(/*only=*/true)) { Listen("db"); }
};

TEST_F(OnlySealedTest, MemoryThatIsLentIsReadAndWrittenSealed) {
  const auto [client, server] = Pair("app", "db");
  std::vector<std::byte> there = Pattern(1, 100'000);
  std::vector<std::byte> here = Pattern(2, 100'000);
  const std::vector<std::byte> expected = there;
  auto lent = server->connection().memory().Register(there, Access::kRemoteReadWrite);
  auto local = client->connection().memory().Register(here, Access::kLocalOnly);
  ASSERT_TRUE(lent.ok() && local.ok());
  TestOperation read;
  ASSERT_TRUE(Read(client->connection(), **local, 0, (*lent)->remote(), &read).ok());
  ASSERT_TRUE(Run([&] { return read.done(); }));
  EXPECT_TRUE(read.result.ok()) << read.result;
  EXPECT_EQ(here, expected);
  const std::vector<std::byte> fresh = Pattern(3, here.size());
  std::copy(fresh.begin(), fresh.end(), here.begin());
  TestOperation write;
  ASSERT_TRUE(Write(client->connection(), **local, 0, (*lent)->remote(), &write).ok());
  ASSERT_TRUE(Run([&] { return write.done(); }));
  EXPECT_TRUE(write.result.ok()) << write.result;
  EXPECT_EQ(here, there);
  TestOperation late;
  const RemoteSpan gone = (*lent)->remote();
  EXPECT_TRUE(server->connection().memory().Reclaim(*std::move(lent), &late)) << "at once";
  ASSERT_TRUE(Read(client->connection(), **local, 0, gone, &read).ok());
  ASSERT_TRUE(Run([&] { return read.completions == 2; }));
  EXPECT_TRUE(absl::IsPermissionDenied(read.result)) << read.result;
  local->reset();
}

TEST_F(OnlySealedTest, NothingIsOfferedThatACardWouldCarryInTheClear) {
  const auto [client, server] = Pair("app", "db");
  std::vector<std::byte> here(64);
  auto local = client->connection().memory().Register(here, Access::kLocalOnly);
  ASSERT_TRUE(local.ok());
  TestOperation read;
  const absl::Status posted = Read(client->connection(), **local, 0, {7, 0, 64}, &read);
  EXPECT_TRUE(absl::IsFailedPrecondition(posted)) << posted;
  EXPECT_NE(std::string(posted.message()).find("require_encryption"), std::string::npos);
  local->reset();
}

}  // namespace
}  // namespace weft
