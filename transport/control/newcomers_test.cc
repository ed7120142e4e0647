// Who comes in to a crowded server, and who is put out for it.

#include "transport/control/newcomers.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace weft {
namespace {

constexpr uint64_t kFlooder = 66;
constexpr uint64_t kHonest = 1;
constexpr uint64_t kMs = 1'000'000;

class Visitor final : public Newcomer {
 public:
  bool put_out = false;
  bool tries = false;
  bool waits = false;
  bool unread = false;

 private:
  void PutOut() override { put_out = true; }
  bool tries_path() const override { return tries; }
  bool waits_for_us() const override { return waits; }
  bool is_unread() const override { return unread; }
};

class NewcomersTest : public testing::Test {
 protected:
  ~NewcomersTest() override {
    for (const auto& visitor : all_) newcomers_.Leave(visitor.get());
  }

  Visitor* Come(uint64_t host) {
    all_.push_back(std::make_unique<Visitor>());
    newcomers_.AddStranger(all_.back().get(), host, now_ns_);
    return all_.back().get();
  }
  // Null: it was refused.
  Visitor* SayHello(uint64_t host, size_t bytes = 100) {
    Visitor* const visitor = Come(host);
    const absl::Status status = newcomers_.BeginHandshake(visitor, bytes, now_ns_);
    if (status.ok()) return visitor;
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    newcomers_.Leave(visitor);
    return nullptr;
  }
  Visitor* BecomeClient(uint64_t host) {
    Visitor* const visitor = SayHello(host);
    newcomers_.BecomeClient(visitor);
    return visitor;
  }
  size_t PutOut() const {
    size_t count = 0;
    for (const auto& visitor : all_) count += visitor->put_out;
    return count;
  }
  uint64_t Counted(const std::string& name) const {
    for (const auto& [found, value] : counters_.Snapshot()) {
      if (found == name) return value;
    }
    return 0;
  }

  CounterSet counters_;
  Newcomers newcomers_{&counters_};
  uint64_t now_ns_ = 1'000'000'000;
  std::vector<std::unique_ptr<Visitor>> all_;
};

TEST_F(NewcomersTest, OneHostMayHaveEveryPlaceThatNobodyElseWants) {
  for (uint32_t i = 0; i < Newcomers::kPlaces; ++i) ASSERT_NE(SayHello(kHonest), nullptr);
  EXPECT_EQ(PutOut(), 0u);
}

// Connections were taken at the hello and held for the handshake's time, 5 s: with 1,024 of them, a
// host that said 205 hellos a second and never went on denied everybody.
TEST_F(NewcomersTest, AFloodOfHellosPutsItselfOut) {
  std::vector<Visitor*> honest;
  for (uint32_t i = 0; i < 20 * Newcomers::kPlaces; ++i) {
    ASSERT_NE(SayHello(kFlooder), nullptr);
    if (i % 100 == 0) honest.push_back(SayHello(kHonest));
  }
  for (const Visitor* visitor : honest) {
    ASSERT_NE(visitor, nullptr);
    EXPECT_FALSE(visitor->put_out);
  }
  EXPECT_EQ(PutOut(), Counted("listener.handshakes_put_out"));
  EXPECT_EQ(PutOut(), all_.size() - Newcomers::kPlaces);
}

// Nothing tells hosts apart that are all at 127.0.0.1, but that the honest go on.
TEST_F(NewcomersTest, OfOneHostWhoGoesOnStaysBeforeWhoDoesNot) {
  Visitor* const goes_on = SayHello(kFlooder);
  goes_on->tries = true;
  for (uint32_t i = 0; i < 20 * Newcomers::kPlaces; ++i) ASSERT_NE(SayHello(kFlooder), nullptr);
  EXPECT_FALSE(goes_on->put_out);
  // But not for ever: to go on costs a flooder no more than a hello.
  now_ns_ += Newcomers::kGraceNs;
  ASSERT_NE(SayHello(kFlooder), nullptr);
  EXPECT_TRUE(goes_on->put_out);
}

TEST_F(NewcomersTest, WhoHasHadItsTimeGoesBeforeWhoHasJustCome) {
  std::vector<Visitor*> stalled;
  for (uint32_t i = 0; i < Newcomers::kPlaces - 1; ++i) {
    stalled.push_back(SayHello(kFlooder));
    stalled.back()->tries = true;
  }
  now_ns_ += Newcomers::kGraceNs;
  Visitor* const honest = SayHello(kFlooder);
  for (uint32_t i = 0; i < Newcomers::kPlaces - 1; ++i) {
    ASSERT_NE(SayHello(kFlooder), nullptr);
    EXPECT_TRUE(stalled[i]->put_out);
  }
  EXPECT_FALSE(honest->put_out);
}

// A thousand addresses with a hello each: nobody has more than its share.
TEST_F(NewcomersTest, HostsWithAClientHavePlacesWhenStrangersHaveAllOthers) {
  BecomeClient(kHonest);
  for (uint64_t host = 1000; host < 1000 + 3 * Newcomers::kPlaces; ++host) {
    ASSERT_NE(SayHello(host), nullptr);
  }
  const size_t before = PutOut();
  std::vector<Visitor*> honest;
  for (uint32_t i = 0; i < Newcomers::kReserved; ++i) honest.push_back(SayHello(kHonest));
  EXPECT_EQ(PutOut(), before) << "the places are kept for it";
  for (uint64_t host = 9000; host < 9000 + 3 * Newcomers::kPlaces; ++host) {
    ASSERT_NE(SayHello(host), nullptr);
  }
  for (const Visitor* visitor : honest) EXPECT_FALSE(visitor->put_out);
}

// When its client has gone, the host is as any other.
TEST_F(NewcomersTest, TheReserveIsForHostsThatHaveAClientNow) {
  newcomers_.Leave(BecomeClient(kHonest));
  for (uint64_t host = 1000; host < 1000 + Newcomers::kPlaces; ++host) SayHello(host);
  EXPECT_EQ(PutOut(), 0u);
  ASSERT_NE(SayHello(kHonest), nullptr);
  EXPECT_EQ(PutOut(), 1u);
}

TEST_F(NewcomersTest, ALargeHelloTakesMorePlaces) {
  constexpr size_t kLargest = size_t{256} << 10;
  std::vector<Visitor*> large;
  for (uint32_t i = 0; i < Newcomers::kPlaces / 5; ++i)
    large.push_back(SayHello(kFlooder, kLargest));
  EXPECT_EQ(PutOut(), 0u);
  ASSERT_NE(SayHello(kFlooder, kLargest), nullptr);
  EXPECT_EQ(PutOut(), 1u);
  EXPECT_TRUE(large[0]->put_out);
}

// Its place would cost five others theirs, who have one each.
TEST_F(NewcomersTest, ALargeHelloPutsNobodyOutWhoHoldsLess) {
  for (uint64_t host = 1000; host < 1000 + Newcomers::kPlaces; ++host) SayHello(host);
  EXPECT_EQ(SayHello(kHonest, size_t{256} << 10), nullptr);
  EXPECT_EQ(PutOut(), 0u);
}

TEST_F(NewcomersTest, SilentStrangersMakeRoomWhenTheyHaveHadTheirTime) {
  Visitor* const patient = Come(kHonest);
  std::vector<Visitor*> silent;
  while (newcomers_.MakeRoom(now_ns_)) silent.push_back(Come(kFlooder));
  EXPECT_EQ(silent.size() + 1, Newcomers::kMaxStrangers);
  now_ns_ += Newcomers::kGraceNs - kMs;
  EXPECT_FALSE(newcomers_.MakeRoom(now_ns_));
  now_ns_ += kMs;
  EXPECT_TRUE(newcomers_.MakeRoom(now_ns_));
  EXPECT_TRUE(silent[0]->put_out);
  EXPECT_FALSE(patient->put_out) << "the oldest of all, but of a host with one place";
  EXPECT_EQ(Counted("listener.strangers_put_out"), 1u);
}

TEST_F(NewcomersTest, WhoIsNoStrangerAnyMoreMakesRoom) {
  while (newcomers_.MakeRoom(now_ns_)) Come(kFlooder);
  newcomers_.Leave(all_[0].get());
  newcomers_.Leave(all_[0].get());  // who has left leaves nothing behind the second time
  EXPECT_TRUE(newcomers_.MakeRoom(now_ns_));
  Come(kHonest);
  EXPECT_FALSE(newcomers_.MakeRoom(now_ns_));
  ASSERT_TRUE(newcomers_.BeginHandshake(all_[1].get(), /*hello_bytes=*/100, now_ns_).ok());
  EXPECT_TRUE(newcomers_.MakeRoom(now_ns_)) << "it is a handshake";
  Come(kHonest);
  EXPECT_FALSE(newcomers_.MakeRoom(now_ns_));
  newcomers_.BecomeClient(all_[1].get());
  newcomers_.Leave(all_[1].get());
  EXPECT_FALSE(newcomers_.MakeRoom(now_ns_)) << "it was none when it left";
}

// A busy server took honest clients for silent ones: they had spoken, and it had not listened yet.
TEST_F(NewcomersTest, WhoWaitsForUsIsNotPutOutHoweverLongThatTakes) {
  std::vector<Visitor*> waiting;
  while (newcomers_.MakeRoom(now_ns_)) {
    waiting.push_back(Come(kHonest));
    waiting.back()->waits = true;
  }
  now_ns_ += 10 * Newcomers::kGraceNs;
  EXPECT_FALSE(newcomers_.MakeRoom(now_ns_));
  waiting[1]->waits = false;
  EXPECT_TRUE(newcomers_.MakeRoom(now_ns_));
  EXPECT_FALSE(waiting[0]->put_out);
  EXPECT_TRUE(waiting[1]->put_out);
}

// An upgrade waited a second for silent clients of one address where there were some of another
// one, too: each listener took the other's for handshakes.
TEST_F(NewcomersTest, StrangersWhomNobodyHasReadAreNoHandshakesWhicheverListenerTheyCameTo) {
  EXPECT_FALSE(newcomers_.HasHandshakes());
  Visitor* const silent = Come(kHonest);
  Visitor* const other = Come(kFlooder);
  silent->unread = other->unread = true;
  EXPECT_FALSE(newcomers_.HasHandshakes());
  Visitor* const read = Come(kHonest);
  EXPECT_TRUE(newcomers_.HasHandshakes());
  newcomers_.Leave(read);
  EXPECT_FALSE(newcomers_.HasHandshakes());
  Visitor* const said_hello = SayHello(kHonest);
  EXPECT_TRUE(newcomers_.HasHandshakes());
  newcomers_.BecomeClient(said_hello);
  EXPECT_FALSE(newcomers_.HasHandshakes());
}

}  // namespace
}  // namespace weft
