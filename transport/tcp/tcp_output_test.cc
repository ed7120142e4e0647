// What leaves by a socket, in which order, wherever the kernel cuts it.

#include "transport/tcp/tcp_output.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "transport/tcp/testing/limited_sends.h"

namespace weft {
namespace {

constexpr int kNoSocket = -1;  // LimitedSends keeps what it gets

struct Frame {
  TcpFrameKind kind;
  uint8_t flags;
  uint32_t operation;
  std::string payload;
  friend bool operator==(const Frame&, const Frame&) = default;
  friend void PrintTo(const Frame& frame, std::ostream* out) {
    *out << "kind " << static_cast<int>(frame.kind) << " flags " << static_cast<int>(frame.flags)
         << " operation " << frame.operation << " of " << frame.payload.size() << " bytes";
  }
};

Frame Batch(std::string text) { return {TcpFrameKind::kBatch, 0, 0, std::move(text)}; }
Frame Data(uint8_t flags, uint32_t operation, std::string text) {
  return {TcpFrameKind::kData, flags, operation, std::move(text)};
}
Frame End(uint32_t operation, uint8_t flags = 0) {
  return {TcpFrameKind::kEnd, flags, operation, ""};
}
Frame WriteOf(uint8_t flags, uint32_t operation, const RemoteSpan& at, std::string_view text) {
  std::byte head[kTcpWriteHeadBytes];
  StoreLe64(head, at.key);
  StoreLe64(head + 8, at.offset);
  return {TcpFrameKind::kWrite, flags, operation, std::string(AsStringView(head)).append(text)};
}

class TcpOutputTest : public testing::Test {
 protected:
  TcpOutputTest() { slots_.Ask(64); }
  // Slots are given back before their pool goes.
  ~TcpOutputTest() override {
    output_.Clear();
    EXPECT_EQ(stats_.send_slots_in_use, 0u);
  }

  static std::string Text(size_t bytes, size_t seed) {
    std::string text(bytes, '\0');
    for (size_t i = 0; i < bytes; ++i) text[i] = static_cast<char>(1 + (seed * 31 + i * 7) % 255);
    return text;
  }

  void AddBatch(std::string_view text) {
    const SendSlot slot = slots_.Take();
    std::memcpy(slot.data, text.data(), text.size());
    output_.AddBatch(TcpSlots::SlotOf(slot), static_cast<uint32_t>(text.size()));
  }

  // A write of `texts`, each to the region `key` at its place in them, times 1 MiB.
  TcpOperation* AddWrite(const std::vector<std::string>& texts, uint64_t key = 5) {
    TcpOperation* const operation = NewOperation(texts, key);
    output_.AddWrite(operation);
    return operation;
  }
  // The same, which no batch waits for.
  void AddUnordered(const std::vector<std::string>& texts, uint64_t key = 6) {
    TcpOperation* const operation = NewOperation(texts, key);
    operation->in_order = false;
    output_.AddWrite(operation);
  }
  TcpOperation* NewOperation(const std::vector<std::string>& texts, uint64_t key) {
    TcpOperation* first = nullptr;
    TcpOperation* last = nullptr;
    uint64_t offset = 0;
    for (const std::string& text : texts) {
      std::string& memory = memory_.emplace_back(text);
      TcpOperation* const record = &operations_.emplace_back();
      record->local = reinterpret_cast<std::byte*>(memory.data());
      record->remote = {key, offset, memory.size()};
      offset += 1 << 20;
      (last == nullptr ? first : last->next) = record;
      last = record;
    }
    first->number = ++number_;
    first->records = static_cast<uint32_t>(texts.size());
    first->current = first;
    first->sent_at = TcpOperation::kNotSent;
    return first;
  }

  // Memory that the peer may read.
  uint64_t Grant(std::string_view text) {
    std::string& memory = memory_.emplace_back(text);
    std::unique_ptr<Region> region =
        regions_
            .Register({reinterpret_cast<std::byte*>(memory.data()), memory.size()},
                      Access::kRemoteRead)
            .value();
    const uint64_t key = region->remote().key;
    granted_[key] = std::move(region);
    return key;
  }
  void AddAnswer(uint32_t number, const std::vector<RemoteSpan>& spans) {
    std::vector<std::byte> bytes(spans.size() * kTcpSpanBytes);
    for (size_t i = 0; i < spans.size(); ++i) {
      EncodeTcpSpan(bytes.data() + i * kTcpSpanBytes, spans[i]);
    }
    output_.AddAnswer(number, bytes.data(), static_cast<uint32_t>(spans.size()));
  }
  void Reclaim(uint64_t key) { granted_.erase(key); }

  // Everything that has been sent; it is whole frames, in sequence, padded with zeros.
  std::vector<Frame> Sent() {
    std::vector<Frame> frames;
    std::string_view bytes = sends_.taken;
    for (uint32_t sequence = 0; !bytes.empty(); ++sequence) {
      if (bytes.size() < kTcpHeaderBytes) {
        ADD_FAILURE() << "a header is cut";
        break;
      }
      const TcpHeader header = DecodeTcpHeader(AsBytes(bytes).data());
      EXPECT_EQ(CheckTcpHeader(header, 8192), nullptr);
      EXPECT_EQ(header.sequence, sequence);
      const uint32_t padding = TcpPadding(header.length);
      if (bytes.size() < kTcpHeaderBytes + header.length + padding) {
        ADD_FAILURE() << "a payload is cut";
        break;
      }
      frames.push_back({header.kind, header.flags, header.operation,
                        std::string(bytes.substr(kTcpHeaderBytes, header.length))});
      EXPECT_EQ(bytes.substr(kTcpHeaderBytes + header.length, padding), std::string(padding, '\0'));
      bytes.remove_prefix(kTcpHeaderBytes + header.length + padding);
    }
    return frames;
  }
  void SendAll() {
    sends_.left = LimitedSends::kAll;
    TcpOutput::Result result;
    while ((result = output_.Pump(kNoSocket)) == TcpOutput::Result::kMore) {
    }
    EXPECT_EQ(result, TcpOutput::Result::kDone);
    EXPECT_TRUE(output_.empty());
    EXPECT_EQ(output_.small_bytes(), 0u);
    EXPECT_EQ(output_.batches(), 0u);
    EXPECT_EQ(output_.ranges_owed(), 0u);
  }
  // Sends so many bytes, and no more.
  void SendBytes(size_t bytes) {
    sends_.left = bytes;
    EXPECT_EQ(output_.Pump(kNoSocket), TcpOutput::Result::kBlocked);
    EXPECT_EQ(sends_.left, 0u);
  }

  LimitedSends sends_;
  LinkDomainStats stats_;
  TcpRegions regions_{&stats_};
  TcpSlots slots_{8192, 0, 1 << 20, &stats_};
  TcpAnswers answers_;
  std::deque<std::string> memory_;
  std::map<uint64_t, std::unique_ptr<Region>> granted_;  // by key
  std::deque<TcpOperation> operations_;
  uint32_t number_ = 100;
  TcpOutput output_{&regions_, &slots_, &answers_};
};

// --- order --------------------------------------------------------------------------------------

TEST_F(TcpOutputTest, BatchesLeaveTogetherInOrder) {
  std::vector<Frame> all;
  for (const size_t bytes : {1, 7, 8, 9, 100, 8192, 8191}) {
    all.push_back(Batch(Text(bytes, bytes)));
    AddBatch(all.back().payload);
  }
  SendAll();
  EXPECT_EQ(Sent(), all);
  EXPECT_EQ(sends_.sends, 1);
}

TEST_F(TcpOutputTest, MoreBatchesThanOneCallTakesLeaveInOrderToo) {
  std::vector<Frame> all;
  for (size_t i = 0; i < 64; ++i) {
    all.push_back(Batch(Text(20 + i, i)));
    AddBatch(all.back().payload);
  }
  SendAll();
  EXPECT_EQ(Sent(), all);
}

TEST_F(TcpOutputTest, ABatchLeavesBehindTheWritesThatWerePostedBeforeIt) {
  const std::string large = Text(2 * kPieceBytes + 1000, 1), small = Text(5, 2);
  AddBatch("before");
  TcpOperation* const first = AddWrite({large});
  TcpOperation* const second = AddWrite({small});
  AddBatch("behind");
  EXPECT_FALSE(output_.HasLeft(*first) || output_.HasLeft(*second));
  SendAll();
  EXPECT_TRUE(output_.HasLeft(*first) && output_.HasLeft(*second));
  EXPECT_EQ(Sent(), (std::vector<Frame>{
                        Batch("before"), WriteOf(0, 101, {5, 0}, large.substr(0, kPieceBytes)),
                        WriteOf(0, 101, {5, kPieceBytes}, large.substr(kPieceBytes, kPieceBytes)),
                        WriteOf(kTcpLast, 101, {5, 2 * kPieceBytes}, large.substr(2 * kPieceBytes)),
                        WriteOf(kTcpLast, 102, {5, 0}, small), Batch("behind")}));
}

// A call beside a payload of 64 MiB took as long as the payload.
TEST_F(TcpOutputTest, ABatchPassesAnUnorderedWriteThatHasBegun) {
  const std::string large = Text(3 * kPieceBytes, 1);
  const std::string_view pieces(large);
  AddUnordered({large});
  SendBytes(kTcpHeaderBytes + 20);
  AddBatch("passes");
  SendAll();
  EXPECT_EQ(Sent(),
            (std::vector<Frame>{
                WriteOf(0, 101, {6, 0}, pieces.substr(0, kPieceBytes)), Batch("passes"),
                WriteOf(0, 101, {6, kPieceBytes}, pieces.substr(kPieceBytes, kPieceBytes)),
                WriteOf(kTcpLast, 101, {6, 2 * kPieceBytes}, pieces.substr(2 * kPieceBytes))}));
}

TEST_F(TcpOutputTest, FramesOfAnotherWriteNeverComeBetweenThoseOfOne) {
  AddUnordered({Text(2 * kPieceBytes, 1)});  // 101
  SendBytes(100);
  AddWrite({Text(10, 2)});               // 102: small, and waits all the same
  AddUnordered({Text(10, 3)});           // 103
  AddWrite({Text(kPieceBytes + 1, 4)});  // 104
  AddBatch("behind 104");
  SendAll();
  std::vector<uint32_t> operations;
  for (const Frame& frame : Sent()) operations.push_back(frame.operation);
  EXPECT_EQ(operations, (std::vector<uint32_t>{101, 101, 102, 103, 104, 104, 0}));
}

TEST_F(TcpOutputTest, WritesLeaveInTheOrderInWhichTheyWerePosted) {
  const std::string text = Text(kPieceBytes, 1);
  AddUnordered({text});  // 101
  AddWrite({text});      // 102
  AddUnordered({text});  // 103
  AddBatch("behind 102");
  AddWrite({text});      // 104
  AddUnordered({text});  // 105
  AddBatch("behind 104");
  SendAll();
  std::vector<uint32_t> operations;
  for (const Frame& frame : Sent()) operations.push_back(frame.operation);
  EXPECT_EQ(operations, (std::vector<uint32_t>{101, 102, 103, 0, 104, 105, 0}));
}

TEST_F(TcpOutputTest, AWriteGathersSmallAndLargeRanges) {
  const std::vector<std::string> texts = {Text(1, 1),      Text(2048, 2), Text(2049, 3),
                                          Text(70'000, 4), Text(8, 5),    Text(65536, 6)};
  AddWrite(texts);
  SendAll();
  std::vector<std::string> written(texts.size());
  const std::vector<Frame> frames = Sent();
  for (const Frame& frame : frames) {
    EXPECT_EQ(frame.flags, &frame == &frames.back() ? kTcpLast : 0);
    const uint64_t offset = LoadLe64(AsBytes(frame.payload).data() + 8);
    std::string& to = written[offset >> 20];
    EXPECT_EQ(offset & 0xFFFFF, to.size());
    to += frame.payload.substr(kTcpWriteHeadBytes);
  }
  EXPECT_EQ(written, texts);
}

TEST_F(TcpOutputTest, AnswersAndWritesTakeTurns) {
  const std::string written = Text(2 * kPieceBytes, 1), read = Text(2 * kPieceBytes, 2);
  const uint64_t key = Grant(read);
  AddWrite({written});
  AddAnswer(9, {{key, 0, read.size()}});
  SendAll();
  EXPECT_EQ(Sent(), (std::vector<Frame>{
                        WriteOf(0, 101, {5, 0}, written.substr(0, kPieceBytes)),
                        Data(0, 9, read.substr(0, kPieceBytes)),
                        WriteOf(kTcpLast, 101, {5, kPieceBytes}, written.substr(kPieceBytes)),
                        Data(0, 9, read.substr(kPieceBytes)), End(9)}));
}

TEST_F(TcpOutputTest, ABatchWaitsForOnePieceOfAnAnswerAtMost) {
  const std::string read = Text(4 * kPieceBytes + 1, 2);
  AddAnswer(9, {{Grant(read), 0, read.size()}});
  SendBytes(10);
  AddBatch("urgent");
  SendAll();
  const std::vector<Frame> frames = Sent();
  ASSERT_EQ(frames.size(), 7u);
  EXPECT_EQ(frames[1], Batch("urgent"));
}

TEST_F(TcpOutputTest, SmallRangesOfAnAnswerLeaveInOneFrame) {
  const uint64_t key = Grant(Text(10'000, 3));
  AddAnswer(9, {{key, 0, 10}, {key, 100, 2048}, {key, 5000, 1}});
  SendAll();
  const std::string text = Text(10'000, 3);
  EXPECT_EQ(Sent(),
            (std::vector<Frame>{Data(
                kTcpLast, 9, text.substr(0, 10) + text.substr(100, 2048) + text.substr(5000, 1))}));
}

TEST_F(TcpOutputTest, WhatIsNotGrantedIsRefused) {
  const uint64_t key = Grant(Text(100, 3));
  for (const RemoteSpan& span :
       {RemoteSpan{key, 0, 101}, RemoteSpan{key, 1, 100}, RemoteSpan{key, 100, 1},
        RemoteSpan{key, 101, 0}, RemoteSpan{key, 0, 0}, RemoteSpan{key, ~uint64_t{0}, 2},
        RemoteSpan{key, 2, ~uint64_t{0}}, RemoteSpan{key ^ 1, 0, 1},
        RemoteSpan{key ^ uint64_t{1} << 63, 0, 1}, RemoteSpan{0, 0, 1}}) {
    sends_.taken.clear();
    TcpOutput output(&regions_, &slots_, &answers_);
    std::byte bytes[2 * kTcpSpanBytes];
    EncodeTcpSpan(bytes, {key, 0, 1});
    EncodeTcpSpan(bytes + kTcpSpanBytes, span);
    output.AddAnswer(9, bytes, 2);
    EXPECT_EQ(output.Pump(kNoSocket), TcpOutput::Result::kDone);
    const std::vector<Frame> frames = Sent();
    ASSERT_FALSE(frames.empty());
    EXPECT_EQ(frames.back(), End(9, kTcpRefused));
    for (const Frame& frame : frames) EXPECT_EQ(frame.flags & kTcpLast, &frame == &frames.back());
    EXPECT_EQ(output.ranges_owed(), 0u);
  }
}

// --- cuts ---------------------------------------------------------------------------------------

TEST_F(TcpOutputTest, AKernelThatTakesAByteAtATimeGetsTheSame) {
  for (const size_t at_once : {1, 3, 16, 4095}) {
    TcpOutput fresh(&regions_, &slots_, &answers_);
    sends_.taken.clear();
    sends_.at_once = at_once;
    const std::string read = Text(kPieceBytes + 4001, 2);
    const uint64_t key = Grant(read);
    const std::vector<std::string> texts = {Text(3, 1), Text(kPieceBytes + 5001, 2), Text(5, 3)};
    TcpOperation* const write = NewOperation(texts, 5);
    write->number = 101;
    const SendSlot slot = slots_.Take();
    std::memcpy(slot.data, "a batch", 7);
    fresh.AddWrite(write);
    fresh.AddBatch(TcpSlots::SlotOf(slot), 7);
    std::byte span[kTcpSpanBytes];
    EncodeTcpSpan(span, {key, 0, read.size()});
    fresh.AddAnswer(9, span, 1);
    fresh.AddEnd(12, true);
    TcpOutput::Result result;
    while ((result = fresh.Pump(kNoSocket)) == TcpOutput::Result::kMore) {
    }
    ASSERT_EQ(result, TcpOutput::Result::kDone);
    std::string read_bytes;
    std::vector<TcpFrameKind> kinds;
    for (const Frame& frame : Sent()) {
      kinds.push_back(frame.kind);
      if (frame.kind == TcpFrameKind::kData) read_bytes += frame.payload;
    }
    using K = TcpFrameKind;
    EXPECT_EQ(read_bytes, read);
    EXPECT_EQ(kinds, (std::vector<K>{K::kWrite, K::kEnd, K::kWrite, K::kData, K::kWrite, K::kData,
                                     K::kEnd, K::kWrite, K::kBatch}));
  }
}

// New work comes at every place at which the kernel can have stopped.
TEST_F(TcpOutputTest, WhatIsAddedBehindEveryCutLeavesInOrder) {
  const std::string read = Text(2051, 2);
  const uint64_t key = Grant(read);
  const std::vector<Frame> first = {WriteOf(kTcpLast, 101, {5, 0}, Text(2053, 1)), Batch("one")};
  size_t all_bytes = 0;
  for (const Frame& frame : first) {
    all_bytes += kTcpHeaderBytes + frame.payload.size() + TcpPadding(frame.payload.size());
  }
  for (size_t cut = 1; cut < all_bytes; ++cut) {
    sends_.taken.clear();
    sends_.left = cut;
    TcpOutput output(&regions_, &slots_, &answers_);
    const auto add_batch = [&](std::string_view text) {
      const SendSlot slot = slots_.Take();
      std::memcpy(slot.data, text.data(), text.size());
      output.AddBatch(TcpSlots::SlotOf(slot), static_cast<uint32_t>(text.size()));
    };
    operations_.clear();
    memory_.resize(1);  // the region
    number_ = 100;
    output.AddWrite(NewOperation({Text(2053, 1)}, 5));
    add_batch("one");
    ASSERT_EQ(output.Pump(kNoSocket), TcpOutput::Result::kBlocked);
    std::byte span[kTcpSpanBytes];
    EncodeTcpSpan(span, {key, 0, read.size()});
    output.AddAnswer(9, span, 1);
    output.AddEnd(10, false);
    TcpOperation* const second = NewOperation({Text(4, 4)}, 6);
    output.AddWrite(second);
    add_batch("two");
    sends_.left = LimitedSends::kAll;
    ASSERT_EQ(output.Pump(kNoSocket), TcpOutput::Result::kDone);
    EXPECT_TRUE(output.HasLeft(*second));
    const std::vector<Frame> frames = Sent();
    ASSERT_EQ(frames.size(), 7u) << cut;
    const auto place = [&](const Frame& frame) {
      return std::find(frames.begin(), frames.end(), frame) - frames.begin();
    };
    const Frame write = WriteOf(kTcpLast, 102, {6, 0}, Text(4, 4));
    EXPECT_EQ(place(first[0]), 0) << cut;
    EXPECT_LT(place(first[0]), place(Batch("one")));
    EXPECT_LT(place(write), place(Batch("two")));
    EXPECT_LT(place(Batch("one")), place(Batch("two")));
    EXPECT_LT(place(Data(0, 9, read)), place(End(9)));
    EXPECT_LT(place(End(10)), 7);
    EXPECT_LT(place(End(9)), 7);
  }
  EXPECT_EQ(stats_.send_slots_in_use, 0u);
}

TEST_F(TcpOutputTest, AFullSocketIsNotAnErrorAndABrokenOneIs) {
  AddBatch("one");
  sends_.left = 0;
  EXPECT_EQ(output_.Pump(kNoSocket), TcpOutput::Result::kBlocked);
  sends_.error = EPIPE;
  EXPECT_EQ(output_.Pump(kNoSocket), TcpOutput::Result::kBroken);
  EXPECT_EQ(output_.error(), EPIPE);
  output_.Clear();
  EXPECT_TRUE(output_.empty());
  EXPECT_EQ(stats_.send_slots_in_use, 0u);
}

TEST_F(TcpOutputTest, ALargeTransferLetsOthersHaveTheirTurn) {
  const std::string read = Text(4 << 20, 2);
  AddAnswer(9, {{Grant(read), 0, read.size()}});
  int turns = 1;
  while (output_.Pump(kNoSocket) == TcpOutput::Result::kMore) ++turns;
  EXPECT_GT(turns, 2);
  EXPECT_TRUE(output_.empty());
}

TEST_F(TcpOutputTest, WhatIsClearedIsGivenBackAtEveryCut) {
  const std::string read = Text(3000, 2);
  const uint64_t key = Grant(read);
  for (size_t cut = 0; cut < 6200; cut += 7) {
    operations_.clear();
    AddBatch(Text(30, 1));
    AddAnswer(9, {{key, 0, 3000}, {key, 0, 1}});
    AddWrite({Text(3000, 3)});
    AddBatch(Text(30, 1));
    sends_.left = cut;
    output_.Pump(kNoSocket);
    output_.Clear();
    EXPECT_TRUE(output_.empty());
    EXPECT_EQ(stats_.send_slots_in_use, 0u);
    EXPECT_EQ(output_.ranges_owed(), 0u);
  }
}

// --- when the peer may end an operation ---------------------------------------------------------

// A write was taken for one that has not left until its padding had left, too. A peer needs no
// padding to carry it out: an honest one that was quick was said to break the rules.
TEST_F(TcpOutputTest, AWriteHasLeftWhenItsLastByteHas) {
  for (const size_t bytes : {5, 2053}) {  // copied, and from its place
    sends_.taken.clear();
    TcpOutput output(&regions_, &slots_, &answers_);
    TcpOperation* const write = NewOperation({Text(bytes, 1)}, 5);
    output.AddWrite(write);
    const size_t whole = kTcpHeaderBytes + kTcpWriteHeadBytes + bytes;
    sends_.left = whole - 1;
    ASSERT_EQ(output.Pump(kNoSocket), TcpOutput::Result::kBlocked);
    EXPECT_FALSE(output.HasLeft(*write));
    sends_.left = 1;
    ASSERT_EQ(output.Pump(kNoSocket), TcpOutput::Result::kBlocked);
    EXPECT_TRUE(output.HasLeft(*write));
    EXPECT_FALSE(output.empty());
    sends_.left = LimitedSends::kAll;
  }
}

TEST_F(TcpOutputTest, AReadHasLeftWhenItsRequestHas) {
  TcpOperation* const first = NewOperation({Text(8, 1), Text(8, 2)}, 5);
  TcpOperation* const second = NewOperation({Text(8, 1)}, 5);
  output_.AddRead(first);
  output_.AddRead(second);
  SendBytes(kTcpHeaderBytes + 2 * kTcpSpanBytes - 1);
  EXPECT_FALSE(output_.HasLeft(*first));
  SendBytes(1);
  EXPECT_TRUE(output_.HasLeft(*first));
  EXPECT_FALSE(output_.HasLeft(*second));
  SendBytes(kTcpHeaderBytes + kTcpSpanBytes - 1);
  EXPECT_FALSE(output_.HasLeft(*second));
  SendAll();
  EXPECT_TRUE(output_.HasLeft(*second));
}

// --- regions that go ----------------------------------------------------------------------------

TEST_F(TcpOutputTest, ARegionThatGoesAtAnyByteEndsTheReadAsRefused) {
  const std::string read = Text(2501, 2);
  const size_t whole = kTcpHeaderBytes + read.size() + TcpPadding(read.size());
  for (size_t cut = 0; cut < whole; ++cut) {
    sends_.taken.clear();
    TcpOutput output(&regions_, &slots_, &answers_);
    const uint64_t key = Grant(read);
    std::byte span[kTcpSpanBytes];
    EncodeTcpSpan(span, {key, 0, read.size()});
    output.AddAnswer(9, span, 1);
    sends_.left = cut;
    ASSERT_EQ(output.Pump(kNoSocket), TcpOutput::Result::kBlocked);
    Reclaim(key);
    memory_.back().assign(read.size(), '?');  // may be anything now
    EXPECT_FALSE(output.linked());
    sends_.left = LimitedSends::kAll;
    ASSERT_EQ(output.Pump(kNoSocket), TcpOutput::Result::kDone);
    const size_t sent = std::min(cut < kTcpHeaderBytes ? 0 : cut - kTcpHeaderBytes, read.size());
    const bool all = sent == read.size();
    std::vector<Frame> wanted = {End(9, all ? 0 : kTcpRefused)};
    if (cut > 0) {
      wanted.insert(wanted.begin(),
                    Data(0, 9, read.substr(0, sent) + std::string(read.size() - sent, '\0')));
    }
    EXPECT_EQ(Sent(), wanted) << "what has not begun does not begin any more";
    memory_.pop_back();
  }
}

// A read of two regions, of which the first went while the last piece of it was being sent, went on
// in the second, and was said to have succeeded: with zeros in the place of the first.
TEST_F(TcpOutputTest, AReadThatGoesOnInAnotherRegionIsRefusedToo) {
  const std::string text = Text(3000, 2);
  const uint64_t first = Grant(text), second = Grant(text);
  AddAnswer(9, {{first, 0, 3000}, {second, 0, 3000}});
  AddAnswer(10, {{second, 0, 3000}});
  SendBytes(100);
  Reclaim(first);
  SendAll();
  EXPECT_EQ(Sent(), (std::vector<Frame>{Data(0, 9, text.substr(0, 84) + std::string(2916, '\0')),
                                        End(9, kTcpRefused), Data(0, 10, text), End(10)}));
}

// The kernel stopped in the last of the pieces that were made ahead. What was left of the answer is
// small, and was copied into a small frame, which says that the read has succeeded; then the region
// of the piece went. The reader was told of success, with zeros in the place of the region, and its
// link ended by a refusal of a read that was over.
TEST_F(TcpOutputTest, SmallRangesBehindAPieceThatMayBeRefusedAreNoSuccess) {
  const std::string text = Text(3000, 2), small = Text(100, 3);
  const uint64_t going = Grant(text), staying = Grant(small);
  std::vector<RemoteSpan> spans(TcpOutput::kPiecesAhead, {going, 0, 3000});
  spans.push_back({staying, 0, 100});
  for (const bool goes : {false, true}) {
    sends_.taken.clear();
    TcpOutput output(&regions_, &slots_, &answers_);
    std::vector<std::byte> bytes(spans.size() * kTcpSpanBytes);
    for (size_t i = 0; i < spans.size(); ++i) {
      EncodeTcpSpan(bytes.data() + i * kTcpSpanBytes, spans[i]);
    }
    output.AddAnswer(9, bytes.data(), static_cast<uint32_t>(spans.size()));
    sends_.left = TcpOutput::kPiecesAhead * (kTcpHeaderBytes + 3000) - 2900;
    ASSERT_EQ(output.Pump(kNoSocket), TcpOutput::Result::kBlocked);
    ASSERT_EQ(output.Pump(kNoSocket), TcpOutput::Result::kBlocked);  // what follows is made
    std::vector<Frame> wanted(TcpOutput::kPiecesAhead, Data(0, 9, text));
    if (goes) {
      Reclaim(going);
      wanted.back() = Data(0, 9, text.substr(0, 100) + std::string(2900, '\0'));
      wanted.push_back(End(9, kTcpRefused));
    } else {
      wanted.push_back(Data(0, 9, small));
      wanted.push_back(End(9));
    }
    sends_.left = LimitedSends::kAll;
    ASSERT_EQ(output.Pump(kNoSocket), TcpOutput::Result::kDone);
    EXPECT_EQ(Sent(), wanted);
  }
}

TEST_F(TcpOutputTest, ARegionThatGoesBetweenPiecesEndsTheRead) {
  const std::string text = Text(3 * kPieceBytes, 2);
  const uint64_t key = Grant(text);
  AddAnswer(9, {{key, 0, text.size()}});
  SendBytes(kTcpHeaderBytes + kPieceBytes);
  Reclaim(key);
  SendAll();
  EXPECT_EQ(Sent(),
            (std::vector<Frame>{Data(0, 9, text.substr(0, kPieceBytes)), End(9, kTcpRefused)}));
}

TEST_F(TcpOutputTest, ARegionThatGoesLeavesReadsOfOthersAlone) {
  const std::string text = Text(3000, 2);
  const uint64_t going = Grant(text), staying = Grant(text);
  AddAnswer(9, {{staying, 0, 3000}});
  AddAnswer(10, {{going, 0, 3000}});
  SendBytes(100);
  Reclaim(going);
  EXPECT_TRUE(output_.linked());
  SendAll();
  EXPECT_EQ(Sent(), (std::vector<Frame>{Data(0, 9, text), End(10, kTcpRefused), End(9)}));
}

TEST_F(TcpOutputTest, WhatIsClearedForgetsItsRegion) {
  const std::string text = Text(3000, 2);
  const uint64_t key = Grant(text);
  AddAnswer(9, {{key, 0, 3000}});
  SendBytes(100);
  EXPECT_TRUE(output_.linked());
  output_.Clear();
  EXPECT_FALSE(output_.linked());
  Reclaim(key);
}

TEST_F(TcpOutputTest, AKernelThatTakesNothingWithoutAnErrorHoldsUpNobody) {
  AddBatch("text");
  sends_.at_once = 0;
  EXPECT_EQ(output_.Pump(kNoSocket), TcpOutput::Result::kMore);
  EXPECT_EQ(sends_.sends, 1);
  sends_.at_once = LimitedSends::kAll;
  EXPECT_EQ(output_.Pump(kNoSocket), TcpOutput::Result::kDone);
  EXPECT_EQ(Sent(), std::vector<Frame>{Batch("text")});
}

}  // namespace
}  // namespace weft
