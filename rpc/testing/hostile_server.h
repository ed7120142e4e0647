// A server on the simulated network that keeps no rule, for fuzz targets of clients.
//
// Its hello, its frames, and which of its processes speaks are made of a fuzzer's bytes
// (core/testing/fuzz_input.h): mostly answers to what was asked, with a field here and there that
// is not right. As a peer (rpc/peer/peer_session.h) it dials as well, and calls.
//
// Threads: one. Lifetime: outlives the network that it listens on, but for its listeners, which
//   StopListening() ends; the input outlives it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/bytes.h"
#include "core/testing/fuzz_input.h"
#include "rpc/testing/raw_peer.h"
#include "rpc/wire/frame.h"
#include "rpc/wire/hello.pb.h"
#include "transport/sim/sim_network.h"
#include "transport/transport.h"

namespace weft::test {

class HostileServer final : private Acceptor {
 public:
  // As a peer.
  static constexpr char kPeerId[] = "peer";

  // What it is, besides what an input's first byte says of its hello.
  struct Kind {
    bool has_stores = false;   // it serves Store and Payloads
    bool has_ledgers = false;  // and Ledger and Signals
    bool has_forms = false;    // takes structs of fixed layout there
    bool is_other = false;     // of other layouts, with other one-way methods; another peer
    bool has_several = false;  // it has several processes, each with a connection
    std::string peer_of;       // the id of the server whose peer it is; empty: of none
  };

  explicit HostileServer(FuzzInput* input) : input_(*input) {}

  // At "sim:server", and at "sim:other" where it has several processes. `how`: bits of its hello.
  void Listen(SimNetwork* network, uint8_t how, Kind kind);
  void StopListening() { listeners_.clear(); }

  // Until nothing is under way. (A client that is refused comes again and again: that never
  // settles.)
  void Settle();

  // --- what it does ------------------------------------------------------------------------------

  void SendFrame();
  // Another process speaks from now on.
  void ChangeSpeaker();
  void CloseOne();
  // Clients that come from now on, or none.
  void Refuse();
  // As a peer, of its present process or of another one.
  void Dial();
  void CloseAll();

 private:
  // The end of a connection that one of its processes has.
  struct Process final : ConnectionHandler {
    struct Asked {
      CallId id;
      uint16_t method;
    };

    void OnOpen(Connection& opened) override { connection = &opened; }
    void OnMessage(Connection&, ByteSpan message) override;
    void OnClosed(Connection&, const absl::Status&) override;

    bool taken = false;  // there is a connection, perhaps not open yet
    Connection* connection = nullptr;
    std::vector<Asked> calls;                        // without a reply
    std::vector<std::pair<CallId, uint32_t>> opens;  // and messages sent
  };

  // Acceptor.
  absl::StatusOr<ConnectionHandler*> OnIncoming(Connection&) override;
  Process* FreeProcess();
  Process& speaker() { return processes_[speaker_]; }
  Transport& transport();

  // --- the hello ---------------------------------------------------------------------------------

  rpc::ServerHello MakeHello(uint8_t how) const;
  // Of the methods of Ledger, which are numbered from `first`, and of Mark.
  void AddForms(uint32_t first, rpc::ServerHello* hello) const;

  // --- parts of frames ---------------------------------------------------------------------------

  std::string Body();
  std::string Extras();
  std::string Session();
  // One that the client has opened; null: another one.
  std::pair<CallId, uint32_t>* AnyStream(uint8_t how);

  // --- frames ------------------------------------------------------------------------------------

  Bytes ReplyFrame();
  Bytes DataFrame();
  Bytes CreditFrame();
  Bytes EndFrame();
  Bytes NoticeFrame();
  // Of a peer, which calls as well.
  Bytes CallerFrame();
  Bytes AnyFrame();
  void Send(const Bytes& frame);

  FuzzInput& input_;
  SimNetwork* network_ = nullptr;
  Kind kind_;
  rpc::ServerHello hello_;
  std::vector<std::unique_ptr<Listener>> listeners_;
  std::array<Process, 4> processes_;
  size_t speaker_ = 0;  // the process that speaks
  absl::StatusCode refusal_ = absl::StatusCode::kOk;
  // Generations, of a caller.
  std::array<uint32_t, 4> asked_ = {};
  std::array<uint32_t, 4> opened_ = {};
};

}  // namespace weft::test
