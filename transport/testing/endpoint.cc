#include "transport/testing/endpoint.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace weft {

std::vector<std::byte> Pattern(uint64_t number, size_t bytes) {
  std::vector<std::byte> pattern(bytes);
  uint64_t word = number * 0x9e3779b97f4a7c15 + bytes;
  for (size_t at = 0; at < bytes; at += sizeof(word)) {
    word = word * 6364136223846793005 + 1442695040888963407;
    std::memcpy(pattern.data() + at, &word, std::min(sizeof(word), bytes - at));
  }
  return pattern;
}

// --- Endpoint -----------------------------------------------------------------------------------

absl::Status Endpoint::TrySend(ByteSpan message) {
  const absl::StatusOr<std::byte*> space = connection_->Reserve(message.size());
  if (!space.ok()) return space.status();
  if (!message.empty()) std::memcpy(*space, message.data(), message.size());
  connection_->Commit(message.size());
  return absl::OkStatus();
}

void Endpoint::Send(std::vector<std::byte> message) {
  outbox_.push_back(std::move(message));
  if (outbox_.size() == 1) Pump();
}

void Endpoint::Send(std::string_view text) {
  const ByteSpan bytes = AsBytes(text);
  Send(std::vector<std::byte>(bytes.begin(), bytes.end()));
}

void Endpoint::Pump() {
  while (!outbox_.empty()) {
    const absl::Status status = TrySend(outbox_.front());
    if (!status.ok()) {
      EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
      return;
    }
    outbox_.pop_front();
  }
}

void Endpoint::OnOpen(Connection& connection) {
  EXPECT_FALSE(opened_ || closed());
  EXPECT_EQ(connection.state(), Connection::State::kOpen);
  opened_ = true;
  connection_ = &connection;
  peer_hello = connection.peer_hello();
}

void Endpoint::OnMessage(Connection& connection, ByteSpan message) {
  EXPECT_TRUE(opened_ && !closed());
  EXPECT_EQ(&connection, connection_);
  ++received_count;
  received_bytes += message.size();
  if (on_message) return on_message(message);
  if (keep) received.emplace_back(message.begin(), message.end());
}

void Endpoint::OnWritable(Connection&) {
  EXPECT_TRUE(opened_ && !closed());
  ++writable_count;
  Pump();
}

void Endpoint::OnClosed(Connection& connection, const absl::Status& why) {
  EXPECT_FALSE(closed()) << "OnClosed() twice";
  EXPECT_FALSE(why.ok());
  EXPECT_EQ(connection.state(), Connection::State::kClosed);
  why_ = why;
  connection_ = nullptr;
  outbox_.clear();
  if (on_closed) on_closed();
}

absl::StatusOr<ConnectionHandler*> TestAcceptor::OnIncoming(Connection& connection) {
  if (!refusal.ok()) return refusal;
  endpoints.push_back(std::make_unique<Endpoint>());
  endpoints.back()->set_connection(&connection);
  endpoints.back()->keep = keep;
  return endpoints.back().get();
}

}  // namespace weft
