// Peers that send whatever frames a test wants, and the frames.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "rpc/wire/frame.h"
#include "rpc/wire/hello.pb.h"
#include "transport/transport.h"

namespace weft::test {

using Bytes = std::vector<std::byte>;

// One end of a connection that says whatever it is told to say.
class RawPeer final : public ConnectionHandler {
 public:
  // Begins to connect to "sim:server", as a client of some calls at a time whose replies have 1,000
  // bytes at the most; `connection` is there when it is open. Forgets an earlier connection.
  void Dial(Transport& transport, uint32_t max_windows = 0, uint32_t max_calls = 4) {
    rpc::ClientHello hello;
    hello.set_protocol(kRpcProtocolVersion);
    hello.set_max_outstanding_calls(max_calls);
    hello.set_max_reply_bytes(1000);
    hello.set_max_windows(max_windows);
    DialWith(transport, hello);
  }
  void DialWith(Transport& transport, const rpc::ClientHello& hello) {
    ConnectOptions options;
    options.hello = hello.SerializeAsString();
    received.clear();
    why = absl::OkStatus();
    const absl::Status status = transport.Connect("sim:server", options, this).status();
    ASSERT_TRUE(status.ok()) << status;
  }

  void Send(const Bytes& message) {
    absl::StatusOr<std::byte*> space = connection->Reserve(message.size());
    ASSERT_TRUE(space.ok()) << space.status();
    if (!message.empty()) std::memcpy(*space, message.data(), message.size());
    connection->Commit(message.size());
    connection->Flush();
  }

  Connection* connection = nullptr;
  std::vector<Bytes> received;
  absl::Status why;  // OK: not closed

 private:
  void OnOpen(Connection& opened) override { connection = &opened; }
  void OnMessage(Connection&, ByteSpan message) override {
    received.emplace_back(message.begin(), message.end());
  }
  void OnClosed(Connection&, const absl::Status& status) override {
    connection = nullptr;
    why = status;
  }
};

class RawAcceptor final : public Acceptor {
 public:
  absl::StatusOr<ConnectionHandler*> OnIncoming(Connection&) override { return &peer; }
  RawPeer peer;
};

inline Bytes Request(CallId id, uint16_t method, const std::string& body = "",
                     uint32_t remaining_us = 0) {
  Bytes frame(kCallHeaderBytes + body.size());
  EncodeRequest({id, method, remaining_us}, frame.data());
  std::memcpy(frame.data() + kCallHeaderBytes, body.data(), body.size());
  return frame;
}

inline Bytes RequestWithWindows(CallId id, uint16_t method, const std::vector<Window>& windows,
                                const std::string& body = "") {
  const size_t header_bytes = kCallHeaderBytes + windows.size() * kWindowBytes;
  Bytes frame(header_bytes + body.size());
  EncodeRequest({id, method, 0}, frame.data(), RequestKind(static_cast<uint32_t>(windows.size())));
  std::byte* at = frame.data() + kCallHeaderBytes;
  for (const Window& window : windows) {
    EncodeWindow(window, at);
    at += kWindowBytes;
  }
  std::memcpy(at, body.data(), body.size());
  return frame;
}

// A request whose extras are `extras`, whatever they are.
inline Bytes RequestWithExtras(CallId id, uint16_t method, const std::string& extras,
                               const std::string& body = "") {
  const size_t body_at = kCallHeaderBytes + ExtrasBlockBytes(extras.size());
  Bytes frame(body_at + body.size());
  EncodeRequest({id, method, 0}, frame.data(), RequestKind(/*windows=*/0, kExtrasBit));
  if (!extras.empty()) EncodeExtrasBlock(extras, frame.data() + kCallHeaderBytes);
  std::memcpy(frame.data() + body_at, body.data(), body.size());
  return frame;
}

inline Bytes Notice(CallFrameKind kind, CallId id) {
  Bytes frame(kCallHeaderBytes);
  EncodeNotice(kind, id, frame.data());
  return frame;
}
inline Bytes Cancel(CallId id) { return Notice(CallFrameKind::kCancel, id); }

inline Bytes Reply(CallId id, uint16_t status, uint32_t text_bytes, const std::string& body) {
  Bytes frame(kCallHeaderBytes + body.size());
  EncodeReply({id, status, text_bytes}, frame.data());
  std::memcpy(frame.data() + kCallHeaderBytes, body.data(), body.size());
  return frame;
}

inline Bytes ReplyWithExtras(CallId id, uint16_t status, const std::string& extras,
                             const std::string& body) {
  const size_t body_at = kCallHeaderBytes + ExtrasBlockBytes(extras.size());
  Bytes frame(body_at + body.size());
  const auto text_bytes = static_cast<uint32_t>(status == 0 ? 0 : body.size());
  EncodeReply({id, status, text_bytes}, frame.data(), kExtrasBit);
  EncodeExtrasBlock(extras, frame.data() + kCallHeaderBytes);
  std::memcpy(frame.data() + body_at, body.data(), body.size());
  return frame;
}

inline Bytes WithByte(Bytes frame, size_t at, uint8_t value) {
  frame[at] = std::byte{value};
  return frame;
}

inline Bytes Truncated(Bytes frame, size_t bytes) {
  frame.resize(bytes);
  return frame;
}

}  // namespace weft::test
