// Peers that lie about windows: each harms itself, and its own calls at most.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/random.h"
#include "rpc/client/client_calls.h"
#include "rpc/client/client_connection.h"
#include "rpc/testing/payload_test.h"
#include "rpc/testing/raw_hellos.h"
#include "rpc/testing/raw_peer.h"
#include "rpc/wire/frame.h"
#include "rpc/wire/hello.pb.h"
#include "rpc/wire/stream_frame.h"

namespace weft::test {
namespace {

using State = BulkCall::State;

constexpr uint16_t kExchange = 0;
constexpr uint16_t kHold = 1;
constexpr uint16_t kCarry = 4;

// The open of a stream that lends memory.
Bytes OpenWithWindows(CallId id, const std::vector<Window>& windows) {
  const auto count = static_cast<uint32_t>(windows.size());
  Bytes frame(OpenFrameBytes(count, 0));
  EncodeOpen({id, kCarry, 0, false, {}, Priority::kNormal, count}, frame.data());
  for (uint32_t i = 0; i < count; ++i) {
    EncodeWindow(windows[i], frame.data() + kCallHeaderBytes + i * kWindowBytes);
  }
  return frame;
}
Bytes StreamRelease(CallId id) {
  Bytes frame(kCallHeaderBytes);
  EncodeStreamRelease(id, frame.data());
  return frame;
}
Bytes StreamCancel(CallId id) {
  Bytes frame(kCallHeaderBytes);
  EncodeStreamCancel(id, frame.data());
  return frame;
}
Bytes StreamEnd(CallId id) {
  Bytes frame(EndFrameBytes(0, 0));
  EncodeEnd({id}, frame.data());
  return frame;
}

// --- clients -------------------------------------------------------------------------------------

class HostileClientTest : public PayloadTest {
 protected:
  HostileClientTest() {
    Start();
    Dial(/*max_windows=*/2);
  }
  ~HostileClientTest() override {
    service_.held.clear();
    service_.carried.clear();
    if (peer_.connection != nullptr) peer_.connection->Close("done");
    network_.Settle();
  }

  void Dial(uint32_t max_windows) {
    peer_.Dial(client().transport(), max_windows);
    EXPECT_TRUE(RunUntil([&] { return peer_.connection != nullptr; }));
  }

  // The same with streams, two windows each.
  void DialForStreams() {
    if (peer_.connection != nullptr) {
      peer_.connection->Close("again");
      ASSERT_TRUE(RunUntil([&] { return peer_.connection == nullptr; }));
    }
    rpc::ClientHello hello = PeerCallingHello();
    hello.set_max_windows(2);
    peer_.DialWith(client().transport(), hello);
    ASSERT_TRUE(RunUntil([&] { return peer_.connection != nullptr; }));
  }

  static std::string FieldOf(uint32_t window, uint64_t length) {
    Parcel parcel;
    parcel.mutable_data()->set_window(window);
    parcel.mutable_data()->set_length(length);
    return parcel.SerializeAsString();
  }

  // The code that the server answers to a request, or -1 if it closes the connection instead.
  int StatusOf(const Bytes& request) {
    peer_.received.clear();
    peer_.Send(request);
    EXPECT_TRUE(RunUntil([&] { return !peer_.received.empty() || !peer_.why.ok(); }));
    if (peer_.received.empty()) return -1;
    ReplyHeader header;
    ByteSpan body;
    EXPECT_TRUE(DecodeReply(peer_.received.back(), &header, &body));
    return header.status;
  }

  // The other client, which behaves, has noticed nothing.
  void ExpectOthersUnharmed() {
    GuardedMemory memory(5000);
    BulkCall bulk(*channel_);
    Parcel request;
    Parcel reply;
    bulk.Send(memory.all(), request.mutable_data());
    bulk.Receive(memory.all());
    EXPECT_TRUE(stub_->Exchange(request, &reply, {.bulk = &bulk}).ok());
    EXPECT_EQ(channel_->stats().connects, 1u);
  }

  RawPeer peer_;
};

TEST_F(HostileClientTest, MalformedWindowsEndTheirConnectionAndNoOther) {
  const Window good = {{7, 0, 100}, kMayRead};
  const Bytes one = RequestWithWindows({0, 1}, kHold, {good});
  const Bytes cases[] = {
      RequestWithWindows({0, 1}, kHold, {good, good, good}),  // two were agreed on
      WithByte(one, 11, 9),                                   // more than there can be
      WithByte(one, 11, 0xFF),
      WithByte(one, 11, 2),  // the second would begin where the frame ends
      Truncated(one, one.size() - 1),
      Truncated(one, kCallHeaderBytes),
      WithByte(one, kCallHeaderBytes + 24, 0),                     // no right
      WithByte(one, kCallHeaderBytes + 24, kMayRead | kMayWrite),  // two
      WithByte(one, kCallHeaderBytes + 24, 8),                     // an unknown one
      WithByte(one, kCallHeaderBytes + 25, 1),
      WithByte(one, kCallHeaderBytes + 28, 1),  // reserved
      RequestWithWindows({0, 1}, kHold, {{{7, ~uint64_t{0} - 50, 100}, kMayRead}}),
      RequestWithWindows({0, 1}, kHold, {{{7, 100, ~uint64_t{0}}, kMayWrite}}),
      RequestWithWindows({4, 1}, kHold, {good}),  // a slot that was not agreed on
      Notice(CallFrameKind::kReleased, {0, 1}),   // a server's
  };
  uint64_t errors = 0;
  for (size_t i = 0; i < std::size(cases); ++i) {
    SCOPED_TRACE(i);
    EXPECT_EQ(StatusOf(cases[i]), -1);
    EXPECT_TRUE(absl::IsUnavailable(peer_.why)) << peer_.why;
    EXPECT_EQ(server_->stats().protocol_errors, ++errors);
    ExpectOthersUnharmed();
    Dial(2);
  }
  EXPECT_TRUE(service_.held.empty());
}

TEST_F(HostileClientTest, WhoHasAgreedToNoWindowsMaySendNone) {
  peer_.connection->Close("again");
  ASSERT_TRUE(RunUntil([&] { return peer_.connection == nullptr; }));
  Dial(0);
  EXPECT_EQ(StatusOf(RequestWithWindows({0, 1}, kHold, {{{7, 0, 100}, kMayRead}})), -1);
  ExpectOthersUnharmed();
}

TEST_F(HostileClientTest, InventedKeysFailTheirCallOnly) {
  const std::vector<Window> windows = {{{0x1234567890, 0, 100}, kMayRead},
                                       {{0x1234567891, 1 << 20, 100}, kMayWrite}};
  const int status = StatusOf(RequestWithWindows({0, 1}, kExchange, windows, FieldOf(1, 100)));
  EXPECT_NE(status, 0);
  ExpectOthersUnharmed();
}

TEST_F(HostileClientTest, FieldsReachNoWindowOfAnotherCall) {
  // The first call lends two windows, the second one: its field means one that only the first has.
  const Window read = {{7, 0, 100}, kMayRead};
  peer_.Send(RequestWithWindows({0, 1}, kHold, {read, read}));
  ASSERT_TRUE(RunUntil([&] { return service_.held.size() == 1; }));
  EXPECT_EQ(StatusOf(RequestWithWindows({1, 1}, kExchange, {read}, FieldOf(2, 100))),
            static_cast<int>(absl::StatusCode::kInvalidArgument));
  // Nor does the next call of a slot reach those of the one before.
  service_.held.clear();
  ASSERT_TRUE(RunUntil([&] { return peer_.received.size() == 2; }));
  EXPECT_EQ(StatusOf(Request({0, 3}, kExchange, FieldOf(1, 100))),
            static_cast<int>(absl::StatusCode::kInvalidArgument));
}

TEST_F(HostileClientTest, CancelsInAnyOrderReleaseOnceAndReplyOnce) {
  const Window write = {{7, 0, 100}, kMayWrite};
  peer_.Send(RequestWithWindows({0, 1}, kHold, {write}));
  peer_.Send(Cancel({0, 1}));
  peer_.Send(Cancel({0, 1}));
  peer_.Send(Cancel({0, 3}));
  ASSERT_TRUE(RunUntil([&] { return service_.held.size() == 1; }));
  network_.Settle();
  ASSERT_EQ(peer_.received.size(), 1u);
  EXPECT_EQ(peer_.received[0], Notice(CallFrameKind::kReleased, {0, 1}));
  service_.held.clear();
  network_.Settle();
  ASSERT_EQ(peer_.received.size(), 2u);
  // A call without windows has nothing to release.
  peer_.Send(Request({1, 1}, kHold));
  peer_.Send(Cancel({1, 1}));
  network_.Settle();
  EXPECT_EQ(peer_.received.size(), 2u);
  EXPECT_TRUE(peer_.why.ok()) << peer_.why;
}

TEST_F(HostileClientTest, MalformedWindowsOfAStreamEndTheirConnectionAndNoOther) {
  const Window good = {{7, 0, 100}, kMayRead};
  const Bytes one = OpenWithWindows({0, 1}, {good});
  const Bytes cases[] = {
      OpenWithWindows({0, 1}, {good, good, good}),  // two were agreed on
      WithByte(one, 11, 9),                         // more than there can be
      WithByte(one, 11, 0x0F),
      WithByte(one, 11, 2),  // the second would begin where the frame ends
      WithByte(one, 11, 0),  // a body that nothing accounts for
      Truncated(one, one.size() - 1),
      Truncated(one, kCallHeaderBytes),
      WithByte(one, kCallHeaderBytes + 24, kMayRead | kMayWrite),
      WithByte(one, kCallHeaderBytes + 28, 1),  // reserved
      OpenWithWindows({0, 1}, {{{7, ~uint64_t{0} - 50, 100}, kMayRead}}),
      StreamRelease({0, 1}),  // a server's
  };
  uint64_t errors = 0;
  for (size_t i = 0; i < std::size(cases); ++i) {
    SCOPED_TRACE(i);
    DialForStreams();
    EXPECT_EQ(StatusOf(cases[i]), -1);
    EXPECT_TRUE(absl::IsUnavailable(peer_.why)) << peer_.why;
    EXPECT_EQ(server_->stats().protocol_errors, ++errors);
    ExpectOthersUnharmed();
  }
  EXPECT_TRUE(service_.carried.empty());
}

TEST_F(HostileClientTest, InventedKeysOfAStreamFailTheirTransferOnly) {
  DialForStreams();
  peer_.Send(OpenWithWindows({0, 1}, {{{0x1234567890, 0, 100}, kMayRead}}));
  ASSERT_TRUE(RunUntil([&] { return service_.carried.size() == 1; }));
  absl::Status fetched;
  service_.carried[0].context().bulk().Read(
      1, 0, service_.memory().slice(0, 100),
      [&fetched](absl::Status status) { fetched = std::move(status); });
  ASSERT_TRUE(RunUntil([&] { return !fetched.ok(); }));
  ExpectOthersUnharmed();
}

TEST_F(HostileClientTest, CancelsOfAStreamReleaseOnceAndEndOnce) {
  DialForStreams();
  peer_.Send(OpenWithWindows({0, 1}, {{{7, 0, 100}, kMayWrite}}));
  for (int i = 0; i < 3; ++i) peer_.Send(StreamCancel({0, 1}));
  ASSERT_TRUE(RunUntil([&] { return service_.carried.size() == 1; }));
  network_.Settle();
  ASSERT_EQ(peer_.received.size(), 1u);
  EXPECT_EQ(peer_.received[0], StreamRelease({0, 1}));
  service_.carried.clear();
  network_.Settle();
  ASSERT_EQ(peer_.received.size(), 2u);
  EXPECT_EQ(CallFrameKindOf(peer_.received[1]), static_cast<uint16_t>(StreamFrameKind::kEnd));
  EXPECT_TRUE(peer_.why.ok()) << peer_.why;
}

TEST_F(HostileClientTest, ACancelBeforeItsOpenLeavesNothingToRelease) {
  DialForStreams();
  peer_.Send(StreamCancel({0, 1}));
  peer_.Send(OpenWithWindows({0, 1}, {{{7, 0, 100}, kMayWrite}}));
  network_.Settle();
  EXPECT_TRUE(service_.carried.empty());
  ASSERT_EQ(peer_.received.size(), 1u);
  EXPECT_EQ(CallFrameKindOf(peer_.received[0]), static_cast<uint16_t>(StreamFrameKind::kEnd));
}

TEST_F(HostileClientTest, NoFramesHarmTheServerOrItsOtherClients) {
  const uint64_t seed = 7;
  Random random(seed);
  for (int round = 0; round < 300; ++round) {
    SCOPED_TRACE(testing::Message() << "seed " << seed << ", round " << round);
    for (uint64_t frames = 1 + random.Uniform(5); frames > 0 && peer_.why.ok(); --frames) {
      std::vector<Window> windows(random.Uniform(4));
      for (Window& window : windows) {
        window.span = {random.Next64(), random.Uniform(1000), random.Uniform(100'000)};
        window.rights = random.Chance(0.5) ? kMayRead : kMayWrite;
      }
      const CallId id{static_cast<uint32_t>(random.Uniform(4)),
                      static_cast<uint32_t>(2 * random.Uniform(1000) + 1)};
      Bytes frame = random.Chance(0.2)
                        ? Cancel(id)
                        : RequestWithWindows(id, static_cast<uint16_t>(random.Uniform(4)), windows,
                                             FieldOf(static_cast<uint32_t>(random.Uniform(4)),
                                                     random.Uniform(100'000)));
      for (uint64_t changes = random.Uniform(3); changes > 0; --changes) {
        frame[random.Uniform(frame.size())] = static_cast<std::byte>(random.Next64());
      }
      peer_.Send(frame);
      if (random.Chance(0.5)) network_.Settle();
    }
    network_.Settle();
    service_.held.clear();
    if (peer_.connection != nullptr) peer_.connection->Close("done");
    ASSERT_TRUE(RunUntil([&] { return !peer_.why.ok(); }));
    ASSERT_TRUE(RunUntil([&] { return server_->stats().connections == 1; }));
    EXPECT_EQ(server_->stats().running, 0u);
    Dial(3);
  }
  ExpectOthersUnharmed();
}

// Handlers move payloads into and out of whatever such streams say that they lend, and finish at
// any time.
TEST_F(HostileClientTest, NoFramesOfStreamsThatLendMemoryHarmTheServerOrItsOtherClients) {
  const uint64_t seed = 9;
  Random random(seed);
  int survived = 0;
  Part read;
  Bulk pushed;
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> next;  // number, by stream
  const auto serve = [&] {
    if (service_.carried.empty()) return;
    PayloadService::HeldStream& stream = service_.carried[random.Uniform(service_.carried.size())];
    ServerBulk& bulk = stream.context().bulk();
    const auto window = static_cast<uint32_t>(random.Uniform(4));
    const uint64_t offset = random.Uniform(1000);
    const Slice part =
        service_.memory().slice(offset, random.Uniform(random.Chance(0.1) ? 2'000'000 : 3000));
    static_cast<void>(stream.TryRead(&read));
    switch (random.Uniform(5)) {
      case 0:
        return bulk.Write(part, window, offset, nullptr);
      case 1:
        return bulk.Read(window, offset, part, [](const absl::Status&) {});
      case 2:
        return bulk.Push(part, read.data(), &pushed, {}, nullptr);
      case 3:
        return bulk.Fetch(read.data(), part, [](const absl::Status&) {});
      default:
        std::swap(stream, service_.carried.front());
        if (random.Chance(0.5)) service_.carried.front().Finish(absl::OkStatus());
        service_.carried.pop_front();
    }
  };
  for (int round = 0; round < 400; ++round) {
    SCOPED_TRACE(testing::Message() << "seed " << seed << ", round " << round);
    DialForStreams();
    next.clear();
    uint32_t generation[2] = {1, 1};
    for (uint64_t frames = 1 + random.Uniform(20); frames > 0 && peer_.why.ok(); --frames) {
      const auto slot = static_cast<uint32_t>(random.Uniform(2));
      CallId id = {slot, generation[slot]};
      if (random.Chance(0.02)) id.generation = static_cast<uint32_t>(random.Uniform(4));
      const bool opened = next.count({id.slot, id.generation}) > 0;
      Bytes frame;
      switch (opened ? random.Uniform(8) : 0) {
        case 0:
        case 1: {
          if (opened && random.Chance(0.98)) {
            for (const Bytes& got : peer_.received) {
              if ((CallFrameKindOf(got) & 0xFF) == 8 && CallIdOf(got) == id) generation[slot] += 2;
            }
            continue;
          }
          next[{id.slot, id.generation}] = 0;
          std::vector<Window> windows(random.Uniform(3));
          for (Window& window : windows) {
            window.span = {random.Next64(), random.Uniform(1000), random.Uniform(100'000)};
            window.rights = random.Chance(0.3) ? kMayRead : kMayWrite;
          }
          frame = OpenWithWindows(id, windows);
          break;
        }
        case 2:
          frame = StreamCancel(id);
          break;
        case 3:
          frame = Cancel(id);
          break;
        default: {
          Part part;
          part.mutable_data()->set_window(static_cast<uint32_t>(random.Uniform(4)));
          part.mutable_data()->set_offset(random.Chance(0.1) ? random.Next64()
                                                             : random.Uniform(1000));
          part.mutable_data()->set_length(random.Chance(0.1) ? random.Next64()
                                                             : random.Uniform(3000));
          const std::string body = part.SerializeAsString();
          frame.resize(kCallHeaderBytes + body.size());
          EncodeData(id, 0, next[{id.slot, id.generation}]++, /*to_opener=*/false, frame.data());
          std::memcpy(frame.data() + kCallHeaderBytes, body.data(), body.size());
        }
      }
      for (uint64_t changes = random.Chance(0.03) ? random.Uniform(3) : 0; changes > 0; --changes) {
        frame[random.Uniform(frame.size())] = static_cast<std::byte>(random.Next64());
      }
      peer_.Send(frame);
      if (random.Chance(0.7)) network_.RunFor(random.Uniform(50'000));
      for (uint64_t n = random.Uniform(4); n > 0; --n) serve();
    }
    if (random.Chance(0.5)) network_.RunFor(random.Uniform(5 * kNsPerMs));
    for (uint64_t n = random.Uniform(4); n > 0; --n) serve();
    survived += peer_.connection != nullptr;
    const bool finish_first = random.Chance(0.5);
    if (finish_first) service_.carried.clear();
    if (peer_.connection != nullptr) peer_.connection->Close("done");
    ASSERT_TRUE(RunUntil([&] { return !peer_.why.ok(); }));
    network_.RunFor(random.Uniform(kNsPerMs));
    for (uint64_t n = random.Uniform(4); n > 0; --n) serve();
    ASSERT_TRUE(RunUntil([&] {
      service_.carried.clear();  // an open may come late
      return server_->stats().connections == 1;
    }));
    EXPECT_EQ(server_->stats().running, 0u);
    EXPECT_EQ(server_->stats().running_bytes, 0u);
  }
  EXPECT_GT(survived, 0) << "most frames are as they should be";
  ExpectOthersUnharmed();
}

// --- servers -------------------------------------------------------------------------------------

class HostileServerTest : public PayloadTest {
 protected:
  HostileServerTest() : memory_(1000) { Serve(kMaxWindows); }
  ~HostileServerTest() override {
    stub_.reset();
    channel_.reset();
    network_.Settle();
  }

  void Serve(uint32_t max_windows) {
    rpc::ServerHello hello;
    hello.set_protocol(kRpcProtocolVersion);
    hello.set_max_outstanding_calls(4);
    hello.set_max_request_bytes(1000);
    hello.set_max_windows(max_windows);
    rpc::ServiceTable* table = hello.add_services();
    table->set_name("weft.test.Payloads");
    table->add_methods("Hold");
    table->add_methods("Carry");
    hello.set_max_streams(4);
    hello.set_stream_window_messages(4);
    hello.set_stream_window_bytes(1000);
    ListenOptions options;
    options.hello = hello.SerializeAsString();
    listener_.reset();
    listener_ = *server_engine().transport().Listen("sim:server", options, &acceptor_);
    OpenChannel();
    EXPECT_TRUE(RunUntil([&] { return acceptor_.peer.connection != nullptr; }));
  }

  // Calls, and waits until the server has the request.
  CallId Call(BulkCall& bulk, CallOptions options = {}) {
    acceptor_.peer.received.clear();
    outcome_ = ParcelOutcome();
    options.bulk = &bulk;
    stub_->Hold(request_, &outcome_.reply, options, outcome_.Callback());
    EXPECT_TRUE(RunUntil([&] { return !acceptor_.peer.received.empty(); }));
    ByteSpan body;
    return DecodeRequest(acceptor_.peer.received.front(), &body).id;
  }

  // The same for a stream.
  CallId OpenStream(BulkCall& bulk, CallOptions options = {}) {
    acceptor_.peer.received.clear();
    options.bulk = &bulk;
    stream_.emplace(stub_->Carry(options));
    EXPECT_TRUE(RunUntil([&] { return !acceptor_.peer.received.empty(); }));
    return CallIdOf(acceptor_.peer.received.front());
  }
  absl::Status FinishStream() {
    absl::Status status = EndOf([this](auto done) { stream_->Finish(std::move(done)); });
    stream_.reset();
    return status;
  }

  static CallOptions Within(uint64_t timeout_us) {
    CallOptions options;
    options.timeout_us = timeout_us;
    return options;
  }

  GuardedMemory memory_;
  RawAcceptor acceptor_;
  std::unique_ptr<Listener> listener_;
  ParcelOutcome outcome_;
  std::optional<ClientReaderWriter<Part, Part>> stream_;
};

TEST_F(HostileServerTest, AServerThatKnowsNoWindowsIsSentNone) {
  stub_.reset();
  channel_.reset();
  ASSERT_TRUE(RunUntil([&] { return acceptor_.peer.connection == nullptr; }));
  Serve(0);
  BulkCall bulk(*channel_);
  bulk.Receive(memory_.all());
  Parcel reply;
  const absl::Status status = stub_->Hold(request_, &reply, {.bulk = &bulk});
  EXPECT_TRUE(absl::IsUnimplemented(status)) << status;
  EXPECT_EQ(bulk.state(), State::kReclaimed);
  EXPECT_EQ(bulk.arrival(1), BulkCall::Arrival::kUntouched);
  stream_.emplace(stub_->Carry({.bulk = &bulk}));
  const absl::Status stream_status = FinishStream();
  EXPECT_TRUE(absl::IsUnimplemented(stream_status)) << stream_status;
  EXPECT_EQ(bulk.state(), State::kReclaimed);
  network_.Settle();
  EXPECT_TRUE(acceptor_.peer.received.empty());
}

TEST_F(HostileServerTest, RequestsCarryOneWindowForEachSliceWithJustItsRight) {
  BulkCall bulk(*channel_);
  bulk.Send(memory_.slice(0, 100), request_.mutable_data());
  bulk.Receive(memory_.slice(200, 50));
  const CallId id = Call(bulk);
  const Bytes& frame = acceptor_.peer.received.front();
  EXPECT_EQ(CallFrameKindOf(frame), RequestKind(2));
  ByteSpan body;
  std::array<Window, kMaxWindows> windows;
  DecodeRequest(frame, &body);
  ASSERT_TRUE(DecodeWindows(2, &body, &windows));
  EXPECT_EQ(windows[0].span.length, 100u);
  EXPECT_EQ(windows[0].rights, kMayRead);
  EXPECT_EQ(windows[1].span.length, 50u);
  EXPECT_EQ(windows[1].rights, kMayWrite);
  EXPECT_NE(windows[0].span.key, windows[1].span.key);
  Parcel request;
  ASSERT_TRUE(request.ParseFromArray(body.data(), static_cast<int>(body.size())));
  EXPECT_EQ(request.data().length(), 100u);
  acceptor_.peer.Send(Reply(id, 0, 0, ""));
  ASSERT_TRUE(RunUntil([&] { return outcome_.done(); }));
}

TEST_F(HostileServerTest, AKeyIsWorthlessAfterItsCall) {
  GuardedMemory thief(100);
  BulkCall bulk(*channel_);
  bulk.Receive(memory_.all());
  const CallId id = Call(bulk);
  ByteSpan body;
  std::array<Window, kMaxWindows> windows;
  DecodeRequest(acceptor_.peer.received.front(), &body);
  ASSERT_TRUE(DecodeWindows(1, &body, &windows));
  acceptor_.peer.Send(Reply(id, 0, 0, ""));
  ASSERT_TRUE(RunUntil([&] { return outcome_.done(); }));
  EXPECT_EQ(bulk.state(), State::kReclaimed);
  memory_.Fill(5);

  class Write final : public Operation {
   public:
    void OnComplete(const absl::Status& completed) override { status = completed, done = true; }
    absl::Status status;
    bool done = false;
  } write;
  Connection& connection = *acceptor_.peer.connection;
  const Region* region = *thief.memory().For(connection);
  const Transfer transfer = {region, 0, windows[0].span.Slice(0, 100)};
  ASSERT_TRUE(connection.memory().Post(TransferKind::kWrite, {&transfer, 1}, &write).ok());
  ASSERT_TRUE(RunUntil([&] { return write.done; }));
  EXPECT_FALSE(write.status.ok());
  EXPECT_TRUE(memory_.Holds(5));
  EXPECT_TRUE(memory_.CanariesLive());
  stub_.reset();
  channel_.reset();
  network_.Settle();
}

TEST_F(HostileServerTest, AServerThatNeverAnswersLosesItsConnectionAndTheMemoryIsReclaimed) {
  ParcelOutcome other;
  stub_->Hold(Parcel(), &other.reply, {}, other.Callback());
  auto bulk = std::make_unique<BulkCall>(*channel_);
  bulk->Receive(memory_.all());
  Call(*bulk, Within(1000));
  ASSERT_TRUE(RunUntil([&] { return outcome_.done(); }));
  EXPECT_TRUE(absl::IsDeadlineExceeded(outcome_.status)) << outcome_.status;
  EXPECT_FALSE(bulk->WaitReclaimed(1'000'000));
  const uint64_t before_ns = network_.clock().NowNs();
  bulk.reset();
  EXPECT_LE(network_.clock().NowNs() - before_ns, (kReleasePatienceUs + 100'000) * kNsPerUs);
  ASSERT_TRUE(RunUntil([&] { return other.done() && acceptor_.peer.connection == nullptr; }));
  EXPECT_NE(std::string(other.status.message()).find("not given back the memory"),
            std::string::npos)
      << other.status;
}

TEST_F(HostileServerTest, ReleasesOfWhatWasNotCancelledEndTheConnection) {
  using MakeFrames = std::vector<Bytes> (*)(CallId);
  struct Case {
    const char* what;
    uint64_t timeout_us;
    MakeFrames frames;
  };
  const Case cases[] = {
      {"a call under way", 0,
       [](CallId id) { return std::vector<Bytes>{Notice(CallFrameKind::kReleased, id)}; }},
      {"no call", 0,
       [](CallId id) {
         return std::vector<Bytes>{Notice(CallFrameKind::kReleased, {id.slot + 1, id.generation})};
       }},
      {"a slot beyond", 0,
       [](CallId id) {
         return std::vector<Bytes>{Notice(CallFrameKind::kReleased, {400, id.generation})};
       }},
      {"another generation", 1000,
       [](CallId id) {
         return std::vector<Bytes>{Notice(CallFrameKind::kReleased, {id.slot, id.generation + 2})};
       }},
      {"a body", 1000,
       [](CallId id) {
         Bytes frame = Notice(CallFrameKind::kReleased, id);
         frame.push_back(std::byte{0});
         return std::vector<Bytes>{frame};
       }},
      {"flags", 1000,
       [](CallId id) {
         return std::vector<Bytes>{WithByte(Notice(CallFrameKind::kReleased, id), 11, 2)};
       }},
      {"a stream's", 1000, [](CallId id) { return std::vector<Bytes>{StreamRelease(id)}; }},
      {"after the reply", 1000,
       [](CallId id) {
         return std::vector<Bytes>{Reply(id, 0, 0, ""), Notice(CallFrameKind::kReleased, id)};
       }},
  };
  for (const Case& test : cases) {
    SCOPED_TRACE(test.what);
    BulkCall bulk(*channel_);
    bulk.Receive(memory_.all());
    const CallId id = Call(bulk, Within(test.timeout_us));
    if (test.timeout_us > 0) {
      ASSERT_TRUE(RunUntil([&] { return outcome_.done(); }));
      EXPECT_EQ(bulk.state(), State::kPinned);
    }
    for (const Bytes& frame : test.frames(id)) acceptor_.peer.Send(frame);
    ASSERT_TRUE(RunUntil([&] { return acceptor_.peer.connection == nullptr; }));
    EXPECT_EQ(bulk.state(), State::kReclaimed) << "with the connection";
    EXPECT_EQ(outcome_.completions, 1);
    network_.Settle();
  }
}

TEST_F(HostileServerTest, AReleaseOfACancelledStreamGivesItsMemoryBackBeforeItsEnd) {
  BulkCall bulk(*channel_);
  bulk.Receive(memory_.all());
  const CallId id = OpenStream(bulk);
  EXPECT_EQ(CallFrameKindOf(acceptor_.peer.received.front()), 0x0105);
  EXPECT_EQ(acceptor_.peer.received.front().size(), kCallHeaderBytes + kWindowBytes);
  stream_->Cancel();
  EXPECT_TRUE(absl::IsCancelled(FinishStream()));
  EXPECT_EQ(bulk.state(), State::kPinned);
  acceptor_.peer.Send(StreamRelease(id));
  ASSERT_TRUE(RunUntil([&] { return bulk.state() == State::kReclaimed; }));
  EXPECT_EQ(channel_->stats().streams, 1u) << "its slot is the server's";
  acceptor_.peer.Send(StreamEnd(id));
  ASSERT_TRUE(RunUntil([&] { return channel_->stats().streams == 0; }));
  EXPECT_TRUE(acceptor_.peer.why.ok());
}

TEST_F(HostileServerTest, ReleasesOfStreamsThatWereNotCancelledEndTheConnection) {
  using MakeFrames = std::vector<Bytes> (*)(CallId);
  struct Case {
    const char* what;
    bool cancelled;
    MakeFrames frames;
  };
  const Case cases[] = {
      {"a stream under way", false,
       [](CallId id) { return std::vector<Bytes>{StreamRelease(id)}; }},
      {"no stream", true,
       [](CallId id) {
         return std::vector<Bytes>{StreamRelease({id.slot + 1, id.generation})};
       }},
      {"a slot beyond", true,
       [](CallId id) {
         return std::vector<Bytes>{StreamRelease({400, id.generation})};
       }},
      {"another generation", true,
       [](CallId id) {
         return std::vector<Bytes>{StreamRelease({id.slot, id.generation + 2})};
       }},
      {"a body", true,
       [](CallId id) {
         Bytes frame = StreamRelease(id);
         frame.push_back(std::byte{0});
         return std::vector<Bytes>{frame};
       }},
      {"a call's", true,
       [](CallId id) { return std::vector<Bytes>{Notice(CallFrameKind::kReleased, id)}; }},
      {"twice", true,
       [](CallId id) {
         return std::vector<Bytes>{StreamRelease(id), StreamRelease(id)};
       }},
      {"after the end", true,
       [](CallId id) {
         return std::vector<Bytes>{StreamEnd(id), StreamRelease(id)};
       }},
  };
  for (const Case& test : cases) {
    SCOPED_TRACE(test.what);
    BulkCall bulk(*channel_);
    bulk.Receive(memory_.all());
    const CallId id = OpenStream(bulk);
    if (test.cancelled) stream_->Cancel();
    for (const Bytes& frame : test.frames(id)) acceptor_.peer.Send(frame);
    ASSERT_TRUE(RunUntil([&] { return acceptor_.peer.connection == nullptr; }));
    EXPECT_FALSE(FinishStream().ok());
    EXPECT_EQ(bulk.state(), State::kReclaimed) << "with the connection";
    network_.Settle();
  }
}

TEST_F(HostileServerTest, AServerThatKeepsAStreamsMemoryLosesItsConnection) {
  auto bulk = std::make_unique<BulkCall>(*channel_);
  bulk->Receive(memory_.all());
  OpenStream(*bulk, Within(1000));
  EXPECT_TRUE(absl::IsDeadlineExceeded(FinishStream()));
  const uint64_t before_ns = network_.clock().NowNs();
  bulk.reset();
  EXPECT_LE(network_.clock().NowNs() - before_ns, (kReleasePatienceUs + 100'000) * kNsPerUs);
  ASSERT_TRUE(RunUntil([&] { return acceptor_.peer.connection == nullptr; }));
}

TEST_F(HostileServerTest, WhateverAServerSendsTheMemoryOfStreamsComesBackOnce) {
  const uint64_t seed = 11;
  Random random(seed);
  int survived = 0;
  for (int round = 0; round < 400; ++round) {
    SCOPED_TRACE(testing::Message() << "seed " << seed << ", round " << round);
    struct Talk {
      std::unique_ptr<BulkCall> bulk;
      std::optional<ClientReaderWriter<Part, Part>> handle;
      Part part;
      int reclaimed = 0;
      bool read = false;
      bool finished = false;
    };
    std::vector<std::unique_ptr<Talk>> talks;
    std::vector<CallId> ids;
    const auto disturb = [&] {
      Talk& talk = *talks[random.Uniform(talks.size())];
      if (!talk.handle) return;
      switch (random.Uniform(6)) {
        case 0:
          return talk.handle->Cancel();
        case 1:
          return talk.handle.reset();
        case 2:
          if (std::exchange(talk.finished, true)) return;
          return talk.handle->Finish([](const absl::Status&) {});
        case 3:
          if (std::exchange(talk.read, true)) return;
          return talk.handle->Read(&talk.part, [&talk](bool) { talk.read = false; });
        default:
          if (!talk.finished) static_cast<void>(talk.handle->TryWrite(Part()));
      }
    };
    for (uint64_t n = 1 + random.Uniform(4); n > 0; --n) {
      Talk& talk = *talks.emplace_back(std::make_unique<Talk>());
      talk.bulk = std::make_unique<BulkCall>(*channel_);
      if (random.Chance(0.9)) talk.bulk->Receive(memory_.slice(random.Uniform(500), 500));
      CallOptions options;
      options.bulk = talk.bulk.get();
      options.wait_for_server = true;
      options.timeout_us = 10'000'000;
      if (talks.size() > 1 && random.Chance(0.3)) options.timeout_us = 1 + random.Uniform(300);
      talk.handle.emplace(stub_->Carry(options));
      talk.bulk->WhenReclaimed([&] {
        ++talk.reclaimed;
        if (random.Chance(0.5)) disturb();
      });
    }
    network_.RunUntil([&] { return !acceptor_.peer.received.empty(); }, 3 * kNsPerSec);
    for (const Bytes& frame : acceptor_.peer.received) {
      if ((CallFrameKindOf(frame) & 0xFF) == 5) ids.push_back(CallIdOf(frame));
    }
    if (ids.empty() || random.Chance(0.05)) ids.push_back({9, 1});
    // Most of what it sends it might; each stream that was cancelled is released, or ended, once.
    std::vector<CallId> done;
    for (uint64_t n = random.Uniform(20); n > 0 && acceptor_.peer.connection != nullptr; --n) {
      CallId id = ids[random.Uniform(ids.size())];
      bool cancelled = false;
      for (const Bytes& frame : acceptor_.peer.received) {
        if ((CallFrameKindOf(frame) & 0xFF) != 9 || random.Chance(0.3)) continue;
        id = CallIdOf(frame);
        cancelled = true;
      }
      const bool repeated = std::find(done.begin(), done.end(), id) != done.end();
      Bytes frame(kCallHeaderBytes);
      const uint64_t what = random.Uniform(20);
      if (what == 0) {
        frame[10] = static_cast<std::byte>(random.Uniform(15));
      } else if (what == 1) {
        frame = StreamRelease(id);
      } else if (what < 10) {
        EncodeData(id, 0, static_cast<uint32_t>(random.Uniform(2)), /*to_opener=*/true,
                   frame.data());
        if (repeated) continue;
      } else {
        if (repeated) continue;
        const bool release = cancelled && what < 15;
        if (!release) {
          frame.resize(EndFrameBytes(0, 0));
          EncodeEnd({id, 0, false, static_cast<uint32_t>(random.Uniform(2))}, frame.data());
          done.push_back(id);
        } else {
          frame = StreamRelease(id);
        }
      }
      acceptor_.peer.Send(frame);
      for (uint64_t k = random.Uniform(3); k > 0; --k) disturb();
      if (random.Chance(0.7)) network_.RunFor(random.Uniform(40'000));
    }
    survived += acceptor_.peer.connection != nullptr;
    for (auto& talk : talks) talk->handle.reset();
    for (auto& talk : talks) talk->bulk.reset();
    for (auto& talk : talks) EXPECT_EQ(talk->reclaimed, 1);
    network_.Settle();
    internal::ConnectionOf(*channel_).calls().CheckInvariants();
    if (acceptor_.peer.connection != nullptr) acceptor_.peer.connection->Close("next");
    ASSERT_TRUE(RunUntil([&] { return acceptor_.peer.connection == nullptr; }));
    acceptor_.peer.received.clear();
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_TRUE(memory_.CanariesLive());
  EXPECT_GT(survived, 0) << "most frames are as they should be";
}

}  // namespace
}  // namespace weft::test
