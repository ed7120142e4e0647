// Clients that send one-way messages as no client does, or frames that are none: each loses its own
// connection, and nothing else happens.
#include <gtest/gtest.h>

#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "core/random.h"
#include "rpc/testing/raw_peer.h"
#include "rpc/testing/rpc_test.h"
#include "rpc/testing/signal_service.h"
#include "rpc/wire/frame.h"

namespace weft::test {
namespace {

// Methods of Signals, as the server numbers them.
constexpr uint16_t kNotify = 0;
constexpr uint16_t kHold = 1;
constexpr uint16_t kAsk = 4;

Bytes Signal(uint16_t method, const std::string& body = "", uint32_t remaining_us = 0) {
  Bytes frame(kCallHeaderBytes + body.size());
  EncodeOneWay(method, remaining_us, frame.data());
  std::memcpy(frame.data() + kCallHeaderBytes, body.data(), body.size());
  return frame;
}

// Its extras are `extras`, whatever they are.
Bytes SignalWithExtras(uint16_t method, const std::string& extras, const std::string& body = "") {
  const size_t body_at = kCallHeaderBytes + ExtrasBlockBytes(extras.size());
  Bytes frame(body_at + body.size());
  EncodeOneWay(method, 0, frame.data(), OneWayKind(kExtrasBit));
  if (!extras.empty()) EncodeExtrasBlock(extras, frame.data() + kCallHeaderBytes);
  std::memcpy(frame.data() + body_at, body.data(), body.size());
  return frame;
}

class HostileOneWayTest : public RpcTest {
 protected:
  HostileOneWayTest() {
    ServerOptions options;
    options.max_outstanding_calls = 4;
    options.max_request_bytes = 1000;
    server_ = *Server::Create(server_engine(), options);
    EXPECT_TRUE(server_->AddService(&signals_).ok());
    EXPECT_TRUE(server_->AddService(&service_).ok());
    EXPECT_TRUE(server_->Listen("sim:server").ok());
    OpenChannel();
    Dial();
  }
  ~HostileOneWayTest() override {
    if (peer_.connection != nullptr) peer_.connection->Close("done");
    network_.Settle();
    signals_.held.clear();
    channel_.reset();
    server_.reset();
  }

  void Dial() {
    peer_.Dial(client().transport());
    EXPECT_TRUE(RunUntil([&] { return peer_.connection != nullptr; }));
  }
  // The other client has noticed nothing.
  void ExpectOthersServed() {
    Data reply;
    EXPECT_TRUE(stub_->Echo(MakeData(1, 10), &reply).ok());
    EXPECT_EQ(channel_->stats().connects, 1u);
  }

  SignalService signals_;
  RawPeer peer_;
};

TEST_F(HostileOneWayTest, APlainMessageRuns) {
  peer_.Send(Signal(kNotify, MakeData(7, 5).SerializeAsString()));
  peer_.Send(
      SignalWithExtras(kNotify, "\n\x06\n\x01k\x12\x01v", MakeData(8, 5).SerializeAsString()));
  network_.Settle();
  EXPECT_EQ(signals_.numbers, (std::vector<uint64_t>{7, 8}));
  EXPECT_TRUE(peer_.received.empty());
  EXPECT_TRUE(peer_.why.ok()) << peer_.why;
}

TEST_F(HostileOneWayTest, MalformedFramesEndTheirConnectionAndNoOther) {
  struct Case {
    const char* what;
    Bytes frame;
  };
  const Bytes good = Signal(kNotify);
  const Case cases[] = {
      {"shorter than a header", Truncated(good, 15)},
      {"a slot", WithByte(good, 0, 1)},
      {"a slot's last byte", WithByte(good, 3, 0x80)},
      {"a generation", WithByte(good, 4, 1)},
      {"a generation's last byte", WithByte(good, 7, 0x80)},
      {"windows", WithByte(good, 11, 1)},
      {"as many windows as there may be", WithByte(good, 11, 8)},
      {"a priority that is none", WithByte(good, 11, 0x20)},
      {"the kind before", WithByte(good, 10, 11)},
      {"the kind behind", WithByte(good, 10, 13)},
      {"metadata that is missing", WithByte(good, 11, 0x80)},
      {"metadata of no bytes", SignalWithExtras(kNotify, "", std::string(8, '\0'))},
      {"metadata that is cut", Truncated(SignalWithExtras(kNotify, "\n\0"), 23)},
      {"metadata that is no protobuf", SignalWithExtras(kNotify, "\xff\xff")},
      {"metadata with a key that is none", SignalWithExtras(kNotify, "\n\x03\n\x01K")},
      {"details", SignalWithExtras(kNotify, "\x12\x03\n\x01k")},
      {"a method with a reply", Signal(kAsk)},
      {"a method of another service", Signal(kAsk + 1)},
      {"no method", Signal(200)},
      {"the last number of all", Signal(0xFFFF)},
  };
  uint64_t errors = 0;
  for (const Case& test : cases) {
    SCOPED_TRACE(test.what);
    peer_.Send(good);
    network_.Settle();
    ASSERT_NE(peer_.connection, nullptr) << "earlier than the malformed frame";
    peer_.Send(test.frame);
    ASSERT_TRUE(RunUntil([&] { return !peer_.why.ok(); }));
    EXPECT_TRUE(absl::IsUnavailable(peer_.why)) << peer_.why;
    EXPECT_NE(peer_.why.message().find("malformed frame"), absl::string_view::npos) << peer_.why;
    EXPECT_EQ(server_->stats().protocol_errors, ++errors);
    ExpectOthersServed();
    Dial();
  }
  EXPECT_EQ(signals_.numbers.size(), std::size(cases));
}

TEST_F(HostileOneWayTest, MessagesThatCannotRunAreDroppedAndTheConnectionLives) {
  struct Case {
    const char* what;
    Bytes frame;
  };
  const Case cases[] = {
      {"no protobuf", Signal(kNotify, "\xFF\xFF\xFF")},
      {"a field cut off", Signal(kNotify, "\x12\x7F")},
      {"too large", Signal(kNotify, std::string(1001, '\0'))},
  };
  uint64_t dropped = 0;
  for (const Case& test : cases) {
    SCOPED_TRACE(test.what);
    peer_.Send(test.frame);
    network_.Settle();
    EXPECT_TRUE(peer_.why.ok()) << peer_.why;
    EXPECT_EQ(server_->stats().one_way_dropped, ++dropped);
    EXPECT_EQ(server_->stats().running, 0u);
    EXPECT_EQ(server_->stats().running_bytes, 0u);
  }
  EXPECT_TRUE(signals_.numbers.empty());
  EXPECT_TRUE(peer_.received.empty());
}

TEST_F(HostileOneWayTest, ARequestToAOneWayMethodIsRefusedByAnError) {
  peer_.Send(Request({0, 1}, kNotify));
  ASSERT_TRUE(RunUntil([&] { return !peer_.received.empty(); }));
  ReplyHeader header;
  ByteSpan body;
  ASSERT_TRUE(DecodeReply(peer_.received.back(), &header, &body));
  EXPECT_EQ(header.status, static_cast<uint16_t>(absl::StatusCode::kUnimplemented));
  EXPECT_TRUE(header.not_run);
  EXPECT_EQ(AsStringView(body),
            "method Notify takes one-way messages; it was called for a reply (not run)");
  EXPECT_TRUE(signals_.numbers.empty());
  // The slot is free again, and what runs on its call next is itself.
  peer_.Send(Request({0, 3}, kAsk, MakeData(3, 5).SerializeAsString()));
  peer_.Send(Signal(kNotify, MakeData(4, 5).SerializeAsString()));
  ASSERT_TRUE(RunUntil([&] { return peer_.received.size() == 2; }));
  ASSERT_TRUE(DecodeReply(peer_.received.back(), &header, &body));
  EXPECT_EQ(header.status, 0u);
  network_.Settle();
  EXPECT_EQ(signals_.numbers, std::vector<uint64_t>{4});
}

TEST_F(HostileOneWayTest, AFloodIsBoundedAndEndsWithItsConnection) {
  for (int i = 0; i < 100; ++i) {
    peer_.Send(Signal(kHold));
    network_.Settle();
  }
  EXPECT_EQ(signals_.held.size(), 4u);
  EXPECT_EQ(server_->stats().one_way_dropped, 96u);
  ExpectOthersServed();
  peer_.connection->Close("done");
  network_.Settle();
  for (const SignalService::HeldSignal& signal : signals_.held) {
    EXPECT_TRUE(signal.context().cancelled());
  }
  signals_.held.clear();
  EXPECT_EQ(server_->stats().running, 0u);
}

TEST_F(HostileOneWayTest, RandomFramesEndAConnectionAtMost) {
  Random random(1);
  for (int round = 0; round < 300; ++round) {
    if (peer_.connection == nullptr) Dial();
    Bytes frame = Signal(static_cast<uint16_t>(random.Uniform(6)),
                         std::string(random.Uniform(40), static_cast<char>(random.Uniform(256))));
    for (uint64_t n = random.Uniform(3); n > 0; --n) {
      frame[random.Uniform(frame.size())] = static_cast<std::byte>(random.Uniform(256));
    }
    peer_.Send(frame);
    network_.Settle();
    if (random.Chance(0.2)) signals_.held.clear();
  }
  signals_.held.clear();
  ExpectOthersServed();
}

}  // namespace
}  // namespace weft::test
