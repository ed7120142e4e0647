// Ends of connections for tests: they remember what they are told and check the order of callbacks.
//
// Threads: the engine's.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/bytes.h"
#include "core/function.h"
#include "transport/transport.h"

namespace weft {

// A message of `bytes` that no other number produces.
std::vector<std::byte> Pattern(uint64_t number, size_t bytes);

// One end of a connection: remembers everything, checks the order of callbacks.
class Endpoint final : public ConnectionHandler {
 public:
  // Sends now, or queues for OnWritable().
  void Send(std::vector<std::byte> message);
  void Send(std::string_view text);
  // Reserve, fill, commit; the error of Reserve.
  absl::Status TrySend(ByteSpan message);
  size_t unsent() const { return outbox_.size(); }

  bool opened() const { return opened_; }
  bool closed() const { return why_.has_value(); }
  const absl::Status& why() const { return *why_; }
  Connection& connection() { return *connection_; }
  void set_connection(Connection* connection) { connection_ = connection; }

  std::vector<std::vector<std::byte>> received;  // with keep, which is the default
  uint64_t received_count = 0;
  uint64_t received_bytes = 0;
  int writable_count = 0;
  bool keep = true;
  std::string peer_hello;
  // Called instead of remembering.
  Function<void(ByteSpan)> on_message;
  Function<void()> on_closed;

 private:
  void OnOpen(Connection& connection) override;
  void OnMessage(Connection& connection, ByteSpan message) override;
  void OnWritable(Connection& connection) override;
  void OnClosed(Connection& connection, const absl::Status& why) override;
  void Pump();

  Connection* connection_ = nullptr;
  bool opened_ = false;
  std::optional<absl::Status> why_;
  std::deque<std::vector<std::byte>> outbox_;
};

// One one-sided operation that remembers its end.
class TestOperation final : public Operation {
 public:
  void OnComplete(const absl::Status& status) override {
    ++completions;
    result = status;
    if (on_complete) on_complete();
  }
  bool done() const { return completions > 0; }

  int completions = 0;
  absl::Status result;
  Function<void()> on_complete;
};

// One atomic operation that remembers its end.
class TestAtomic final : public AtomicOperation {
 public:
  void OnComplete(const absl::Status& status, uint64_t value) override {
    ++completions;
    result = status;
    before = value;
    if (on_complete) on_complete();
  }
  bool done() const { return completions > 0; }

  int completions = 0;
  absl::Status result;
  uint64_t before = 0;
  Function<void()> on_complete;
};

// Accepts with endpoints of its own, or refuses.
class TestAcceptor final : public Acceptor {
 public:
  absl::StatusOr<ConnectionHandler*> OnIncoming(Connection& connection) override;

  absl::Status refusal;  // not OK: refuse
  bool keep = true;      // for the endpoints
  std::vector<std::unique_ptr<Endpoint>> endpoints;
};

}  // namespace weft
