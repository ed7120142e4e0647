// What the ring promises: every record once, whole and in order; no room is an answer; and nothing
// that a peer writes there does more than end the link.

#include "transport/shm/ring.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "core/test_seed.h"
#include "gtest/gtest.h"
#include "transport/shm/ring_steps.h"

namespace weft {

// Brings both ends of an empty ring, at its beginning, to a later count.
class RingTestPeer {
 public:
  static void SetCounts(RingWriter& writer, RingReader& reader, uint64_t count) {
    writer.produced_ = writer.consumed_ = reader.consumed_ = count;
  }
};

namespace {

using Written = RingWriter::Result;
// What reading one record came to.
enum class Read { kNone, kRecord, kBroken };

// A ring and both its ends; a small language to write and read it.
class Road {
 public:
  explicit Road(uint32_t max_payload = kMaxRecordPayload)
      : writer_(memory_->ring, &memory_->words),
        reader_(memory_->ring, &memory_->words, max_payload) {}

  Written Write(std::string_view text, RecordKind kind = RecordKind::kBatch) {
    return writer_.TryWrite(kind, AsBytes(text), acked_);
  }
  // Writes into a claim of at most `most` bytes, all that it has room for, and publishes `text`.
  Written WriteInPlace(std::string_view text, uint32_t most) {
    const auto bytes = static_cast<uint32_t>(text.size());
    const RingWriter::Claim claim = writer_.TryClaim(bytes, most);
    if (claim.payload == nullptr) return Written::kFull;
    for (uint32_t at = 0; at < claim.room; at += 8) {
      const uint64_t lie = (uint64_t{at} + 1) << 24 | 1 << 16 | 8;  // as a header of a small batch
      std::memcpy(claim.payload + at, &lie, std::min(8u, claim.room - at));
    }
    std::memcpy(claim.payload, text.data(), bytes);
    writer_.Publish(RecordKind::kBatch, bytes, acked_);
    return Written::kWritten;
  }
  // What the following records tell of the road back.
  void AckWith(uint32_t acked) { acked_ = acked; }
  // As if a record on the road back had told all that was consumed here.
  void AckAll() { writer_.OnAcked(reader_.acked()); }
  Read ReadOne() {
    const uint64_t header = reader_.Find();
    if (header == 0) return Read::kNone;
    return reader_.Take(header, memory_->buffer, &record_) ? Read::kRecord : Read::kBroken;
  }
  // The next record's payload; "-" where there is none, "!" for a broken ring.
  std::string ReadText() {
    const Read result = ReadOne();
    if (result == Read::kBroken) return "!";
    return result == Read::kNone ? "-" : std::string(AsStringView(record_.payload));
  }
  // Writes until there is no room; returns how many.
  int Fill(std::string_view text) {
    int count = 0;
    while (Write(text) == Written::kWritten) ++count;
    return count;
  }
  // Reads all there is, telling the writer as a link does; returns how many.
  int Drain() {
    int count = 0;
    for (; ReadOne() == Read::kRecord; ++count) reader_.AckConsumed();
    return count;
  }
  // Both ends move on by a record of these many bytes of the ring.
  void Advance(uint32_t bytes) {
    ASSERT_EQ(Write(std::string(bytes - kRecordHeaderBytes, 'a')), Written::kWritten);
    ASSERT_EQ(ReadOne(), Read::kRecord);
    reader_.AckConsumed();
  }

  void Scribble(uint32_t at, uint64_t word) { std::memcpy(memory_->ring + at, &word, 8); }
  RingWriter& writer() { return writer_; }
  RingReader& reader() { return reader_; }
  RingWords& words() { return memory_->words; }
  const RingReader::Record& record() const { return record_; }
  // Where the next record will begin, as far as the writer knows.
  uint32_t place() { return static_cast<uint32_t>(writer_.place() - memory_->ring); }
  std::byte* ring() { return memory_->ring; }

 private:
  struct Memory {
    RingWords words{};
    alignas(64) std::byte ring[kRingBytes] = {};
    alignas(64) std::byte buffer[kMaxRecordBytes] = {};
  };
  std::unique_ptr<Memory> memory_ = std::make_unique<Memory>();
  RingWriter writer_;
  RingReader reader_;
  RingReader::Record record_;
  uint32_t acked_ = 0;
};

// Tests that take another way in every run, and print the seed that takes it again.
class RandomRingTest : public testing::Test {
 protected:
  const uint64_t seed_ = TestSeed();
  const testing::ScopedTrace trace_{__FILE__, __LINE__, SeedTrace(seed_)};
  std::mt19937_64 random_{seed_};
  Road road_;
};

std::string Pattern(size_t bytes, size_t seed) {
  std::string text(bytes, '\0');
  for (size_t i = 0; i < bytes; ++i) text[i] = static_cast<char>(seed * 31 + i * 7 + i / 253);
  return text;
}

constexpr uint64_t Header(RecordKind kind, uint64_t length, uint64_t number = 0) {
  return length | uint64_t{static_cast<uint8_t>(kind)} << 16 | number << 24;
}

// --- records -------------------------------------------------------------------------------------

TEST(RingTest, NothingIsThereAtFirst) {
  Road road;
  EXPECT_EQ(road.reader().Find(), 0u);
  EXPECT_EQ(road.ReadText(), "-");
}

TEST(RingTest, ARecordIsReadOnce) {
  Road road;
  ASSERT_EQ(road.Write("hello"), Written::kWritten);
  EXPECT_NE(road.reader().Find(), 0u);
  EXPECT_EQ(road.ReadText(), "hello");
  EXPECT_EQ(road.reader().Find(), 0u);
  EXPECT_EQ(road.ReadText(), "-");
}

TEST(RingTest, RecordsKeepTheirOrderAndKind) {
  Road road;
  road.Write("1");
  road.Write("22", RecordKind::kAsk);
  road.Write("333", RecordKind::kAnswer);
  EXPECT_EQ(road.ReadText(), "1");
  EXPECT_EQ(road.record().kind, RecordKind::kBatch);
  EXPECT_EQ(road.ReadText(), "22");
  EXPECT_EQ(road.record().kind, RecordKind::kAsk);
  EXPECT_EQ(road.ReadText(), "333");
  EXPECT_EQ(road.record().kind, RecordKind::kAnswer);
}

// Rounds go on with every size, so each is met at many places of the ring.
TEST(RingTest, EverySizeArrivesWhole) {
  Road road;
  for (uint32_t bytes = 1; bytes <= kMaxRecordPayload; ++bytes) {
    const std::string text = Pattern(bytes, bytes);
    ASSERT_EQ(road.Write(text), Written::kWritten) << bytes;
    ASSERT_EQ(road.ReadText(), text) << bytes;
    road.reader().AckConsumed();
  }
}

TEST(RingTest, EverySizeFitsAtEveryPlace) {
  for (uint32_t start = 0; start < kRingBytes; start += 64) {
    for (const uint32_t bytes : {1u, 55u, 56u, 57u, 120u, 4000u, kMaxRecordPayload}) {
      Road road;
      for (uint32_t at = 0; at < start; at += 64) road.Advance(64);
      const std::string text = Pattern(bytes, start);
      ASSERT_EQ(road.Write(text), Written::kWritten) << start << " " << bytes;
      ASSERT_EQ(road.Write("next"), Written::kWritten) << start << " " << bytes;
      ASSERT_EQ(road.ReadText(), text) << start << " " << bytes;
      ASSERT_EQ(road.ReadText(), "next");
    }
  }
}

// What a payload holds is never taken for a header in a later round, though it looks like one.
TEST(RingTest, PayloadsFullOfHeadersAreNoHeaders) {
  Road road;
  std::string lies;
  for (uint64_t i = 0; i < 500; ++i) {
    const uint64_t header = Header(RecordKind::kBatch, 8, i);
    lies.append(reinterpret_cast<const char*>(&header), 8);
  }
  const uint64_t seed = TestSeed();
  SCOPED_TRACE(SeedTrace(seed));
  std::mt19937_64 random(seed);
  for (int round = 0; round < 2'000; ++round) {
    const size_t bytes = 1 + random() % lies.size();
    ASSERT_EQ(road.Write(lies.substr(0, bytes)), Written::kWritten);
    ASSERT_EQ(road.ReadText(), lies.substr(0, bytes));
    ASSERT_EQ(road.ReadText(), "-") << "in round " << round;
    road.reader().AckConsumed();
    if (random() % 3 == 0) road.AckAll();
  }
}

TEST(RingTest, WhatStandsBehindThePayloadInItsSlotStaysPrivate) {
  Road road;
  std::string slot(64, 'S');
  ASSERT_EQ(road.writer().TryWrite(RecordKind::kBatch, AsBytes(slot).first(5), /*acked=*/0),
            Written::kWritten);
  const auto* from = reinterpret_cast<const char*>(road.ring()) + kRecordHeaderBytes;
  EXPECT_EQ(std::string(from, 8), std::string("SSSSS\0\0\0", 8));
}

// --- claims --------------------------------------------------------------------------------------

TEST(RingTest, AClaimIsAPlaceInTheRingAndARecordOnceItIsPublished) {
  Road road;
  const RingWriter::Claim claim = road.writer().TryClaim(5, 100);
  ASSERT_EQ(claim.payload, road.ring() + kRecordHeaderBytes);
  EXPECT_EQ(claim.room, 100u);
  std::memcpy(claim.payload, "hello", 5);
  EXPECT_EQ(road.ReadText(), "-");
  road.writer().Publish(RecordKind::kBatch, 5, /*acked=*/0);
  EXPECT_EQ(road.ReadText(), "hello");
  EXPECT_EQ(road.place(), 64u) << "what was left of the claim is free";
}

TEST(RingTest, AnAbandonedClaimSaysNothing) {
  for (const uint32_t before : {0u, 1u, 3u, 300u}) {
    Road road;
    for (uint32_t i = 0; i < before; ++i) road.Advance(64);
    for (int round = 0; round < 3; ++round) {
      const RingWriter::Claim claim = road.writer().TryClaim(50, kMaxRecordPayload);
      ASSERT_NE(claim.payload, nullptr);
      std::memset(claim.payload, 0xff, claim.room);
      EXPECT_EQ(road.ReadText(), "-");
      road.writer().Abandon();
      EXPECT_EQ(road.ReadText(), "-");
      if (before > 0) road.AckAll();
    }
    for (const size_t bytes : {50, 500, 5'000}) {
      ASSERT_EQ(road.Write(Pattern(bytes, before)), Written::kWritten);
      EXPECT_EQ(road.ReadText(), Pattern(bytes, before));
      EXPECT_EQ(road.ReadText(), "-");
    }
  }
}

TEST(RingTest, NothingElseIsWrittenWhileAClaimIsOpen) {
  Road road;
  ASSERT_NE(road.writer().TryClaim(8, 8).payload, nullptr);
  EXPECT_EQ(road.writer().TryClaim(8, 8).payload, nullptr);
  EXPECT_EQ(road.Write("other", RecordKind::kAnswer), Written::kFull);
  EXPECT_FALSE(road.writer().HasRoom(8));
  EXPECT_FALSE(road.writer().broken());
  road.writer().Abandon();
  EXPECT_TRUE(road.writer().HasRoom(8));
  EXPECT_EQ(road.Write("other", RecordKind::kAnswer), Written::kWritten);
  EXPECT_EQ(road.ReadText(), "other");
}

TEST(RingTest, ARingIsClosedUnderAnOpenClaim) {
  for (const uint32_t records : {0u, 1u, 5u}) {
    for (const bool heard : {false, true}) {
      Road road;
      for (uint32_t i = 0; i < records; ++i) road.Advance(128);
      if (heard) road.AckAll();
      const RingWriter::Claim claim = road.writer().TryClaim(8, kMaxRecordPayload);
      std::memset(claim.payload, 0xff, claim.room);
      road.writer().Close(/*acked=*/0);
      ASSERT_EQ(road.ReadOne(), Read::kRecord) << records << heard;
      EXPECT_EQ(road.record().kind, RecordKind::kClosed);
    }
  }
}

TEST(RingTest, AFullRingHasNoClaims) {
  Road road;
  road.Fill("small");
  EXPECT_EQ(road.writer().TryClaim(1, 1).payload, nullptr);
  EXPECT_FALSE(road.writer().has_claim());
  road.Drain();
  EXPECT_NE(road.writer().TryClaim(1, kMaxRecordPayload).payload, nullptr);
}

// The reader looks at the place behind the last record until it has seen the one at the beginning.
TEST(RingTest, AClaimAtTheBeginningEndsBeforeTheReadersPlace) {
  Road road;
  road.Advance(128);
  road.AckAll();
  const RingWriter::Claim claim = road.writer().TryClaim(100, kMaxRecordPayload);
  EXPECT_EQ(claim.payload, road.ring() + kRecordHeaderBytes);
  EXPECT_EQ(claim.room, 128 - kRecordHeaderBytes);
  road.writer().Abandon();
  const RingWriter::Claim longer = road.writer().TryClaim(121, kMaxRecordPayload);
  EXPECT_EQ(longer.payload, road.ring() + 128 + kRecordHeaderBytes);
  EXPECT_EQ(longer.room, kMaxRecordPayload);
}

TEST(RingTest, AClaimThatGrowsTakesItsBytesAlong) {
  Road road;
  road.Advance(128);
  road.AckAll();
  RingWriter::Claim claim = road.writer().TryClaim(100, kMaxRecordPayload);
  std::memset(claim.payload, 'a', 120);
  claim = road.writer().TryGrow(120, kMaxRecordPayload);
  ASSERT_EQ(claim.payload, road.ring() + 128 + kRecordHeaderBytes);
  ASSERT_EQ(claim.room, kMaxRecordPayload);
  EXPECT_EQ(road.ReadText(), "-");
  std::memset(claim.payload + 120, 'b', claim.room - 120);
  EXPECT_EQ(road.writer().TryGrow(120, kMaxRecordPayload).payload, nullptr) << "only once";
  road.writer().Publish(RecordKind::kBatch, 5'000, /*acked=*/0);
  EXPECT_EQ(road.ReadText(), std::string(120, 'a') + std::string(4'880, 'b'));
  EXPECT_EQ(road.ReadText(), "-");
}

TEST(RingTest, LoneClaimsReuseTheSameLines) {
  Road road;
  for (int round = 0; round < 1'000; ++round) {
    const RingWriter::Claim claim = road.writer().TryClaim(104, kMaxRecordPayload);
    ASSERT_EQ(claim.payload, road.ring() + kRecordHeaderBytes) << round;
    std::memset(claim.payload, round, 104);
    road.writer().Publish(RecordKind::kBatch, 104, /*acked=*/0);
    ASSERT_EQ(road.ReadText(), std::string(104, static_cast<char>(round)));
    ASSERT_EQ(road.ReadText(), "-");
    road.AckAll();
  }
  for (uint32_t at = 192; at < kRingBytes; ++at) ASSERT_EQ(road.ring()[at], std::byte{0}) << at;
}

// Claims are long and full of what looks like headers, records are short.
TEST_F(RandomRingTest, WhatIsLeftOfAClaimIsNeverRead) {
  for (int round = 0; round < 20'000; ++round) {
    const int records = 1 + static_cast<int>(random_() % 4);
    std::vector<std::string> written;
    for (int i = 0; i < records; ++i) {
      const auto most = static_cast<uint32_t>(1 + random_() % kMaxRecordPayload);
      const std::string text = Pattern(1 + random_() % std::min(most, 700u), random_());
      const bool had_room = road_.writer().HasRoom(most);
      ASSERT_EQ(road_.WriteInPlace(text, most) == Written::kWritten, had_room);
      if (had_room) written.push_back(text);
      if (random_() % 4 == 0) {
        const RingWriter::Claim left = road_.writer().TryClaim(1, 1'000);
        if (left.payload != nullptr) {
          std::memset(left.payload, 0xff, left.room);
          road_.writer().Abandon();
        }
      }
    }
    for (const std::string& text : written) ASSERT_EQ(road_.ReadText(), text) << round;
    ASSERT_EQ(road_.ReadText(), "-") << round;
    road_.reader().AckConsumed();
    if (random_() % 3 != 0) road_.AckAll();
    ASSERT_TRUE(road_.writer().HasRoom(kMaxRecordPayload)) << "all was read, so enough was told";
  }
}

// --- room ----------------------------------------------------------------------------------------

TEST(RingTest, AFullRingTakesNothingAndLosesNothing) {
  Road road;
  const int count = road.Fill("small");
  EXPECT_EQ(count, static_cast<int>(kRingBytes / 64 - 1)) << "all lines but the last";
  EXPECT_EQ(road.Write("small"), Written::kFull);
  EXPECT_FALSE(road.writer().HasRoom(kMaxRecordPayload));
  EXPECT_EQ(road.Drain(), count);
  EXPECT_TRUE(road.writer().HasRoom(kMaxRecordPayload));
  EXPECT_EQ(road.Write("again"), Written::kWritten);
  EXPECT_EQ(road.ReadText(), "again");
}

TEST(RingTest, AFullRingCanBeClosed) {
  for (uint32_t start = 0; start < 4096; start += 64) {
    Road road;
    for (uint32_t at = 0; at < start; at += 64) road.Advance(64);
    const int count = road.Fill(std::string(1000, 'f'));
    road.writer().Close(/*acked=*/0);
    for (int i = 0; i < count; ++i) ASSERT_EQ(road.ReadText().size(), 1000u);
    ASSERT_EQ(road.ReadOne(), Read::kRecord);
    ASSERT_EQ(road.record().kind, RecordKind::kClosed);
  }
}

// The writer would wait for ever for what the reader keeps to itself.
TEST_F(RandomRingTest, WhoHasReadAllHasToldEnoughForTheLargest) {
  for (int round = 0; round < 20'000; ++round) {
    const size_t bytes = 1 + random_() % (round % 3 == 0 ? kMaxRecordPayload : 300);
    road_.Write(Pattern(bytes, bytes));
    road_.Drain();
    ASSERT_TRUE(road_.writer().HasRoom(kMaxRecordPayload)) << "after round " << round;
    if (random_() % 5 == 0) road_.AckAll();  // and so begins again somewhere
  }
}

TEST_F(RandomRingTest, HavingRoomMeansThatTheLargestFits) {
  const std::string largest(kMaxRecordPayload, 'L');
  for (int round = 0; round < 20'000; ++round) {
    if (random_() % 4 == 0) road_.Drain();
    if (road_.writer().HasRoom(kMaxRecordPayload) && random_() % 2 == 0) {
      ASSERT_EQ(road_.Write(largest), Written::kWritten);
    } else {
      road_.Write(std::string(1 + random_() % 500, 's'));
    }
  }
}

// Room was asked for the largest record and the longest wrap before it, whatever was to be sent:
// two thirds of the ring. So calls of 1,000 bytes had a third of it on their way at most, the
// writer waited for the reader in between, and shm was slower than tcp.
TEST(RingTest, RoomIsAskedForWhatIsSentOnly) {
  for (const uint32_t payload : {1u, 1000u, 4096u, kMaxRecordPayload}) {
    Road road;
    const std::string text(payload, 's');
    uint32_t sent = 0;
    for (; road.writer().HasRoom(payload); ++sent) ASSERT_EQ(road.Write(text), Written::kWritten);
    EXPECT_EQ(sent, (kRingBytes - kCacheLineBytes) / RecordBytes(payload)) << payload;
    EXPECT_EQ(road.Write(text), Written::kFull) << payload;
  }
}

// At every place, for every length that is sent.
TEST_F(RandomRingTest, HavingRoomIsWhatAWriteFinds) {
  for (int round = 0; round < 20'000; ++round) {
    const auto payload = static_cast<uint32_t>(1 + random_() % kMaxRecordPayload);
    const bool had_room = road_.writer().HasRoom(payload);
    ASSERT_EQ(road_.Write(std::string(payload, 's')) == Written::kWritten, had_room) << payload;
    if (random_() % 2 == 0) road_.Drain();
  }
}

TEST(RingTest, AWriterThatWantsRoomIsWokenWhenItIsTold) {
  Road road;
  road.Fill("small");
  road.writer().WantRoom();
  bool woken = false;
  while (road.ReadOne() == Read::kRecord) woken = road.reader().AckConsumed() || woken;
  EXPECT_TRUE(woken);
  road.writer().StopWanting();
  road.Fill("small");
  woken = false;
  while (road.ReadOne() == Read::kRecord) woken = road.reader().AckConsumed() || woken;
  EXPECT_FALSE(woken);
}

TEST(RingTest, TheReaderTellsInQuarters) {
  Road road;
  uint64_t acked = 0;
  int times = 0;
  for (uint32_t i = 0; i < kRingBytes / 64; ++i) {
    road.Advance(64);
    times += std::exchange(acked, road.words().consumed.load()) != road.words().consumed.load();
  }
  EXPECT_EQ(times, 4);
}

// --- the beginning -------------------------------------------------------------------------------

// A thousand connections with a call each now and then walked through a thousand rings: each call
// met lines that were touched hundreds of calls ago, and took three to eight times as long as over
// one connection.
TEST(RingTest, LoneRecordsReuseTheSameLines) {
  Road road;
  for (int round = 0; round < 1'000; ++round) {
    ASSERT_EQ(road.place(), 0u) << round;
    ASSERT_EQ(road.Write(Pattern(104, round)), Written::kWritten);
    ASSERT_EQ(road.ReadText(), Pattern(104, round));
    ASSERT_EQ(road.ReadText(), "-");
    road.AckAll();
  }
  for (uint32_t at = 192; at < kRingBytes; ++at) ASSERT_EQ(road.ring()[at], std::byte{0}) << at;
  EXPECT_EQ(road.words().wants_room.load(), 0u);
}

TEST(RingTest, WhoIsToldNothingWalksOn) {
  Road road;
  road.Write("1");
  EXPECT_EQ(road.ReadText(), "1");
  EXPECT_EQ(road.place(), 64u);
}

TEST(RingTest, AZeroThatStandsThereIsNotStoredAgain) {
  Road road;
  road.Write("1");
  road.ReadOne();
  road.AckAll();
  constexpr uint64_t kMark = 7;  // the reader would see it; nobody writes there otherwise
  road.Scribble(64, kMark);
  road.Write("2");
  uint64_t word = 0;
  std::memcpy(&word, road.ring() + 64, sizeof(word));
  EXPECT_EQ(word, kMark);
}

// Every step to the beginning leaves what stood behind: lengths at random, so that zeros are stored
// again where they are needed.
TEST_F(RandomRingTest, LoneRecordsOfAnyLengthArrive) {
  for (int round = 0; round < 20'000; ++round) {
    const int records = 1 + static_cast<int>(random_() % 3);
    for (int i = 0; i < records; ++i) {
      const std::string text = Pattern(1 + random_() % 600, random_());
      ASSERT_EQ(road_.Write(text), Written::kWritten);
      ASSERT_EQ(road_.ReadText(), text);
      ASSERT_EQ(road_.ReadText(), "-");
    }
    if (random_() % 4 != 0) road_.AckAll();
    road_.reader().AckConsumed();
  }
}

// A record at the beginning that reached over the place behind the last one was taken for a header
// there before its own header was written: 16 calls of 1,000 bytes at a time broke their link.
TEST(RingTest, NoRecordAtTheBeginningReachesOverWhatTheReaderLooksAt) {
  Road road;
  road.Write("1");
  road.ReadOne();
  road.AckAll();
  road.Write(std::string(57, '2'));
  EXPECT_EQ(road.reader().consumed(), 64u);
  EXPECT_EQ(road.writer().produced(), 64u + 128u) << "behind the first";
  EXPECT_EQ(road.ReadText(), std::string(57, '2'));
  road.AckAll();
  road.Write(std::string(184, '3'));  // 192 bytes with its header, as many as there are before it
  EXPECT_EQ(road.writer().produced(), kRingBytes + 192u) << "at the beginning";
  EXPECT_EQ(road.ReadText(), std::string(184, '3'));
}

// The records behind that one may.
TEST(RingTest, WhatIsWrittenOverTheReadersPlaceIsNoHeader) {
  Road road;
  road.Write(Pattern(100, 1));
  road.ReadOne();
  road.AckAll();
  ASSERT_EQ(road.Write("at the beginning"), Written::kWritten);
  ASSERT_EQ(road.Write(Pattern(1'000, 2)), Written::kWritten);  // from 64 on: over 128
  EXPECT_NE(road.reader().Find(), 0u);
  EXPECT_EQ(road.ReadText(), "at the beginning");
  EXPECT_EQ(road.ReadText(), Pattern(1'000, 2));
  EXPECT_EQ(road.ReadText(), "-");
}

TEST(RingTest, RecordsTellOfTheRoadBack) {
  Road road;
  road.AckWith(0xabcdef);
  road.Write("told");
  EXPECT_EQ(road.ReadText(), "told");
  EXPECT_EQ(road.record().acked, 0xabcdefu);
}

TEST(RingTest, ToldRoomIsRoom) {
  Road road;
  road.Fill("small");
  for (int i = 0; i < 10; ++i) road.ReadOne();
  EXPECT_EQ(road.Write("small"), Written::kFull) << "not a quarter yet: the word says nothing";
  road.AckAll();
  for (int i = 0; i < 10; ++i) EXPECT_EQ(road.Write("small"), Written::kWritten) << i;
  EXPECT_EQ(road.Write("small"), Written::kFull);
}

TEST(RingTest, WhatIsToldAgainstReasonIsLeft) {
  Road road;
  for (int i = 0; i < 20; ++i) road.Write("small");
  for (int i = 0; i < 10; ++i) road.ReadOne();
  road.AckAll();
  ASSERT_EQ(road.writer().consumed(), 640u);
  for (const uint32_t lie : {0u, 9u, 21u, 1000u, kAckedModulus - 1}) {
    road.writer().OnAcked(lie);
    EXPECT_EQ(road.writer().consumed(), 640u) << lie;
  }
  road.writer().OnAcked(20);
  EXPECT_EQ(road.writer().consumed(), 1280u);
}

// A record may lie on the road back for long, and the count of 24 bits begin again meanwhile.
TEST(RingTest, AnOldCountIsNotTakenForANewOne) {
  constexpr uint64_t kAgain = uint64_t{kAckedModulus} * kCacheLineBytes;
  Road road;
  const uint32_t old = road.reader().acked();
  RingTestPeer::SetCounts(road.writer(), road.reader(), kAgain - kAgain % kRingBytes);
  while (road.writer().produced() < kAgain - 100 * kCacheLineBytes) {
    ASSERT_EQ(road.Write("small"), Written::kWritten);
    road.Drain();
  }
  while (road.writer().produced() <= kAgain) ASSERT_EQ(road.Write("small"), Written::kWritten);
  const uint64_t consumed = road.writer().consumed();
  ASSERT_LT(consumed, kAgain);
  road.writer().OnAcked(old);
  EXPECT_EQ(road.writer().consumed(), consumed);
  road.Drain();
  road.writer().OnAllSeen();
  road.AckAll();
  EXPECT_EQ(road.writer().consumed(), road.reader().consumed());
}

// --- hostile peers -------------------------------------------------------------------------------

TEST(RingTest, BadHeadersBreakTheRing) {
  constexpr uint32_t kMaxPayload = 4096;
  const uint64_t kBad[] = {
      Header(RecordKind::kBatch, 0),
      Header(RecordKind::kBatch, kMaxPayload + 1),
      Header(RecordKind::kBatch, kRingBytes),
      Header(RecordKind::kBatch, 0xffff),
      Header(RecordKind::kAsk, 0),
      Header(RecordKind::kAnswer, kMaxPayload + 1),
      Header(RecordKind::kClosed, 1),
      Header(RecordKind{0}, 5),
      Header(RecordKind{2}, 0),  // what a wrap was
      Header(RecordKind{2}, 5),
      Header(RecordKind{6}, 5),
      Header(RecordKind{255}, 5),
  };
  for (const uint64_t header : kBad) {
    Road at_the_beginning(kMaxPayload);
    at_the_beginning.Scribble(0, header);
    EXPECT_EQ(at_the_beginning.ReadText(), "!") << std::hex << header;
    Road behind_another(kMaxPayload);
    behind_another.Write("1");
    behind_another.Scribble(64, header | uint64_t{1} << 24);
    EXPECT_EQ(behind_another.ReadText(), "1");
    EXPECT_EQ(behind_another.ReadText(), "!") << std::hex << header;
  }
}

TEST(RingTest, AWrongNumberBehindTheLastRecordBreaksTheRing) {
  Road road;
  road.Write("0");
  road.Scribble(64, Header(RecordKind::kBatch, 5, 2));
  EXPECT_EQ(road.ReadText(), "0");
  EXPECT_EQ(road.ReadText(), "!");
}

// It may be there from long ago.
TEST(RingTest, AWrongNumberAtTheBeginningIsNoRecord) {
  Road road;
  for (const uint64_t number : {1u, 2u, 0xffffu}) {
    road.Scribble(0, Header(RecordKind::kBatch, 5, number));
    EXPECT_EQ(road.reader().Find(), 0u);
    EXPECT_EQ(road.ReadText(), "-");
  }
}

TEST(RingTest, ARecordMustEndInsideTheRing) {
  Road road;
  uint64_t number = 0;
  for (uint32_t at = 0; at < kRingBytes - 64; at += 64, ++number) road.Advance(64);
  road.Scribble(kRingBytes - 64, Header(RecordKind::kBatch, 57, number));
  EXPECT_EQ(road.ReadText(), "!");
}

TEST(RingTest, ImpossibleCountsBreakTheWriter) {
  for (const uint64_t lie : {uint64_t{kRingBytes}, ~uint64_t{0}, uint64_t{1} << 63}) {
    Road road;
    const int count = road.Fill("small");
    ASSERT_GT(count, 0);
    road.words().consumed.store(lie);
    EXPECT_EQ(road.Write("small"), Written::kBroken) << lie;
    EXPECT_FALSE(road.writer().HasRoom(kMaxRecordPayload));
    EXPECT_TRUE(road.writer().broken());
  }
}

// The writer may have heard more by a record.
TEST(RingTest, ACountThatGoesBackChangesNothing) {
  Road road;
  road.Fill("small");
  road.Drain();
  road.Fill("small");
  const uint64_t consumed = road.writer().consumed();
  road.words().consumed.store(64);
  EXPECT_EQ(road.Write("small"), Written::kFull);
  EXPECT_EQ(road.writer().consumed(), consumed);
}

// Whatever stands in the ring, the reader reads inside of it (the sanitizers watch), comes to an
// end, and hands out nothing that is longer than allowed.
TEST(RingTest, AnyScribbleIsReadSafely) {
  const uint64_t seed = TestSeed();
  SCOPED_TRACE(SeedTrace(seed));
  std::mt19937_64 random(seed);
  for (int round = 0; round < 3'000; ++round) {
    Road road(4096);
    for (uint32_t at = 0; at < kRingBytes; at += 8) {
      uint64_t word = random();
      if (random() % 2 == 0)
        word =
            Header(RecordKind{static_cast<uint8_t>(random() % 8)}, random() % 5000, random() % 20);
      if (random() % 4 == 0) word = 0;
      road.Scribble(at, word);
    }
    for (int i = 0; i < 1'000; ++i) {
      const Read result = road.ReadOne();
      if (result != Read::kRecord || road.record().kind == RecordKind::kClosed) break;
      ASSERT_LE(road.record().payload.size(), 4096u);
      ASSERT_GT(road.record().payload.size(), 0u);
      road.reader().AckConsumed();
    }
  }
}

// The writer goes by what is in its own memory.
TEST(RingTest, AScribbledClaimIsTheReadersTroubleOnly) {
  const uint64_t seed = TestSeed();
  SCOPED_TRACE(SeedTrace(seed));
  std::mt19937_64 random(seed);
  for (int round = 0; round < 1'000; ++round) {
    Road road;
    for (uint64_t i = random() % 4; i > 0; --i) road.Advance(128);
    if (random() % 2 == 0) road.AckAll();
    const uint64_t produced = road.writer().produced();
    RingWriter::Claim claim = road.writer().TryClaim(40, kMaxRecordPayload);
    for (uint32_t at = 0; at < kRingBytes; at += 8) road.Scribble(at, random());
    road.words().consumed.store(random());
    if (claim.room < 200) claim = road.writer().TryGrow(40, kMaxRecordPayload);
    ASSERT_GE(claim.room, 200u);
    ASSERT_GE(claim.payload, road.ring());
    ASSERT_LE(claim.payload + claim.room, road.ring() + kRingBytes);
    road.writer().Publish(RecordKind::kBatch, 200, /*acked=*/0);
    const uint64_t more = road.writer().produced() - produced;
    EXPECT_TRUE(more == 256 || road.writer().produced() % kRingBytes == 256) << more;
  }
}

// --- two threads ---------------------------------------------------------------------------------

// The reader looks on while the writer writes; sizes and bursts at random.
TEST(RingTest, TwoThreadsExchangeEverythingInOrder) {
  constexpr uint32_t kRecords = 100'000;
  Road road;
  const uint64_t seed = TestSeed();
  SCOPED_TRACE(SeedTrace(seed));
  std::thread writer([&] {
    std::mt19937_64 random(seed);
    for (uint32_t i = 0; i < kRecords; ++i) {
      std::string text = Pattern(4 + random() % (i % 50 == 0 ? kMaxRecordPayload - 4 : 200), i);
      std::memcpy(text.data(), &i, sizeof(i));
      while (road.Write(text) != Written::kWritten) {
        ASSERT_FALSE(road.writer().broken());
        std::this_thread::yield();
      }
    }
    road.writer().Close(/*acked=*/0);
  });
  std::mt19937_64 random(seed);
  for (uint32_t i = 0; i < kRecords; ++i) {
    std::string wanted = Pattern(4 + random() % (i % 50 == 0 ? kMaxRecordPayload - 4 : 200), i);
    std::memcpy(wanted.data(), &i, sizeof(i));
    std::string got = "-";
    while ((got = road.ReadText()) == "-") std::this_thread::yield();
    road.reader().AckConsumed();
    ASSERT_EQ(got, wanted) << "record " << i;
  }
  while (road.ReadOne() == Read::kNone) std::this_thread::yield();
  EXPECT_EQ(road.record().kind, RecordKind::kClosed);
  writer.join();
}

// Records are made in the ring while the reader looks on, in claims longer than they come out; now
// and then one is abandoned, or grows.
TEST(RingTest, TwoThreadsExchangeWhatIsMadeInPlace) {
  constexpr uint32_t kRounds = 20'000;
  Road there, back;
  const auto read = [](Road& road) {
    std::string got = "-";
    while ((got = road.ReadText()) == "-") std::this_thread::yield();
    road.reader().AckConsumed();
    return got;
  };
  std::thread echo([&] {
    for (uint32_t round = 0; round < kRounds; ++round) {
      for (uint32_t i = 0; i < 1 + round % 3; ++i) {
        const std::string text = read(there);
        back.writer().OnAcked(there.record().acked);
        back.AckWith(there.reader().acked());
        while (back.WriteInPlace(text, kMaxRecordPayload) != Written::kWritten) {
          std::this_thread::yield();
        }
      }
      if (there.reader().Find() == 0) back.writer().OnAllSeen();
    }
  });
  for (uint32_t round = 0; round < kRounds; ++round) {
    const std::string text = Pattern(1 + round * 37 % (round % 40 == 0 ? 5'000 : 300), round);
    for (uint32_t i = 0; i < 1 + round % 3; ++i) {
      there.AckWith(back.reader().acked());
      const uint32_t short_bytes = std::min<uint32_t>(static_cast<uint32_t>(text.size()), 16);
      RingWriter::Claim claim = there.writer().TryClaim(short_bytes, kMaxRecordPayload);
      if (claim.payload == nullptr || round % 7 == 0) {
        if (claim.payload != nullptr) there.writer().Abandon();
        while (there.WriteInPlace(text, kMaxRecordPayload) != Written::kWritten) {
          std::this_thread::yield();
        }
        continue;
      }
      std::memcpy(claim.payload, text.data(), short_bytes);
      if (claim.room < text.size()) {
        claim = there.writer().TryGrow(short_bytes, kMaxRecordPayload);
        ASSERT_GE(claim.room, text.size());
      }
      std::memcpy(claim.payload + short_bytes, text.data() + short_bytes,
                  text.size() - short_bytes);
      there.writer().Publish(RecordKind::kBatch, static_cast<uint32_t>(text.size()),
                             back.reader().acked());
    }
    for (uint32_t i = 0; i < 1 + round % 3; ++i) {
      ASSERT_EQ(read(back), text) << round;
      there.writer().OnAcked(back.record().acked);
    }
    there.writer().OnAllSeen();
  }
  echo.join();
}

// Calls and replies, one at a time or in bursts: counts ride on the records both ways, and both
// roads begin again all the time.
TEST(RingTest, TwoRoadsTellOfEachOther) {
  constexpr uint32_t kRounds = 20'000;
  Road there, back;
  const auto sizes = [](uint32_t round) {
    return std::pair{1 + round % 4, 1 + round * 37 % (round % 40 == 0 ? 5'000 : 300)};
  };
  const auto read = [](Road& road) {
    std::string got = "-";
    while ((got = road.ReadText()) == "-") std::this_thread::yield();
    road.reader().AckConsumed();
    return got;
  };
  std::thread echo([&] {
    for (uint32_t round = 0; round < kRounds; ++round) {
      for (uint32_t i = 0; i < sizes(round).first; ++i) {
        const std::string text = read(there);
        back.writer().OnAcked(there.record().acked);
        ASSERT_EQ(back.writer().TryWrite(RecordKind::kBatch, AsBytes(text), there.reader().acked()),
                  Written::kWritten);
      }
      if (there.reader().Find() == 0) back.writer().OnAllSeen();
    }
  });
  int at_the_beginning = 0;
  for (uint32_t round = 0; round < kRounds; ++round) {
    const auto [records, bytes] = sizes(round);
    at_the_beginning += there.place() == 0;
    for (uint32_t i = 0; i < records; ++i) {
      ASSERT_EQ(there.writer().TryWrite(RecordKind::kBatch, AsBytes(Pattern(bytes, round + i)),
                                        back.reader().acked()),
                Written::kWritten);
    }
    for (uint32_t i = 0; i < records; ++i) {
      ASSERT_EQ(read(back), Pattern(bytes, round + i)) << round;
      there.writer().OnAcked(back.record().acked);
    }
    there.writer().OnAllSeen();
  }
  echo.join();
  EXPECT_EQ(at_the_beginning, static_cast<int>(kRounds)) << "each round had all replies";
}

// A writer that only looks again after it was woken: the wake-up is never lost.
TEST(RingTest, AWaitingWriterIsAlwaysWoken) {
  constexpr int kRecords = 50'000;
  Road road;
  std::atomic<int> wakes{0};
  std::thread writer([&] {
    const std::string text(1000, 'w');
    for (int i = 0; i < kRecords;) {
      if (road.Write(text) == Written::kWritten) {
        ++i;
        continue;
      }
      const int before = wakes.load();
      road.writer().WantRoom();
      if (!road.writer().HasRoom(kMaxRecordPayload)) {
        while (wakes.load() == before) std::this_thread::yield();
      }
      road.writer().StopWanting();
    }
  });
  for (int i = 0; i < kRecords;) {
    if (road.ReadOne() != Read::kRecord) {
      std::this_thread::yield();
      continue;
    }
    ++i;
    if (road.reader().AckConsumed()) wakes.fetch_add(1);
  }
  writer.join();
}

}  // namespace
}  // namespace weft
