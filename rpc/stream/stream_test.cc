// Both ends of a stream, without a network between them: the test carries the frames.
#include "rpc/stream/stream.h"

#include <google/protobuf/wrappers.pb.h>
#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/random.h"
#include "core/tally.h"
#include "rpc/stream/stream_connection.h"
#include "rpc/testing/loopback.h"

namespace weft {
namespace {

using Text = google::protobuf::StringValue;
using Bytes = std::vector<std::byte>;

constexpr CallId kId = {3, 5};
constexpr StreamWindow kWindow = {8, 1000};
constexpr size_t kEagerBytes = 200;

Text MakeText(size_t bytes, char letter = 'x') {
  Text text;
  text.set_value(std::string(bytes, letter));
  return text;
}
// The payload of a text whose message has so many bytes.
Text MessageOf(size_t bytes) {
  Text text = MakeText(bytes > 130 ? bytes - 3 : bytes - 2);
  EXPECT_EQ(text.ByteSizeLong(), bytes);
  return text;
}

// Takes frames while `room` lasts.
class FakeConnection final : public Connection {
 public:
  FakeConnection() : Connection(&always_full_, &no_access_, &PrefetchList::None()) {
    state_ = State::kOpen;
    eager_bytes_ = kEagerBytes;
  }

  absl::StatusOr<std::byte*> Reserve(size_t bytes) override {
    if (room == 0) return absl::ResourceExhaustedError("no room");
    reserved_.resize(bytes);
    return reserved_.data();
  }
  uint64_t Commit(size_t) override {
    sent.push_back(std::make_unique<Bytes>(reserved_));
    --room;
    return 0;
  }
  void Abandon() override {}
  void Flush() override {}
  uint64_t first_unsent() const override { return 0; }
  void Close(std::string_view) override {}
  ConnectionStats stats() const override { return {}; }

  size_t room = 1'000'000;  // frames
  std::deque<std::unique_ptr<Bytes>> sent;

 private:
  MessageSpace AppendSlowly(size_t bytes) override {
    if (room == 0) return {};
    --room;
    sent.push_back(std::make_unique<Bytes>(bytes));
    return {sent.back()->data(), 0};
  }

  MessageRoom always_full_{0};
  test::NoRemoteAccess no_access_;
  Bytes reserved_;
};

// One side: a stream and its owner.
class End final : public StreamOwner {
 public:
  explicit End(EngineCore& engine, uint64_t most_held_bytes = 1 << 30,
               uint64_t most_least_bytes = 1 << 20)
      : streams(&held_bytes, std::make_shared<uint64_t>(0),
                {most_held_bytes, 1 << 20, most_least_bytes}),
        early_ends_(engine),
        stream(*this, early_ends_) {}

  void Open(bool is_client, StreamWindow mine = kWindow, StreamWindow peers = kWindow,
            bool waits = false) {
    streams.Open(&connection, mine, peers, /*max_message_bytes=*/100'000);
    stream.Open(streams, kId, is_client, waits);
  }

  bool SendOwed() override {
    if (connection.room == 0) return false;
    ++owed_sent;
    return true;
  }
  void OnAllReceived() override { ++all_received; }
  void Fail(absl::Status why) override {
    failed = std::move(why);
    stream.CloseWrites();
    stream.IgnoreReads();
  }
  void OnQuiet() override { ++quiet; }

  // Takes a frame as the network would hand it over. Null: nothing is wrong with it.
  const char* Take(const Bytes& frame) {
    DataHeader data;
    ByteSpan message;
    CreditHeader credit;
    const uint16_t kind = CallFrameKindOf(frame);
    const bool to_opener = (kind & kToOpenerBit) != 0;
    if (kind == TwoWayKind(StreamFrameKind::kData, to_opener)) {
      if (!DecodeData(frame, to_opener, &data, &message)) return "malformed";
      return data.has_message ? stream.OnData(data.number, data.last, message)
                              : stream.OnHalfClose(data.number);
    }
    return DecodeCredit(frame, to_opener, &credit) ? stream.OnCredit(credit) : "malformed";
  }

  std::optional<std::string> TryRead() {
    Text text;
    if (stream.TryRead(&text) != StreamResult::kDone) return std::nullopt;
    return text.value();
  }

  Tally<uint64_t> held_bytes;
  FakeConnection connection;
  StreamConnection streams;

 private:
  EarlyEnds<Stream> early_ends_;

 public:
  Stream stream;
  absl::Status failed;
  int all_received = 0;
  int owed_sent = 0;
  int quiet = 0;
};

Bytes Data(uint32_t number, size_t bytes, uint16_t flags = 0) {
  const std::string body = (flags & kNoMessage) != 0 ? "" : MessageOf(bytes).SerializeAsString();
  Bytes frame(kCallHeaderBytes + body.size());
  EncodeData(kId, flags, number, /*to_opener=*/false, frame.data());
  std::copy_n(reinterpret_cast<const std::byte*>(body.data()), body.size(),
              frame.begin() + kCallHeaderBytes);
  return frame;
}

Bytes Credit(uint16_t messages, uint32_t bytes) {
  Bytes frame(kCallHeaderBytes);
  EncodeCredit({kId, messages, bytes}, /*to_opener=*/false, frame.data());
  return frame;
}

class StreamTest : public testing::Test {
 protected:
  explicit StreamTest(StreamWindow window = kWindow) {
    client_.Open(true, window, window);
    server_.Open(false, window, window);
  }

  // Everything that was sent arrives, in the order of sending.
  void Deliver() {
    while (!client_.connection.sent.empty() || !server_.connection.sent.empty()) {
      DeliverOne(client_, server_);
      DeliverOne(server_, client_);
    }
    client_.stream.CheckInvariants();
    server_.stream.CheckInvariants();
  }
  static void DeliverOne(End& from, End& to) {
    if (from.connection.sent.empty()) return;
    const std::unique_ptr<Bytes> frame = std::move(from.connection.sent.front());
    from.connection.sent.pop_front();
    const char* wrong = to.Take(*frame);
    ASSERT_EQ(wrong, nullptr) << wrong;
  }
  StreamResult Write(const Text& text, bool last = false) {
    return client_.stream.TryWrite(text, last);
  }

  std::unique_ptr<EngineCore> engine_ = *test::OpenLoopbackEngine();
  End client_{*engine_};
  End server_{*engine_};
};

TEST_F(StreamTest, MessagesArriveInOrderAndThenTheEnd) {
  EXPECT_EQ(server_.TryRead(), std::nullopt);
  for (const char letter : {'a', 'b', 'c'}) {
    EXPECT_EQ(Write(MakeText(3, letter)), StreamResult::kDone);
  }
  client_.stream.WritesDone();
  EXPECT_EQ(Write(MakeText(1)), StreamResult::kOver);
  Deliver();
  EXPECT_EQ(server_.all_received, 1);
  EXPECT_EQ(server_.TryRead(), "aaa");
  EXPECT_EQ(server_.TryRead(), "bbb");
  EXPECT_EQ(server_.TryRead(), "ccc");
  Text text;
  EXPECT_EQ(server_.stream.TryRead(&text), StreamResult::kOver);
  EXPECT_EQ(server_.held_bytes, 0u);
}

TEST_F(StreamTest, TheLastMessageCanSayThatItIs) {
  EXPECT_EQ(Write(MakeText(1, 'z'), /*last=*/true), StreamResult::kDone);
  EXPECT_EQ(client_.connection.sent.size(), 1u);
  Deliver();
  EXPECT_EQ(server_.TryRead(), "z");
  Text text;
  EXPECT_EQ(server_.stream.TryRead(&text), StreamResult::kOver);
}

// A client ended the connection, for only clients say so on the wire.
TEST_F(StreamTest, AServersLastMessageIsFollowedByItsEndAlone) {
  EXPECT_EQ(server_.stream.TryWrite(MakeText(1, 'y'), /*last=*/true), StreamResult::kDone);
  EXPECT_EQ(server_.stream.TryWrite(MakeText(1, 'z'), /*last=*/false), StreamResult::kOver);
  ASSERT_EQ(server_.connection.sent.size(), 1u);
  DataHeader data;
  ByteSpan message;
  ASSERT_TRUE(DecodeData(*server_.connection.sent.front(), /*to_opener=*/true, &data, &message));
  EXPECT_FALSE(data.last);
  Deliver();
  EXPECT_EQ(client_.TryRead(), "y");
}

TEST_F(StreamTest, WhoWaitsGetsTheMessageWithoutAQueue) {
  Text text;
  int reads = 0;
  server_.stream.Read(&text, [&](bool ok) { reads += ok ? 1 : 100; });
  Write(MakeText(5, 'q'));
  EXPECT_EQ(reads, 0);
  Deliver();
  EXPECT_EQ(reads, 1);
  EXPECT_EQ(text.value(), "qqqqq");
  server_.stream.Read(&text, [&](bool ok) { reads += ok ? 1 : 100; });
  client_.stream.WritesDone();
  Deliver();
  EXPECT_EQ(reads, 101);
}

TEST_F(StreamTest, ACallbackNeverRunsInsideTheFunctionThatItWasGivenTo) {
  Write(MakeText(5, 'q'));
  Deliver();
  Text text;
  int calls = 0;
  server_.stream.Read(&text, [&](bool ok) { calls += ok ? 1 : 100; });
  client_.stream.Write(MakeText(1), false, [&](bool ok) { calls += ok ? 10 : 1000; });
  EXPECT_EQ(calls, 0);
  EXPECT_FALSE(server_.stream.quiet());
  engine_->Poll();
  EXPECT_EQ(calls, 11);
  EXPECT_EQ(server_.quiet, 1);
}

TEST_F(StreamTest, ACallbackThatReadsOnIsNotNestedInItself) {
  for (int i = 0; i < 8; ++i) Write(MakeText(1, static_cast<char>('a' + i)));
  Deliver();
  std::string read;
  int depth = 0;
  Text text;
  Function<void(bool)> next;
  struct Reader {
    Stream& stream;
    Text& text;
    std::string& read;
    int& depth;
    void operator()(bool ok) const {
      ASSERT_EQ(++depth, 1);
      if (ok) {
        read += text.value();
        stream.Read(&text, *this);
      }
      --depth;
    }
  };
  server_.stream.Read(&text, Reader{server_.stream, text, read, depth});
  engine_->Poll();
  EXPECT_EQ(read, "abcdefgh");
  Deliver();
  Write(MakeText(1, 'i'));
  Deliver();
  EXPECT_EQ(read, "abcdefghi");
  client_.stream.WritesDone();
  Deliver();
}

// Reads came first whenever both were due: while the queue had more, no write was heard of.
TEST_F(StreamTest, AReaderWhoAlwaysHasMoreLeavesAWriterHisTurn) {
  for (int i = 0; i < 4; ++i) Write(MakeText(1));
  Deliver();
  std::string order;
  struct Talker {
    Stream& stream;
    std::string& order;
    bool reads;
    Text text = {};

    void Next() {
      if (reads) return stream.Read(&text, [this](bool ok) { Ended(ok, 'r'); });
      stream.Write(text, false, [this](bool ok) { Ended(ok, 'w'); });
    }
    void Ended(bool ok, char what) {
      if (!ok) return;  // the stream is over
      order += what;
      if (order.size() < 8) Next();
    }
  };
  Talker reader{server_.stream, order, /*reads=*/true};
  Talker writer{server_.stream, order, /*reads=*/false};
  reader.Next();
  writer.Next();
  engine_->Poll();
  EXPECT_EQ(order.substr(0, 8), "rwrwrwrw");
  server_.stream.IgnoreReads();
  server_.stream.CloseWrites();
  engine_->Poll();
}

// --- credit --------------------------------------------------------------------------------------

TEST_F(StreamTest, NoMoreIsSentThanTheWindowOfMessages) {
  for (uint32_t i = 0; i < kWindow.messages; ++i) {
    EXPECT_EQ(Write(MakeText(1)), StreamResult::kDone);
  }
  EXPECT_EQ(Write(MakeText(1)), StreamResult::kNotYet);
  Deliver();
  EXPECT_EQ(Write(MakeText(1)), StreamResult::kNotYet);
  for (uint32_t i = 0; i < kWindow.messages / 2 - 1; ++i) server_.TryRead();
  Deliver();
  EXPECT_EQ(Write(MakeText(1)), StreamResult::kNotYet) << "less than half a window was read";
  server_.TryRead();
  Deliver();
  EXPECT_EQ(Write(MakeText(1)), StreamResult::kDone);
}

TEST_F(StreamTest, NoMoreIsSentThanTheWindowOfBytes) {
  EXPECT_EQ(Write(MessageOf(400)), StreamResult::kDone);
  EXPECT_EQ(Write(MessageOf(400)), StreamResult::kDone);
  EXPECT_EQ(Write(MessageOf(400)), StreamResult::kNotYet);
  EXPECT_EQ(Write(MessageOf(200)), StreamResult::kDone);
  EXPECT_EQ(Write(MessageOf(3)), StreamResult::kNotYet);
  Deliver();
  EXPECT_EQ(server_.held_bytes, 1000u);
}

TEST_F(StreamTest, AMessageLargerThanTheWindowPassesWhenHalfOfItIsFree) {
  EXPECT_EQ(Write(MessageOf(5000)), StreamResult::kDone);
  EXPECT_EQ(Write(MessageOf(3)), StreamResult::kNotYet);
  Deliver();
  EXPECT_EQ(server_.TryRead()->size(), 4997u);
  Deliver();
  // Of less than half a window the reader says nothing; the next large one passes all the same.
  EXPECT_EQ(Write(MessageOf(499)), StreamResult::kDone);
  Deliver();
  EXPECT_TRUE(server_.TryRead());
  EXPECT_TRUE(server_.connection.sent.empty());
  EXPECT_EQ(Write(MessageOf(5000)), StreamResult::kDone);
  Deliver();
  EXPECT_TRUE(server_.TryRead());
}

TEST_F(StreamTest, AWriteWaitsForCreditAndThenSaysThatItWasSent) {
  for (uint32_t i = 0; i < kWindow.messages; ++i) Write(MakeText(1));
  const Text late = MakeText(4, 'l');
  int written = 0;
  client_.stream.Write(late, false, [&](bool ok) { written += ok ? 1 : 100; });
  Deliver();
  engine_->Poll();
  EXPECT_EQ(written, 0);
  for (uint32_t i = 0; i < kWindow.messages; ++i) server_.TryRead();
  Deliver();
  EXPECT_EQ(written, 1);
  EXPECT_EQ(server_.TryRead(), "llll");
}

TEST_F(StreamTest, WhoIsToldThatHeMayWriteCan) {
  for (uint32_t i = 0; i < kWindow.messages; ++i) Write(MakeText(1));
  EXPECT_EQ(Write(MessageOf(300)), StreamResult::kNotYet);
  int told = 0;
  client_.stream.WhenWritable([&](bool ok) {
    ++told;
    EXPECT_TRUE(ok);
    EXPECT_EQ(Write(MessageOf(300)), StreamResult::kDone);
  });
  Deliver();
  EXPECT_EQ(told, 0);
  for (uint32_t i = 0; i < kWindow.messages; ++i) server_.TryRead();
  Deliver();
  EXPECT_EQ(told, 1);
}

TEST_F(StreamTest, WhatIsNotReadBecauseItIsDroppedGivesCreditBackUnlessItIsIgnored) {
  server_.stream.DropReads();
  for (uint32_t i = 0; i < 10 * kWindow.messages; ++i) {
    ASSERT_EQ(Write(MakeText(1)), StreamResult::kDone);
    Deliver();
  }
  server_.stream.IgnoreReads();
  uint32_t sent = 0;
  while (Write(MakeText(1)) == StreamResult::kDone) {
    Deliver();
    ASSERT_LE(++sent, kWindow.messages);
  }
  EXPECT_EQ(server_.held_bytes, 0u);
}

TEST_F(StreamTest, AStreamThatWaitsSendsNothingBeforeItsWindowIsGranted) {
  End client(*engine_);
  End server(*engine_);
  client.stream.WritesDone();  // before it is open: the end waits too
  client.stream.Reset();
  client.Open(true, kWindow, kWindow, /*waits=*/true);
  server.Open(false, kWindow, kWindow, /*waits=*/true);
  EXPECT_EQ(client.stream.TryWrite(MakeText(1), false), StreamResult::kNotYet);
  EXPECT_NE(server.Take(Data(0, 5)), nullptr) << "data before the grant";
  server.stream.GrantAll();
  DeliverOne(server, client);
  EXPECT_EQ(client.stream.TryWrite(MakeText(1), false), StreamResult::kDone);
  DeliverOne(client, server);
  client.stream.CheckInvariants();
  server.stream.CheckInvariants();
}

// --- room in the connection ----------------------------------------------------------------------

TEST_F(StreamTest, WithoutRoomAWriteWaitsForIt) {
  client_.connection.room = 0;
  EXPECT_EQ(Write(MakeText(1)), StreamResult::kNotYet);
  const Text text = MakeText(3, 'r');
  int written = 0;
  client_.stream.Write(text, true, [&](bool ok) { written += ok ? 1 : 100; });
  client_.streams.Pump();
  EXPECT_EQ(written, 0);
  client_.connection.room = 9;
  client_.streams.Pump();
  EXPECT_EQ(written, 1);
  Deliver();
  EXPECT_EQ(server_.TryRead(), "rrr");
  EXPECT_EQ(client_.streams.waiting_slowly(), 0u);
}

TEST_F(StreamTest, WhatIsOwedIsSentWhenThereIsRoom) {
  client_.connection.room = 0;
  client_.stream.WritesDone();
  client_.stream.Owe();
  EXPECT_EQ(client_.owed_sent, 0);
  client_.connection.room = 2;
  client_.streams.Pump();
  EXPECT_EQ(client_.owed_sent, 1);
  Deliver();
  EXPECT_EQ(server_.all_received, 1);
}

TEST_F(StreamTest, StreamsThatWaitForRoomTakeTurns) {
  EarlyEnds<Stream> early_ends(*engine_);
  Stream other(client_, early_ends);
  other.Open(client_.streams, {4, 1}, true, false);
  client_.connection.room = 0;
  const Text text = MakeText(1);
  struct Writer {
    Stream& stream;
    const Text& text;
    void operator()(bool ok) const {
      if (ok) stream.Write(text, false, *this);
    }
  };
  client_.stream.Write(text, false, Writer{client_.stream, text});
  other.Write(text, false, Writer{other, text});
  client_.connection.room = 6;
  client_.streams.Pump();
  ASSERT_EQ(client_.connection.sent.size(), 6u);
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(CallIdOf(*client_.connection.sent[i]).slot, i % 2 == 0 ? kId.slot : 4u);
  }
  client_.stream.CloseWrites();
  other.CloseWrites();
  client_.stream.RunCallbacks();
  other.RunCallbacks();
  other.Disconnect();
}

// --- the end -------------------------------------------------------------------------------------

TEST_F(StreamTest, WhenItIsOverWhatWaitsEndsOnce) {
  for (uint32_t i = 0; i < kWindow.messages; ++i) Write(MakeText(1));
  Text text;
  int reads = 0;
  int writes = 0;
  const Text more = MakeText(1);
  client_.stream.Read(&text, [&](bool ok) { reads += ok ? 100 : 1; });
  client_.stream.Write(more, false, [&](bool ok) { writes += ok ? 100 : 1; });
  client_.stream.CloseWrites();
  client_.stream.EndReads();
  client_.stream.RunCallbacks();
  client_.stream.Disconnect();
  EXPECT_EQ(reads, 1);
  EXPECT_EQ(writes, 1);
  EXPECT_TRUE(client_.stream.quiet());
  EXPECT_EQ(Write(more), StreamResult::kOver);
  EXPECT_EQ(client_.stream.TryRead(&text), StreamResult::kOver);
}

TEST_F(StreamTest, WhatHasArrivedCanStillBeReadWhenTheConnectionIsGone) {
  Write(MakeText(2, 'k'));
  Deliver();
  server_.stream.EndReads();
  server_.stream.Disconnect();
  EXPECT_EQ(server_.held_bytes, 0u);
  EXPECT_EQ(server_.TryRead(), "kk");
  EXPECT_EQ(server_.TryRead(), std::nullopt);
}

TEST_F(StreamTest, AMessageThatCannotBeDecodedFailsTheStream) {
  Bytes frame = Data(0, 9);
  frame[kCallHeaderBytes + 1] = std::byte{0x7F};
  EXPECT_EQ(server_.Take(frame), nullptr);
  Text text;
  EXPECT_EQ(server_.stream.TryRead(&text), StreamResult::kOver);
  EXPECT_TRUE(absl::IsDataLoss(server_.failed)) << server_.failed;

  int reads = 0;
  client_.stream.Read(&text, [&](bool ok) { reads += ok ? 100 : 1; });
  EXPECT_EQ(client_.Take(frame), nullptr);
  EXPECT_EQ(reads, 1);
  EXPECT_TRUE(absl::IsDataLoss(client_.failed)) << client_.failed;
}

TEST_F(StreamTest, AMessageTooLargeForThePeerFailsTheStream) {
  EXPECT_EQ(Write(MakeText(200'000)), StreamResult::kOver);
  EXPECT_TRUE(absl::IsResourceExhausted(client_.failed)) << client_.failed;
}

TEST_F(StreamTest, MoreThanAllStreamsMayHoldFailsTheOneThatWouldHoldIt) {
  End server(*engine_, /*most_held_bytes=*/500);
  server.Open(false);
  EXPECT_EQ(server.Take(Data(0, 400)), nullptr);
  EXPECT_TRUE(server.failed.ok());
  EXPECT_EQ(server.Take(Data(1, 200)), nullptr);
  EXPECT_TRUE(absl::IsResourceExhausted(server.failed)) << server.failed;
  EXPECT_EQ(server.held_bytes, 0u);
}

// It was asked for its room again when those before it had come; others had taken some meanwhile.
TEST_F(StreamTest, WhatHasOvertakenOthersKeepsItsRoom) {
  End server(*engine_, /*most_held_bytes=*/1000, /*least_bytes=*/0);
  server.Open(false);
  Text text;
  server.stream.Read(&text, [](bool ok) { EXPECT_TRUE(ok); });
  EXPECT_EQ(server.Take(Data(1, 400)), nullptr);
  server.held_bytes += 400;  // another client's
  EXPECT_EQ(server.Take(Data(0, 10)), nullptr);
  EXPECT_TRUE(server.failed.ok()) << server.failed;
  EXPECT_EQ(text.value().size(), 8u);
  EXPECT_EQ(server.TryRead()->size(), 397u);
  engine_->Poll();
  server.held_bytes -= 400;
  EXPECT_EQ(server.held_bytes, 0u);
}

// --- order ---------------------------------------------------------------------------------------

TEST_F(StreamTest, SmallMessagesThatOvertookALargeOneWaitForIt) {
  Text text;
  std::vector<std::string> read;
  EXPECT_EQ(server_.Take(Data(1, 10)), nullptr);
  EXPECT_EQ(server_.Take(Data(2, 20, kLastMessage)), nullptr);
  EXPECT_EQ(server_.stream.TryRead(&text), StreamResult::kNotYet);
  EXPECT_EQ(server_.held_bytes, 30u);
  EXPECT_EQ(server_.Take(Data(0, 600)), nullptr);
  EXPECT_EQ(server_.TryRead()->size(), 597u);
  EXPECT_EQ(server_.TryRead()->size(), 8u);
  EXPECT_EQ(server_.TryRead()->size(), 18u);
  EXPECT_EQ(server_.stream.TryRead(&text), StreamResult::kOver);
  EXPECT_EQ(server_.all_received, 1);
}

TEST_F(StreamTest, FramesThatNoPeerSendsAreRefused) {
  struct Case {
    const char* what;
    std::vector<Bytes> frames;  // the last one is refused
  };
  std::vector<Bytes> too_many;
  for (uint32_t i = 0; i <= kWindow.messages; ++i) too_many.push_back(Data(i, 3));
  const Case cases[] = {
      {"a message twice", {Data(0, 3), Data(0, 3)}},
      {"an old one", {Data(0, 3), Data(1, 3), Data(0, 3)}},
      {"one ahead twice", {Data(2, 3), Data(2, 3)}},
      {"those ahead out of order", {Data(2, 3), Data(1, 3)}},
      {"far ahead", {Data(kWindow.messages, 3)}},
      {"half the circle ahead", {Data(0x80000000, 3)}},
      {"more messages than credit", too_many},
      {"more bytes than credit", {Data(0, 600), Data(1, 401)}},
      {"bytes without credit", {Data(0, 5000), Data(1, 3)}},
      {"behind the last", {Data(0, 3, kLastMessage), Data(1, 3)}},
      {"behind the end", {Data(0, 0, kLastMessage | kNoMessage), Data(0, 3)}},
      {"ahead of the end", {Data(1, 0, kLastMessage | kNoMessage), Data(1, 3)}},
      {"two ends", {Data(0, 0, kLastMessage | kNoMessage), Data(0, 0, kLastMessage | kNoMessage)}},
      {"an end before what came", {Data(0, 3), Data(0, 0, kLastMessage | kNoMessage)}},
      {"an end before one ahead", {Data(3, 3), Data(2, 0, kLastMessage | kNoMessage)}},
      {"a last one before one ahead", {Data(3, 3), Data(0, 3, kLastMessage)}},
      {"an end beyond all credit", {Data(9, 0, kLastMessage | kNoMessage)}},
      {"credit beyond the window", {Credit(1, 0)}},
      {"bytes beyond the window", {Credit(0, 1)}},
      {"no credit", {Credit(0, 0)}},
  };
  for (const Case& test : cases) {
    SCOPED_TRACE(test.what);
    End end(*engine_);
    end.Open(false);
    for (size_t i = 0; i + 1 < test.frames.size(); ++i) {
      EXPECT_EQ(end.Take(test.frames[i]), nullptr) << i;
    }
    EXPECT_NE(end.Take(test.frames.back()), nullptr);
    end.stream.IgnoreReads();
    end.stream.Disconnect();
    EXPECT_EQ(end.held_bytes, 0u);
  }
}

// Writers and readers as they come, frames in any order that a connection may deliver them in.
TEST_F(StreamTest, WhateverTheOrderEachMessageIsReadOnceAndInItsPlace) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const StreamWindow window = {static_cast<uint32_t>(random.UniformInRange(1, 20)),
                                 static_cast<uint32_t>(random.UniformInRange(1, 2000))};
    End client(*engine_);
    End server(*engine_);
    client.Open(true, kWindow, window);
    server.Open(false, window, kWindow);
    constexpr uint32_t kMessages = 300;
    uint32_t written = 0;
    uint32_t read = 0;
    std::vector<size_t> sizes;
    Text text;
    bool over = false;
    for (int step = 0; !over; ++step) {
      ASSERT_LT(step, 100'000) << "it stands still";
      switch (random.Uniform(4)) {
        case 0: {
          const size_t bytes = random.Chance(0.2) ? random.Uniform(3000) : random.Uniform(100);
          if (written == kMessages) {
            client.stream.WritesDone();
          } else if (client.stream.TryWrite(MakeText(bytes, static_cast<char>('a' + written % 26)),
                                            false) == StreamResult::kDone) {
            sizes.push_back(bytes);
            ++written;
          }
          break;
        }
        case 1: {
          const StreamResult result = server.stream.TryRead(&text);
          over = result == StreamResult::kOver;
          if (result != StreamResult::kDone) break;
          ASSERT_EQ(text.value(), std::string(sizes[read], static_cast<char>('a' + read % 26)));
          ++read;
          break;
        }
        case 2:
          DeliverOne(server, client);
          break;
        default: {
          // The first, or the first small one behind large ones.
          auto& sent = client.connection.sent;
          if (sent.empty()) break;
          size_t at = 0;
          if (random.Chance(0.5)) {
            while (at < sent.size() && sent[at]->size() > kEagerBytes) ++at;
            if (at == sent.size()) at = 0;
          }
          const std::unique_ptr<Bytes> frame = std::move(sent[at]);
          sent.erase(sent.begin() + static_cast<ptrdiff_t>(at));
          const char* wrong = server.Take(*frame);
          ASSERT_EQ(wrong, nullptr) << wrong;
        }
      }
      client.stream.CheckInvariants();
      server.stream.CheckInvariants();
    }
    EXPECT_EQ(read, kMessages);
    EXPECT_EQ(server.held_bytes, 0u);
    EXPECT_TRUE(server.failed.ok()) << server.failed;
  }
}

}  // namespace
}  // namespace weft
