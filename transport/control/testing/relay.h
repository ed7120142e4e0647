// A hand on the wire between a client and its server's control address, for tests.
//
// Threads: the test's, which calls Turn() until it has seen what it wanted.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <string>
#include <utility>
#include <vector>

#include "transport/sockets/address.h"
#include "transport/sockets/socket.h"
#include "transport/descriptor.h"

namespace weft {

// Stands between a client and a server's control address, hands bytes on, and may add some.
class Relay {
 public:
  explicit Relay(const std::string& server) : server_(server) {
    listening_ = *ListenInternet(Address("127.0.0.1:0"));
    address_ = LocalAddress(listening_.get())->text();
  }
  const std::string& address() const { return address_; }

  // Hands on what has come.
  void Turn() {
    if (!to_client_.valid()) {
      absl::StatusOr<Descriptor> client = AcceptClient(listening_.get());
      if (!client.ok() || !client->valid()) return;
      to_client_ = *std::move(client);
      to_server_ = *StartDial(Address(server_));
      pollfd watch{to_server_.get(), POLLOUT, 0};
      EXPECT_EQ(::poll(&watch, 1, 10'000), 1);
    }
    Move(to_client_.get(), to_server_.get(), text_, other_);
    Move(to_server_.get(), to_client_.get());
  }
  // What the client says is said otherwise: each `text` becomes `other`, of the same length.
  void Replace(const std::string& text, const std::string& other) {
    text_ = text;
    other_ = other;
  }
  void SayToServer(const std::vector<std::byte>& bytes) { Say(to_server_.get(), bytes); }
  // Unless the connection holds as much as it can, or is over.
  void FloodServer(const std::vector<std::byte>& bytes) {
    pollfd watch{to_server_.get(), POLLOUT, 0};
    EXPECT_GE(::poll(&watch, 1, 0), 0);
    if (watch.revents == POLLOUT) SayToServer(bytes);
  }
  void SayToClient(const std::vector<std::byte>& bytes) { Say(to_client_.get(), bytes); }

 private:
  static KernelAddress Address(const std::string& text) {
    return Resolve(*ParseServerAddress(text))->front();
  }
  static void Say(int to, const std::vector<std::byte>& bytes) {
    EXPECT_EQ(::send(to, bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  static void Move(int from, int to, const std::string& text = "", const std::string& other = "") {
    char bytes[4096];
    const ssize_t count = ::recv(from, bytes, sizeof(bytes), 0);
    if (count == 0) ::shutdown(to, SHUT_WR);
    if (count <= 0) return;
    std::string said(bytes, static_cast<size_t>(count));
    const size_t at = text.empty() ? std::string::npos : said.find(text);
    if (at != std::string::npos) said.replace(at, text.size(), other);
    ::send(to, said.data(), said.size(), MSG_NOSIGNAL);
  }

  const std::string server_;
  std::string text_;
  std::string other_;
  Descriptor listening_;
  std::string address_;
  Descriptor to_client_;
  Descriptor to_server_;
};

}  // namespace weft
