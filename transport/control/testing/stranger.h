// A client without rules, for tests of what it does to a server, and the words of one that keeps
// them.
//
// Threads: the test's.
#pragma once

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <string>
#include <vector>

#include "transport/control/control_frame.h"
#include "transport/control/hello.h"
#include "transport/control/host_facts.h"
#include "transport/control/negotiate.h"
#include "transport/control/testing/control_bytes.h"
#include "transport/control/testing/network_world.h"
#include "transport/descriptor.h"
#include "transport/sockets/address.h"
#include "transport/sockets/join.h"

namespace weft {

inline ClientHello GoodHello() {
  ClientHello hello;
  hello.versions = kProtocolVersions;
  hello.paths = {{PathKind::kShm, "shm", 1u << 16 | 17, "", ""},
                 {PathKind::kTcp, "tcp", 1u << 16 | 17, "", ""}};
  hello.host = ReadHostFacts();
  return hello;
}

// A client without rules: raw bytes over a control connection.
class Stranger {
 public:
  // `from`: where it comes from.
  explicit Stranger(const std::string& address, const std::string& from = "127.0.0.1:0") {
    const KernelAddress source = *ParseNumericAddress(from);
    const KernelAddress target = *ParseNumericAddress(address);
    socket_ = Descriptor(::socket(target.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::bind(socket_.get(), source.get(), source.length), 0);
    EXPECT_TRUE(::connect(socket_.get(), target.get(), target.length) == 0 || errno == EINPROGRESS);
    pollfd watch{socket_.get(), POLLOUT, 0};
    EXPECT_EQ(::poll(&watch, 1, 10'000), 1);
  }

  void Say(const std::string& bytes) {
    // The server may have hung up already.
    [[maybe_unused]] const ssize_t sent =
        ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  // Takes what has come; true once the server has hung up.
  bool Listen() {
    char bytes[4096];
    const ssize_t count = ::recv(socket_.get(), bytes, sizeof(bytes), 0);
    if (count > 0) heard_.append(bytes, static_cast<size_t>(count));
    was_reset_ = count < 0 && errno == ECONNRESET;
    return count == 0 || (count < 0 && errno != EAGAIN);
  }
  const std::string& heard() const { return heard_; }
  // The server has hung up by a reset, of which its kernel keeps nothing.
  bool was_reset() const { return was_reset_; }
  void HangUp() { socket_.Reset(); }
  // Says no more, and listens still. The server's kernel knows of it when this returns.
  void CloseItsHalf() {
    EXPECT_EQ(::shutdown(socket_.get(), SHUT_WR), 0);
    const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    tcp_info facts = {};
    do {
      socklen_t length = sizeof(facts);
      ASSERT_EQ(::getsockopt(socket_.get(), IPPROTO_TCP, TCP_INFO, &facts, &length), 0);
    } while (facts.tcpi_state != TCP_FIN_WAIT2 && facts.tcpi_state != TCP_CLOSE &&
             std::chrono::steady_clock::now() < give_up);
    EXPECT_EQ(facts.tcpi_state, TCP_FIN_WAIT2);
  }

  // The first frame of this type that has come, "" if there is none.
  std::string Body(ControlType type) const {
    ControlFrameReader reader;
    reader.Append(AsBytes(heard_));
    ControlFrame frame;
    while (reader.Next(&frame) == ControlFrameReader::Result::kFrame) {
      if (frame.type == type) return std::string(AsStringView(frame.body));
    }
    return "";
  }

 private:
  Descriptor socket_;
  std::string heard_;
  bool was_reset_ = false;
};

// A server that echoes, and what strangers and clients need to be told apart.
class StrangerTest : public NetworkTest {
 protected:
  void SetUp() override {
    NetworkTest::SetUp();
    acceptor_.echo = true;
    Listen("127.0.0.1:0");
  }
  Stranger NewStranger() { return Stranger(listener_->address()); }
  bool RunUntilHungUp(Stranger& stranger) {
    return Run([&] { return stranger.Listen(); });
  }
  bool RunUntilHeard(Stranger& stranger, ControlType type) {
    return Run([&] { return stranger.Listen() || !stranger.Body(type).empty(); });
  }
  // A good client is served, whatever has happened.
  void ExpectService() {
    NetworkEnd* const end = Dial();
    ASSERT_TRUE(RunUntilDecided(*end));
    ASSERT_TRUE(end->opened()) << end->why();
    ASSERT_TRUE(end->Send("still here?"));
    ASSERT_TRUE(Run([&] { return !end->received.empty(); }));
  }
  // A right hello, which is answered.
  bool SayHello(Stranger& stranger) {
    stranger.Say(Preamble() + Frame(ControlType::kClientHello, Encode(GoodHello())));
    return RunUntilHeard(stranger, ControlType::kServerHello);
  }
  // Its handshake, after SayHello(), tries tcp. What a socket joins it by.
  Nonce128 TryTcp(Stranger& stranger) {
    stranger.Say(Frame(ControlType::kPathTry, Encode(PathTry{1, "x", 4096})));
    EXPECT_TRUE(RunUntilHeard(stranger, ControlType::kPathReady));
    const auto ready = DecodePathReady(AsBytes(stranger.Body(ControlType::kPathReady)));
    EXPECT_TRUE(ready.ok()) << ready.status();
    return ready.ok() ? ready->nonce : Nonce128();
  }
  static std::string Join(const Nonce128& token) {
    return std::string(AsStringView(EncodeJoin(token)));
  }
  // Of the server's counters.
  uint64_t Counted(const std::string& name) const {
    for (const auto& [found, value] : server_->counters().Snapshot()) {
      if (found == name) return value;
    }
    return 0;
  }
};

}  // namespace weft
