// Messages: whole, once, in order, of every size; limits; coalescing.

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "transport/testing/contract_test.h"

namespace weft {
namespace {

TEST_P(ContractTest, MessagesArriveWholeOnceAndInOrder) {
  Open();
  constexpr uint64_t kCount = 1000;
  for (uint64_t i = 0; i < kCount; ++i) client_.Send(Pattern(i, i % 200));
  ASSERT_TRUE(Run([&] { return server_end().received.size() == kCount; }));
  for (uint64_t i = 0; i < kCount; ++i) {
    ASSERT_EQ(server_end().received[i], Pattern(i, i % 200)) << "message " << i;
  }
  CloseClient();
  EXPECT_EQ(server_end().received.size(), kCount);
}

TEST_P(ContractTest, EverySizeArrivesIntactBothWays) {
  Open();
  const size_t eager = client_.connection().eager_bytes();
  const size_t slot = eager + 24;  // the headers of a batch and a frame
  std::vector<size_t> sizes = {0, 1, 2, 7, 8, 9, 63, 64, 65};
  // A usual batch, where there are wider ones; a database's page; what has a batch of its own.
  constexpr size_t kUsual = 8192;
  for (size_t edge :
       {kUsual - 24, kUsual, size_t{16} << 10, eager, slot, size_t{64} << 10, size_t{1} << 20}) {
    for (size_t size : {edge - 1, edge, edge + 1}) sizes.push_back(size);
  }
  for (size_t i = 0; i < sizes.size(); ++i) {
    SCOPED_TRACE(sizes[i]);
    const std::vector<std::byte> message = Pattern(i, sizes[i]);
    client_.Send(message);
    server_end().Send(message);
    ASSERT_TRUE(Run([&] { return server_end().received_count > i && client_.received_count > i; }));
    ASSERT_TRUE(server_end().received.back() == message);
    ASSERT_TRUE(client_.received.back() == message);
  }
}

// The answer waited for the end of the turn, and so for a handler that took what a large message
// takes: over shared memory, where it is read in the turn in which its offer comes. (On other paths
// the message takes further turns, and this holds anyway.)
TEST_P(ContractTest, AnAnswerDoesNotWaitForALargeMessageThatHasComeWithItsQuestion) {
  Open();
  std::optional<uint64_t> sent_before_delivery;
  server_end().on_message = [&](ByteSpan message) {
    if (message.size() < 100) return server_end().Send("answer");
    sent_before_delivery = server_end().connection().stats().messages_sent;
  };
  client_.Send("question");
  client_.Send(Pattern(1, 200 << 10));
  ASSERT_TRUE(Run([&] { return sent_before_delivery.has_value(); }));
  EXPECT_EQ(*sent_before_delivery, 1u);
}

TEST_P(ContractTest, TheLargestMessageArrivesAndALargerOneIsRefused) {
  Open();
  for (size_t bytes : {kMaxMessageBytes - 1, kMaxMessageBytes}) {
    server_end().received.clear();
    const std::vector<std::byte> message = Pattern(1, bytes);
    client_.Send(message);
    ASSERT_TRUE(Run([&] { return !server_end().received.empty(); }));
    ASSERT_TRUE(server_end().received.back() == message);
  }
  const auto refused = client_.connection().Reserve(kMaxMessageBytes + 1);
  EXPECT_TRUE(absl::IsInvalidArgument(refused.status())) << refused.status();
}

TEST_P(ContractTest, ALargeMessageThatIsKeptStaysWhereItIs) {
  Open();
  const size_t bytes = client_.connection().eager_bytes() + 100'000;
  constexpr uint64_t kMore = 40;
  std::shared_ptr<const void> kept;
  ByteSpan where;
  bool kept_twice = false;
  uint64_t others = 0;
  server_end().on_message = [&](ByteSpan message) {
    if (kept != nullptr) {
      ++others;
      return;
    }
    kept = server_end().connection().KeepMessage();
    where = message;
    kept_twice = server_end().connection().KeepMessage() != nullptr;
  };
  client_.Send(Pattern(0, bytes));
  for (uint64_t i = 1; i <= kMore; ++i) client_.Send(Pattern(i, bytes));
  ASSERT_TRUE(Run([&] { return others == kMore; }));
  ASSERT_NE(kept, nullptr);
  EXPECT_FALSE(kept_twice);
  const std::vector<std::byte> expected = Pattern(0, bytes);
  EXPECT_TRUE(std::ranges::equal(where, expected));
  EXPECT_EQ(server_end().connection().KeepMessage(), nullptr) << "none is being delivered";
  CloseClient();
  EXPECT_TRUE(std::ranges::equal(where, expected));
}

TEST_P(ContractTest, ASmallMessageIsNotKept) {
  Open();
  std::optional<bool> kept;
  server_end().on_message = [&](ByteSpan) {
    kept = server_end().connection().KeepMessage() != nullptr;
  };
  client_.Send(Pattern(0, 100));
  ASSERT_TRUE(Run([&] { return kept.has_value(); }));
  EXPECT_FALSE(*kept);
}

TEST_P(ContractTest, MoreThanFitsIsRefusedAndTakenLaterAndNothingIsLost) {
  Open();
  // The server does not look: sooner or later the limit is reached.
  uint64_t accepted = 0;
  absl::Status refusal;
  const size_t bytes = client_.connection().eager_bytes();
  constexpr uint64_t kFarBeyond = 1'000'000;
  while (refusal.ok() && accepted < kFarBeyond) {
    refusal = client_.TrySend(Pattern(accepted, bytes));
    if (refusal.ok()) ++accepted;
    if (!refusal.ok() || accepted % 16 == 0) world_->RunClientOnly();
  }
  ASSERT_TRUE(absl::IsResourceExhausted(refusal)) << refusal;
  EXPECT_GT(accepted, 0u);
  EXPECT_GT(client_.connection().stats().credit_stalls, 0u);
  // One that was refused is told when it is worth trying again.
  ASSERT_TRUE(Run([&] { return client_.writable_count > 0; }));
  for (uint64_t more = 0; more < 500; ++more) client_.Send(Pattern(accepted + more, bytes));
  ASSERT_TRUE(Run([&] { return server_end().received.size() == accepted + 500; }));
  for (uint64_t i = 0; i < accepted + 500; ++i) {
    ASSERT_TRUE(server_end().received[i] == Pattern(i, bytes)) << "message " << i;
  }
}

TEST_P(ContractTest, SmallMessagesOfOneTurnShareBatches) {
  Open();
  constexpr uint64_t kCount = 64;
  const uint64_t before = client_.connection().stats().batches_sent;
  for (uint64_t i = 0; i < kCount; ++i) ASSERT_TRUE(client_.TrySend(Pattern(i, 32)).ok());
  ASSERT_TRUE(Run([&] { return server_end().received.size() == kCount; }));
  const uint64_t batches = client_.connection().stats().batches_sent - before;
  // As few as their bytes allow: a frame is the message and 8 bytes.
  EXPECT_LE(batches, 1 + kCount * 40 / client_.connection().eager_bytes());
  EXPECT_EQ(client_.connection().stats().messages_sent, kCount);
}

// Those in between have a batch each, and small ones wait for them in the order of commits.
TEST_P(ContractTest, MessagesUpToEagerBytesArriveInTheOrderOfTheirCommits) {
  Open();
  const size_t eager = client_.connection().eager_bytes();
  constexpr uint64_t kCount = 300;
  const auto bytes_of = [&](uint64_t i) {
    return i % 4 == 0 ? eager - i : i % 4 == 1 ? eager / 4 + i : i % 100;
  };
  for (uint64_t i = 0; i < kCount; ++i) {
    client_.Send(Pattern(i, bytes_of(i)));
    server_end().Send(Pattern(i, bytes_of(i)));
  }
  ASSERT_TRUE(Run(
      [&] { return server_end().received.size() == kCount && client_.received.size() == kCount; }));
  for (uint64_t i = 0; i < kCount; ++i) {
    ASSERT_TRUE(server_end().received[i] == Pattern(i, bytes_of(i))) << "message " << i;
    ASSERT_TRUE(client_.received[i] == Pattern(i, bytes_of(i))) << "message " << i;
  }
  EXPECT_EQ(client_.connection().stats().large_sent, 0u);
}

TEST_P(ContractTest, FlushSendsBeforeTheEndOfTheTurn) {
  Open();
  ASSERT_TRUE(client_.TrySend(AsBytes("now")).ok());
  EXPECT_EQ(client_.connection().first_unsent(), 0u);
  client_.connection().Flush();
  EXPECT_EQ(client_.connection().first_unsent(), 1u);
  EXPECT_EQ(client_.connection().stats().batches_sent, 1u);
  ASSERT_TRUE(Run([&] { return server_end().received_count == 1; }));
}

TEST_P(ContractTest, AnAbandonedReservationSendsNothing) {
  Open();
  const size_t large = client_.connection().eager_bytes() + 1;
  for (size_t bytes : {size_t{100}, large}) {
    ASSERT_TRUE(client_.connection().Reserve(bytes).ok());
    client_.connection().Abandon();
  }
  client_.Send("after");
  ASSERT_TRUE(Run([&] { return server_end().received_count == 1; }));
  EXPECT_EQ(AsStringView(server_end().received[0]), "after");
}

TEST_P(ContractTest, LessThanReservedCanBeCommitted) {
  Open();
  const size_t large = client_.connection().eager_bytes() + 1000;
  for (size_t reserved : {size_t{500}, large}) {
    for (size_t bytes : {size_t{0}, size_t{5}, size_t{33}, size_t{500}}) {
      SCOPED_TRACE(testing::Message() << bytes << " of " << reserved);
      const std::vector<std::byte> message = Pattern(bytes, bytes);
      const auto space = client_.connection().Reserve(reserved);
      ASSERT_TRUE(space.ok());
      std::copy(message.begin(), message.end(), *space);
      client_.connection().Commit(bytes);
      const uint64_t expected = server_end().received_count + 1;
      ASSERT_TRUE(Run([&] { return server_end().received_count == expected; }));
      ASSERT_EQ(server_end().received.back(), message);
    }
  }
}

TEST_P(ContractTest, CommitsAreNumberedInOrder) {
  Open();
  const size_t large = client_.connection().eager_bytes() + 1;
  for (uint64_t number = 0; number < 6; ++number) {
    const size_t bytes = number % 2 == 0 ? 10 : large;
    ASSERT_TRUE(client_.connection().Reserve(bytes).ok());
    EXPECT_EQ(client_.connection().Commit(bytes), number);
  }
  ASSERT_TRUE(Run([&] { return server_end().received_count == 6; }));
}

// Sizes that travel by one-sided transfer keep their own order, whatever else is under way.
TEST_P(ContractTest, LargeAndSmallMessagesTravelBothWaysAtOnce) {
  Open();
  const size_t large = client_.connection().eager_bytes() + 4096;
  constexpr uint64_t kCount = 300;
  const auto bytes_of = [&](uint64_t i) { return i % 3 == 0 ? large + i * 64 : i % 100; };
  for (uint64_t i = 0; i < kCount; ++i) {
    client_.Send(Pattern(i, bytes_of(i)));
    server_end().Send(Pattern(i, bytes_of(i)));
  }
  ASSERT_TRUE(Run(
      [&] { return server_end().received.size() == kCount && client_.received.size() == kCount; }));
  for (Endpoint* end : {&client_, &server_end()}) {
    uint64_t next_small = 1;
    uint64_t next_large = 0;
    for (const auto& message : end->received) {
      uint64_t& next = message.size() >= large ? next_large : next_small;
      ASSERT_TRUE(message == Pattern(next, bytes_of(next))) << "message " << next;
      next = message.size() >= large ? next + 3 : next + (next % 3 == 1 ? 1 : 2);
    }
  }
  EXPECT_EQ(client_.connection().stats().large_sent, kCount / 3);
  EXPECT_EQ(client_.connection().stats().large_received, kCount / 3);
}

TEST_P(ContractTest, ThousandsOfMessagesInFlightBothWays) {
  acceptor_.keep = client_.keep = false;
  Open();
  constexpr uint64_t kCount = 20'000;
  for (uint64_t i = 0; i < kCount; ++i) {
    client_.Send(Pattern(i, 64));
    server_end().Send(Pattern(i, 64));
  }
  ASSERT_TRUE(Run(
      [&] { return server_end().received_count == kCount && client_.received_count == kCount; }));
}

TEST_P(ContractTest, AReplyCanBeSentFromInsideOnMessage) {
  Open();
  server_end().on_message = [&](ByteSpan message) {
    server_end().Send(std::vector<std::byte>(message.begin(), message.end()));
  };
  for (uint64_t i = 0; i < 100; ++i) {
    client_.Send(Pattern(i, 40));
    ASSERT_TRUE(Run([&] { return client_.received.size() == i + 1; }));
    ASSERT_EQ(client_.received.back(), Pattern(i, 40));
  }
}

TEST_P(ContractTest, HellosArePassedOn) {
  ConnectOptions connect;
  connect.hello = std::string("client\0hello", 12);
  ListenOptions listen;
  listen.hello = std::string(kMaxHelloBytes, 's');
  Open(connect, listen);
  EXPECT_EQ(client_.peer_hello, listen.hello);
  EXPECT_EQ(server_end().peer_hello, connect.hello);
}

TEST_P(ContractTest, AnOpenConnectionKnowsItsPathAndWhy) {
  Open();
  const auto& candidates = client_.connection().candidates();
  const auto chosen = std::count_if(candidates.begin(), candidates.end(), [](const auto& one) {
    return one.outcome == PathCandidate::Outcome::kChosen;
  });
  EXPECT_EQ(chosen, 1);
  EXPECT_FALSE(client_.connection().path().provider.empty());
  EXPECT_EQ(client_.connection().path().kind, server_end().connection().path().kind);
}

}  // namespace
}  // namespace weft
