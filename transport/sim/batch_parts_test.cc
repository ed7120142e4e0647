// A server that answers each message with one, and a client that has many outstanding: what leaves
// in parts, and what does not (transport/framing/batch_parts.h).
#include <cstdint>
#include <vector>

#include "transport/sim/sim_fixture.h"

namespace weft {
namespace {

constexpr uint8_t kFramesToPart = 16;
constexpr size_t kMessageBytes = 64;

SimOptions InParts() {
  SimOptions options;
  options.wire = {/*delay_ns=*/10'000, /*jitter_ns=*/0, /*bytes_per_s=*/0};
  options.frames_to_part = kFramesToPart;
  return options;
}

class BatchPartsTest : public SimTest {
 protected:
  BatchPartsTest() : SimTest(InParts()) {
    Listen("db");
    const auto [client, server] = Pair("app", "db");
    client_ = client;
    server_ = server;
    server_->on_message = [this](ByteSpan) { server_->Send(Pattern(0, answer_bytes_)); };
    client_->on_message = [this](ByteSpan) { ++answers_; };
  }

  void Ask(uint64_t messages) {
    for (uint64_t i = 0; i < messages; ++i) client_->Send(Pattern(i, kMessageBytes));
  }

  // Asks so many at once, when all before are answered. In how many batches the answers came.
  uint64_t Round(uint64_t messages) {
    const uint64_t batches = server_->connection().stats().batches_sent;
    const uint64_t all = answers_ + messages;
    Ask(messages);
    EXPECT_TRUE(Run([&] { return answers_ == all; }));
    return server_->connection().stats().batches_sent - batches;
  }

  Endpoint* client_ = nullptr;
  Endpoint* server_ = nullptr;
  size_t answer_bytes_ = kMessageBytes;
  uint64_t answers_ = 0;
};

// 64 calls went to and fro in one batch: client and server worked in turns, at little more than
// half of the rate that they have when each works while the other does.
TEST_F(BatchPartsTest, AClientThatWaitsHasTheFirstAnswersBeforeTheServerHasMadeTheLast) {
  EXPECT_EQ(Round(64), 2u);
  EXPECT_EQ(Round(kFramesToPart), 3u);
}

// A stream in one direction is confirmed with a message for each half of what is outstanding. Parts
// were cut by the length of the answers, and two confirmations make none: both left behind the last
// of the 64 messages, so that the next 64 came in one batch again, and both ends worked in turns.
TEST_F(BatchPartsTest, OneAnswerToManyMessagesLeavesBehindTheirPart) {
  uint64_t received = 0;
  server_->on_message = [&](ByteSpan) {
    if (++received % 32 == 0) server_->Send(Pattern(0, kMessageBytes));
  };
  const uint64_t batches = server_->connection().stats().batches_sent;
  Ask(64);
  ASSERT_TRUE(Run([&] { return answers_ == 2; }));
  EXPECT_EQ(server_->connection().stats().batches_sent - batches, 2u);
}

TEST_F(BatchPartsTest, AFewMessagesAreAnsweredInOneBatch) {
  Round(64);
  EXPECT_EQ(Round(kFramesToPart - 1), 1u);
  EXPECT_EQ(Round(1), 1u);
}

// Each part is answered by itself, also where two arrive in one turn, as here, where a turn takes
// no time; and none is cut again, as its sender has not got the others yet.
TEST_F(BatchPartsTest, PartsStayParts) {
  Round(64);
  constexpr uint64_t kRounds = 20;
  answers_ = 0;
  uint64_t asked = 64;
  client_->on_message = [&](ByteSpan) {
    ++answers_;
    if (asked == 64 * kRounds) return;
    ++asked;
    client_->Send(Pattern(0, kMessageBytes));
  };
  const uint64_t answers = server_->connection().stats().batches_sent;
  const uint64_t questions = client_->connection().stats().batches_sent;
  Ask(64);
  ASSERT_TRUE(Run([&] { return answers_ == 64 * kRounds; }));
  EXPECT_EQ(server_->connection().stats().batches_sent - answers, 2 * kRounds);
  EXPECT_EQ(client_->connection().stats().batches_sent - questions, 1 + 2 * (kRounds - 1));
}

// The first answer that does not fit into a part begins the next batch, whole.
TEST_F(BatchPartsTest, AnswersThatAreLongerThanTheLastOnesArriveWhole) {
  Round(64);
  answer_bytes_ = 3000;
  client_->on_message = [this](ByteSpan answer) {
    ASSERT_EQ(answer.size(), answer_bytes_);
    ++answers_;
  };
  Round(64);
  answer_bytes_ = 8;
  Round(64);
}

// What is sent outside of an answer is not held to the size of a part.
TEST_F(BatchPartsTest, ATurnWithoutAWaitingPeerFillsItsBatches) {
  Round(64);
  Round(64);
  const uint64_t batches = client_->connection().stats().batches_sent;
  Ask(64);
  ASSERT_TRUE(Run([&] { return answers_ == 3 * 64; }));
  EXPECT_EQ(client_->connection().stats().batches_sent - batches, 1u);
}

}  // namespace
}  // namespace weft
