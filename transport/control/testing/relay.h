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

#include "transport/descriptor.h"
#include "transport/sockets/address.h"
#include "transport/sockets/socket.h"

namespace weft {

// Stands between a client and a server's control address, hands bytes on, and may add some to the
// control connection, which comes first.
class Relay {
 public:
  explicit Relay(const std::string& server) : server_(server) {
    listening_ = *ListenInternet(Address("127.0.0.1:0"));
    address_ = LocalAddress(listening_.get())->text();
  }
  const std::string& address() const { return address_; }

  // Hands on what has come.
  void Turn() {
    absl::StatusOr<Descriptor> client = AcceptClient(listening_.get());
    if (client.ok() && client->valid()) {
      ways_.push_back({*std::move(client), *StartDial(Address(server_))});
      pollfd watch{ways_.back().to_server.get(), POLLOUT, 0};
      EXPECT_EQ(::poll(&watch, 1, 10'000), 1);
    }
    for (const Way& way : ways_) {
      const bool is_control = &way == &ways_.front();
      Move(way.to_client.get(), way.to_server.get(), is_control ? text_ : "", other_);
      Move(way.to_server.get(), way.to_client.get(), is_control ? server_text_ : "", server_other_);
    }
  }
  // What the client says is said otherwise: each `text` becomes `other`, of the same length.
  void Replace(const std::string& text, const std::string& other) {
    text_ = text;
    other_ = other;
  }
  // The same of what the server says.
  void ReplaceOfServer(const std::string& text, const std::string& other) {
    server_text_ = text;
    server_other_ = other;
  }
  void SayToServer(const std::vector<std::byte>& bytes) {
    Say(ways_.front().to_server.get(), bytes);
  }
  // Unless the connection holds as much as it can, or is over.
  void FloodServer(const std::vector<std::byte>& bytes) {
    pollfd watch{ways_.front().to_server.get(), POLLOUT, 0};
    EXPECT_GE(::poll(&watch, 1, 0), 0);
    if (watch.revents == POLLOUT) SayToServer(bytes);
  }
  void SayToClient(const std::vector<std::byte>& bytes) {
    Say(ways_.front().to_client.get(), bytes);
  }

 private:
  static KernelAddress Address(const std::string& text) {
    return Resolve(*ParseServerAddress(text))->front();
  }
  static void Say(int to, const std::vector<std::byte>& bytes) {
    EXPECT_EQ(::send(to, bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  static void Move(int from, int to, const std::string& text, const std::string& other) {
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
  std::string server_text_;
  std::string server_other_;
  Descriptor listening_;
  std::string address_;
  struct Way {
    Descriptor to_client;
    Descriptor to_server;
  };
  std::vector<Way> ways_;  // the control connection, and the sockets that join it
};

}  // namespace weft
