// Sessions of an older build over tcp, recorded as bytes on both sockets, against this build: its
// client's bytes are played to today's server, and its server's to today's client. A change of the
// handshake, of leases, of the tcp link, of batches or of calls that breaks that build breaks one
// of these. rpc/testing/wire_recording.h says what a recording is and what has to be equal,
// docs/wire_format.md, "Recorded sessions", how to make the next ones.
//
// recorded_session_test.cc has the same of frames of calls alone, over the simulated network.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "core/strings.h"
#include "rpc/client/bulk_call.h"
#include "rpc/client/channel.h"
#include "rpc/client/channel_watch.h"
#include "rpc/client/client_context.h"
#include "rpc/memory/remote_memory.h"
#include "rpc/server/server.h"
#include "rpc/testing/recorded_service.h"
#include "rpc/testing/wire_recording.h"
#include "rpc/wire/metadata.h"
#include "transport/buffer.h"
#include "transport/exports.h"
#include "transport/network.h"

namespace weft::test {
namespace {

using recorded::Cargo;
using recorded::Field;
using recorded::Line;

// The builds whose sessions are in rpc/recorded/BUILD.SESSION.wire, all of these of each.
const char* const kBuilds[] = {"2026-11-28"};
const char* const kSessions[] = {"calls", "large", "memory", "once", "streams", "peers", "goaway"};

Line Text(const std::string& text) {
  Line line;
  line.set_text(text);
  return line;
}

// How a call ended.
template <class Reply>
struct Ended {
  Reply reply;
  std::optional<absl::Status> status;
  Function<void(absl::Status)> Callback() {
    return [this](absl::Status ended) { status = std::move(ended); };
  }
};

// A client and a server on one thread, each on an engine of its own; where a session is played, one
// of the two. Nothing happens by time: nobody beats, and no lease is as short as the test.
class RecordedWireTest : public testing::TestWithParam<std::tuple<const char*, const char*>> {
 protected:
  void SetUp() override {
    client_engine_ = NewEngine();
    server_engine_ = NewEngine();
  }
  void TearDown() override {
    between_ = nullptr;
    stub_.reset();
    channel_.reset();
    calling_server_.reset();
    back_.reset();
    if (shutdown_.joinable()) {
      while (!is_shut_down_) server_engine_->Poll();
      shutdown_.join();
    }
    service_.field.reset();
    server_.reset();
  }

  static std::unique_ptr<Engine> NewEngine() {
    EngineOptions options;
    options.drive = EngineOptions::Drive::kExternal;
    return *OpenNetworkEngine(options);
  }
  static LinkOptions OverTcp() {
    LinkOptions link;
    link.paths = {PathKind::kTcp};
    link.connect_timeout_ns = 50'000'000'000;
    link.path_timeout_ns = 25'000'000'000;
    link.peer_timeout_ns = 0;
    link.transfer_timeout_ns = 0;
    return link;
  }
  static std::string Session() { return std::get<1>(GetParam()); }
  static bool Is(std::string_view session) { return Session() == session; }
  static std::vector<WireUnit> Recorded() {
    return ReadWireRecording(
        StrCat("rpc/recorded/", std::get<0>(GetParam()), ".", Session(), ".wire"));
  }

  // Turns of both engines, and of what is between them, until `done`.
  bool RunUntil(const std::function<bool()>& done) {
    const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!done()) {
      client_engine_->Poll();
      server_engine_->Poll();
      if (between_) between_();
      if (HasFailure() || std::chrono::steady_clock::now() > give_up) return false;
    }
    return true;
  }

  void Serve() {
    ServerOptions options;
    options.link = OverTcp();
    options.session_lease_us = 3'600'000'000;
    if (Is("peers")) options.peer_id = "server";
    server_ = *Server::Create(*server_engine_, options);
    ASSERT_TRUE(server_->AddService(&service_).ok());
    ASSERT_TRUE(server_->Listen("127.0.0.1:0").ok());
    if (Is("memory")) {
      auto field = server_->Export(field_, {.rights = kAllRights});
      ASSERT_TRUE(field.ok()) << field.status();
      service_.field = *std::move(field);
    }
    if (!Is("peers")) return;
    ChannelOptions back;
    back.link = OverTcp();
    auto channel = server_->OpenPeer("client", "", back);
    ASSERT_TRUE(channel.ok()) << channel.status();
    back_ = *std::move(channel);
    // The first that asks is asked.
    service_.after_echo = [this] {
      if (service_.echoes > 1) return;
      recorded::Recorded::Stub(*back_).Echo(Text("what is it"), &asked_back_.reply, {},
                                            asked_back_.Callback());
    };
  }

  // Tells its clients to leave. On a thread, because it waits for them; they hear of it from here.
  void StartShutdown() {
    shutdown_ = std::thread([this] {
      server_->Shutdown(/*grace_us=*/20'000'000);
      is_shut_down_ = true;
    });
  }

  void OpenAt(const std::string& address) {
    ChannelOptions options;
    options.connect_at_once = false;
    options.link = OverTcp();
    if (Is("once")) {
      options.retry.max_attempts = 2;
      options.retry.exactly_once = true;
    }
    if (Is("peers")) {
      ServerOptions own;
      own.link = OverTcp();
      own.peer_id = "client";
      calling_server_ = *Server::Create(*client_engine_, own);
      ASSERT_TRUE(calling_server_->AddService(&calling_service_).ok());
      auto channel = calling_server_->OpenPeer("server", address, options);
      ASSERT_TRUE(channel.ok()) << channel.status();
      channel_ = *std::move(channel);
      ASSERT_TRUE(RunUntil([this] { return channel_->state() == ChannelState::kReady; }));
    } else {
      auto channel = Channel::Open(*client_engine_, address, options);
      ASSERT_TRUE(channel.ok()) << channel.status();
      channel_ = *std::move(channel);
    }
    stub_.emplace(*channel_);
  }

  // --- what the client does in a session --------------------------------------------------------

  // `sent()`: how much of the client has been seen on the wire.
  void PlayClient(const std::function<size_t()>& sent) {
    if (Is("calls")) Calls(sent);
    if (Is("large")) Large();
    if (Is("memory")) Memory();
    if (Is("once")) Once();
    if (Is("streams")) Streams();
    if (Is("peers")) Peers();
    if (Is("goaway")) Goaway();
  }
  // Its end, which says Bye; but not of peers', where the channel's end is not the connection's.
  void EndClient() {
    if (Is("peers")) return;
    stub_.reset();
    channel_.reset();
  }

  absl::Status Echo(const Line& line, std::string* reply = nullptr,
                    const CallOptions& options = {}) {
    Ended<Line> ended;
    stub_->Echo(line, &ended.reply, options, ended.Callback());
    EXPECT_TRUE(RunUntil([&] { return ended.status.has_value(); }));
    if (reply != nullptr) *reply = ended.reply.text();
    return ended.status.value_or(absl::UnknownError("it has not ended"));
  }
  void ExpectEcho(const std::string& text) {
    std::string reply;
    EXPECT_EQ(Echo(Text(text), &reply), absl::OkStatus());
    EXPECT_EQ(reply, text);
  }

  void Calls(const std::function<size_t()>& sent) {
    ExpectEcho("first");
    Line wrong = Text("no record has this key");
    wrong.set_fails(true);
    EXPECT_EQ(Echo(wrong), absl::NotFoundError("no record has this key"));

    ClientContext context;
    ASSERT_TRUE(context.AddMetadata("tenant", "forty-two").ok());
    ASSERT_TRUE(context.SetAttachment(absl::Cord("beside it")).ok());
    EXPECT_EQ(Echo(Text("with more"), nullptr, {.timeout_us = 600'000'000, .context = &context}),
              absl::OkStatus());
    EXPECT_EQ(context.reply_attachment(), "beside it");
    ASSERT_NE(context.reply_metadata().Find("tenant"), nullptr);
    EXPECT_EQ(*context.reply_metadata().Find("tenant"), "forty-two");

    std::optional<absl::Status> noted;
    stub_->Note(Text("one way"), {}, [&](absl::Status status) { noted = std::move(status); });
    ASSERT_TRUE(RunUntil([&] { return noted.has_value(); }));
    EXPECT_EQ(*noted, absl::OkStatus());
    ExpectEcho("behind it");

    ClientContext cancel;
    Ended<Line> held;
    const size_t before = sent();
    stub_->Hold(Text("held"), &held.reply, {.context = &cancel}, held.Callback());
    ASSERT_TRUE(RunUntil([&] { return sent() > before; }));
    EXPECT_EQ(cancel.Cancel(), absl::OkStatus());
    // Its slot is free again when the server's answer has come.
    ASSERT_TRUE(RunUntil([&] { return held.status && channel_->stats().outstanding == 0; }));
    EXPECT_TRUE(absl::IsCancelled(*held.status));

    EXPECT_EQ(Echo(Text("the last"), nullptr, {.priority = Priority::kControl}), absl::OkStatus());
  }

  // Batches of their own, messages that their receiver fetches, and payloads that the server moves.
  void Large() {
    ExpectEcho(std::string(20'000, 'a'));
    ExpectEcho(std::string(100'000, 'b'));

    std::string sent(10'000, 'c');
    std::string received(10'000, ' ');
    {
      const auto from = Buffer::Of(*client_engine_, MutableBytes(&sent));
      const auto into = Buffer::Of(*client_engine_, MutableBytes(&received));
      BulkCall bulk(*channel_);
      Cargo cargo;
      bulk.Send(from->slice(), cargo.mutable_data());
      bulk.Receive(into->slice());
      Ended<Cargo> swapped;
      stub_->Swap(cargo, &swapped.reply, {.bulk = &bulk}, swapped.Callback());
      ASSERT_TRUE(RunUntil([&] { return swapped.status.has_value(); }));
      EXPECT_EQ(*swapped.status, absl::OkStatus());
      EXPECT_TRUE(bulk.Received(swapped.reply.data()).ok());
    }
    EXPECT_EQ(received, sent);
  }

  // A handle, a lease, and all that it is good for.
  void Memory() {
    Ended<Field> lent;
    stub_->Lend(Text("please"), &lent.reply, {}, lent.Callback());
    ASSERT_TRUE(RunUntil([&] { return lent.status.has_value(); }));
    ASSERT_EQ(*lent.status, absl::OkStatus());
    auto memory =
        *RemoteMemory::Open(*channel_, lent.reply.memory(),
                            {.lease_us = 60'000'000, .timeout_us = 0, .resolve_at_once = false});
    std::string local(2'000, 'w');
    {
      const auto buffer = Buffer::Of(*client_engine_, MutableBytes(&local));
      const RemotePiece pieces[] = {{64, buffer->slice(0, 1'000)}};
      EXPECT_EQ(EndOf([&](auto done) { memory->WriteAcknowledged(pieces, std::move(done)); }),
                absl::OkStatus());
      std::fill(local.begin(), local.end(), ' ');
      EXPECT_EQ(
          EndOf([&](auto done) { memory->Read(64, buffer->slice(1'000, 1'000), std::move(done)); }),
          absl::OkStatus());
      EXPECT_EQ(local, std::string(1'000, ' ') + std::string(1'000, 'w'));
      std::optional<absl::StatusOr<uint64_t>> before;
      const auto keep = [&](absl::StatusOr<uint64_t> was) { before = std::move(was); };
      memory->FetchAdd(8, 5, keep);
      ASSERT_TRUE(RunUntil([&] { return before.has_value(); }));
      EXPECT_TRUE(before->ok() && **before == 0);
      before.reset();
      memory->CompareSwap(8, 5, 7, keep);
      ASSERT_TRUE(RunUntil([&] { return before.has_value(); }));
      EXPECT_TRUE(before->ok() && **before == 5);
      memory.reset();  // gives the lease back
    }
    ExpectEcho("done with it");
  }

  // Calls with names, in a session that the server opens and the client ends.
  void Once() {
    ExpectEcho("once");
    ExpectEcho("and once more");
  }

  void Streams() {
    ExpectEcho("a call first");
    auto talk = stub_->Talk();
    Line line;
    for (const char* const text : {"one", "two", "three"}) {
      ASSERT_TRUE(RunUntil([&] { return talk.TryWrite(Text(text)) == StreamResult::kDone; }));
      ASSERT_TRUE(RunUntil([&] { return talk.TryRead(&line) == StreamResult::kDone; }));
      EXPECT_EQ(line.text(), text);
    }
    // Larger than the window, and than a batch.
    const Line large = Text(std::string(100'000, 'd'));
    ASSERT_TRUE(RunUntil([&] { return talk.TryWrite(large) == StreamResult::kDone; }));
    ASSERT_TRUE(RunUntil([&] { return talk.TryRead(&line) == StreamResult::kDone; }));
    EXPECT_EQ(line.text(), large.text());
    talk.WritesDone();
    EXPECT_EQ(EndOf([&](auto done) { talk.Finish(std::move(done)); }), absl::OkStatus());
  }

  // Each calls the other, on the connection of the one that has dialed.
  void Peers() {
    ExpectEcho("who is there");
    ASSERT_TRUE(RunUntil([this] { return calling_service_.echoes == 1; }));
    ExpectEcho("again");
  }

  // It leaves when it is told to.
  void Goaway() {
    ExpectEcho("before");
    if (server_ != nullptr) StartShutdown();
    EXPECT_TRUE(RunUntil([this] { return channel_->state() != ChannelState::kReady; }));
  }

  template <class Start>
  absl::Status EndOf(Start start) {
    std::optional<absl::Status> ended;
    start([&ended](absl::Status status) { ended = std::move(status); });
    EXPECT_TRUE(RunUntil([&] { return ended.has_value(); }));
    return ended.value_or(absl::UnknownError("it has not ended"));
  }
  static MutableByteSpan MutableBytes(std::string* bytes) {
    return {reinterpret_cast<std::byte*>(bytes->data()), bytes->size()};
  }

  // What uses an engine goes before it, and outlives what calls it.
  std::unique_ptr<Engine> client_engine_;
  std::unique_ptr<Engine> server_engine_;
  std::function<void()> between_;  // a tape's or a player's turn
  std::vector<std::byte> field_ = std::vector<std::byte>(4096);
  RecordedService service_;
  RecordedService calling_service_;  // of the peer that dials
  std::unique_ptr<Server> server_;
  std::unique_ptr<Server> calling_server_;
  std::unique_ptr<Channel> back_;
  Ended<Line> asked_back_;
  std::unique_ptr<Channel> channel_;
  std::optional<recorded::Recorded::Stub> stub_;
  std::thread shutdown_;
  std::atomic<bool> is_shut_down_ = false;
};

// WEFT_RECORD=PREFIX: writes the recording of this build to PREFIX.SESSION.wire.
TEST_P(RecordedWireTest, ASessionIsRecorded) {
  Serve();
  WireTape tape(server_->address());
  between_ = [&tape] { tape.Turn(); };
  OpenAt(tape.address());
  if (HasFatalFailure()) return;
  PlayClient([&tape] { return tape.units_of_client(); });
  if (Is("peers")) {
    ASSERT_TRUE(RunUntil([this] { return asked_back_.status.has_value(); }));
  }
  EndClient();
  ASSERT_TRUE(RunUntil([&] { return Is("peers") || tape.is_over(); }));
  const char* const prefix = std::getenv("WEFT_RECORD");
  if (prefix != nullptr && !HasFailure()) {
    std::ofstream(StrCat(prefix, ".", Session(), ".wire")) << tape.text();
  }
}

TEST_P(RecordedWireTest, TodaysServerUnderstandsTheOldClient) {
  Serve();
  const auto old = WirePlayer::AsClient(Recorded(), server_->address());
  between_ = [&old] { old->Turn(); };
  if (Is("goaway")) {
    ASSERT_TRUE(RunUntil([this] { return server_->stats().replies_ok == 1; })) << old->place();
    StartShutdown();
  }
  EXPECT_TRUE(RunUntil([&old] { return old->is_done(); })) << old->place();
  EXPECT_EQ(server_->stats().protocol_errors, 0u);
  if (Is("calls")) {
    EXPECT_EQ(service_.notes, std::vector<std::string>{"one way"});
  }
  if (Is("peers")) {
    EXPECT_TRUE(RunUntil([this] { return asked_back_.status.has_value(); }));
    EXPECT_EQ(asked_back_.reply.text(), "what is it");
  } else {
    EXPECT_TRUE(RunUntil([this] { return server_->stats().connections == 0; }));
  }
}

TEST_P(RecordedWireTest, TodaysClientUnderstandsTheOldServer) {
  const auto old = WirePlayer::AsServer(Recorded());
  between_ = [&old] { old->Turn(); };
  OpenAt(old->address());
  if (HasFatalFailure()) return;
  PlayClient([&old] { return old->heard(); });
  EndClient();
  EXPECT_TRUE(RunUntil([&old] { return old->is_done(); })) << old->place();
}

INSTANTIATE_TEST_SUITE_P(Of, RecordedWireTest,
                         testing::Combine(testing::ValuesIn(kBuilds), testing::ValuesIn(kSessions)),
                         [](const auto& info) {
                           std::string name =
                               StrCat(std::get<1>(info.param), "_", std::get<0>(info.param));
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace weft::test
