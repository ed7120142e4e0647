#include "transport/framing/sealed_transfers.h"

#include <initializer_list>

#include "transport/framing/testing/parts_test.h"

namespace weft {
namespace {

struct Told final : public Operation {
  void OnComplete(const absl::Status& end) override {
    ++times;
    status = end;
  }
  int times = 0;
  absl::Status status;
};

// One side; the peer's frames are the test's.
class SealedTransfersTest : public PartsTest {
 protected:
  SealedTransfersTest() {
    Start();
    framing_.sealed_regions().Add(&region_);
  }

  bool Frame(FrameKind kind, std::initializer_list<uint64_t> words, std::string_view data = "") {
    std::vector<std::byte> payload(words.size() * 8);
    size_t at = 0;
    for (const uint64_t word : words) StoreLe64(&payload[8 * at++], word);
    const ByteSpan bytes = AsBytes(data);
    payload.insert(payload.end(), bytes.begin(), bytes.end());
    return transfers_.OnFrame({kind, payload});
  }
  bool Ask(uint64_t id, uint64_t from, uint64_t bytes) {
    return Frame(FrameKind::kSealedRead, {id, kKey, kSealedOffset + from, bytes});
  }
  bool Bring(uint64_t id, uint64_t from, uint64_t left, std::string_view data) {
    return Frame(FrameKind::kSealedWrite, {id, kKey, kSealedOffset + from, left}, data);
  }
  bool Data(uint64_t id, std::string_view data) {
    return Frame(FrameKind::kSealedData, {id}, data);
  }
  bool End(uint64_t id, uint64_t status) { return Frame(FrameKind::kSealedEnd, {id, status}); }

  void PostOne(TransferKind kind) {
    const Transfer transfer = {&local_, 0, {5, kSealedOffset, sizeof(own_)}};
    transfers_.Post(kind, absl::MakeConstSpan(&transfer, 1), &told_);
  }
  std::string text() const { return std::string(AsStringView(lent_)); }

  static constexpr uint64_t kKey = 77;

  std::byte lent_[16] = {};
  std::byte own_[16] = {};
  SealedRegion region_{MutableByteSpan(lent_), Access::kRemoteReadWrite, kKey};
  FakeRegion local_{MutableByteSpan(own_)};
  Told told_;
  SealedTransfers transfers_{&sender_, &framing_.sealed_regions()};
};

TEST_F(SealedTransfersTest, WhatIsNotGrantedIsRefusedAndTheConnectionGoesOn) {
  EXPECT_TRUE(Frame(FrameKind::kSealedRead, {0, kKey + 1, kSealedOffset, 8})) << "another key";
  EXPECT_TRUE(Ask(1, 9, 8)) << "beyond the end";
  EXPECT_TRUE(Frame(FrameKind::kSealedRead, {2, kKey, 8, 8})) << "before the region";
  EXPECT_TRUE(Bring(3, 9, 0, "12345678"));
  EXPECT_TRUE(Ask(4, 0, uint64_t{1} << 62));
  transfers_.AppendDue();
  EXPECT_EQ(sender_.room().frames(), 5);
  EXPECT_FALSE(transfers_.has_due());
  EXPECT_EQ(text(), std::string(16, '\0'));
}

TEST_F(SealedTransfersTest, AWriteIsInItsPlaceWhenItsLastPieceHasCome) {
  EXPECT_TRUE(Bring(0, 0, 4, "abcd"));
  EXPECT_FALSE(transfers_.has_due());
  EXPECT_TRUE(Bring(0, 4, 0, "efgh"));
  EXPECT_TRUE(transfers_.has_due());
  EXPECT_EQ(text().substr(0, 8), "abcdefgh");
}

TEST_F(SealedTransfersTest, NothingIsWrittenBehindAPieceThatIsRefused) {
  EXPECT_TRUE(Frame(FrameKind::kSealedWrite, {0, kKey, kSealedOffset - 4, 4}, "abcd"));
  EXPECT_TRUE(Bring(0, 0, 0, "efgh"));
  EXPECT_EQ(text(), std::string(16, '\0'));
}

TEST_F(SealedTransfersTest, FramesAgainstTheRulesAreNoPeers) {
  EXPECT_FALSE(Ask(1, 0, 8)) << "out of order";
  EXPECT_FALSE(Ask(0, 0, 0)) << "nothing";
  EXPECT_FALSE(Frame(FrameKind::kSealedRead, {0, kKey, ~uint64_t{0}, 8})) << "wraps around";
  EXPECT_FALSE(Frame(FrameKind::kSealedRead, {0, kKey, kSealedOffset})) << "cut";
  EXPECT_FALSE(Bring(0, 0, 0, "")) << "nothing";
  EXPECT_FALSE(Frame(FrameKind::kSealedWrite, {0, kKey, kSealedOffset})) << "cut";
  EXPECT_FALSE(Data(0, "never asked for"));
  EXPECT_FALSE(End(0, 0)) << "of nothing";
  EXPECT_FALSE(Frame(FrameKind::kMessage, {0}));
  EXPECT_TRUE(Bring(0, 0, 4, "abcd"));
  EXPECT_FALSE(Ask(1, 0, 8)) << "in the midst of a write";
  EXPECT_FALSE(Bring(1, 4, 0, "efgh")) << "the same";
  EXPECT_FALSE(Bring(0, 4, 1, "efgh")) << "another length";
  EXPECT_FALSE(Bring(0, 4, 0, "efghi")) << "longer";
  EXPECT_FALSE(Bring(0, 8, 0, "efgh")) << "another place";
  EXPECT_FALSE(Frame(FrameKind::kSealedWrite, {0, kKey + 1, kSealedOffset + 4, 0}, "efgh"))
      << "another key";
  EXPECT_TRUE(Bring(0, 4, 0, "efgh"));
}

TEST_F(SealedTransfersTest, NoMoreThanTheLimitIsRemembered) {
  for (uint64_t id = 0; id < kMostSealedTransfers; ++id) ASSERT_TRUE(Ask(id, 0, 8));
  EXPECT_FALSE(Ask(kMostSealedTransfers, 0, 8));
}

TEST_F(SealedTransfersTest, AReadEndsWithItsLastByteAndNotBefore) {
  PostOne(TransferKind::kRead);
  EXPECT_EQ(sender_.room().frames(), 1);
  EXPECT_FALSE(End(0, 0)) << "without its bytes";
  EXPECT_TRUE(Data(0, "12345678"));
  EXPECT_EQ(told_.times, 0);
  EXPECT_FALSE(Data(0, "123456789")) << "too much";
  EXPECT_TRUE(Data(0, "abcdefgh"));
  EXPECT_EQ(told_.times, 1);
  EXPECT_TRUE(told_.status.ok());
  EXPECT_EQ(AsStringView(own_), "12345678abcdefgh");
  EXPECT_FALSE(Data(0, "x")) << "it is over";
  EXPECT_FALSE(End(0, 1)) << "the same";
}

TEST_F(SealedTransfersTest, AWriteEndsWithThePeersWord) {
  PostOne(TransferKind::kWrite);
  EXPECT_FALSE(Data(0, "x")) << "it is no read";
  EXPECT_FALSE(End(0, 2));
  EXPECT_TRUE(End(0, 1));
  EXPECT_TRUE(absl::IsPermissionDenied(told_.status)) << told_.status;
}

TEST_F(SealedTransfersTest, HalfOfTheCreditsStayForMessages) {
  std::vector<std::byte> memory(10 * FakeDomain::kSlotBytes);
  FakeRegion region{MutableByteSpan(memory)};
  const Transfer transfer = {&region, 0, {5, kSealedOffset, memory.size()}};
  transfers_.Post(TransferKind::kWrite, absl::MakeConstSpan(&transfer, 1), &told_);
  EndTurn();
  EXPECT_EQ(sender_.window().credits(), kWindow / 2);
  EXPECT_TRUE(transfers_.has_due());
  EXPECT_FALSE(End(0, 0)) << "nobody has seen all of it";
  EXPECT_TRUE(Send("a message"));
  transfers_.End();
  EXPECT_EQ(told_.times, 1);
}

TEST_F(SealedTransfersTest, TheEndCompletesWhatIsOutstandingOnce) {
  PostOne(TransferKind::kRead);
  PostOne(TransferKind::kWrite);
  EXPECT_TRUE(End(0, 1));
  transfers_.End();
  EXPECT_EQ(told_.times, 2);
  EXPECT_TRUE(absl::IsCancelled(told_.status)) << told_.status;
}

}  // namespace
}  // namespace weft
