// Streams at a client whose server, and whose program, choose the worst moment: each test was a
// defect.
#include <gtest/gtest.h>
#include <malloc.h>

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/random.h"
#include "rpc/client/client_context.h"
#include "rpc/testing/raw_peer.h"
#include "rpc/testing/stream_frames.h"
#include "rpc/testing/stream_test.h"
#include "rpc/wire/hello.pb.h"
#include "rpc/wire/stream_frame.h"

namespace weft::test {
namespace {

// --- hostile servers -----------------------------------------------------------------------------

class StreamClientTest : public StreamTest {
 protected:
  void Begin(ChannelOptions channel = {}) {
    rpc::ServerHello hello;
    hello.set_protocol(kRpcProtocolVersion);
    hello.set_max_outstanding_calls(4);
    hello.set_max_request_bytes(1000);
    hello.set_max_extras_bytes(kMaxExtrasBytes);
    hello.set_max_streams(3);
    hello.set_stream_window_messages(4);
    hello.set_stream_window_bytes(1000);
    rpc::ServiceTable* table = hello.add_services();
    table->set_name("weft.test.Streams");
    table->add_methods("Talk");
    table->add_methods("Sum");
    ListenOptions options;
    options.hello = hello.SerializeAsString();
    listener_ = *server_engine().transport().Listen("sim:server", options, &acceptor_);
    OpenChannel(channel);
    chat_.emplace(*channel_);
    EXPECT_TRUE(RunUntil([&] { return acceptor_.peer.connection != nullptr; }));
  }
  ~StreamClientTest() override {
    talk_.reset();
    channel_.reset();
    network_.Settle();
  }
  CallId OpenTalk() {
    acceptor_.peer.received.clear();
    talk_.emplace(chat_->Talk());
    EXPECT_TRUE(RunUntil([&] { return !acceptor_.peer.received.empty(); }));
    return CallIdOf(acceptor_.peer.received[0]);
  }
  RawPeer& peer() { return acceptor_.peer; }

  RawAcceptor acceptor_;
  std::unique_ptr<Listener> listener_;
  std::optional<Talk> talk_;
};

// A message that cannot be decoded, read after the stream had ended: the reader heard that there is
// no more, and that all is well.
TEST_F(StreamClientTest, AMessageThatCannotBeDecodedIsToldAlsoBehindTheEnd) {
  Begin();
  const CallId id = OpenTalk();
  SendTogether(peer(), {ToOpener(Message(id, 0, "\xFF\xFF")),
                        ToOpener(Message(id, 1, Encoded(7, 1))), End(id, 0, 2)});
  network_.Settle();
  EXPECT_EQ(TryRead(*talk_), "end");
  EXPECT_EQ(TryRead(*talk_), "end") << "after its end";
  EXPECT_FALSE(EndOf(*talk_).ok());
}

// Of an end with malformed metadata, the entries before the bad one were shown.
TEST_F(StreamClientTest, OfMalformedMetadataNothingIsShown) {
  Begin();
  ClientContext context;
  talk_.emplace(chat_->Talk({.context = &context}));
  EXPECT_TRUE(RunUntil([&] { return !acceptor_.peer.received.empty(); }));
  const std::string extras("\x0a\x06\x0a\x01k\x12\x01v\x0a\x02\x0a\x00", 12);
  Bytes end(EndFrameBytes(extras.size(), 0));
  EncodeEnd({CallIdOf(acceptor_.peer.received[0]), 0, false, 0, AsBytes(extras), {}}, end.data());
  peer().Send(end);
  EXPECT_TRUE(absl::IsDataLoss(EndOf(*talk_)));
  EXPECT_TRUE(context.reply_metadata().empty());
  talk_.reset();
}

// max_reply_bytes was told to the server, and not looked at.
TEST_F(StreamClientTest, AMessageLargerThanMaxReplyBytesFailsItsStream) {
  ChannelOptions options;
  options.max_reply_bytes = 1000;
  Begin(options);
  const CallId id = OpenTalk();
  Data data;
  bool read = false;
  talk_->Read(&data, [&](bool ok) { read = ok; });
  peer().Send(ToOpener(Message(id, 0, Encoded(7, 1'000'000))));
  network_.Settle();
  EXPECT_FALSE(read) << "a message of " << data.payload().size() << " bytes";
}

// Finish() drops what comes, and gave credit back at once for what was ahead of a message that did
// not come: without end, at 8 bytes kept for each.
TEST_F(StreamClientTest, MessagesAheadOfOneThatNeverComesAreBounded) {
  Begin();
  const CallId id = OpenTalk();
  std::optional<absl::Status> status;
  talk_->Finish([&](absl::Status ended) { status = std::move(ended); });
  const uint32_t window = ChannelOptions().stream_window_messages;
  uint32_t sent = 0;
  while (sent < 20 * window && peer().connection != nullptr) {
    for (int i = 0; i < 10 && peer().connection != nullptr; ++i) {
      peer().Send(ToOpener(Message(id, ++sent, "")));
    }
    network_.Settle();
    peer().received.clear();
  }
  EXPECT_LT(sent, 2 * window) << "messages ahead of number 0, all remembered";
  talk_.reset();
  channel_.reset();
}

// --- programs that are unusual -------------------------------------------------------------------

class StreamProgramTest : public StreamTest {
 protected:
  ~StreamProgramTest() override { served_.clear(); }
};

// A callback that used a stream with a task in the inbox, which was full, waited for ever for the
// inbox that it would have had to empty.
TEST_F(StreamProgramTest, ACallbackNeverWaitsForTheInboxThatItWouldHaveToEmpty) {
  StartStreams();
  Talk talk = chat_->Talk();
  Served& served = NextTalk();
  Data data;
  bool called = false;
  talk.Read(&data, [&](bool) {
    std::thread([&] {
      talk.WritesDone();  // posted
      while (client().Post([] {})) {
      }
    }).join();
    talk.Cancel();
    called = true;
  });
  EXPECT_EQ(served.TryWrite(MakeData(1, 1)), StreamResult::kDone);
  EXPECT_TRUE(RunUntil([&] { return called; }));
  EXPECT_TRUE(absl::IsCancelled(EndOf(talk)));
}

// A blocking read in a callback, behind a task in the inbox, aborted.
TEST_F(StreamProgramTest, ABlockingReadInACallbackFailsTheStreamAlsoBehindAPost) {
  StartStreams();
  Talk talk = chat_->Talk();
  Served& served = NextTalk();
  Data data;
  bool called = false;
  talk.Read(&data, [&](bool) {
    std::thread([&] { talk.WritesDone(); }).join();
    Data more;
    EXPECT_FALSE(talk.Read(&more));
    called = true;
  });
  EXPECT_EQ(served.TryWrite(MakeData(1, 1)), StreamResult::kDone);
  EXPECT_TRUE(RunUntil([&] { return called; }));
  EXPECT_TRUE(absl::IsFailedPrecondition(EndOf(talk)));
}

// A thread that did not drive the engine opened a stream with a context and returned early: the
// task in the inbox used the context. (Seen with --config=asan.)
TEST_F(StreamProgramTest, AStreamThatIsDroppedDoesNotUseItsContext) {
  StartStreams();
  std::thread([&] {
    ClientContext context;
    Talk talk = chat_->Talk({.context = &context});
  }).join();
  NextTalk().Finish(absl::OkStatus());
  network_.Settle();
  EXPECT_EQ(slots_in_use(), 0u);
}

// A channel whose queue takes nothing (max_queued_calls is 0) and that was not connected: calls
// made it connect, streams did not.
TEST_F(StreamProgramTest, StreamsConnectAChannelWithoutAQueue) {
  StartStreamServer();
  ChannelOptions options;
  options.connect_at_once = false;
  options.max_queued_calls = 0;
  OpenChannel(options);
  chat_.emplace(*channel_);
  for (int i = 0; i < 3; ++i) {
    Talk talk = chat_->Talk();
    talk.WritesDone();
    network_.RunFor(kNsPerSec);
  }
  EXPECT_EQ(channel_->stats().connects, 1u);
}
TEST_F(StreamProgramTest, CallsConnectAChannelWithoutAQueue) {
  StartStreamServer();
  ChannelOptions options;
  options.connect_at_once = false;
  options.max_queued_calls = 0;
  OpenChannel(options);
  Outcome outcome;
  stub_->Echo(MakeData(1, 1), &outcome.reply, {}, outcome.Callback());
  network_.RunFor(kNsPerSec);
  EXPECT_EQ(channel_->stats().connects, 1u);
}

// Two streams that write as the header says, TryWrite() and then WhenWritable(), while the
// connection had no room: each was told that it may write, could not because the other one waited,
// and asked again, for ever.
TEST_F(StreamProgramTest, TwoStreamsThatAskWhenTheyMayWriteGetOn) {
  ServerOptions options;
  options.stream_window_messages = 60'000;
  options.stream_window_bytes = 60 << 20;
  StartStreams({}, options);
  constexpr int kMessages = 5000;
  struct Writer {
    explicit Writer(Talk t) : talk(std::move(t)) {}
    void Go() {
      while (written < kMessages) {
        if (talk.TryWrite(data) != StreamResult::kDone) {
          ++refused;
          return talk.WhenWritable([this](bool ok) {
            if (ok) Go();
          });
        }
        ++written;
      }
    }
    Talk talk;
    Data data = MakeData(1, 1000);
    int written = 0;
    int refused = 0;
  };
  Writer a(chat_->Talk());
  Writer b(chat_->Talk());
  NextTalk();
  NextTalk();
  a.Go();
  b.Go();
  EXPECT_GT(a.refused, 0);
  EXPECT_GT(b.refused, 0);
  EXPECT_TRUE(RunUntil([&] { return a.written == kMessages && b.written == kMessages; }));
}

// One that was told that it may write, and had nothing to say, asked again: nothing else ran.
TEST_F(StreamProgramTest, WhoAsksAgainWithoutWritingStopsNobody) {
  StartStreams();
  Talk talk = chat_->Talk();
  NextTalk();
  bool stop = false;
  bool stopped = false;
  int asked = 0;
  std::function<void(bool)> ask = [&](bool) {
    if (asked++ == 0) client().Post([&] { stop = true; });
    if (stop) {
      stopped = true;
      return;
    }
    talk.WhenWritable([&](bool ok) { ask(ok); });
  };
  talk.WhenWritable([&](bool ok) { ask(ok); });
  EXPECT_TRUE(RunUntil([&] { return stopped; }));
}

// A stream that was started while the channel was destroyed ended with CANCELLED, and whoever
// repeats what was cancelled did so for ever.
TEST_F(StreamProgramTest, AStreamThatIsStartedWhileTheChannelGoesSaysSo) {
  StartStreams();
  std::optional<Talk> talk(chat_->Talk());
  NextTalk();
  Data data;
  std::optional<absl::Status> status;
  talk->Read(&data, [&](bool) {
    Talk again = chat_->Talk();
    again.Finish([&](absl::Status ended) { status = std::move(ended); });
  });
  talk.reset();
  channel_.reset();
  ASSERT_TRUE(status.has_value());
  EXPECT_TRUE(absl::IsFailedPrecondition(*status)) << *status;
}

// The end of the channel ran the callbacks of calls first and those of streams then: a call that
// one of these started, by callback, was never heard of again.
TEST_F(StreamProgramTest, ACallThatAStreamsEndStartsAtTheChannelsEndHasItsCallback) {
  StartStreams();
  Data reply;
  int ended = 0;
  std::optional<absl::Status> status;
  {
    Talk talk = chat_->Talk();
    static_cast<void>(NextTalk());
    talk.Finish([&](absl::Status) {
      ++ended;
      stub_->Echo(MakeData(1, 1), &reply, {}, [&](absl::Status end) { status = std::move(end); });
    });
  }
  network_.Kill(server_node_);
  chat_.reset();
  channel_.reset();
  EXPECT_EQ(ended, 1);
  ASSERT_TRUE(status.has_value());
  EXPECT_FALSE(status->ok());
}

// Handles may go inside their own callbacks.
TEST_F(StreamProgramTest, HandlesMayGoInsideTheirCallbacks) {
  StartStreams();
  for (int how = 0; how < 6; ++how) {
    SCOPED_TRACE(how);
    std::optional<Talk> talk(chat_->Talk());
    Served served = std::move(NextTalk());
    Data data;
    Data more;
    int called = 0;
    std::function<void(bool)> next;
    const Data big = MakeData(1, 200'000);
    if (how < 2) {
      talk->Read(&data, [&](bool) {
        ++called;
        talk.reset();
      });
      if (how == 1) talk->Write(big, [&](bool) { ++called; });
      EXPECT_EQ(served.TryWrite(MakeData(1, 1)), StreamResult::kDone);
    } else if (how == 2) {
      talk->Write(big, [&](bool) {
        ++called;
        talk.reset();
      });
      talk->Read(&more, [&](bool) { ++called; });
    } else if (how == 3) {
      talk->Finish([&](absl::Status) {
        ++called;
        talk.reset();
      });
      served.Finish(absl::OkStatus());
    } else if (how == 4) {
      talk->Read(&data, [&](bool) {
        ++called;
        talk->Finish([&](absl::Status) {
          ++called;
          talk.reset();
        });
        served.Finish(absl::OkStatus());
      });
      EXPECT_EQ(served.TryWrite(MakeData(1, 1)), StreamResult::kDone);
    } else {
      // The reader reads in its callback, and goes at the end.
      next = [&](bool ok) {
        ++called;
        if (!ok) return talk.reset();
        talk->Read(&data, [&](bool again) { next(again); });
      };
      talk->Read(&data, [&](bool ok) { next(ok); });
      for (int i = 0; i < 3; ++i) served.TryWrite(MakeData(1, 1));
      served.Finish(absl::OkStatus());
    }
    EXPECT_TRUE(RunUntil([&] { return called > 0 && !talk; }));
    if (how != 3 && how != 4 && how != 5) served.Finish(absl::OkStatus());
    network_.Settle();
    served_.clear();
    EXPECT_EQ(called, how == 0 ? 1 : how == 1 ? 2 : how == 2 ? 2 : how == 3 ? 1 : how == 4 ? 2 : 4);
    EXPECT_EQ(slots_in_use(), 0u);
    EXPECT_EQ(server_->stats().running, 0u);
    EXPECT_EQ(held_at_server(), 0u);
  }
}

// A reply that came in the turn in which the handle went was written where it had been. (Seen with
// --config=asan.)
TEST_F(StreamClientTest, AStreamThatIsDroppedDoesNotUseItsReply) {
  Begin();
  const CallId talk = OpenTalk();
  acceptor_.peer.received.clear();
  auto reply = std::make_unique<Data>();
  std::optional<ClientWriter<Data>> sum(chat_->Sum(reply.get()));
  EXPECT_TRUE(RunUntil([&] { return !acceptor_.peer.received.empty(); }));
  const CallId id = CallIdOf(acceptor_.peer.received[0]);
  Data data;
  bool called = false;
  talk_->Read(&data, [&](bool) {
    std::thread([&] {
      sum.reset();
      reply.reset();
    }).join();
    called = true;
  });
  SendTogether(peer(), {ToOpener(Message(talk, 0, Encoded(1, 1))),
                        ToOpener(Message(id, 0, Encoded(2, 100)))});
  EXPECT_TRUE(RunUntil([&] { return called; }));
  network_.Settle();
}

}  // namespace
}  // namespace weft::test
