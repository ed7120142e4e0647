// Messages in one direction over a Connection, below calls: what the transport does by itself.
//
// Both sides have an engine of their own for it, so that it costs the other patterns nothing. The
// sender keeps as many on the way as the cell says; the receiver confirms every ConfirmEvery(cell)
// of them by an empty message. Nobody writes or reads the payload: messages are reserved and
// committed as they are. A message of another size than the cell's says that the run is over.
//
// Threads: one, which drives the engine. Lifetime: the receiver outlives the sender.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bench/perf/cell/cell.h"
#include "bench/perf/cell/figures.h"
#include "transport/engine.h"
#include "transport/transport.h"

namespace weft::bench {

class MessageReceiver final : private Acceptor, private ConnectionHandler {
 public:
  // `engine`: in external mode.
  static absl::StatusOr<std::unique_ptr<MessageReceiver>> Open(
      std::unique_ptr<Engine> engine, const LinkOptions& link,
      const std::optional<SecurityOptions>& security);
  ~MessageReceiver();

  const std::string& address() const { return listener_->address(); }
  // Until the run is over.
  absl::Status Serve(const Cell& cell);
  void Rest();

 private:
  explicit MessageReceiver(std::unique_ptr<Engine> engine) : engine_(std::move(engine)) {}

  absl::StatusOr<ConnectionHandler*> OnIncoming(Connection& connection) override;
  void OnOpen(Connection& connection) override { connection_ = &connection; }
  void OnMessage(Connection& connection, ByteSpan message) override;
  void OnClosed(Connection& connection, const absl::Status& why) override;
  void Confirm();

  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Listener> listener_;
  Connection* connection_ = nullptr;
  absl::Status status_;  // why it closed
  Cell cell_;
  uint32_t unconfirmed_ = 0;
  uint32_t owed_ = 0;  // confirmations
  bool over_ = false;
};

class MessageSender final : private ConnectionHandler {
 public:
  // `engine`: in caller mode.
  static absl::StatusOr<std::unique_ptr<MessageSender>> Open(
      std::unique_ptr<Engine> engine, const std::string& address, const LinkOptions& link,
      const std::optional<SecurityOptions>& security);
  ~MessageSender();

  absl::StatusOr<Figures> Run(const Cell& cell, double seconds);
  void Rest();

 private:
  explicit MessageSender(std::unique_ptr<Engine> engine) : engine_(std::move(engine)) {}

  void OnOpen(Connection& connection) override { connection_ = &connection; }
  void OnMessage(Connection& connection, ByteSpan message) override;
  void OnClosed(Connection& connection, const absl::Status& why) override;

  bool open() const { return connection_ != nullptr; }
  bool Send(size_t bytes);
  void SendSurely(size_t bytes);
  Figures OneByOne(const Cell& cell, double seconds);
  double Rate(const Cell& cell, double seconds);

  std::unique_ptr<Engine> engine_;
  Connection* connection_ = nullptr;
  absl::Status status_;
  uint64_t confirmations_ = 0;
};

}  // namespace weft::bench
