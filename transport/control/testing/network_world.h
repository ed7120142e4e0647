// A small language for tests on the real network: engines driven by the test's thread, and ends of
// connections that remember what they were told.
//
// Threads: everything happens on the test's thread.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "transport/network.h"

namespace weft {

// One end of a connection.
class NetworkEnd final : public ConnectionHandler {
 public:
  bool opened() const { return opened_; }
  bool closed() const { return why_.has_value(); }
  const absl::Status& why() const { return *why_; }
  Connection& connection() { return *connection_; }
  // Sends at once; false: no room now.
  bool Send(std::string_view text) {
    const absl::StatusOr<std::byte*> space = connection_->Reserve(text.size());
    if (!space.ok()) return false;
    const ByteSpan bytes = AsBytes(text);
    std::copy(bytes.begin(), bytes.end(), *space);
    connection_->Commit(text.size());
    return true;
  }
  // "shm", once open; stays after the end.
  const std::string& path() const { return path_; }
  const std::string& explained() const { return explained_; }
  const std::vector<PathCandidate>& candidates() const { return candidates_; }
  const std::string& peer_hello() const { return peer_hello_; }

  std::vector<std::string> received;
  bool echo = false;

 private:
  void OnOpen(Connection& connection) override {
    EXPECT_FALSE(opened_ || closed());
    opened_ = true;
    connection_ = &connection;
    Remember(connection);
  }
  void OnMessage(Connection&, ByteSpan message) override {
    EXPECT_TRUE(opened_ && !closed());
    received.emplace_back(AsStringView(message));
    if (echo) {
      EXPECT_TRUE(Send(received.back()));
    }
  }
  void OnClosed(Connection& connection, const absl::Status& why) override {
    EXPECT_FALSE(closed()) << why;
    EXPECT_FALSE(why.ok());
    Remember(connection);
    why_ = why;
    connection_ = nullptr;
  }
  void Remember(Connection& connection) {
    path_ = PathKindName(connection.path().kind);
    explained_ = ExplainConnection(connection);
    candidates_ = connection.candidates();
    peer_hello_ = connection.peer_hello();
  }

  Connection* connection_ = nullptr;
  bool opened_ = false;
  std::optional<absl::Status> why_;
  std::string path_;
  std::string explained_;
  std::vector<PathCandidate> candidates_;
  std::string peer_hello_;
};

// Takes every client in, or none.
class OpenDoor final : public Acceptor {
 public:
  std::vector<std::unique_ptr<NetworkEnd>> ends;
  absl::Status refusal;  // OK: takes them in
  bool echo = false;

 private:
  absl::StatusOr<ConnectionHandler*> OnIncoming(Connection&) override {
    if (!refusal.ok()) return refusal;
    ends.push_back(std::make_unique<NetworkEnd>());
    ends.back()->echo = echo;
    return ends.back().get();
  }
};

// An engine that the test drives.
inline std::unique_ptr<Engine> NewNetworkEngine(const NetworkOptions& options = {},
                                                Clock* clock = nullptr) {
  EngineOptions engine_options;
  engine_options.clock = clock;
  engine_options.drive = EngineOptions::Drive::kCaller;
  auto engine = OpenNetworkEngine(engine_options, options);
  EXPECT_TRUE(engine.ok()) << engine.status();
  return engine.ok() ? *std::move(engine) : nullptr;
}

// Lets engines work until `done`. False: it took so long that it must be a hang.
template <class Done>
bool RunEngines(const std::vector<Engine*>& engines, Done done) {
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!done()) {
    for (Engine* engine : engines) engine->Poll();
    if (std::chrono::steady_clock::now() > give_up) return false;
  }
  return true;
}

// On a machine that is busy with other tests the default limits are short.
inline ConnectOptions Patient() {
  ConnectOptions options;
  options.link.path_timeout_ns = 25'000'000'000;
  options.link.connect_timeout_ns = 50'000'000'000;
  return options;
}

inline ConnectOptions Over(std::vector<PathKind> paths) {
  ConnectOptions options = Patient();
  options.link.paths = std::move(paths);
  return options;
}

inline ListenOptions Allowing(std::vector<PathKind> paths) {
  ListenOptions options;
  options.link.paths = std::move(paths);
  return options;
}

// A server and a client engine, and what they were told.
class NetworkTest : public ::testing::Test {
 protected:
  void SetUp() override {
    server_ = NewNetworkEngine();
    client_ = NewNetworkEngine();
    ASSERT_TRUE(server_ != nullptr && client_ != nullptr);
  }

  void Listen(const std::string& address, ListenOptions options = {}) {
    options.link.connect_timeout_ns = Patient().link.connect_timeout_ns;
    auto listener = server_->transport().Listen(address, options, &acceptor_);
    ASSERT_TRUE(listener.ok()) << listener.status();
    listener_ = *std::move(listener);
  }

  NetworkEnd* Dial(const ConnectOptions& options = Patient()) {
    return DialAt(listener_->address(), options);
  }
  NetworkEnd* DialAt(const std::string& address, const ConnectOptions& options = Patient()) {
    dialed_.push_back(std::make_unique<NetworkEnd>());
    NetworkEnd* const end = dialed_.back().get();
    auto connection = client_->transport().Connect(address, options, end);
    EXPECT_TRUE(connection.ok()) << connection.status();
    return end;
  }

  template <class Done>
  bool Run(Done done) {
    return RunEngines({client_.get(), server_.get()}, done);
  }
  bool RunUntilDecided(const NetworkEnd& end) {
    return Run([&end] { return end.opened() || end.closed(); });
  }

  // Handlers outlive the engines.
  OpenDoor acceptor_;
  std::vector<std::unique_ptr<NetworkEnd>> dialed_;
  std::unique_ptr<Engine> server_;
  std::unique_ptr<Engine> client_;
  std::unique_ptr<Listener> listener_;
};

}  // namespace weft
