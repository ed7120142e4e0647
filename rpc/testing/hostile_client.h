// A client of a server that keeps no rule, for a fuzzer: the input chooses what it says when it
// connects, and each frame that it sends.
//
// Frames are of calls, streams, one-way messages, payloads, sessions and peers. They are mostly
// right, and so come far, with a field here and there that is not.
//
//   HostileClient client(network, "raw", input, session);
//   client.Dial(input.U8(), input.U8());
//   network.Settle();
//   while (input.more()) client.SendAny();
//
// Threads: the network's. Lifetime: what it was given outlives it; it goes before its node.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "core/bytes.h"
#include "core/testing/fuzz_input.h"
#include "rpc/testing/raw_peer.h"
#include "rpc/wire/completion_id.h"
#include "rpc/wire/frame.h"
#include "transport/sim/sim_network.h"
#include "transport/transport.h"
#include "weft/memory.pb.h"

namespace weft::test {

class HostileClient final : public ConnectionHandler {
 public:
  static constexpr uint32_t kSlots = 4;         // of calls, and of streams, that it asks for
  static constexpr size_t kLentBytes = 4096;    // that it may lend
  static constexpr uint16_t kMethods = 22;      // of services without structs, which come first
  static constexpr uint16_t kFormMethods = 12;  // behind those: of one with them, and its forms

  // What it says of itself, by bits of the two bytes that Dial() takes.
  enum How : uint8_t {
    kPeer = 1,
    kWindows = 2,
    kExtras = 4,
    kGoaway = 8,
    kAttachments = 16,
    kControl = 32,
    kWrong = 192
  };
  enum Also : uint8_t {
    kMoves = 1,
    kMovesAhead = 2,
    kDrivesItself = 4,
    kLargeReplies = 8,
    kFewSlots = 16,
    kNoStreams = 32
  };

  // `session`: the last one that a server has given to one of those that share it.
  HostileClient(SimNetwork& network, std::string node, FuzzInput& input, SessionId& session);

  const std::string& node() const { return node_; }
  bool is_open() const { return connection_ != nullptr; }
  bool is_dialing() const { return dialing_; }
  bool has_dialed() const { return has_dialed_; }
  // Begins to connect to "sim:server", unless it has begun before, and is not closed.
  void Dial(uint8_t how, uint8_t also);
  void Close(std::string_view why);
  // What is lent is taken away.
  void TakeLentBack() { region_.reset(); }

  void SendAny();
  // A payload, as a message of this client may tell of it.
  Bulk Payload();

 private:
  void OnOpen(Connection& opened) override;
  void OnMessage(Connection& connection, ByteSpan message) override;
  void OnClosed(Connection& connection, const absl::Status& why) override;

  void Send(const Bytes& frame);
  CallId NewId(std::array<uint32_t, kSlots>* generations);
  CallId OldId(const std::array<uint32_t, kSlots>& generations);
  uint64_t Sequence();
  uint16_t Method();
  std::string Body();
  std::string Extras();
  std::string SessionRequest();
  void AppendWindows(uint32_t count, Bytes* frame);
  uint16_t AppendBeside(const std::string& body, uint8_t how, Bytes* frame);

  Bytes AnyFrame();
  Bytes Request();
  Bytes OneWay();
  Bytes OpenStream();
  Bytes StreamData();
  Bytes StreamCredit();
  Bytes OfPeer();
  Bytes Notice();
  Bytes OfServer();

  SimNetwork& network_;
  const std::string node_;
  FuzzInput& input_;
  SessionId& session_;
  bool dialing_ = false;
  bool has_dialed_ = false;
  Connection* connection_ = nullptr;
  std::vector<std::byte> lent_ = std::vector<std::byte>(kLentBytes);
  std::unique_ptr<Region> region_;
  // By slot: the last generation, and the number of the stream's next message.
  std::array<uint32_t, kSlots> calls_ = {};
  std::array<uint32_t, kSlots> opens_ = {};
  std::array<uint32_t, kSlots> numbers_ = {};
};

}  // namespace weft::test
