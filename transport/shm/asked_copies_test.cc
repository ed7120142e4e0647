// Copies that the target carries out: what asks and answers may say, and what a liar gets.

#include "transport/shm/asked_copies.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <vector>

#include "transport/shm/ring_steps.h"

namespace weft {
namespace {

constexpr uint32_t kBytes = 10 * kCopyPieceBytes + 5;

// One way: a ring of its own.
struct Road {
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  std::vector<Line> lines = std::vector<Line>(kRingBytes / 64);
  RingWords words = {};
  std::byte* ring() { return lines[0].bytes; }
  RingWriter writer{ring(), &words};
  RingReader reader{ring(), &words, kMaxRecordPayload};
};

constexpr uint32_t kAcked = 0;  // nobody listens to what these records tell of the road back

struct Copy : ShmOperation {
  Copy(std::byte* here, bool reads, uint64_t key, uint64_t offset, uint64_t length) {
    local = here;
    is_read = reads;
    remote_key = key;
    remote_offset = offset;
    bytes = length;
  }
};

class AskedCopiesTest : public testing::Test {
 protected:
  AskedCopiesTest()
      : table_memory_(RegionTable::kBytes / 64),
        regions_(table_memory_[0].bytes, pins_.get()),
        theirs_(kBytes),
        mine_(kBytes) {
    uint8_t value = 0;
    for (std::byte& byte : theirs_) byte = static_cast<std::byte>(value += 7);
  }

  uint64_t Publish(Access access) {
    const uint64_t key = *regions_.NewKey();
    regions_.Publish(key, MutableByteSpan(theirs_), access);
    return key;
  }

  Copy Operation(bool is_read, uint64_t key, uint64_t offset = 0, uint64_t bytes = kBytes) {
    return Copy(mine_.data(), is_read, key, offset, bytes);
  }

  ByteSpan Next(Road& road, RecordKind kind) {
    RingReader::Record record;
    const uint64_t header = road.reader.Find();
    if (header == 0 || !road.reader.Take(header, buffer_.bytes, &record)) return {};
    EXPECT_EQ(record.kind, kind);
    road.reader.AckConsumed();
    return record.payload;
  }
  // The target works off what there is. False: the initiator broke the rules.
  bool Serve() {
    for (ByteSpan ask; !(ask = Next(there_, RecordKind::kAsk)).empty();) {
      if (!answerer_.OnAsk(ask)) return false;
    }
    EXPECT_NE(answerer_.Answer(back_.writer, kAcked), CopyAnswerer::Result::kBroken);
    return true;
  }
  // Both work until the operation has ended.
  void RunToTheEnd(ShmOperation& op) {
    ShmOperation* ended = nullptr;
    for (int turn = 0; turn < 100 && ended == nullptr; ++turn) {
      if (!op.all_asked) asker_.Ask(there_.writer, kAcked, &op);
      if (op.all_asked && op.pieces_asked == 0) return;
      ASSERT_TRUE(Serve());
      for (ByteSpan answer; !(answer = Next(back_, RecordKind::kAnswer)).empty();) {
        ASSERT_TRUE(asker_.OnAnswer(answer, &ended));
      }
    }
    EXPECT_EQ(ended, &op);
  }

  struct alignas(64) Line {
    std::byte bytes[64] = {};
  };
  std::vector<Line> table_memory_;
  const std::unique_ptr<SharedRegionPins> pins_ = std::make_unique<SharedRegionPins>();
  RegionTable regions_;
  std::vector<std::byte> theirs_;
  std::vector<std::byte> mine_;
  Road there_;
  Road back_;
  CopyAsker asker_;
  CopyAnswerer answerer_{&regions_};
  struct alignas(64) {
    std::byte bytes[kMaxRecordBytes];
  } buffer_;
};

TEST_F(AskedCopiesTest, AReadBringsAllBytesInPieces) {
  Copy op = Operation(/*is_read=*/true, Publish(Access::kRemoteRead));
  RunToTheEnd(op);
  EXPECT_TRUE(op.status.ok()) << op.status;
  EXPECT_EQ(mine_, theirs_);
}

TEST_F(AskedCopiesTest, AWriteTakesAllBytesThere) {
  std::iota(reinterpret_cast<uint8_t*>(mine_.data()),
            reinterpret_cast<uint8_t*>(mine_.data() + kBytes), uint8_t{3});
  Copy op = Operation(/*is_read=*/false, Publish(Access::kRemoteWrite));
  RunToTheEnd(op);
  EXPECT_TRUE(op.status.ok()) << op.status;
  EXPECT_EQ(mine_, theirs_);
}

TEST_F(AskedCopiesTest, NoMoreThanTheBoundIsUnderWay) {
  Copy op = Operation(/*is_read=*/true, Publish(Access::kRemoteRead));
  EXPECT_EQ(asker_.Ask(there_.writer, kAcked, &op), CopyAsker::Result::kNoRoom);
  EXPECT_EQ(op.pieces_asked, kMaxAsked);
  EXPECT_TRUE(asker_.full());
}

TEST_F(AskedCopiesTest, RightsAndBoundsHold) {
  const std::vector<std::byte> before = theirs_;
  const uint64_t readable = Publish(Access::kRemoteRead);
  const uint64_t writable = Publish(Access::kRemoteWrite);
  Copy bad[] = {
      Operation(false, readable, 0, 8),         Operation(true, writable, 0, 8),
      Operation(true, readable + 4096, 0, 8),   Operation(true, 0, 0, 8),
      Operation(true, readable, kBytes - 7, 8), Operation(false, writable, ~uint64_t{0} - 3, 8),
  };
  for (Copy& op : bad) {
    RunToTheEnd(op);
    EXPECT_TRUE(absl::IsPermissionDenied(op.status)) << op.status;
  }
  EXPECT_EQ(theirs_, before);
}

TEST_F(AskedCopiesTest, ARegionThatWasWithdrawnIsNotReadThoughTheAskCameBefore) {
  const uint64_t key = Publish(Access::kRemoteRead);
  Copy op = Operation(/*is_read=*/true, key, 0, 64);
  ASSERT_EQ(asker_.Ask(there_.writer, kAcked, &op), CopyAsker::Result::kAllAsked);
  ASSERT_TRUE(answerer_.OnAsk(Next(there_, RecordKind::kAsk)));
  ASSERT_TRUE(regions_.Withdraw(key));
  EXPECT_EQ(answerer_.Answer(back_.writer, kAcked), CopyAnswerer::Result::kAllAnswered);
  ShmOperation* ended = nullptr;
  ASSERT_TRUE(asker_.OnAnswer(Next(back_, RecordKind::kAnswer), &ended));
  ASSERT_EQ(ended, &op);
  EXPECT_TRUE(absl::IsPermissionDenied(op.status)) << op.status;
  EXPECT_EQ(mine_, std::vector<std::byte>(kBytes));
}

TEST_F(AskedCopiesTest, AnswersWaitForRoomInTheRing) {
  const std::vector<std::byte> filler(kMaxRecordPayload - 100);
  int fillers = 0;
  while (back_.writer.TryWrite(RecordKind::kBatch, filler, kAcked) ==
         RingWriter::Result::kWritten) {
    ++fillers;
  }
  Copy op = Operation(/*is_read=*/true, Publish(Access::kRemoteRead), 0, kMaxAsked * 4096);
  ASSERT_EQ(asker_.Ask(there_.writer, kAcked, &op), CopyAsker::Result::kAllAsked);
  ASSERT_TRUE(Serve());
  EXPECT_TRUE(answerer_.owes());
  for (; fillers > 0; --fillers) ASSERT_FALSE(Next(back_, RecordKind::kBatch).empty());
  RunToTheEnd(op);
  EXPECT_TRUE(op.status.ok()) << op.status;
  EXPECT_TRUE(std::equal(mine_.begin(), mine_.begin() + kMaxAsked * 4096, theirs_.begin()));
}

TEST_F(AskedCopiesTest, TheEndTakesBackEachOperationThatOnlyWaitsOnce) {
  const uint64_t key = Publish(Access::kRemoteRead);
  Copy whole = Operation(/*is_read=*/true, key, 0, 2 * kCopyPieceBytes);
  Copy part = Operation(/*is_read=*/true, key);
  ASSERT_EQ(asker_.Ask(there_.writer, kAcked, &whole), CopyAsker::Result::kAllAsked);
  ASSERT_EQ(asker_.Ask(there_.writer, kAcked, &part), CopyAsker::Result::kNoRoom);
  std::vector<ShmOperation*> taken;
  asker_.Clear([&](ShmOperation* operation) { taken.push_back(operation); });
  EXPECT_EQ(taken, std::vector<ShmOperation*>{&whole});
  EXPECT_FALSE(asker_.full());
}

// --- liars ---------------------------------------------------------------------------------------

class LyingTest : public AskedCopiesTest {
 protected:
  std::vector<std::byte> Ask(bool is_read) {
    Copy op = Operation(is_read, Publish(Access::kRemoteReadWrite), 0, 64);
    CopyAsker asker;
    Road road;
    EXPECT_EQ(asker.Ask(road.writer, kAcked, &op), CopyAsker::Result::kAllAsked);
    const ByteSpan ask = Next(road, RecordKind::kAsk);
    return {ask.begin(), ask.end()};
  }
  static std::vector<std::byte> With(std::vector<std::byte> record, size_t at, uint32_t value) {
    std::memcpy(&record[at], &value, sizeof(value));
    return record;
  }
  static std::vector<std::byte> Resized(std::vector<std::byte> record, size_t bytes) {
    record.resize(bytes);
    return record;
  }
};

TEST_F(LyingTest, AsksAgainstTheRulesAreTold) {
  constexpr size_t kNumber = 0, kWhat = 4, kLength = 24;
  for (const std::vector<std::byte>& bad :
       {With(Ask(true), kNumber, 1), With(Ask(true), kWhat, 3), With(Ask(true), kLength, 0),
        With(Ask(true), kLength, kCopyPieceBytes + 1), Resized(Ask(true), 31),
        Resized(Ask(true), 33), Resized(Ask(false), 32), Resized(Ask(false), 95),
        Resized(Ask(false), 97), With(Ask(false), kLength, 65), std::vector<std::byte>()}) {
    CopyAnswerer answerer(&regions_);
    EXPECT_FALSE(answerer.OnAsk(bad));
  }
  CopyAnswerer answerer(&regions_);
  EXPECT_TRUE(answerer.OnAsk(Ask(true)));
}

TEST_F(LyingTest, MoreAsksThanAgreedAreTold) {
  for (uint32_t i = 0; i < kMaxAsked; ++i) EXPECT_TRUE(answerer_.OnAsk(With(Ask(true), 0, i)));
  EXPECT_FALSE(answerer_.OnAsk(With(Ask(true), 0, kMaxAsked)));
}

TEST_F(LyingTest, AnswersAgainstTheRulesAreToldAndTouchNothing) {
  const std::vector<std::byte> good = [] {
    std::vector<std::byte> answer(kAnswerHeaderBytes + 64, std::byte{9});
    return With(With(answer, 0, 0), 4, 1);
  }();
  for (const std::vector<std::byte>& bad :
       {With(good, 0, 1), With(good, 4, 0), With(good, 4, 2), With(good, 4, 3),
        Resized(good, kAnswerHeaderBytes), Resized(good, good.size() - 1),
        Resized(good, good.size() + 1), Resized(good, 7)}) {
    CopyAsker asker;
    Road road;
    Copy op = Operation(/*is_read=*/true, 4096, 0, 64);
    ASSERT_EQ(asker.Ask(road.writer, kAcked, &op), CopyAsker::Result::kAllAsked);
    ShmOperation* ended = nullptr;
    EXPECT_FALSE(asker.OnAnswer(bad, &ended));
    EXPECT_EQ(ended, nullptr);
    EXPECT_EQ(mine_, std::vector<std::byte>(kBytes));
  }
  ShmOperation* ended = nullptr;
  CopyAsker nobody;
  EXPECT_FALSE(nobody.OnAnswer(good, &ended)) << "not asked";
}

}  // namespace
}  // namespace weft
