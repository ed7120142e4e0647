// What a client meets when the server is none, or a bad one: an end in words, in bounded time.

#include <poll.h>
#include <sys/socket.h>

#include <string>

#include "gtest/gtest.h"
#include "transport/control/control_frame.h"
#include "transport/control/hello.h"
#include "transport/control/testing/control_bytes.h"
#include "transport/control/testing/network_world.h"
#include "transport/sockets/socket.h"

namespace weft {
namespace {

// What clients offer here, and the second one's place in their hello.
ConnectOptions ShmThenTcp() {
  ConnectOptions options;
  options.link.paths = {PathKind::kShm, PathKind::kTcp};
  return options;
}
constexpr int kClientsTcp = 1;

ServerHello GoodHello() {
  ServerHello hello;
  hello.version = 1;
  hello.paths = {{PathKind::kTcp, "tcp", 1u << 16 | 17, "", ""}};
  hello.candidates = {{kClientsTcp, 0, ""}};
  return hello;
}

// A listening socket that the test answers by hand.
class HostileServerTest : public NetworkTest {
 protected:
  void SetUp() override {
    client_ = NewNetworkEngine();
    listening_ = *ListenInternet(Resolve(*ParseServerAddress("127.0.0.1:0"))->front());
    address_ = LocalAddress(listening_.get())->text();
  }

  // Dials, answers with `bytes` and perhaps hangs up; returns how it ends.
  absl::Status ConnectTo(const std::string& bytes, bool hang_up,
                         const ConnectOptions& options = ShmThenTcp()) {
    NetworkEnd* const end = DialAt(address_, options);
    Descriptor peer;
    EXPECT_TRUE(RunEngines({client_.get()}, [&] {
      if (!peer.valid()) peer = *AcceptClient(listening_.get());
      return peer.valid();
    }));
    EXPECT_EQ(::send(peer.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
    if (hang_up) ::shutdown(peer.get(), SHUT_WR);
    EXPECT_TRUE(RunEngines({client_.get()}, [&] { return end->closed(); }));
    EXPECT_FALSE(end->opened());
    return end->closed() ? end->why() : absl::UnknownError("not closed");
  }

  Descriptor listening_;
  std::string address_;
};

void ExpectError(const absl::Status& status, absl::StatusCode code, const std::string& part) {
  EXPECT_EQ(status.code(), code) << status;
  EXPECT_NE(std::string(status.message()).find(part), std::string::npos) << status;
}

ConnectOptions Impatient() {
  ConnectOptions options = ShmThenTcp();
  options.link.connect_timeout_ns = 100'000'000;
  return options;
}

TEST_F(HostileServerTest, AWebServerIsNamed) {
  ExpectError(ConnectTo("HTTP/1.1 400 Bad Request\r\n\r\n", true),
              absl::StatusCode::kFailedPrecondition, "the peer speaks HTTP");
}

TEST_F(HostileServerTest, AnotherVersionIsNamed) {
  std::string preamble = Preamble();
  preamble[6] = 9;
  ExpectError(ConnectTo(preamble, true), absl::StatusCode::kFailedPrecondition,
              "version 9 of the control connection, this side version 1");
}

TEST_F(HostileServerTest, HangingUpIsUnavailable) {
  ExpectError(ConnectTo("", true), absl::StatusCode::kUnavailable, "closed the control connection");
  ExpectError(ConnectTo(Preamble(), true), absl::StatusCode::kUnavailable,
              "closed the control connection");
}

TEST_F(HostileServerTest, SilenceEndsWithTheTimeout) {
  ExpectError(ConnectTo("", false, Impatient()), absl::StatusCode::kUnavailable,
              "no success within 100 ms, waiting for the server's hello");
}

TEST_F(HostileServerTest, AServerThatNeverPreparesAPathTimesOutToo) {
  ExpectError(ConnectTo(Preamble() + Frame(ControlType::kServerHello, Encode(GoodHello())), false,
                        Impatient()),
              absl::StatusCode::kUnavailable, "waiting for a path to come up");
}

TEST_F(HostileServerTest, NonsenseIsDataLoss) {
  struct Case {
    std::string bytes;
    std::string words;
  };
  const Case nonsense[] = {
      {Frame(ControlType::kServerHello, "\xff\xff\xff"), "the peer's ServerHello is malformed"},
      {Frame(ControlType::kOpen, EncodeOpen(0)), "the server opened a connection before its hello"},
      {Frame(ControlType::kClientHello, ""), "the server sent ClientHello during the handshake"},
      {std::string("\xff\xff\xff\xff\xff\xff\xff\xff"), "the limit is 4096"},
      {Frame(ControlType::kServerHello, Encode(GoodHello())) +
           Frame(ControlType::kServerHello, Encode(GoodHello())),
       "the server sent a second hello"},
      {Frame(ControlType::kRefusal, ""), "the peer's Refusal is malformed"},
  };
  for (const Case& test : nonsense) {
    ExpectError(ConnectTo(Preamble() + test.bytes, false), absl::StatusCode::kDataLoss, test.words);
  }
}

TEST_F(HostileServerTest, WhatWasNotOfferedCannotBeChosen) {
  ServerHello hello = GoodHello();
  hello.version = 2;
  ExpectError(ConnectTo(Preamble() + Frame(ControlType::kServerHello, Encode(hello)), false),
              absl::StatusCode::kDataLoss, "protocol version 2");
  ConnectOptions only_shm = Over({PathKind::kShm});
  ExpectError(ConnectTo(Preamble() + Frame(ControlType::kServerHello, Encode(GoodHello())), false,
                        only_shm),
              absl::StatusCode::kDataLoss, "not offered by both");
}

TEST_F(HostileServerTest, ARefusalBringsItsCodeAndWords) {
  ExpectError(ConnectTo(Preamble() + Frame(ControlType::kRefusal,
                                           EncodeRefusal(absl::PermissionDeniedError("not you"))),
                        true),
              absl::StatusCode::kPermissionDenied, "the server refused: not you");
}

TEST_F(HostileServerTest, AnAddressThatDoesNotAnswerTimesOut) {
  // The kernel completes a connect while the queue of the listener has room; fill it.
  const Descriptor full(::socket(AF_INET, SOCK_STREAM, 0));
  const KernelAddress any = Resolve(*ParseServerAddress("127.0.0.1:0"))->front();
  ASSERT_EQ(::bind(full.get(), any.get(), any.length), 0);
  ASSERT_EQ(::listen(full.get(), 0), 0);
  const KernelAddress address = *LocalAddress(full.get());
  std::vector<Descriptor> fillers;
  for (int i = 0; i < 4; ++i) fillers.push_back(*StartDial(address));
  NetworkEnd* const end = DialAt(address.text(), Impatient());
  ASSERT_TRUE(RunEngines({client_.get()}, [&] { return end->closed(); }));
  ExpectError(end->why(), absl::StatusCode::kUnavailable, "within 100 ms");
}

}  // namespace
}  // namespace weft
