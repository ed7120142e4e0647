// Sessions of an older build, recorded as frames of calls, against this build: its client's frames
// are played to today's server, and its server's frames to today's client. A change of the wire
// that breaks that version breaks one of these. docs/wire_format.md, "Recorded sessions", says what
// is in a recording, and how to make the next one. recorded_wire_test.cc has what is below calls,
// and more of them.
//
// A recording is a text of lines:  # words  |  client HEX  |  server HEX  |  > HEX  |  < HEX
// hellos, and frames from the client and from the server, in the order in which the one was sent
// and the other had come; bytes as in rpc/testing/recording_text.h.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "core/strings.h"
#include "rpc/client/client_context.h"
#include "rpc/testing/raw_peer.h"
#include "rpc/testing/recording_text.h"
#include "rpc/testing/stream_test.h"
#include "rpc/wire/frame.h"
#include "weft/status.h"

namespace weft::test {
namespace {

constexpr char kRecording[] = "rpc/recorded/2026-11-28.session";

struct Line {
  std::string kind;
  Bytes bytes;
};

Bytes BytesOf(const std::string& text) {
  const auto* const begin = reinterpret_cast<const std::byte*>(text.data());
  return {begin, begin + text.size()};
}
std::string StringOf(const Bytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
std::string Text(const Bytes& bytes) { return TextOfBytes(StringOf(bytes)); }

std::vector<Line> ReadRecording(const std::string& path) {
  std::vector<Line> lines;
  std::ifstream file(path);
  EXPECT_TRUE(file.good()) << "cannot read " << path;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    const size_t blank = line.find(' ');
    lines.push_back({line.substr(0, blank), BytesOf(BytesOfText(line.substr(blank + 1)))});
  }
  return lines;
}

// What a deadline leaves of its time is another number each time.
Bytes WithoutTime(Bytes frame) {
  if ((CallFrameKindOf(frame) & 0xFF) == static_cast<uint16_t>(CallFrameKind::kRequest)) {
    StoreLe32(frame.data() + 12, 0);
  }
  return frame;
}

class RecordedSessionTest : public StreamTest {
 protected:
  // One session, as a program has it: each step starts something, and ends before the next.
  // `run(done)` runs until that; `sent()` frames have left the client.
  void PlayClient(const std::function<bool(Function<bool()>)>& run,
                  const std::function<size_t()>& sent) {
    Outcome echo, failed, metadata, cancelled, large;
    stub_->Echo(MakeData(7, 100), &echo.reply, {}, echo.Callback());
    ASSERT_TRUE(run([&] { return echo.done(); }));
    EXPECT_EQ(*echo.status, absl::OkStatus());
    EXPECT_EQ(echo.reply.payload(), MakeData(7, 100).payload());

    Failure failure;
    failure.set_code(static_cast<int>(absl::StatusCode::kNotFound));
    failure.set_text("no record has this key");
    stub_->Fail(failure, &failed.reply, {}, failed.Callback());
    ASSERT_TRUE(run([&] { return failed.done(); }));
    EXPECT_EQ(*failed.status, absl::NotFoundError("no record has this key"));

    ClientContext context;
    ASSERT_TRUE(context.AddMetadata("tenant", "forty-two").ok());
    stub_->Echo(MakeData(8, 10), &metadata.reply, {.timeout_us = 1'000'000, .context = &context},
                metadata.Callback());
    ASSERT_TRUE(run([&] { return metadata.done(); }));
    EXPECT_EQ(*metadata.status, absl::OkStatus());

    ClientContext cancel;
    const size_t before = sent();
    stub_->Hold(MakeData(9, 10), &cancelled.reply, {.context = &cancel}, cancelled.Callback());
    ASSERT_TRUE(run([&] { return sent() > before; }));
    EXPECT_EQ(cancel.Cancel(), absl::OkStatus());
    ASSERT_TRUE(run([&] { return cancelled.done() && sent() > before + 1; }));
    EXPECT_TRUE(absl::IsCancelled(*cancelled.status));

    stub_->Echo(MakeData(0, 20'000), &large.reply, {}, large.Callback());
    ASSERT_TRUE(run([&] { return large.done(); }));
    EXPECT_EQ(*large.status, absl::OkStatus());
    EXPECT_EQ(large.reply.payload(), std::string(20'000, 'a'));

    Data sum;
    auto summing = chat_->Sum(&sum);
    for (const uint64_t number : {2u, 3u, 4u}) {
      EXPECT_EQ(summing.TryWrite(MakeData(number, 0)), StreamResult::kDone);
    }
    summing.WritesDone();
    std::optional<absl::Status> ended;
    summing.Finish([&](absl::Status status) { ended = std::move(status); });
    ASSERT_TRUE(run([&] { return ended.has_value(); }));
    EXPECT_EQ(*ended, absl::OkStatus());
    EXPECT_EQ(sum.payload(), std::string(9, 's'));

    Size size;
    size.set_bytes(3);
    auto counting = chat_->Count(size);
    Data counted;
    for (uint64_t number = 0; number < 3; ++number) {
      ASSERT_TRUE(run([&] { return counting.TryRead(&counted) == StreamResult::kDone; }));
      EXPECT_EQ(counted.number(), number);
    }
    ended.reset();
    counting.Finish([&](absl::Status status) { ended = std::move(status); });
    ASSERT_TRUE(run([&] { return ended.has_value(); }));
    EXPECT_EQ(*ended, absl::OkStatus());
  }

  // A held call ends when it is cancelled.
  void Serve() {
    service_.look = [this](ServerContext& context) {
      context.OnCancel([this] { service_.held.clear(); });
    };
    StartStreamServer();
  }
  void OpenAt(const std::string& address) {
    channel_ = *Channel::Open(client(), address, {});
    stub_.emplace(*channel_);
    chat_.emplace(*channel_);
  }
};

// --- making one ----------------------------------------------------------------------------------

// Between a client and a server: hands on what each says, and writes it down.
class Tape final : public Acceptor {
 public:
  absl::StatusOr<ConnectionHandler*> OnIncoming(Connection& connection) override {
    Add("client", BytesOf(connection.peer_hello()));
    client.tape = server.tape = this;
    client.to = &server;
    server.to = &client;
    ConnectOptions options;
    options.hello = connection.peer_hello();
    EXPECT_TRUE(transport->Connect("sim:server", options, &server).ok());
    return &client;
  }
  void Add(const std::string& kind, const Bytes& bytes) {
    text += StrCat(kind, " ", Text(bytes), "\n");
    sent += kind == ">";
  }

  struct End final : public ConnectionHandler {
    void OnOpen(Connection& opened) override {
      connection = &opened;
      for (const Bytes& bytes : std::exchange(early, {})) Send(bytes);
    }
    void OnMessage(Connection&, ByteSpan message) override {
      const Bytes bytes(message.begin(), message.end());
      tape->Add(this == &tape->client ? ">" : "<", bytes);
      to->Send(bytes);
    }
    void OnClosed(Connection&, const absl::Status&) override {
      connection = nullptr;
      if (to->connection != nullptr) to->connection->Close("the other side has");
    }
    void Send(const Bytes& bytes) {
      if (connection == nullptr) return early.push_back(bytes);
      std::memcpy(*connection->Reserve(bytes.size()), bytes.data(), bytes.size());
      connection->Commit(bytes.size());
    }
    Tape* tape = nullptr;
    End* to = nullptr;
    Connection* connection = nullptr;
    std::vector<Bytes> early;
  };

  Transport* transport = nullptr;
  End client;
  End server;
  std::string text;
  size_t sent = 0;
};

// WEFT_RECORD=FILE: writes the recording of this build there.
TEST_F(RecordedSessionTest, ASessionIsRecorded) {
  Serve();
  RawPeer asks;  // for the hello
  asks.Dial(client().transport());
  ASSERT_TRUE(RunUntil([&] { return asks.connection != nullptr; }));
  ListenOptions listen;
  listen.hello = asks.connection->peer_hello();
  asks.connection->Close("that is all");
  network_.Settle();
  Tape tape;
  tape.transport = &CoreOf(network_.Node("tape")).transport();
  tape.Add("server", BytesOf(listen.hello));
  const auto listener = *tape.transport->Listen("sim:tape", listen, &tape);
  OpenAt("sim:tape");
  PlayClient([this](Function<bool()> done) { return RunUntil(std::move(done)); },
             [&tape] { return tape.sent; });
  network_.Settle();
  EXPECT_GT(tape.sent, 10u);
  if (const char* const path = std::getenv("WEFT_RECORD")) std::ofstream(path) << tape.text;
  chat_.reset();
  stub_.reset();
  channel_.reset();
  network_.Settle();
}

// --- playing one ---------------------------------------------------------------------------------

TEST_F(RecordedSessionTest, TodaysServerAnswersTheOldClientAsItsOwnDid) {
  const std::vector<Line> lines = ReadRecording(kRecording);
  Serve();
  RawPeer old;
  size_t answers = 0;
  for (const Line& line : lines) {
    if (line.kind == "client") {
      ConnectOptions options;
      options.hello = StringOf(line.bytes);
      ASSERT_TRUE(client().transport().Connect("sim:server", options, &old).ok());
      ASSERT_TRUE(RunUntil([&] { return old.connection != nullptr || !old.why.ok(); }));
      ASSERT_NE(old.connection, nullptr) << old.why;
    } else if (line.kind == ">") {
      old.Send(line.bytes);
    } else if (line.kind == "<") {
      SCOPED_TRACE(StrCat("answer ", answers));
      ASSERT_TRUE(RunUntil([&] { return old.received.size() > answers; })) << old.why;
      EXPECT_EQ(Text(old.received[answers]), Text(line.bytes));
      ++answers;
    }
  }
  network_.Settle();
  EXPECT_EQ(old.received.size(), answers);
  EXPECT_EQ(server_->stats().protocol_errors, 0u);
  ASSERT_NE(old.connection, nullptr) << old.why;
  old.connection->Close("done");
  network_.Settle();
}

TEST_F(RecordedSessionTest, TodaysClientUnderstandsTheOldServerAsItsOwnDid) {
  std::vector<Line> lines = ReadRecording(kRecording);
  ListenOptions listen;
  for (const Line& line : lines) {
    if (line.kind == "server") listen.hello = StringOf(line.bytes);
  }
  std::erase_if(lines, [](const Line& line) { return line.kind.size() > 1; });
  RawAcceptor old;
  const auto listener = *server_engine().transport().Listen("sim:server", listen, &old);
  OpenAt("sim:server");
  size_t next = 0;
  size_t asked = 0;
  // What the old server has said after what it had heard.
  const auto feed = [&] {
    while (next < lines.size() && old.peer.connection != nullptr) {
      const Line& line = lines[next];
      if (line.kind == ">" && old.peer.received.size() <= asked) return;
      if (line.kind == ">") {
        EXPECT_EQ(Text(WithoutTime(old.peer.received[asked])), Text(WithoutTime(line.bytes)))
            << "request " << asked;
        ++asked;
      } else {
        old.peer.Send(line.bytes);
      }
      ++next;
    }
  };
  PlayClient(
      [&](Function<bool()> done) {
        return RunUntil([&] {
          feed();
          return done();
        });
      },
      [&] { return old.peer.received.size(); });
  network_.Settle();
  EXPECT_EQ(next, lines.size()) << "the old session went on";
  chat_.reset();
  stub_.reset();
  channel_.reset();
  network_.Settle();
}

// What says that two versions do not go together, said by the old one's numbers.
TEST_F(RecordedSessionTest, AnotherVersionIsRefusedInWords) {
  const std::vector<Line> lines = ReadRecording(kRecording);
  Serve();
  for (const Line& line : lines) {
    if (line.kind != "client") continue;
    rpc::ClientHello hello;
    ASSERT_TRUE(hello.ParseFromString(StringOf(line.bytes)));
    EXPECT_EQ(hello.protocol(), kRpcProtocolVersion)
        << "say in docs/wire_format.md what this breaks";
    hello.set_protocol(kRpcProtocolVersion + 1);
    RawPeer next;
    next.DialWith(client().transport(), hello);
    ASSERT_TRUE(RunUntil([&] { return !next.why.ok(); }));
    EXPECT_NE(next.why.message().find("of the call protocol"), absl::string_view::npos) << next.why;
  }
}

}  // namespace
}  // namespace weft::test
