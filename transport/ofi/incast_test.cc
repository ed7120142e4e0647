// Many senders to one receiver over ofi_tcp, which shares fewer receives among all links than each
// of a few of them could fill: nothing is lost, nothing changes places. (Who is served first, when
// all send without end, is the provider's to say: docs/quirks.md.)

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "transport/ofi/testing/link_fixture.h"

namespace weft {
namespace {

constexpr size_t kSenders = 64;
// What a connection's credits allow to be under way.
constexpr uint32_t kWindow = 32;

class IncastTest : public testing::Test {
 protected:
  IncastTest() : a_(PathKind::kOfiTcp), b_(PathKind::kOfiTcp) {
    EXPECT_TRUE(a_.domain->AddSlots(kWindow * kSenders, kWindow * kSenders).ok());
    EXPECT_TRUE(b_.domain->AddSlots(kWindow * kSenders, kWindow * kSenders).ok());
    EXPECT_LT(a_.domain->stats().receives_posted, kWindow * kSenders / 8);
    for (size_t i = 0; i < kSenders; ++i) Open(i);
    a_.on_received = [this] { Count(); };
  }

  void Open(size_t i) {
    const uint64_t nonce = 0x1234 + i;
    auto passive = a_.domain->Accept(a_.PeerOf(b_, nonce), &receivers_[i]);
    auto active = b_.domain->Connect(b_.PeerOf(a_, nonce), &senders_[i]);
    ASSERT_TRUE(passive.ok() && active.ok());
    receivers_[i].link = *std::move(passive);
    senders_[i].link = *std::move(active);
    ASSERT_TRUE(
        RunUntil({&a_, &b_}, [&] { return receivers_[i].ups == 1 && senders_[i].ups == 1; }));
  }

  // A message tells its sender and its number; some have completions at the sender, others do not.
  void Send(size_t sender) {
    std::string text(sent_[sender] % 2 == 0 ? 64 : 300, 'm');
    text[0] = static_cast<char>(sender);
    text[1] = static_cast<char>(sent_[sender]);
    ASSERT_TRUE(b_.Send(senders_[sender], text).ok());
    ++sent_[sender];
  }
  void FillWindows() {
    for (size_t i = 0; i < kSenders; ++i) {
      while (sent_[i] - received_[i] < kWindow) ASSERT_NO_FATAL_FAILURE(Send(i));
    }
  }
  void Count() {
    const std::string text = std::move(a_.received.back());
    a_.received.pop_back();
    const size_t sender = static_cast<unsigned char>(text[0]);
    ASSERT_LT(sender, kSenders);
    ASSERT_EQ(text[1], static_cast<char>(received_[sender])) << "of sender " << sender;
    ++received_[sender];
  }
  uint64_t Least() const { return *std::min_element(received_.begin(), received_.end()); }

  Side a_;
  Side b_;
  LinkEnd receivers_[kSenders];
  LinkEnd senders_[kSenders];
  std::vector<uint64_t> sent_ = std::vector<uint64_t>(kSenders);
  std::vector<uint64_t> received_ = std::vector<uint64_t>(kSenders);
};

TEST_F(IncastTest, BurstsOfAllAtOnceArriveWholeAndInOrder) {
  for (uint64_t burst = 1; burst <= 20; ++burst) {
    ASSERT_NO_FATAL_FAILURE(FillWindows());
    ASSERT_TRUE(RunUntil({&a_, &b_}, [&] { return Least() == burst * kWindow; })) << burst;
  }
  EXPECT_EQ(received_, sent_);
}

}  // namespace
}  // namespace weft
