// What a peer that breaks the rules can do to this side: end its own link.
//
// The test plays the peer, byte by byte. Beside its link there is an honest one in the same domain,
// which goes on after each attack.

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "core/strings.h"
#include "transport/tcp/testing/raw_peer.h"
#include "transport/tcp/testing/tcp_side.h"
#include "transport/testing/post.h"

namespace weft {
namespace {

using Kind = TcpFrameKind;

class TcpHostileTest : public testing::Test {
 protected:
  TcpHostileTest() {
    TcpLinkEnds(honest_, honest_.end, side_, side_.end, 17);
    for (size_t i = 0; i < memory_.size(); ++i) memory_[i] = static_cast<std::byte>(i % 251);
    region_ = std::move(side_.domain->Register(memory_, Access::kRemoteReadWrite)).value();
    local_ = std::move(side_.domain->Register(here_, Access::kLocalOnly)).value();
  }
  // Nothing has leaked, whatever was tried.
  ~TcpHostileTest() override {
    peer_.reset();
    end_.link.reset();
    ExpectTheHonestGoOn();
    side_.end.link.reset();
    EXPECT_EQ(side_.domain->stats().links_open, 0u);
    EXPECT_EQ(side_.domain->stats().send_slots_in_use, 0u);
  }

  // A new peer, with a new link.
  TcpRawPeer& Meet() {
    end_.link.reset();
    end_.downs = 0;
    peer_ = std::make_unique<TcpRawPeer>(side_, end_, ++token_);
    return *peer_;
  }

  void ExpectTheHonestGoOn() {
    honest_.received.clear();
    side_.received.clear();
    std::vector<std::byte> bytes(200);
    auto local = std::move(honest_.domain->Register(bytes, Access::kLocalOnly)).value();
    CountedOperation read;
    ASSERT_TRUE(Read(*honest_.end.link, *local, 0, region_->remote().Slice(7, 200), &read).ok());
    ASSERT_TRUE(honest_.Send("a batch there").ok());
    ASSERT_TRUE(side_.Send(side_.end, "a batch back").ok());
    ASSERT_TRUE(TcpRunUntil({&honest_, &side_}, [&] {
      return read.completions == 1 && !honest_.received.empty() && !side_.received.empty();
    }));
    EXPECT_TRUE(read.status.ok()) << read.status;
    EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), memory_.begin() + 7));
    EXPECT_EQ(side_.end.downs + honest_.end.downs, 0);
    side_.received.clear();
  }

  // The link has ended because of what its peer did, in words.
  void ExpectDataLoss(std::string_view words) {
    EXPECT_EQ(end_.downs, 1);
    EXPECT_EQ(end_.down_status.code(), absl::StatusCode::kDataLoss);
    EXPECT_NE(ToStd(end_.down_status.message()).find(words), std::string::npos)
        << end_.down_status << "\nwords: " << words;
    peer_->Read();
    EXPECT_TRUE(peer_->IsClosed());
  }
  void ExpectUp() { EXPECT_EQ(end_.downs, 0) << end_.down_status; }

  // An operation of this side's on the peer's memory, and the number that it has on the wire.
  uint32_t PostRead(const std::vector<uint64_t>& lengths, CountedOperation* op) {
    return PostOne(TransferKind::kRead, lengths, op);
  }
  uint32_t PostWrite(uint64_t length, CountedOperation* op) {
    return PostOne(TransferKind::kWrite, {length}, op);
  }
  uint32_t PostOne(TransferKind kind, const std::vector<uint64_t>& lengths, CountedOperation* op) {
    std::vector<Transfer> transfers;
    uint64_t at = 0;
    for (const uint64_t length : lengths) {
      transfers.push_back({local_.get(), at, {99, at, length}});
      at += length;
    }
    EXPECT_TRUE(end_.link->Post(kind, transfers, op).ok());
    TcpSettle({&side_});
    const TcpSentFrame frame = peer_->ReadFrame();
    EXPECT_EQ(frame.header.kind, kind == TransferKind::kRead ? Kind::kRead : Kind::kWrite);
    return frame.header.operation;
  }
  std::string Here(size_t bytes) { return std::string(AsStringView(ByteSpan(here_).first(bytes))); }
  RemoteSpan At(uint64_t offset, uint64_t length) {
    return region_->remote().Slice(offset, length);
  }
  std::string ReadOf(const RemoteSpan& span) { return TcpSpanText(span); }
  std::string WriteTo(uint64_t offset, std::string_view bytes) {
    return TcpWriteText(At(offset, bytes.size()), bytes);
  }
  std::string Memory(size_t at, size_t bytes) {
    return std::string(AsStringView(ByteSpan(memory_).subspan(at, bytes)));
  }

  TcpSide side_;
  TcpSide honest_;
  LinkEnd end_;
  std::vector<std::byte> memory_ = std::vector<std::byte>(300'000);
  std::vector<std::byte> here_ = std::vector<std::byte>(300'000);
  std::unique_ptr<Region> region_;
  std::unique_ptr<Region> local_;
  std::unique_ptr<TcpRawPeer> peer_;
  uint64_t token_ = 4711;
};

// --- headers ------------------------------------------------------------------------------------

TEST_F(TcpHostileTest, EachFieldThatIsWrongEndsTheLink) {
  struct Case {
    size_t at;
    int value;
    const char* words;
  };
  const std::string good = TcpFrameText(0, Kind::kBatch, 0, 0, "sixteen bytes...");
  for (const Case& bad :
       {Case{3, 1, "a batch of this length"}, Case{0, 0, "a batch of this length"},
        Case{4, 0, "its kind is unknown"}, Case{4, 6, "its kind is unknown"},
        Case{4, 255, "its kind is unknown"}, Case{5, 1, "no flags"}, Case{6, 1, "reserved"},
        Case{7, 128, "reserved"}, Case{8, 1, "number 0 was to come"},
        Case{11, 1, "number 0 was to come"}, Case{12, 1, "no flags or operation"}}) {
    SCOPED_TRACE(testing::Message() << bad.at << " = " << bad.value);
    Meet();
    std::string frame = good;
    frame[bad.at] = static_cast<char>(bad.value);
    peer_->Write(frame);
    ExpectDataLoss(bad.words);
    EXPECT_TRUE(side_.received.empty());
  }
  ExpectTheHonestGoOn();
}

TEST_F(TcpHostileTest, LengthsBesideTheBoundsEndTheLink) {
  struct Case {
    Kind kind;
    uint32_t length;
  };
  for (const Case& bad :
       {Case{Kind::kBatch, 8193}, Case{Kind::kRead, 0}, Case{Kind::kRead, 23},
        Case{Kind::kRead, 25}, Case{Kind::kRead, 65 * 24}, Case{Kind::kData, 0},
        Case{Kind::kData, kPieceBytes + 1}, Case{Kind::kWrite, 16},
        Case{Kind::kWrite, 16 + kPieceBytes + 1}, Case{Kind::kEnd, 1}, Case{Kind::kBatch, ~0u},
        Case{Kind::kWrite, ~0u}, Case{Kind::kData, ~0u}}) {
    SCOPED_TRACE(testing::Message() << static_cast<int>(bad.kind) << " of " << bad.length);
    Meet();
    std::string frame = TcpFrameText(0, bad.kind, 0, 0, "");
    StoreLe32(reinterpret_cast<std::byte*>(frame.data()), bad.length);
    peer_->Write(frame + std::string(100, 'x'));
    ExpectDataLoss(bad.kind == Kind::kEnd ? "an end has no payload" : "not allowed");
  }
}

TEST_F(TcpHostileTest, AFrameThatIsRepeatedOrLeftOutEndsTheLink) {
  for (const uint32_t second : {0u, 2u, 0xffffffffu}) {
    Meet();
    peer_->Write(TcpFrameText(0, Kind::kBatch, 0, 0, "the first") +
                 TcpFrameText(second, Kind::kBatch, 0, 0, "the second"));
    ExpectDataLoss("number 1 was to come");
    EXPECT_EQ(side_.received, std::vector<std::string>{"the first"});
    side_.received.clear();
  }
}

// --- cuts ---------------------------------------------------------------------------------------

// Everything that an honest peer may send, in one stream.
class TcpStreamTest : public TcpHostileTest {
 protected:
  std::string Stream(uint32_t read_number, uint32_t write_number) {
    std::string stream;
    const auto add = [&](Kind kind, uint8_t flags, uint32_t operation, std::string_view payload) {
      stream += peer_->Next(kind, flags, operation, payload);
    };
    add(Kind::kBatch, 0, 0, "a");
    add(Kind::kWrite, 0, 7, WriteTo(10, "thirteen byte"));
    add(Kind::kData, 0, read_number, "01234");
    add(Kind::kWrite, kTcpLast, 7, WriteTo(30, "x"));
    add(Kind::kData, 0, read_number, "56789abcd");
    add(Kind::kRead, 0, 8, ReadOf(At(10, 5)) + ReadOf(At(30, 1)));
    add(Kind::kData, kTcpLast, read_number, "ef");
    add(Kind::kEnd, 0, write_number, "");
    add(Kind::kBatch, 0, 0, "the last batch");
    return stream;
  }
  void ExpectAllOfIt() {
    ExpectUp();
    EXPECT_EQ(side_.received, (std::vector<std::string>{"a", "the last batch"}));
    EXPECT_TRUE(read_.status.ok()) << read_.status;
    EXPECT_TRUE(write_.status.ok()) << write_.status;
    EXPECT_EQ(Here(17), std::string("0123456789abcdef") + '\0');
    EXPECT_EQ(Memory(10, 13), "thirteen byte");
    EXPECT_EQ(Memory(30, 1), "x");
    TcpSentFrame frame = peer_->ReadFrame();
    EXPECT_EQ(frame.header.kind, Kind::kEnd);
    EXPECT_EQ(frame.header.operation, 7u);
    EXPECT_EQ(frame.header.flags, 0);
    frame = peer_->ReadFrame();
    EXPECT_EQ(frame.header.kind, Kind::kData);
    EXPECT_EQ(frame.payload, "thirtx");
    side_.received.clear();
    std::fill(here_.begin(), here_.end(), std::byte{0});
  }

  CountedOperation read_;
  CountedOperation write_;
};

TEST_F(TcpStreamTest, AByteAtATimeIsUnderstood) {
  Meet();
  const uint32_t read = PostRead({3, 10, 3}, &read_);
  const uint32_t write = PostWrite(5, &write_);
  for (const char byte : Stream(read, write)) ASSERT_TRUE(peer_->Write({&byte, 1}));
  ExpectAllOfIt();
}

TEST_F(TcpStreamTest, TwoPartsAreUnderstoodWhereverTheyAreCut) {
  for (size_t cut = 1;; ++cut) {
    SCOPED_TRACE(cut);
    Meet();
    read_ = write_ = {};
    const uint32_t read = PostRead({3, 10, 3}, &read_);
    const uint32_t write = PostWrite(5, &write_);
    const std::string stream = Stream(read, write);
    if (cut == stream.size()) break;
    ASSERT_TRUE(peer_->Write(stream.substr(0, cut)) && peer_->Write(stream.substr(cut)));
    ExpectAllOfIt();
  }
  end_.link.reset();
}

TEST_F(TcpStreamTest, APeerThatLeavesAtAnyByteIsUnavailable) {
  for (size_t cut = 0;; ++cut) {
    SCOPED_TRACE(cut);
    Meet();
    read_ = write_ = {};
    const uint32_t read = PostRead({3, 10, 3}, &read_);
    const uint32_t write = PostWrite(5, &write_);
    const std::string stream = Stream(read, write);
    if (cut > stream.size()) break;
    peer_->Write(stream.substr(0, cut));
    peer_->Close();
    EXPECT_EQ(end_.downs, 1);
    EXPECT_EQ(end_.down_status.code(), absl::StatusCode::kUnavailable) << end_.down_status;
    EXPECT_EQ(read_.completions + write_.completions, 2);
    for (const CountedOperation* op : {&read_, &write_}) {
      EXPECT_TRUE(op->status.ok() || op->status.code() == absl::StatusCode::kUnavailable);
    }
  }
  end_.link.reset();
}

// --- answers ------------------------------------------------------------------------------------

TEST_F(TcpHostileTest, AnswersNobodyAskedForEndTheLink) {
  for (const uint32_t number : {0u, 1u, 0x10000u, 0xffffu, 0xffffffffu}) {
    Meet();
    peer_->Send(Kind::kEnd, 0, number, "");
    ExpectDataLoss("it ends no operation");
    Meet();
    peer_->Send(Kind::kData, kTcpLast, number, "x");
    ExpectDataLoss("it answers no read");
  }
}

TEST_F(TcpHostileTest, AnAnswerTwiceEndsTheLink) {
  for (const bool by_data : {false, true}) {
    Meet();
    CountedOperation read;
    const uint32_t number = PostRead({4}, &read);
    peer_->Send(Kind::kData, kTcpLast, number, "abcd");
    EXPECT_TRUE(read.status.ok());
    ExpectUp();
    peer_->Send(by_data ? Kind::kData : Kind::kEnd, 0, number, by_data ? "abcd" : "");
    ExpectDataLoss(by_data ? "it answers no read" : "it ends no operation");
    EXPECT_EQ(read.completions, 1);
  }
}

TEST_F(TcpHostileTest, AnotherLinksOperationsCannotBeAnswered) {
  std::vector<std::byte> bytes(4);
  auto theirs = std::move(side_.domain->Register(bytes, Access::kLocalOnly)).value();
  Meet();
  LinkEnd victim;
  TcpRawPeer victims_peer(side_, victim, 99);
  CountedOperation read;
  ASSERT_TRUE(Read(*victim.link, *theirs, 0, {1, 0, 4}, &read).ok());
  TcpSettle({&side_});
  const uint32_t number = victims_peer.ReadFrame().header.operation;
  peer_->Send(Kind::kData, kTcpLast, number, "evil");
  ExpectDataLoss("it answers no read");
  Meet();
  peer_->Send(Kind::kEnd, kTcpRefused, number, "");
  ExpectDataLoss("it ends no operation");
  EXPECT_EQ(read.completions, 0);
  EXPECT_EQ(bytes, std::vector<std::byte>(4));
  victims_peer.Send(Kind::kData, kTcpLast, number, "good");
  EXPECT_TRUE(read.status.ok());
  victim.link.reset();
}

TEST_F(TcpHostileTest, AnAnswerThatIsTooLongOrTooShortEndsTheLink) {
  struct Case {
    std::vector<std::string> pieces;
    bool end;
    const char* words;
  };
  for (const Case& bad :
       {Case{{"12345"}, false, "only 4 bytes"}, Case{{"123", "45"}, false, "only 1"},
        Case{{"1234", "5"}, false, "only 0"}, Case{{"123"}, true, "1 bytes"},
        Case{{}, true, "4 bytes"}}) {
    Meet();
    CountedOperation read;
    const uint32_t number = PostRead({1, 3}, &read);
    for (const std::string& piece : bad.pieces) peer_->Send(Kind::kData, 0, number, piece);
    if (bad.end) peer_->Send(Kind::kEnd, 0, number, "");
    ExpectDataLoss(bad.words);
    EXPECT_EQ(read.completions, 1);
    EXPECT_EQ(read.status.code(), absl::StatusCode::kDataLoss);
    EXPECT_EQ(here_[4], std::byte{0});
  }
  Meet();
  CountedOperation read;
  const uint32_t number = PostRead({4}, &read);
  peer_->Send(Kind::kData, kTcpLast, number, "123");
  ExpectDataLoss("1 bytes of its data are missing");
}

TEST_F(TcpHostileTest, AWriteIsNotAnsweredByData) {
  Meet();
  CountedOperation write;
  const uint32_t number = PostWrite(8, &write);
  peer_->Send(Kind::kData, kTcpLast, number, "12345678");
  ExpectDataLoss("it answers no read");
  EXPECT_EQ(write.completions, 1);
  EXPECT_FALSE(write.status.ok());
}

TEST_F(TcpHostileTest, ARefusalEndsTheOperationAndNotTheLink) {
  Meet();
  CountedOperation read, write, partly;
  uint32_t number = PostRead({4}, &read);
  peer_->Send(Kind::kEnd, kTcpRefused, number, "");
  number = PostWrite(4, &write);
  peer_->Send(Kind::kEnd, kTcpRefused, number, "");
  number = PostRead({4}, &partly);
  peer_->Send(Kind::kData, 0, number, "12");
  peer_->Send(Kind::kEnd, kTcpRefused, number, "");
  for (const CountedOperation* op : {&read, &write, &partly}) {
    EXPECT_EQ(op->completions, 1);
    EXPECT_EQ(op->status.code(), absl::StatusCode::kPermissionDenied) << op->status;
  }
  ExpectUp();
}

// A peer that took no bytes could guess the numbers of requests that had not left, and end them.
// Each made room for another request of 40 bytes, and what waited to be sent was without a bound.
TEST_F(TcpHostileTest, AnOperationThatHasNotLeftCannotBeEnded) {
  for (const bool is_read : {true, false}) {
    Meet();
    CountedOperation one, blocked;
    const uint32_t known = PostRead({4}, &one);
    peer_->Send(Kind::kData, kTcpLast, known, "1234");
    ASSERT_TRUE(one.status.ok());
    // The socket is filled, up to where the link sends no more.
    while (end_.link->HasRoom()) ASSERT_TRUE(side_.Send(end_, std::string(8000, 'x')).ok());
    ASSERT_TRUE((is_read ? Read(*end_.link, *local_, 0, {99, 0, 4}, &blocked)
                         : Write(*end_.link, *local_, 0, {99, 0, 4}, &blocked))
                    .ok());
    TcpSettle({&side_});
    // The slot of the operation is used again, with the next generation.
    peer_->Send(Kind::kEnd, kTcpRefused, known + 0x20000, "");
    ExpectDataLoss("it ends no operation");
    EXPECT_EQ(blocked.completions, 1);
    EXPECT_EQ(blocked.status.code(), absl::StatusCode::kDataLoss);
  }
}

// --- requests -----------------------------------------------------------------------------------

TEST_F(TcpHostileTest, ARangeBesideTheRegionIsRefusedAndTheLinkGoesOn) {
  const std::string before(AsStringView(memory_));
  Meet();
  const uint64_t key = region_->remote().key;
  const uint64_t size = memory_.size();
  for (const RemoteSpan& bad :
       {RemoteSpan{key, size, 1}, RemoteSpan{key, size - 1, 2}, RemoteSpan{key, 0, size + 1},
        RemoteSpan{key, ~uint64_t{0}, 1}, RemoteSpan{key, ~uint64_t{0}, 2},
        RemoteSpan{key, 1, ~uint64_t{0}}, RemoteSpan{key, 0, 0}, RemoteSpan{key ^ 1, 0, 1},
        RemoteSpan{key ^ 0x10000, 0, 1}, RemoteSpan{0, 0, 1}, RemoteSpan{key & 0xffff, 0, 1}}) {
    peer_->Send(Kind::kRead, 0, 3, ReadOf(bad));
    TcpSentFrame frame = peer_->ReadFrame();
    EXPECT_EQ(frame.header.kind, Kind::kEnd);
    EXPECT_EQ(frame.header.flags, kTcpRefused);
    EXPECT_EQ(frame.header.operation, 3u);
    if (bad.length == 0 || bad.length > 2) continue;
    peer_->Send(Kind::kWrite, kTcpLast, 4, TcpWriteText(bad, std::string(bad.length, 'E')));
    frame = peer_->ReadFrame();
    EXPECT_EQ(frame.header.kind, Kind::kEnd);
    EXPECT_EQ(frame.header.flags, kTcpRefused);
    EXPECT_EQ(frame.header.operation, 4u);
  }
  ExpectUp();
  EXPECT_EQ(AsStringView(memory_), before);
}

TEST_F(TcpHostileTest, RightsAreEnforced) {
  std::vector<std::byte> bytes(8, std::byte{'o'});
  Meet();
  for (const Access access : {Access::kRemoteRead, Access::kRemoteWrite, Access::kLocalOnly}) {
    auto region = std::move(side_.domain->Register(bytes, access)).value();
    peer_->Send(Kind::kRead, 0, 3, ReadOf(region->remote()));
    const TcpSentFrame read = peer_->ReadFrame();
    EXPECT_EQ(read.header.kind == Kind::kData, access == Access::kRemoteRead);
    peer_->Send(Kind::kWrite, kTcpLast, 4, TcpWriteText(region->remote(), "newbytes"));
    const TcpSentFrame write = peer_->ReadFrame();
    EXPECT_EQ(write.header.flags == 0, access == Access::kRemoteWrite);
    EXPECT_EQ(bytes[0] == std::byte{'n'}, access == Access::kRemoteWrite);
    bytes.assign(8, std::byte{'o'});
  }
  ExpectUp();
}

TEST_F(TcpHostileTest, APieceThatIsRefusedEndsTheWholeWriteAsRefused) {
  Meet();
  peer_->Send(Kind::kWrite, 0, 4, WriteTo(0, "one"));
  peer_->Send(Kind::kWrite, 0, 4, WriteTo(memory_.size() - 1, "two"));
  peer_->Send(Kind::kWrite, kTcpLast, 4, WriteTo(10, "three"));
  TcpSentFrame frame = peer_->ReadFrame();
  EXPECT_EQ(frame.header.flags, kTcpRefused);
  EXPECT_NE(Memory(10, 5), "three") << "nothing behind the refusal is carried out";
  peer_->Send(Kind::kWrite, kTcpLast, 5, WriteTo(10, "four"));
  frame = peer_->ReadFrame();
  EXPECT_EQ(frame.header.operation, 5u);
  EXPECT_EQ(frame.header.flags, 0);
  EXPECT_EQ(Memory(10, 4), "four");
}

TEST_F(TcpHostileTest, PiecesOfTwoWritesDoNotMix) {
  Meet();
  peer_->Send(Kind::kWrite, 0, 4, WriteTo(0, "one"));
  peer_->Send(Kind::kWrite, kTcpLast, 5, WriteTo(10, "two"));
  ExpectDataLoss("the write 4 has not ended");
}

TEST_F(TcpHostileTest, AReadOfAsManyRangesAsThereMayBeIsAnswered) {
  Meet();
  std::string spans, expected;
  for (size_t i = 0; i < kMaxBatchTransfers; ++i) {
    spans += ReadOf(At(i * 3000, 1 + i * 40));
    expected += Memory(i * 3000, 1 + i * 40);
  }
  peer_->Send(Kind::kRead, 0, 3, spans);
  std::string got;
  TcpSentFrame frame;
  while ((frame = peer_->ReadFrame()).header.kind == Kind::kData) {
    got += frame.payload;
    if ((frame.header.flags & kTcpLast) != 0) break;
  }
  EXPECT_EQ(got, expected);
  ExpectUp();
}

// A request of 64 spans has 1,536 bytes. In a domain of small slots one that came in two parts was
// kept in a cell of one slot: the rest of it was written behind the cell.
TEST_F(TcpHostileTest, ARequestThatIsLargerThanASlotIsKeptWhole) {
  TcpOptions options;
  options.slot_bytes = 256;
  TcpSide small(options);
  LinkEnd end;
  TcpRawPeer peer(small, end);
  auto region = std::move(small.domain->Register(memory_, Access::kRemoteRead)).value();
  std::string spans;
  for (size_t i = 0; i < kMaxBatchTransfers; ++i) {
    spans += ReadOf(region->remote().Slice(i, 1));
  }
  const std::string frame = peer.Next(Kind::kRead, 0, 3, spans);
  peer.Write(frame.substr(0, 100));
  peer.Write(frame.substr(100));
  EXPECT_EQ(peer.ReadFrame().payload, Memory(0, 64));
  EXPECT_EQ(end.downs, 0) << end.down_status;
}

TEST_F(TcpHostileTest, APeerThatReadsMoreRangesAtOnceThanAllowedEndsItsLink) {
  Meet();
  std::string spans;
  for (size_t i = 0; i < kMaxBatchTransfers; ++i) spans += ReadOf(At(0, 200'000));
  bool closed = false;
  for (int i = 0; i < 17 && !closed; ++i) {
    closed = !peer_->Send(Kind::kRead, 0, static_cast<uint32_t>(i), spans) || end_.downs > 0;
    EXPECT_EQ(closed, i == 16);
  }
  ExpectDataLoss("it reads more than 1024 ranges");
}

TEST_F(TcpHostileTest, APeerThatAsksAndDoesNotTakeTheAnswersEndsItsLink) {
  Meet();
  int asked = 0;
  while (end_.downs == 0 && asked < 200'000) {
    if (!peer_->Send(Kind::kWrite, kTcpLast, 4, WriteTo(0, "x"))) break;
    ++asked;
  }
  ExpectDataLoss("does not take the answers");
}

TEST_F(TcpHostileTest, APeerThatDoesNotReadHoldsFewBatchesHere) {
  Meet();
  int sent = 0;
  while (end_.link->HasRoom()) {
    ASSERT_TRUE(side_.Send(end_, std::string(8000, 'x')).ok());
    ASSERT_LT(++sent, 1000);
  }
  EXPECT_LE(side_.domain->stats().send_slots_in_use, 5u);
  EXPECT_EQ(end_.link->TakeSlot(16).data, nullptr);
  const int told = end_.slots_free;
  ExpectTheHonestGoOn();
  EXPECT_EQ(end_.slots_free, told);
  const std::string all = peer_->Read();
  EXPECT_EQ(all.size(), static_cast<size_t>(sent) * (8000 + kTcpHeaderBytes));
  EXPECT_EQ(end_.slots_free, told + 1);
  EXPECT_TRUE(end_.link->HasRoom());
}

// --- joins --------------------------------------------------------------------------------------

TEST_F(TcpHostileTest, AWelcomeThatIsWrongFailsTheLink) {
  auto address = ParseNumericAddress("127.0.0.1:0");
  Descriptor listener = std::move(ListenInternet(*address)).value();
  LinkPeer peer;
  peer.address = LocalAddress(listener.get()).value().text();
  std::string welcome(kWelcomeBytes, '\0');
  StoreLe64(reinterpret_cast<std::byte*>(welcome.data()), kWelcomeMagic);
  for (size_t at = 0; at < kWelcomeBytes; ++at) {
    LinkEnd end;
    end.link = std::move(side_.domain->Connect(peer, &end)).value();
    Descriptor socket;
    ASSERT_TRUE(TcpRunUntil({&side_}, [&] {
      if (!socket.valid()) socket = std::move(AcceptClient(listener.get())).value();
      return socket.valid();
    }));
    std::string bad = welcome;
    bad[at] = static_cast<char>(bad[at] ^ 0x80);
    ASSERT_EQ(::send(socket.get(), bad.data(), bad.size(), MSG_NOSIGNAL), 8);
    ASSERT_TRUE(TcpRunUntil({&side_}, [&] { return end.downs == 1; }));
    EXPECT_EQ(end.down_status.code(), absl::StatusCode::kDataLoss);
    EXPECT_EQ(end.ups, 0);
  }
}

}  // namespace
}  // namespace weft
