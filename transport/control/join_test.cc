// What the listener makes of sockets that begin with a join, however it comes and whoever sends it:
// one that no handshake waits for is closed and counted, and disturbs nothing.

#include <string>
#include <vector>

#include "core/random.h"
#include "gtest/gtest.h"
#include "transport/control/newcomers.h"
#include "transport/control/testing/stranger.h"

namespace weft {
namespace {

class JoinTest : public StrangerTest {
 protected:
  // A control connection whose handshake waits for a socket.
  struct Waiting {
    Stranger control;
    Nonce128 token;
  };
  Waiting NewWaiting() {
    Waiting waiting{NewStranger(), {}};
    EXPECT_TRUE(SayHello(waiting.control));
    waiting.token = TryTcp(waiting.control);
    return waiting;
  }
  // The server has read all that has been sent to it: it has answered somebody who came later.
  void LetServerRead() {
    Stranger later = NewStranger();
    later.Say("GET / HTTP/1.1\r\n\r\n");
    ASSERT_TRUE(RunUntilHungUp(later));
  }
  // The server has taken the socket for the handshake's link, and opens the connection.
  void ExpectOpens(Waiting& waiting, Stranger& socket) {
    ASSERT_TRUE(Run([&] { return socket.Listen() || !socket.heard().empty(); }));
    EXPECT_FALSE(socket.heard().empty()) << "it was not taken";
    waiting.control.Say(Frame(ControlType::kPathUp, EncodePathUp(1)));
    ASSERT_TRUE(RunUntilHeard(waiting.control, ControlType::kOpen));
    EXPECT_FALSE(waiting.control.Body(ControlType::kOpen).empty());
    EXPECT_FALSE(waiting.control.Listen());
    EXPECT_FALSE(socket.Listen());
  }
  void ExpectRefused(const std::string& join) {
    const uint64_t before = Refused();
    Stranger socket = NewStranger();
    socket.Say(join);
    ASSERT_TRUE(RunUntilHungUp(socket));
    EXPECT_TRUE(socket.heard().empty()) << "who guesses is told nothing";
    EXPECT_EQ(Refused(), before + 1);
  }
  uint64_t Refused() const { return Counted("listener.joins_refused"); }
};

TEST_F(JoinTest, AJoinMayComeInTwoPieces) {
  for (size_t cut = 1; cut < kJoinBytes; ++cut) {
    Waiting waiting = NewWaiting();
    const std::string join = Join(waiting.token);
    Stranger socket = NewStranger();
    socket.Say(join.substr(0, cut));
    LetServerRead();
    EXPECT_TRUE(socket.heard().empty());
    socket.Say(join.substr(cut));
    ExpectOpens(waiting, socket);
  }
  EXPECT_EQ(Refused(), 0u);
}

TEST_F(JoinTest, AJoinMayComeByteByByte) {
  Waiting waiting = NewWaiting();
  Stranger socket = NewStranger();
  for (const char byte : Join(waiting.token)) {
    socket.Say(std::string(1, byte));
    LetServerRead();
  }
  ExpectOpens(waiting, socket);
}

// An honest peer says nothing before it is answered.
TEST_F(JoinTest, GarbageBehindAJoinEndsTheSocketAndNotTheHandshake) {
  Waiting waiting = NewWaiting();
  for (const size_t garbage : {1u, 24u, 4000u}) {
    ExpectRefused(Join(waiting.token) + std::string(garbage, 'g'));
  }
  Stranger socket = NewStranger();
  socket.Say(Join(waiting.token));
  ExpectOpens(waiting, socket);
}

TEST_F(JoinTest, AWrongTokenIsRefused) {
  Waiting waiting = NewWaiting();
  for (int bit = 0; bit < 128; ++bit) {
    Nonce128 wrong = waiting.token;
    (bit < 64 ? wrong.high : wrong.low) ^= uint64_t{1} << (bit % 64);
    ExpectRefused(Join(wrong));
  }
  ExpectRefused(Join({0, 0}));
  ExpectRefused(Join({waiting.token.low, waiting.token.high}));
  Stranger socket = NewStranger();
  socket.Say(Join(waiting.token));
  ExpectOpens(waiting, socket);
}

TEST_F(JoinTest, ATokenIsGoodOnce) {
  Waiting waiting = NewWaiting();
  Stranger socket = NewStranger();
  socket.Say(Join(waiting.token));
  ASSERT_TRUE(Run([&] { return socket.Listen() || !socket.heard().empty(); }));
  ExpectRefused(Join(waiting.token));
  ExpectOpens(waiting, socket);
  ExpectRefused(Join(waiting.token));
  EXPECT_FALSE(socket.Listen()) << "the link has lost its socket";
}

TEST_F(JoinTest, ATokenEndsWithItsHandshake) {
  Waiting waiting = NewWaiting();
  waiting.control.HangUp();
  ASSERT_TRUE(Run([&] { return acceptor_.ends[0]->closed(); }));
  ExpectRefused(Join(waiting.token));
  ExpectService();
}

TEST_F(JoinTest, ATokenEndsWithItsAttempt) {
  Waiting waiting = NewWaiting();
  waiting.control.Say(Frame(ControlType::kPathFailed, Encode(PathFailed{1, "no"})));
  LetServerRead();
  ExpectRefused(Join(waiting.token));
  EXPECT_FALSE(waiting.control.Listen());
}

// The link takes the socket and finds that it has ended: the path has failed, no more.
TEST_F(JoinTest, WhoJoinsAndLeavesFailsItsOwnPath) {
  Waiting waiting = NewWaiting();
  Stranger socket = NewStranger();
  socket.Say(Join(waiting.token));
  socket.HangUp();
  ASSERT_TRUE(RunUntilHeard(waiting.control, ControlType::kPathFailed));
  EXPECT_FALSE(waiting.control.Body(ControlType::kPathFailed).empty());
  ExpectService();
}

TEST_F(JoinTest, AFloodOfGuessesDisturbsNobody) {
  NetworkEnd* const good = Dial(Over({PathKind::kTcp}));
  ASSERT_TRUE(RunUntilDecided(*good));
  ASSERT_TRUE(good->opened()) << good->why();
  Waiting waiting = NewWaiting();
  constexpr uint64_t kSeed = 24;
  Random random(kSeed);
  constexpr size_t kRounds = 20;
  constexpr size_t kGuesses = Newcomers::kMaxStrangers / 2;
  for (size_t round = 1; round <= kRounds; ++round) {
    std::vector<Stranger> guesses;
    for (size_t i = 0; i < kGuesses; ++i) {
      guesses.push_back(NewStranger());
      guesses.back().Say(Join({random.Next64(), random.Next64()}));
    }
    ASSERT_TRUE(good->Send("and again"));
    ASSERT_TRUE(Run([&] { return good->received.size() == round; })) << "seed " << kSeed;
    for (Stranger& guess : guesses) {
      ASSERT_TRUE(RunUntilHungUp(guess));
      EXPECT_TRUE(guess.heard().empty());
    }
    EXPECT_EQ(Refused(), round * kGuesses);
  }
  EXPECT_FALSE(good->closed());
  Stranger socket = NewStranger();
  socket.Say(Join(waiting.token));
  ExpectOpens(waiting, socket);
}

}  // namespace
}  // namespace weft
