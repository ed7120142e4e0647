// Clients that do not answer: they keep what they take for a bounded time, and nobody else waits
// for them longer than that.
#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/strings.h"
#include "rpc/testing/payload_test.h"
#include "rpc/testing/raw_peer.h"
#include "rpc/testing/rpc_test.h"
#include "rpc/wire/frame.h"

namespace weft::test {
namespace {

constexpr uint64_t kTimeoutNs = LinkOptions().transfer_timeout_ns;
constexpr size_t kMiB = size_t{1} << 20;

bool NamesTheOption(const absl::Status& why) {
  return std::string(why.message()).find("LinkOptions::transfer_timeout_ns") != std::string::npos;
}

// --- large messages ------------------------------------------------------------------------------

class SilentOffersTest : public RpcTest {
 protected:
  ~SilentOffersTest() override {
    for (RawPeer& peer : hostile_) {
      if (peer.connection != nullptr) peer.connection->Close("done");
    }
  }

  // Each offers a message of the largest size, which nobody will ever be able to read.
  void OfferAndNeverAnswer() {
    for (size_t i = 0; i < hostile_.size(); ++i) {
      const std::string node = StrCat("hostile", i);
      RawPeer& peer = hostile_[i];
      peer.Dial(CoreOf(network_.Node(node)).transport());
      ASSERT_TRUE(RunUntil([&] { return peer.connection != nullptr; }));
      network_.StopAnswering(node);
      const absl::StatusOr<std::byte*> frame = peer.connection->Reserve(kMaxMessageBytes);
      ASSERT_TRUE(frame.ok()) << frame.status();
      EncodeRequest({{0, 1}, /*method=*/0, 0}, *frame);
      peer.connection->Commit(kMaxMessageBytes);
      peer.connection->Flush();
    }
    network_.RunFor(kNsPerMs);
  }
  // How long a call with a payload of so many bytes takes.
  uint64_t TimeOfCall(size_t bytes) {
    const uint64_t start_ns = network_.clock().NowNs();
    Outcome outcome;
    stub_->Echo(MakeData(1, bytes), &outcome.reply, {}, outcome.Callback());
    EXPECT_TRUE(RunUntil([&] { return outcome.done(); }));
    EXPECT_TRUE(outcome.done() && outcome.status->ok()) << *outcome.status;
    return network_.clock().NowNs() - start_ns;
  }

  std::array<RawPeer, 4> hostile_;
};

// Four clients that offered 64 MiB each and never answered the reads had all of the memory that
// large messages are received in, for ever, and an honest client's 100 KB were never read.
TEST_F(SilentOffersTest, DoNotStopAnHonestClient) {
  Start();
  OfferAndNeverAnswer();
  EXPECT_LT(TimeOfCall(100'000), kTimeoutNs) << "there is memory for it";
  EXPECT_EQ(channel_->stats().connects, 1u);
}

TEST_F(SilentOffersTest, EndTheirConnectionsWithAReasonAndFreeTheirMemory) {
  Start();
  OfferAndNeverAnswer();
  // The largest may take four times the timeout; the fourth had to wait for the first three.
  EXPECT_LT(TimeOfCall(40 * kMiB), 9 * kTimeoutNs) << "it waits for its turn, and has it";
  ASSERT_TRUE(RunUntil([&] { return server_->stats().connections == 1; }));
  for (const RawPeer& peer : hostile_) {
    EXPECT_TRUE(absl::IsUnavailable(peer.why)) << peer.why;
    EXPECT_TRUE(NamesTheOption(peer.why)) << peer.why;
  }
  EXPECT_EQ(channel_->stats().connects, 1u) << "the other connection is the one that it was";
}

TEST_F(SilentOffersTest, StayAsLongAsTheServerWantsThem) {
  ServerOptions options;
  options.link.transfer_timeout_ns = 0;
  Start({}, options);
  OfferAndNeverAnswer();
  network_.RunFor(5 * kTimeoutNs);
  EXPECT_EQ(server_->stats().connections, 5u);
}

// --- payloads ------------------------------------------------------------------------------------

// Runs handlers when the test says so, outside of the engine's turns: they may block.
class LaterExecutor final : public Executor {
 public:
  bool Run(Function<void()> task) override {
    tasks.push_back(std::move(task));
    return true;
  }
  void RunAll() {
    while (!tasks.empty()) {
      Function<void()> task = std::move(tasks.front());
      tasks.pop_front();
      task();
    }
  }
  std::deque<Function<void()>> tasks;
};

// Its Store() blocks until it has the payload, its Load() until the client has it.
class BlockingService final : public PayloadService {
 public:
  using PayloadService::PayloadService;
  absl::Status Store(ServerContext& context, const Part& request, Parcel*) override {
    ended = context.bulk().Fetch(request.data(), memory().slice(0, request.data().length()));
    return *ended;
  }
  absl::Status Load(ServerContext& context, const Part& request, Parcel* reply) override {
    ended = context.bulk().Push(memory().slice(0, request.length()), reply->mutable_data());
    return *ended;
  }
  std::optional<absl::Status> ended;
};

class SilentWindowsTest : public PayloadTest {
 protected:
  static constexpr uint16_t kExchange = 0;
  static constexpr uint16_t kLoad = 2;
  static constexpr uint16_t kStore = 3;

  ~SilentWindowsTest() override {
    if (peer_.connection != nullptr) peer_.connection->Close("done");
  }

  void StartBlocking() {
    server_ = *Server::Create(server_engine(), {});
    ASSERT_TRUE(server_->AddService(&blocking_, &executor_).ok());
    ASSERT_TRUE(server_->Listen("sim:server").ok());
  }
  void DialAndNeverAnswer() {
    Transport& transport = CoreOf(network_.Node("hostile")).transport();
    peer_.Dial(transport, /*max_windows=*/2);
    ASSERT_TRUE(RunUntil([&] { return peer_.connection != nullptr; }));
    network_.StopAnswering("hostile");
  }
  Bytes StoreRequest(uint32_t remaining_us) {
    Part part;
    part.mutable_data()->set_window(1);
    part.mutable_data()->set_length(1000);
    Bytes request =
        RequestWithWindows({0, 1}, kStore, {{{7, 0, 1000}, kMayRead}}, part.SerializeAsString());
    EncodeRequest({{0, 1}, kStore, remaining_us}, request.data(), RequestKind(1));
    return request;
  }
  Bytes LoadRequest(uint32_t remaining_us) {
    Part part;
    part.set_length(1000);
    Bytes request =
        RequestWithWindows({0, 1}, kLoad, {{{7, 0, 1000}, kMayWrite}}, part.SerializeAsString());
    EncodeRequest({{0, 1}, kLoad, remaining_us}, request.data(), RequestKind(1));
    return request;
  }
  // Its handler blocks in a transfer that the client never answers: it ends with the call.
  void ExpectToEndWithItsDeadline(const Bytes& request) {
    StartBlocking();
    DialAndNeverAnswer();
    peer_.Send(request);
    ASSERT_TRUE(RunUntil([&] { return !executor_.tasks.empty(); }));
    const uint64_t start_ns = network_.clock().NowNs();
    executor_.RunAll();
    ASSERT_TRUE(blocking_.ended.has_value());
    EXPECT_FALSE(blocking_.ended->ok());
    EXPECT_LE(network_.clock().NowNs() - start_ns, 1 * kNsPerSec + 1100 * kNsPerMs)
        << "the deadline, and what a transfer may be late";
    ASSERT_TRUE(RunUntil([&] { return !peer_.why.ok(); }));
    EXPECT_TRUE(NamesTheOption(peer_.why)) << peer_.why;
  }

  LaterExecutor executor_;
  BlockingService blocking_{kServerBytes};
  RawPeer peer_;
};

// The handler waited for ever, and its memory was never its own again.
TEST_F(SilentWindowsTest, AFetchThatIsNotAnsweredEndsWithItsConnection) {
  Start();
  DialAndNeverAnswer();
  Parcel parcel;
  parcel.mutable_data()->set_window(1);
  parcel.mutable_data()->set_length(1000);
  peer_.Send(RequestWithWindows({0, 1}, kExchange, {{{7, 0, 1000}, kMayRead}},
                                parcel.SerializeAsString()));
  ASSERT_TRUE(RunUntil([&] { return !peer_.why.ok(); }));
  EXPECT_TRUE(NamesTheOption(peer_.why)) << peer_.why;
  ASSERT_TRUE(RunUntil([&] { return server_->stats().connections == 1; }));
  EXPECT_EQ(server_->stats().running, 0u);
}

// A thread of the executor for each such call was gone until the server ended.
TEST_F(SilentWindowsTest, ABlockingFetchEndsWithItsCallsDeadline) {
  ExpectToEndWithItsDeadline(StoreRequest(/*remaining_us=*/1'000'000));
}

TEST_F(SilentWindowsTest, ABlockingPushEndsWithItsCallsDeadline) {
  ExpectToEndWithItsDeadline(LoadRequest(/*remaining_us=*/1'000'000));
}

TEST_F(SilentWindowsTest, ABlockingFetchWithoutADeadlineEndsWithItsConnection) {
  StartBlocking();
  DialAndNeverAnswer();
  peer_.Send(StoreRequest(/*remaining_us=*/0));
  ASSERT_TRUE(RunUntil([&] { return !executor_.tasks.empty(); }));
  executor_.RunAll();
  ASSERT_TRUE(blocking_.ended.has_value());
  EXPECT_FALSE(blocking_.ended->ok());
}

// --- replies that nobody takes -------------------------------------------------------------------

class SlowReaderTest : public RpcTest {
 protected:
  static constexpr uint16_t kMake = 4;

  ~SlowReaderTest() override {
    if (peer_.connection != nullptr) peer_.connection->Close("done");
  }

  // A client that asks for `calls` replies of so many bytes, and takes none.
  void AskAndTakeNothing(uint32_t calls, size_t bytes) {
    DialAndTakeNothing(calls);
    AskForAll(peer_, calls, bytes);
  }
  void AskForAll(RawPeer& peer, uint32_t calls, size_t bytes) {
    for (uint32_t slot = 0; slot < calls; ++slot) Ask(peer, slot, bytes);
    network_.RunFor(10 * kNsPerMs);
  }
  void DialAndTakeNothing(uint32_t calls) {
    Dial(peer_, "hostile", calls);
    TakeNothing("hostile");
  }
  void TakeNothing(const std::string& node) {
    network_.SlowDown(node, /*ns_per_batch=*/1000 * kNsPerSec);
  }
  void Dial(RawPeer& peer, const std::string& node, uint32_t calls) {
    rpc::ClientHello hello;
    hello.set_protocol(kRpcProtocolVersion);
    hello.set_max_outstanding_calls(calls);
    hello.set_max_reply_bytes(kMaxPayloadBytes);
    peer.DialWith(CoreOf(network_.Node(node)).transport(), hello);
    ASSERT_TRUE(RunUntil([&] { return peer.connection != nullptr; }));
  }
  void Ask(uint32_t slot, size_t bytes) { Ask(peer_, slot, bytes); }
  void Ask(RawPeer& peer, uint32_t slot, size_t bytes) {
    Size size;
    size.set_bytes(bytes);
    peer.Send(Request({slot, 1}, kMake, size.SerializeAsString()));
  }

  RawPeer peer_;
};

// A client had 256 replies of 64 MiB made and took none of them: they were in no account.
TEST_F(SlowReaderTest, RepliesThatWaitAreCountedUntilTheyLeave) {
  Start();
  AskAndTakeNothing(/*calls=*/40, /*bytes=*/100'000);
  const ServerStats stats = server_->stats();
  EXPECT_GE(stats.unsent_reply_bytes, 2'000'000u);
  EXPECT_GE(stats.running_bytes, stats.unsent_reply_bytes);
  EXPECT_EQ(stats.slow_readers, 0u);
  network_.SlowDown("hostile", 0);
  peer_.connection->Close("enough");
  ASSERT_TRUE(RunUntil([&] { return server_->stats().connections == 1; }));
  EXPECT_EQ(server_->stats().unsent_reply_bytes, 0u);
  EXPECT_EQ(server_->stats().running_bytes, 0u);
}

TEST_F(SlowReaderTest, WhoLetsTooManyBytesWaitLosesItsConnection) {
  ServerOptions options;
  options.max_unsent_reply_bytes = 1'000'000;
  Start({}, options);
  AskAndTakeNothing(/*calls=*/40, /*bytes=*/100'000);
  EXPECT_EQ(server_->stats().slow_readers, 1u);
  EXPECT_EQ(server_->stats().unsent_reply_bytes, 0u) << "what waited has gone at once";
  ASSERT_TRUE(RunUntil([&] { return !peer_.why.ok(); }));
  EXPECT_NE(peer_.why.message().find("ServerOptions::max_unsent_reply_bytes"),
            absl::string_view::npos)
      << peer_.why;
  Data reply;
  EXPECT_TRUE(stub_->Echo(MakeData(1, 100'000), &reply).ok()) << "others are served";
}

TEST_F(SlowReaderTest, WhoTakesNothingForTooLongLosesItsConnection) {
  ServerOptions options;
  options.reply_timeout_us = 5'000'000;
  Start({}, options);
  AskAndTakeNothing(/*calls=*/40, /*bytes=*/100'000);
  network_.RunFor(4 * kNsPerSec);
  EXPECT_EQ(server_->stats().slow_readers, 0u);
  network_.RunFor(2 * kNsPerSec);
  EXPECT_EQ(server_->stats().slow_readers, 1u);
  ASSERT_TRUE(RunUntil([&] { return !peer_.why.ok(); }));
  EXPECT_NE(peer_.why.message().find("ServerOptions::reply_timeout_us"), absl::string_view::npos)
      << peer_.why;
}

// Requests of others were refused for the replies that one client did not take.
TEST_F(SlowReaderTest, RepliesThatWaitTakeNoMoreThanHalfOfWhatRequestsMayHave) {
  ServerOptions options;
  options.max_running_bytes = 2'000'000;
  Start({}, options);
  AskAndTakeNothing(/*calls=*/40, /*bytes=*/100'000);
  EXPECT_EQ(server_->stats().slow_readers, 1u);
  Data reply;
  EXPECT_TRUE(stub_->Echo(MakeData(1, 900'000), &reply).ok());
}

// With several engines, each of which has a part of that, a reply of ordinary size ended its
// client.
TEST_F(SlowReaderTest, ASingleReplyMayWaitWhateverItsSizeAndASecondOneMayNot) {
  constexpr uint32_t kCalls = 200;
  constexpr size_t kBytes = 100'000;
  ServerOptions options;
  options.max_running_bytes = 150'000;
  Start({}, options);
  DialAndTakeNothing(kCalls);
  uint32_t slot = 0;
  while (slot < kCalls && server_->stats().unsent_reply_bytes == 0) {
    Ask(slot++, kBytes);
    network_.RunFor(10 * kNsPerMs);
  }
  EXPECT_GE(server_->stats().unsent_reply_bytes, kBytes) << "more than half of what may run";
  EXPECT_EQ(server_->stats().slow_readers, 0u);
  EXPECT_TRUE(peer_.why.ok()) << peer_.why;
  ASSERT_LT(slot, kCalls);
  Ask(slot, kBytes);
  network_.RunFor(10 * kNsPerMs);
  EXPECT_EQ(server_->stats().slow_readers, 1u);
  EXPECT_EQ(server_->stats().unsent_reply_bytes, 0u);
}

// A request without a byte had no room where replies that waited had more than all of it. Nobody
// had thought of that as the reason, and the server looked into a request that was not there.
TEST_F(SlowReaderTest, ARequestOfNoBytesNeedsNoRoom) {
  constexpr uint32_t kOffered = 16;  // of a connection's large replies; one more waits
  ServerOptions options;
  options.max_running_bytes = 150'000;
  Start({}, options);
  AskAndTakeNothing(kOffered + 1, /*bytes=*/200'000);
  EXPECT_GT(server_->stats().running_bytes, options.max_running_bytes);
  Data reply;
  EXPECT_EQ(stub_->Echo(Data(), &reply), absl::OkStatus());
  EXPECT_TRUE(absl::IsResourceExhausted(stub_->Echo(MakeData(1, 10), &reply)));
}

// Many connections of one client, each with little that waited, cost others theirs.
TEST_F(SlowReaderTest, AClientWithManyConnectionsLosesThemBeforeOthersLoseTheirOne) {
  constexpr uint32_t kOffered = 16;  // of a connection's large replies; the others wait
  constexpr size_t kBytes = 100'000;
  ServerOptions options;
  options.max_running_bytes = 4'000'000;
  Start({}, options);
  std::deque<RawPeer> hostile(3);
  for (RawPeer& peer : hostile) Dial(peer, "hostile", kOffered + 6);
  TakeNothing("hostile");
  for (RawPeer& peer : hostile) AskForAll(peer, kOffered + 6, kBytes);
  EXPECT_EQ(server_->stats().unsent_reply_bytes / kBytes, 18u);
  Dial(peer_, "slow", kOffered + 8);
  TakeNothing("slow");
  AskForAll(peer_, kOffered + 8, kBytes);
  EXPECT_TRUE(peer_.why.ok()) << peer_.why;
  EXPECT_EQ(server_->stats().slow_readers, 2u) << "of 26 replies, and little more, 20 are too many";
  EXPECT_LE(server_->stats().unsent_reply_bytes, options.max_running_bytes / 2);
  network_.SlowDown("hostile", 0);
  for (RawPeer& peer : hostile) {
    if (peer.connection != nullptr) peer.connection->Close("done");
  }
  network_.RunFor(kNsPerSec);
}

TEST_F(SlowReaderTest, TheOptionsHaveBounds) {
  ServerOptions few;
  few.max_unsent_reply_bytes = 1000;
  EXPECT_TRUE(absl::IsInvalidArgument(Server::Create(server_engine(), few).status()));
  ServerOptions soon;
  soon.reply_timeout_us = 1000;
  EXPECT_TRUE(absl::IsInvalidArgument(Server::Create(server_engine(), soon).status()));
}

// --- requests that take long to arrive -----------------------------------------------------------

class SlowRequestTest : public RpcTest {
 protected:
  ~SlowRequestTest() override {
    if (peer_.connection != nullptr) peer_.connection->Close("done");
  }

  // The code that a request of 1 MB is answered with, whose way takes 10 ms; -1: none.
  int StatusOfSlowRequest(uint32_t remaining_us) {
    peer_.Dial(CoreOf(network_.Node("slow")).transport());
    EXPECT_TRUE(RunUntil([&] { return peer_.connection != nullptr; }));
    SimWire wire;
    wire.bytes_per_s = 100'000'000;
    network_.SetWire("slow", "server", wire);
    const std::string body = MakeData(1, 1'000'000).SerializeAsString();
    peer_.Send(Request({0, 1}, /*method=*/0, body, remaining_us));
    EXPECT_TRUE(RunUntil([&] { return !peer_.received.empty() || !peer_.why.ok(); }));
    if (peer_.received.empty()) return -1;
    ReplyHeader header;
    ByteSpan text;
    EXPECT_TRUE(DecodeReply(peer_.received.back(), &header, &text));
    EXPECT_EQ(header.not_run, service_.echoes == 0);
    return header.status;
  }

  RawPeer peer_;
};

// The clock of a call began when its body was there: what had taken longer than the caller would
// wait was run all the same.
TEST_F(SlowRequestTest, IsNotRunWhenItsBodyTookLongerThanItsCallerWaits) {
  Start();
  EXPECT_EQ(StatusOfSlowRequest(/*remaining_us=*/5'000),
            static_cast<int>(absl::StatusCode::kDeadlineExceeded));
  EXPECT_EQ(service_.echoes, 0);
}

TEST_F(SlowRequestTest, HasTheTimeThatItsBodyHasLeft) {
  Start();
  // Its reply is too large for this client: it has run.
  EXPECT_EQ(StatusOfSlowRequest(/*remaining_us=*/50'000),
            static_cast<int>(absl::StatusCode::kResourceExhausted));
  EXPECT_EQ(service_.echoes, 1) << "once";
  EXPECT_LT(service_.last_remaining_us, 42'000u);
  EXPECT_GT(service_.last_remaining_us, 30'000u);
}

}  // namespace
}  // namespace weft::test
