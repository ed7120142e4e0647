// Streams at a server whose clients, and whose handlers, choose the worst moment: each test was a
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

size_t AllocatedBytes() {
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

// --- hostile clients -----------------------------------------------------------------------------

class StreamServerTest : public StreamTest {
 protected:
  ~StreamServerTest() override {
    served_.clear();
    streams_.talks.clear();
    if (peer_.connection != nullptr) peer_.connection->Close("done");
    network_.Settle();
  }
  void Dial(uint32_t max_reply_bytes = 1000) { Dial(peer_, client(), max_reply_bytes); }
  void Dial(RawPeer& peer, EngineCore& engine, uint32_t max_reply_bytes = 1000) {
    rpc::ClientHello hello;
    hello.set_protocol(kRpcProtocolVersion);
    hello.set_max_outstanding_calls(4);
    hello.set_max_reply_bytes(max_reply_bytes);
    hello.set_max_streams(1000);
    hello.set_stream_window_messages(2);
    hello.set_stream_window_bytes(500);
    peer.DialWith(engine.transport(), hello);
    ASSERT_TRUE(RunUntil([&] { return peer.connection != nullptr; }));
  }
  // As the header allows: the handler finishes when it is told of a cancel.
  void FinishOnCancel() {
    streams_.look = [this](ServerContext& context) {
      context.OnCancel([this] {
        if (streams_.talks.empty()) return;
        Served talk = std::move(streams_.talks.front());
        streams_.talks.pop_front();
        talk.Finish(absl::CancelledError("as I was told"));
      });
    };
  }
  // Another client, which has done nothing wrong, talks.
  void AnInnocentTalks() {
    streams_.look = nullptr;
    Talk talk = chat_->Talk();
    Served& served = NextTalk();
    for (uint64_t i = 1; i <= 3; ++i) {
      EXPECT_EQ(talk.TryWrite(MakeData(i, 10)), StreamResult::kDone);
      network_.Settle();
      EXPECT_EQ(TryRead(served), std::to_string(i));
      EXPECT_EQ(TryRead(served), "-") << "a message that nobody has sent";
    }
    served.Finish(absl::OkStatus());
    EXPECT_TRUE(EndOf(talk).ok());
  }

  RawPeer peer_;
};

// A message that had overtaken others was kept by a stream that had just failed for want of space,
// was finished by its handler, and had left the connection: the next stream of that call found it.
TEST_F(StreamServerTest, AnOvertakingMessageWithoutSpaceLeavesNothingToTheNextStream) {
  ServerOptions options;
  options.max_running_bytes = 1000;
  StartStreams({}, options);
  Dial();
  FinishOnCancel();
  peer_.Send(Open({0, 1}, kTalk));
  network_.Settle();
  peer_.Send(Message({0, 1}, 1, Encoded(9, 1500)));
  network_.Settle();
  EXPECT_EQ(server_->stats().running, 0u);
  AnInnocentTalks();
}

// The same of one that came into order behind another: the queue had been emptied meanwhile, and
// its count went below zero.
TEST_F(StreamServerTest, AMessageThatFailsBehindOneThatWasOvertakenHarmsNobody) {
  ServerOptions options;
  options.max_running_bytes = 1000;
  StartStreams({}, options);
  Dial();
  FinishOnCancel();
  peer_.Send(Open({0, 1}, kTalk));
  network_.Settle();
  peer_.Send(Message({0, 1}, 1, Encoded(9, 600)));
  network_.Settle();
  peer_.Send(Message({0, 1}, 0, Encoded(8, 10)));
  network_.Settle();
  streams_.talks.clear();
  network_.Settle();
  EXPECT_EQ(server_->stats().running, 0u);
  AnInnocentTalks();
}

// What had been overtaken was counted twice while it moved to the reader's queue.
TEST_F(StreamServerTest, WhatFitsIsNotCountedTwice) {
  ServerOptions options;
  options.max_running_bytes = 2000;
  StartStreams({}, options);
  Dial();
  peer_.Send(Open({0, 1}, kTalk));
  peer_.Send(Message({0, 1}, 1, Encoded(9, 600)));
  network_.Settle();
  peer_.Send(Message({0, 1}, 0, Encoded(8, 10)));
  network_.Settle();
  Served& served = NextTalk();
  EXPECT_EQ(TryRead(served), "8");
  EXPECT_EQ(TryRead(served), "9");
}

// The same, made use of: what a client has written into the queue before is taken for the
// queue's own numbers and lengths, by the next stream. (Seen with --config=asan.)
TEST_F(StreamServerTest, WhatAClientSendsIsNeverTakenForALength) {
  ServerOptions options;
  options.max_running_bytes = 130'000;
  options.stream_window_bytes = 200'000;
  StartStreams({}, options);
  Dial();
  FinishOnCancel();
  peer_.Send(Open({0, 1}, kTalk));
  network_.Settle();
  // Of the third message, which fails for want of space; the next stream finds the entry behind it.
  std::string third = Encoded(9, 55'000);
  while (third.size() % 8 != 6) third = Encoded(9, third.size() - 5);
  // {number 4, 100,000 bytes}, again and again.
  Data entries;
  entries.set_number(9);
  for (int i = 0; i < 7500; ++i) {
    entries.mutable_payload()->append(std::string("\4\0\0\0\xA0\x86\1\0", 8));
  }
  peer_.Send(Message({0, 1}, 1, entries.SerializeAsString()));
  network_.Settle();
  peer_.Send(Message({0, 1}, 0, Encoded(8, 10)));
  network_.Settle();
  EXPECT_EQ(TryRead(streams_.talks.front()), "8");
  EXPECT_EQ(TryRead(streams_.talks.front()), "9");
  peer_.Send(Message({0, 1}, 3, third));
  network_.Settle();
  peer_.Send(Message({0, 1}, 2, Encoded(8, 30'000)));
  network_.Settle();
  Bytes cancel(kCallHeaderBytes);
  EncodeStreamCancel({0, 1}, cancel.data());
  peer_.Send(cancel);  // stale, if it has failed
  network_.Settle();
  streams_.look = nullptr;
  peer_.Send(Open({0, 3}, kTalk));
  for (uint32_t i = 0; i < 3; ++i) peer_.Send(Message({0, 3}, i, Encoded(i, 1)));
  network_.Settle();
  Served& served = NextTalk();
  for (uint32_t i = 0; i < 3; ++i) EXPECT_EQ(TryRead(served), std::to_string(i));
  EXPECT_EQ(TryRead(served), "-");
  EXPECT_EQ(held_at_server(), 0u);
}

class StreamHandlerTest : public RpcTest {
 protected:
  using Served = OwnService::Served;
  void Begin() {
    server_ = *Server::Create(server_engine(), ServerOptions());
    ASSERT_TRUE(server_->AddService(&own_).ok());
    ASSERT_TRUE(server_->Listen("sim:server").ok());
    rpc::ClientHello hello;
    hello.set_protocol(kRpcProtocolVersion);
    hello.set_max_outstanding_calls(4);
    hello.set_max_reply_bytes(1000);
    hello.set_max_streams(100);
    hello.set_stream_window_messages(2);
    hello.set_stream_window_bytes(500);
    peer_.DialWith(client().transport(), hello);
    ASSERT_TRUE(RunUntil([&] { return peer_.connection != nullptr; }));
  }
  ~StreamHandlerTest() override {
    talks_.clear();
    if (peer_.connection != nullptr) peer_.connection->Close("done");
    network_.Settle();
  }
  // Keeps the stream; one that is cancelled is finished.
  Served& Keep(Served stream) {
    const size_t i = talks_.size();
    stream.context().OnCancel([this, i] {
      Served talk = std::move(*talks_[i]);
      talks_[i].reset();
      talk.Finish(absl::CancelledError("as I was told"));
    });
    talks_.emplace_back(std::move(stream));
    return *talks_.back();
  }

  OwnService own_;
  RawPeer peer_;
  std::deque<std::optional<Served>> talks_;
  Data data_[4];
  int called_ = 0;
};

// A Read() with a callback found a message that cannot be decoded, which failed the stream; its
// OnCancel() finished it, and its call was free. Then Read() stored its callback there.
TEST_F(StreamHandlerTest, AReadThatFailsAStreamWhoseHandlerFinishesIt) {
  Begin();
  own_.on_talk = [&](Served stream) {
    const size_t i = talks_.size();
    Served& kept = Keep(std::move(stream));
    if (i == 0) return;  // reads when the other one has got something
    if (i == 1) {
      return kept.Read(&data_[1], [&](bool) {
        talks_[0]->Read(&data_[0], [&](bool ok) { called_ += ok ? 100 : 1; });
      });
    }
    kept.Read(&data_[2], [&](bool) {});
  };
  peer_.Send(Open({0, 1}, 0));
  peer_.Send(Open({1, 1}, 0));
  peer_.Send(Message({0, 1}, 0, "\xFF\xFF"));
  network_.Settle();
  ASSERT_EQ(talks_.size(), 2u);
  SendTogether(peer_, {Message({1, 1}, 0, Encoded(1, 1)), Open({2, 1}, 0)});
  network_.Settle();
  EXPECT_EQ(called_, 1);
  EXPECT_EQ(talks_.size(), 3u);
}

// The same of Stream::Write(): a chat whose one member takes small messages only.
TEST_F(StreamHandlerTest, AWriteThatFailsAStreamWhoseHandlerFinishesIt) {
  Begin();
  own_.on_talk = [&](Served stream) {
    const size_t i = talks_.size();
    Served& kept = Keep(std::move(stream));
    if (i == 0) return;
    if (i == 1) {
      return kept.Read(&data_[1], [&](bool) {
        data_[0] = MakeData(1, 2000);  // more than max_reply_bytes
        talks_[0]->Write(data_[0], [&](bool ok) { called_ += ok ? 100 : 1; });
      });
    }
    data_[2] = MakeData(1, 1);
    kept.Write(data_[2], [&](bool) {});
  };
  peer_.Send(Open({0, 1}, 0));
  peer_.Send(Open({1, 1}, 0));
  network_.Settle();
  ASSERT_EQ(talks_.size(), 2u);
  SendTogether(peer_, {Message({1, 1}, 0, Encoded(1, 1)), Open({2, 1}, 0)});
  network_.Settle();
  EXPECT_EQ(called_, 1);
  EXPECT_EQ(talks_.size(), 3u);
}

// A client with two streams went. The handler of the first was told, and wrote to the second, whose
// connection was gone without its knowledge.
TEST_F(StreamHandlerTest, AHandlerThatIsToldOfALossWritesToAnotherStreamOfThatClient) {
  Begin();
  own_.on_talk = [&](Served stream) {
    talks_.emplace_back(std::move(stream));
    if (talks_.size() > 1) return;
    talks_[0]->context().OnCancel([&] {
      ++called_;
      EXPECT_NE(talks_[1]->TryWrite(MakeData(1, 1)), StreamResult::kDone);
    });
  };
  peer_.Send(Open({0, 1}, 0));
  peer_.Send(Open({1, 1}, 0));
  network_.Settle();
  ASSERT_EQ(talks_.size(), 2u);
  peer_.connection->Close("gone");
  network_.Settle();
  EXPECT_EQ(called_, 1);
}

// The only request of a stream was bounded by nothing.
TEST_F(StreamServerTest, TheOnlyRequestOfAStreamIsBounded) {
  ServerOptions options;
  options.max_request_bytes = 10'000;
  options.max_running_bytes = 100'000;
  StartStreams({}, options);
  Dial();
  Size size;
  size.set_bytes(100);  // more than the peer gives credit for: the handler keeps its request
  std::string request = size.SerializeAsString();
  request += std::string("\x7a\xc0\x84\x3d", 4) + std::string(1'000'000, 'x');  // an unknown field
  const size_t before = AllocatedBytes();
  for (uint32_t i = 0; i < 30; ++i) {
    peer_.Send(Open({i, 1}, kCount));
    peer_.Send(Message({i, 1}, 0, request, kLastMessage));
    network_.Settle();
  }
  ASSERT_NE(peer_.connection, nullptr) << peer_.why;
  EXPECT_EQ(server_->stats().running, 0u) << "handlers run on requests that are too large";
  EXPECT_LT(AllocatedBytes() - before, 10'000'000u)
      << "held, of which running_bytes says " << held_at_server();
  peer_.connection->Close("done");
  network_.Settle();
  EXPECT_EQ(server_->stats().running, 0u);
  EXPECT_LT(AllocatedBytes() - before, 10'000'000u) << "kept by free calls";
}

// What was held once and read stayed allocated, in each stream and in each free call.
TEST_F(StreamServerTest, WhatWasReadIsNotKept) {
  ServerOptions options;
  options.max_running_bytes = 6 << 20;
  StartStreams({}, options);
  Dial();
  const std::string big = Encoded(1, 2 << 20);
  size_t before = 0;
  for (uint32_t i = 0; i < 40; ++i) {
    if (i == 2) before = AllocatedBytes();
    peer_.Send(Open({i, 1}, kTalk));
    peer_.Send(Message({i, 1}, 0, big));
    network_.Settle();
    Served& served = NextTalk();
    Data data;
    EXPECT_EQ(served.TryRead(&data), StreamResult::kDone);
    EXPECT_EQ(held_at_server(), 0u);
  }
  EXPECT_LT(AllocatedBytes() - before, 10u << 20) << "with 40 idle streams";
  served_.clear();
  network_.Settle();
  EXPECT_EQ(server_->stats().running, 0u);
  EXPECT_LT(AllocatedBytes() - before, 10u << 20) << "with no stream at all";
}

// One client could take all that the server holds, as long as it liked.
TEST_F(StreamServerTest, OneClientDoesNotTakeAll) {
  ServerOptions options;
  options.stream_window_bytes = 20'000;
  options.max_running_bytes = 200'000;  // the default has the same relation: streams x window
  options.max_request_bytes = 20'000;
  options.max_streams = 10;
  StartStreams({}, options);
  Dial(peer_, CoreOf(network_.Node("hostile")));
  for (uint32_t i = 0; i < 10; ++i) {
    peer_.Send(Open({i, 1}, kTalk));
    peer_.Send(Message({i, 1}, 0, Encoded(1, 19'900)));
  }
  network_.Settle();
  EXPECT_EQ(server_->stats().running, 10u);
  EXPECT_GT(held_at_server(), 80'000u);
  Data reply;
  const absl::Status status = stub_->Echo(MakeData(1, 200), &reply);
  EXPECT_TRUE(status.ok()) << status;
}

// Two connections of one client could.
TEST_F(StreamServerTest, NorDoItsConnectionsTogether) {
  ServerOptions options;
  options.stream_window_bytes = 20'000;
  options.max_running_bytes = 200'000;
  options.max_request_bytes = 20'000;
  options.max_streams = 10;
  StartStreams({}, options);
  std::deque<RawPeer> peers(3);
  for (RawPeer& peer : peers) {
    Dial(peer, CoreOf(network_.Node("hostile")));
    for (uint32_t i = 0; i < 10; ++i) {
      peer.Send(Open({i, 1}, kTalk));
      peer.Send(Message({i, 1}, 0, Encoded(1, 19'900)));
    }
    network_.Settle();
  }
  EXPECT_GT(held_at_server(), 80'000u);
  EXPECT_LE(held_at_server(), 100'000u);
  Data reply;
  const absl::Status status = stub_->Echo(MakeData(1, 200), &reply);
  EXPECT_TRUE(status.ok()) << status;
  streams_.talks.clear();
  for (RawPeer& peer : peers) peer.connection->Close("done");
  network_.Settle();
  EXPECT_EQ(held_at_server(), 0u);
}

// The deadline of a stream whose only request did not come was watched by nobody.
TEST_F(StreamServerTest, AStreamWithoutItsRequestEndsAtItsDeadline) {
  StartStreams();
  Dial();
  Bytes open = Open({0, 1}, kCount);
  StoreLe32(open.data() + 12, 1000);  // 1 ms
  peer_.Send(open);
  EXPECT_TRUE(network_.RunUntil([&] { return !peer_.received.empty(); }, kNsPerSec));
  EXPECT_EQ(server_->stats().running, 0u);
}

}  // namespace
}  // namespace weft::test
