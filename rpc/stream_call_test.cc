// Streams between a client and a server: all kinds, and all ways in which they end.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/cord.h"
#include "rpc/client/client_context.h"
#include "rpc/testing/stream_test.h"
#include "rpc/wire/metadata.h"
#include "weft/status.h"

namespace weft::test {
namespace {

class StreamCallTest : public StreamTest {
 protected:
  ~StreamCallTest() override { served_.clear(); }
};

TEST_F(StreamCallTest, BothSidesTalkAndTheServerEndsIt) {
  StartStreams();
  Talk talk = chat_->Talk();
  Served& served = NextTalk();
  EXPECT_EQ(talk.TryWrite(MakeData(1, 10)), StreamResult::kDone);
  EXPECT_EQ(talk.TryWrite(MakeData(2, 10)), StreamResult::kDone);
  EXPECT_EQ(Read(served), "1");
  EXPECT_EQ(Read(served), "2");
  EXPECT_EQ(TryRead(served), "-");
  EXPECT_EQ(served.TryWrite(MakeData(3, 10)), StreamResult::kDone);
  EXPECT_EQ(Read(talk), "3");
  talk.WritesDone();
  EXPECT_EQ(talk.TryWrite(MakeData(4, 1)), StreamResult::kOver);
  EXPECT_EQ(Read(served), "end");
  // The other half goes on.
  EXPECT_EQ(served.TryWrite(MakeData(5, 10)), StreamResult::kDone);
  served.Finish(absl::OkStatus());
  EXPECT_EQ(Read(talk), "5");
  EXPECT_EQ(Read(talk), "end");
  EXPECT_TRUE(EndOf(talk).ok());
  EXPECT_EQ(slots_in_use(), 0u);
  EXPECT_EQ(server_->stats().running, 0u);
  EXPECT_EQ(server_->stats().replies_ok, 1u);
  EXPECT_EQ(channel_->stats().calls_ok, 1u);
}

TEST_F(StreamCallTest, AStreamOfRequestsHasOneReply) {
  StartStreams();
  Data reply;
  ClientWriter<Data> sum = chat_->Sum(&reply);
  for (uint64_t i = 1; i <= 5; ++i) EXPECT_TRUE(sum.Write(MakeData(i, 3)));
  EXPECT_TRUE(sum.Finish().ok());
  EXPECT_EQ(reply.number(), 5u);
  EXPECT_EQ(reply.payload().size(), 15u);
}

TEST_F(StreamCallTest, AStreamOfRequestsMayBeEmpty) {
  StartStreams();
  Data reply;
  ClientWriter<Data> sum = chat_->Sum(&reply);
  EXPECT_TRUE(sum.Finish().ok());
  EXPECT_EQ(reply.number(), 0u);
}

TEST_F(StreamCallTest, ALargeReplyComesWithItsEnd) {
  StartStreams();
  Data reply;
  ClientWriter<Data> sum = chat_->Sum(&reply);
  EXPECT_TRUE(sum.WriteLast(MakeData(300'000, 3)));
  EXPECT_TRUE(sum.Finish().ok());
  EXPECT_EQ(reply.payload().size(), 300'000u);
}

TEST_F(StreamCallTest, AStreamOfRepliesHasOneRequest) {
  StartStreams();
  Size size;
  size.set_bytes(5000);
  ClientReader<Data> count = chat_->Count(size);
  Data data;
  for (uint64_t i = 0; i < 5000; ++i) {
    ASSERT_TRUE(count.Read(&data));
    ASSERT_EQ(data.number(), i);
  }
  EXPECT_FALSE(count.Read(&data));
  EXPECT_TRUE(count.Finish().ok());
}

TEST_F(StreamCallTest, WhatIsNotReadIsDroppedByFinish) {
  StartStreams();
  Size size;
  size.set_bytes(5000);
  ClientReader<Data> count = chat_->Count(size);
  Data data;
  EXPECT_TRUE(count.Read(&data));
  EXPECT_TRUE(count.Finish().ok());
  EXPECT_EQ(slots_in_use(), 0u);
}

TEST_F(StreamCallTest, TheHandlersErrorComesBehindItsMessages) {
  StartStreams();
  Talk talk = chat_->Talk();
  Served& served = NextTalk();
  served.TryWrite(MakeData(1, 1));
  served.TryWrite(MakeData(2, 300'000));
  served.Finish(absl::NotFoundError("no more"));
  EXPECT_EQ(Read(talk), "1");
  EXPECT_EQ(Read(talk), "2");
  EXPECT_EQ(Read(talk), "end");
  EXPECT_EQ(EndOf(talk), absl::NotFoundError("no more"));
  EXPECT_EQ(channel_->stats().calls_failed, 1u);
}

TEST_F(StreamCallTest, MetadataGoesBothWays) {
  StartStreams();
  std::string seen;
  streams_.look = [&](ServerContext& context) {
    seen = *context.metadata().Find("user");
    EXPECT_TRUE(context.AddReplyMetadata("cost", "7").ok());
  };
  ClientContext context;
  ASSERT_TRUE(context.AddMetadata("user", "anna").ok());
  Talk talk = chat_->Talk({.context = &context});
  Served& served = NextTalk();
  EXPECT_EQ(seen, "anna");
  absl::Status error = absl::AbortedError("as it is");
  error.SetPayload("detail", absl::Cord("of the error"));
  served.Finish(error);
  const absl::Status status = EndOf(talk);
  EXPECT_EQ(status, error);
  EXPECT_EQ(*context.reply_metadata().Find("cost"), "7");
  EXPECT_EQ(held_at_server(), 0u);
}

TEST_F(StreamCallTest, WithLargeMetadataNothingOvertakesTheOpen) {
  StartStreams();
  ClientContext context;
  ASSERT_TRUE(context.AddMetadata("k-bin", std::string(8000, 'v')).ok());
  Talk talk = chat_->Talk({.context = &context});
  const Data first = MakeData(1, 10);
  int written = 0;
  talk.Write(first, [&](bool ok) { written += ok ? 1 : 100; });
  Served& served = NextTalk();
  EXPECT_EQ(Read(served), "1");
  EXPECT_EQ(written, 1);
  talk.WritesDone();
  EXPECT_EQ(Read(served), "end");
  served.Finish(absl::OkStatus());
  EXPECT_TRUE(EndOf(talk).ok());
}

TEST_F(StreamCallTest, MessagesStayInOrderWhateverTheirSizes) {
  StartStreams();
  Talk talk = chat_->Talk();
  Served& served = NextTalk();
  constexpr uint64_t kMessages = 400;
  uint64_t written = 0;
  uint64_t echoed = 0;
  uint64_t read = 0;
  Data pending;
  bool has_pending = false;
  const auto size_of = [](uint64_t i) { return i % 7 == 3 ? 40'000 + i * 100 : i % 50; };
  ASSERT_TRUE(RunUntil([&] {
    while (written < kMessages &&
           talk.TryWrite(MakeData(written, size_of(written))) == StreamResult::kDone) {
      ++written;
    }
    while (has_pending || served.TryRead(&pending) == StreamResult::kDone) {
      has_pending = served.TryWrite(pending) != StreamResult::kDone;
      if (has_pending) break;
      ++echoed;
    }
    Data data;
    while (talk.TryRead(&data) == StreamResult::kDone) {
      EXPECT_EQ(data.number(), read);
      EXPECT_EQ(data.payload(), MakeData(read, size_of(read)).payload());
      ++read;
    }
    return read == kMessages;
  })) << written
      << " written, " << echoed << " echoed, " << read << " read";
  served.Finish(absl::OkStatus());
  EXPECT_TRUE(EndOf(talk).ok());
  EXPECT_EQ(held_at_server(), 0u);
}

// --- who is there, and who is not ----------------------------------------------------------------

TEST_F(StreamCallTest, AMethodThatNobodyImplementsSaysSo) {
  StartStreams();
  Talk talk = chat_->Missing();
  const absl::Status status = EndOf(talk);
  EXPECT_TRUE(absl::IsUnimplemented(status)) << status;
  EXPECT_NE(status.message().find("Missing"), absl::string_view::npos) << status;
}

TEST_F(StreamCallTest, AHandlerThatDropsItsStreamEndsIt) {
  StartStreams();
  Talk talk = chat_->Talk();
  NextTalk();
  served_.clear();
  const absl::Status status = EndOf(talk);
  EXPECT_TRUE(absl::IsInternal(status)) << status;
  EXPECT_NE(status.message().find("Talk"), absl::string_view::npos) << status;
}

TEST_F(StreamCallTest, AServerWithoutStreamsIsSentNone) {
  ServerOptions options;
  options.max_streams = 0;
  StartStreams({}, options);
  Talk talk = chat_->Talk();
  const absl::Status status = EndOf(talk);
  EXPECT_TRUE(absl::IsUnimplemented(status)) << status;
  EXPECT_EQ(DeliveryOf(status), Delivery::kNotSent);
  EXPECT_EQ(server_->stats().requests, 0u);
}

TEST_F(StreamCallTest, OptionsAreBounded) {
  for (int i = 0; i < 5; ++i) {
    ChannelOptions options;
    options.connect_at_once = false;
    ServerOptions server_options;
    uint32_t* const fields[] = {&options.max_streams, &options.stream_window_messages,
                                &options.stream_window_messages, &options.stream_window_bytes,
                                &options.stream_window_bytes};
    uint32_t* const server_fields[] = {
        &server_options.max_streams, &server_options.stream_window_messages,
        &server_options.stream_window_messages, &server_options.stream_window_bytes,
        &server_options.stream_window_bytes};
    const uint32_t wrong[] = {kMaxStreams + 1, 0, kMaxWindowMessages + 1, 0, kMaxWindowBytes + 1};
    *fields[i] = *server_fields[i] = wrong[i];
    EXPECT_TRUE(absl::IsInvalidArgument(Channel::Open(client(), "sim:server", options).status()));
    EXPECT_TRUE(absl::IsInvalidArgument(Server::Create(server_engine(), server_options).status()));
  }
}

TEST_F(StreamCallTest, AStreamWaitsForTheConnection) {
  StartStreamServer();
  ChannelOptions options;
  options.connect_at_once = false;
  OpenChannel(options);
  chat_.emplace(*channel_);
  Size size;
  size.set_bytes(3);
  ClientReader<Data> count = chat_->Count(size);
  Talk talk = chat_->Talk();
  EXPECT_EQ(talk.TryWrite(MakeData(1, 1)), StreamResult::kNotYet);
  const Data first = MakeData(1, 1);
  talk.Write(first, [](bool ok) { EXPECT_TRUE(ok); });
  talk.WritesDone();
  EXPECT_EQ(Read(count), "0");
  Served& served = NextTalk();
  EXPECT_EQ(Read(served), "1");
  EXPECT_EQ(Read(served), "end");
  EXPECT_TRUE(EndOf(count).ok());
  served.Finish(absl::OkStatus());
  EXPECT_TRUE(EndOf(talk).ok());
}

TEST_F(StreamCallTest, WithoutAServerAStreamEndsUnsent) {
  ChannelOptions options;
  options.connect_at_once = false;
  OpenChannel(options);
  chat_.emplace(*channel_);
  Talk talk = chat_->Talk();
  Talk patient = chat_->Talk({.timeout_us = 50'000, .wait_for_server = true});
  absl::Status status = EndOf(talk);
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_EQ(DeliveryOf(status), Delivery::kNotSent);
  status = EndOf(patient);
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_EQ(DeliveryOf(status), Delivery::kNotSent);
}

TEST_F(StreamCallTest, MoreStreamsThanSlotsWaitForOne) {
  ServerOptions options;
  options.max_streams = 2;
  StartStreams({}, options);
  std::vector<Talk> talks;
  for (int i = 0; i < 4; ++i) talks.push_back(chat_->Talk());
  NextTalk();
  NextTalk();
  network_.Settle();
  EXPECT_TRUE(streams_.talks.empty());
  EXPECT_EQ(slots_in_use(), 2u);
  served_[0].Finish(absl::OkStatus());
  EXPECT_TRUE(EndOf(talks[0]).ok());
  NextTalk();
  network_.Settle();
  EXPECT_TRUE(streams_.talks.empty());
  served_[1].Finish(absl::OkStatus());
  served_[2].Finish(absl::OkStatus());
  NextTalk().Finish(absl::OkStatus());
  for (int i = 1; i < 4; ++i) EXPECT_TRUE(EndOf(talks[i]).ok());
}

TEST_F(StreamCallTest, TheQueueOfStreamsIsBounded) {
  ChannelOptions options;
  options.max_streams = 1;
  options.max_queued_calls = 2;
  StartStreams(options);
  std::vector<Talk> talks;
  for (int i = 0; i < 4; ++i) talks.push_back(chat_->Talk());
  const absl::Status status = EndOf(talks[3]);
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_EQ(DeliveryOf(status), Delivery::kNotSent);
}

// --- cancelling ----------------------------------------------------------------------------------

TEST_F(StreamCallTest, ACancelReachesTheHandlerAndFreesTheSlotWhenItHasFinished) {
  StartStreams();
  int cancelled = 0;
  streams_.look = [&](ServerContext& context) { context.OnCancel([&] { ++cancelled; }); };
  Talk talk = chat_->Talk();
  Served& served = NextTalk();
  Data data;
  int reads = 0;
  served.Read(&data, [&](bool ok) { reads += ok ? 100 : 1; });
  talk.Cancel();
  EXPECT_EQ(TryRead(talk), "end");
  const absl::Status status = EndOf(talk);
  EXPECT_TRUE(absl::IsCancelled(status)) << status;
  EXPECT_EQ(DeliveryOf(status), Delivery::kMayHaveRun);
  ASSERT_TRUE(RunUntil([&] { return cancelled == 1; }));
  ASSERT_TRUE(RunUntil([&] { return reads == 1; }));
  EXPECT_TRUE(served.context().cancelled());
  EXPECT_EQ(served.TryWrite(MakeData(1, 1)), StreamResult::kOver);
  EXPECT_EQ(slots_in_use(), 1u);
  served.Finish(absl::OkStatus());
  ASSERT_TRUE(RunUntil([&] { return slots_in_use() == 0; }));
}

TEST_F(StreamCallTest, AContextCancelsItsStream) {
  StartStreams();
  ClientContext context;
  Talk talk = chat_->Talk({.context = &context});
  Served& served = NextTalk();
  ASSERT_TRUE(context.Cancel().ok());
  EXPECT_TRUE(absl::IsCancelled(EndOf(talk)));
  ASSERT_TRUE(RunUntil([&] { return served.context().cancelled(); }));
  served.Finish(absl::OkStatus());
}

TEST_F(StreamCallTest, AHandleThatGoesCancelsItsStream) {
  StartStreams();
  {
    Talk talk = chat_->Talk();
    NextTalk();
  }
  ASSERT_TRUE(RunUntil([&] { return served_[0].context().cancelled(); }));
  // What the handler had sent before it knew comes to nobody.
  served_[0].Finish(absl::OkStatus());
  ASSERT_TRUE(RunUntil([&] { return slots_in_use() == 0; }));
  EXPECT_EQ(channel_->stats().calls_failed, 1u);
}

TEST_F(StreamCallTest, AStreamThatIsCancelledBeforeItLeavesIsNotSent) {
  ChannelOptions options;
  options.max_streams = 1;
  StartStreams(options);
  Talk first = chat_->Talk();
  Talk second = chat_->Talk();
  second.Cancel();
  const absl::Status status = EndOf(second);
  EXPECT_TRUE(absl::IsCancelled(status));
  EXPECT_EQ(DeliveryOf(status), Delivery::kNotSent);
  NextTalk().Finish(absl::OkStatus());
  EXPECT_TRUE(EndOf(first).ok());
  EXPECT_EQ(server_->stats().requests, 1u);
}

TEST_F(StreamCallTest, AHandlerThatFinishesEarlyEndsTheCallersWrites) {
  StartStreams();
  Talk talk = chat_->Talk();
  Served& served = NextTalk();
  served.Finish(absl::AbortedError("enough"));
  ASSERT_TRUE(RunUntil([&] { return talk.TryWrite(MakeData(1, 1)) == StreamResult::kOver; }));
  EXPECT_EQ(EndOf(talk), absl::AbortedError("enough"));
  network_.Settle();
  EXPECT_EQ(server_->stats().protocol_errors, 0u) << "what came behind the end is stale";
}

TEST_F(StreamCallTest, TheDeadlineEndsBothSides) {
  StartStreams();
  Talk talk = chat_->Talk({.timeout_us = 5000});
  Served& served = NextTalk();
  EXPECT_LE(served.context().remaining_us(), 5000u);
  int cancelled = 0;
  Data data;
  served.Read(&data, [&](bool ok) { cancelled += ok ? 100 : 1; });
  const absl::Status status = EndOf(talk);
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_EQ(DeliveryOf(status), Delivery::kMayHaveRun);
  ASSERT_TRUE(RunUntil([&] { return cancelled == 1; }));
  served.Finish(absl::OkStatus());
  ASSERT_TRUE(RunUntil([&] { return slots_in_use() == 0; }));
  EXPECT_EQ(channel_->stats().deadlines_exceeded, 1u);
}

TEST_F(StreamCallTest, WithoutAClientThatTellsTheServerWatchesTheDeadlineItself) {
  StartStreams();
  Talk talk = chat_->Talk({.timeout_us = 5000});
  Served& served = NextTalk();
  network_.Cut("client", "server");
  ASSERT_TRUE(RunUntil([&] { return served.context().cancelled(); }));
  EXPECT_EQ(served.TryWrite(MakeData(1, 1)), StreamResult::kOver);
  network_.Heal("client", "server");
  served.Finish(absl::OkStatus());
  EXPECT_TRUE(absl::IsDeadlineExceeded(EndOf(talk)));
}

// --- loss ----------------------------------------------------------------------------------------

TEST_F(StreamCallTest, AServerThatDiesEndsItsStreamsAndWhatHasComeCanBeRead) {
  StartStreams();
  Talk talk = chat_->Talk();
  Served& served = NextTalk();
  served.TryWrite(MakeData(7, 1));
  network_.Settle();
  KillStreamServer();
  Data data;
  ASSERT_TRUE(RunUntil([&] { return channel_->stats().streams == 0; }));
  EXPECT_EQ(TryRead(talk), "7");
  EXPECT_EQ(TryRead(talk), "end");
  const absl::Status status = EndOf(talk);
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_EQ(DeliveryOf(status), Delivery::kMayHaveRun);
  // The next one finds the next server.
  StartStreamServer();
  Talk next = chat_->Talk({.timeout_us = 30'000'000, .wait_for_server = true});
  NextTalk().Finish(absl::OkStatus());
  EXPECT_TRUE(EndOf(next).ok());
}

TEST_F(StreamCallTest, AClientThatGoesCancelsItsStreams) {
  StartStreams();
  {
    Talk talk = chat_->Talk();
    NextTalk();
    talk.TryWrite(MakeData(1, 100));
    network_.Settle();
    EXPECT_GT(held_at_server(), 0u);
  }
  channel_.reset();
  ASSERT_TRUE(RunUntil([&] { return served_[0].context().cancelled(); }));
  EXPECT_EQ(held_at_server(), 0u);
  EXPECT_EQ(TryRead(served_[0]), "end");
  EXPECT_EQ(server_->stats().running, 1u);
  served_[0].Finish(absl::OkStatus());
  ASSERT_TRUE(RunUntil([&] { return server_->stats().connections == 0; }));
  EXPECT_EQ(server_->stats().running, 0u);
}

TEST_F(StreamCallTest, AServerThatShutsDownCancelsItsStreams) {
  StartStreams();
  Talk talk = chat_->Talk();
  Served& served = NextTalk();
  served.context();
  // It waits for its handler, which ends when it is cancelled.
  Data data;
  served.Read(&data, [&](bool ok) {
    EXPECT_FALSE(ok);
    served_.clear();
  });
  server_->Shutdown(0);
  const absl::Status status = EndOf(talk);
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
}

// --- many ----------------------------------------------------------------------------------------

TEST_F(StreamCallTest, TenThousandStreamsAtOnce) {
  ChannelOptions options;
  options.max_queued_calls = 10'000;
  StartStreams(options);
  constexpr size_t kStreams = 10'000;
  std::vector<Talk> talks;
  talks.reserve(kStreams);
  for (size_t i = 0; i < kStreams; ++i) talks.push_back(chat_->Talk());
  ASSERT_TRUE(RunUntil([&] { return streams_.talks.size() == kStreams; }));
  EXPECT_EQ(slots_in_use(), kStreams);
  std::vector<Data> messages;
  for (size_t i = 0; i < kStreams; ++i) messages.push_back(MakeData(i, 8));
  size_t written = 0;
  for (size_t i = 0; i < kStreams; ++i) {
    talks[i].Write(messages[i], [&](bool ok) { written += ok ? 1 : 0; });
  }
  ASSERT_TRUE(RunUntil([&] { return written == kStreams; }));
  network_.Settle();
  for (size_t i = 0; i < kStreams; ++i) {
    ASSERT_EQ(TryRead(streams_.talks[i]), std::to_string(i));
    streams_.talks[i].Finish(absl::OkStatus());
  }
  for (size_t i = 0; i < kStreams; ++i) {
    absl::Status status = talks[i].Finish();
    ASSERT_TRUE(status.ok()) << status;
  }
  EXPECT_EQ(slots_in_use(), 0u);
}

TEST_F(StreamCallTest, AStreamThatIsNotReadStallsNobodyAndHoldsABoundedNumberOfBytes) {
  ServerOptions options;
  options.stream_window_bytes = 4000;
  StartStreams({}, options);
  Talk unread = chat_->Talk();
  Served& not_reading = NextTalk();
  Talk other = chat_->Talk();
  Served& reading = NextTalk();
  int refused = 0;
  for (uint64_t i = 0; i < 200; ++i) {
    refused += unread.TryWrite(MakeData(i, 500)) == StreamResult::kNotYet;
    ASSERT_EQ(other.TryWrite(MakeData(i, 500)), StreamResult::kDone) << i;
    ASSERT_EQ(Read(reading), std::to_string(i));
    Data reply;
    if (i % 20 == 0) {
      ASSERT_TRUE(stub_->Echo(MakeData(i, 100), &reply).ok());
    }
  }
  EXPECT_GT(refused, 150);
  EXPECT_LE(held_at_server(), 4000u + 600);
  not_reading.Finish(absl::OkStatus());
  reading.Finish(absl::OkStatus());
  EXPECT_TRUE(EndOf(unread).ok());
  EXPECT_TRUE(EndOf(other).ok());
  EXPECT_EQ(held_at_server(), 0u);
}

TEST_F(StreamCallTest, AllStreamsTogetherHoldWhatTheServerAllows) {
  ServerOptions options;
  options.max_running_bytes = 20'000;
  StartStreams({}, options);
  Talk talk = chat_->Talk();
  NextTalk();
  int sent = 0;
  ASSERT_TRUE(RunUntil([&] {
    const StreamResult result = talk.TryWrite(MakeData(1, 1000));
    sent += result == StreamResult::kDone;
    return result == StreamResult::kOver || served_[0].context().cancelled();
  }));
  EXPECT_EQ(held_at_server(), 0u);
  served_[0].Finish(absl::OkStatus());
  const absl::Status status = EndOf(talk);
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_GE(sent, 19);
}

// Of a stream's handler an error of some of Weft's own codes had no Delivery, where the same error
// of a call had one; and so had Weft's own.
TEST_F(StreamCallTest, AnErrorOfAHandlerSaysWhatThatOfACallWould) {
  using Code = absl::StatusCode;
  StartStreams();
  const auto delivery_of = [&](Code code) {
    Talk talk = chat_->Talk();
    NextTalk().Finish(absl::Status(code, "no"));
    const absl::Status end = EndOf(talk);
    EXPECT_EQ(end.code(), code);
    return DeliveryOf(end);
  };
  for (const Code code : {Code::kCancelled, Code::kDeadlineExceeded, Code::kResourceExhausted,
                          Code::kInternal, Code::kUnavailable}) {
    EXPECT_EQ(delivery_of(code), Delivery::kMayHaveRun) << code;
  }
  for (const Code code : {Code::kUnknown, Code::kInvalidArgument, Code::kAborted}) {
    EXPECT_EQ(delivery_of(code), Delivery::kUnknown) << code;
  }
}

}  // namespace
}  // namespace weft::test
