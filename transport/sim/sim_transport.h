// The transport of one simulated node: brings connections up over the simulated wire and ends them,
// as transport/control does over sockets.
//
//   client                         server
//   Hello        ------------->    Acceptor::OnIncoming()
//                <-------------    Welcome, or Refusal
//   links come up on both sides; each side says Ready when its own is, and opens when it has
//   heard the other's. Goodbye ends.
//
// Threads: one.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>

#include "core/client_shares.h"
#include "transport/engine.h"
#include "transport/framing/connection_table.h"
#include "transport/framing/framed_connection.h"
#include "transport/framing/framing_domain.h"
#include "transport/leases/export_table.h"
#include "transport/sim/sim_fabric.h"
#include "transport/sim/sim_link.h"
#include "transport/transport.h"

namespace weft {

class SimTransport final : public Transport, private ConnectionOwner {
 public:
  SimTransport(SimFabric* fabric, SimFabric::NodeId node, const EngineContext& engine);
  ~SimTransport() override;

  absl::StatusOr<std::unique_ptr<Listener>> Listen(const std::string& address,
                                                   const ListenOptions& options,
                                                   Acceptor* acceptor) override;
  absl::StatusOr<Connection*> Connect(const std::string& address, const ConnectOptions& options,
                                      ConnectionHandler* handler) override;
  int Poll(int budget, uint64_t now_ns) override;
  void FlushAll() override { table_.FlushAll(); }
  Exports& exports() override { return exports_; }
  bool Arm() override { return links_.Arm() && !table_.has_events(); }
  bool Idle(uint64_t until_ns) override { return fabric_->Idle(node_, until_ns); }

  // The fabric tells that `node` is dead, or has not been heard for too long.
  void OnPeerGone(SimFabric::NodeId node, bool dead);

  // Poll() or FlushAll() have something to do, beside what the fabric delivers.
  bool has_work() const { return table_.has_work(); }

  // For tests of the transport itself.
  ConnectionTable& table() { return table_; }
  SimLinkDomain& links() { return links_; }
  FramingDomain& framing() { return framing_; }
  void CheckInvariants() const;

 private:
  class SimListener;
  struct Hello {
    SimFabric::NodeId node = 0;
    uint64_t id = 0;  // of the client's Peer
    uint32_t index = 0;
    uint32_t token = 0;
    uint32_t window_slots = 0;
    std::string listener;
    std::string text;
  };
  struct Welcome {
    SimFabric::NodeId node = 0;
    uint64_t id = 0;  // of the server's Peer
    uint32_t index = 0;
    uint32_t token = 0;
    uint32_t window_slots = 0;
    uint64_t nonce = 0;
    std::string text;
  };
  // One connection and what its owner knows.
  struct Peer {
    std::unique_ptr<FramedConnection> connection;
    SimFabric::NodeId node = 0;
    uint64_t remote_id = 0;
    uint32_t window_slots = 0;
    bool link_up = false;
    bool remote_ready = false;
    std::string listener;  // server side: whose client this is
  };
  using PeerIterator = std::map<uint64_t, Peer>::iterator;

  // Runs `what` on the other node's transport.
  void Tell(SimFabric::NodeId node, const char* name, size_t bytes,
            Function<void(SimTransport&)> what);
  absl::StatusOr<PeerIterator> AddPeer(const LinkOptions& options, ConnectionHandler* handler);
  PeerIterator Find(const FramedConnection& connection);
  void OnHello(const Hello& hello);
  absl::Status Admit(const Hello& hello);
  void OnWelcome(uint64_t id, const Welcome& welcome);
  void OnReady(uint64_t id);
  void OnGrant(uint64_t id, ByteSpan grant);
  void OnGoodbye(uint64_t id, const absl::Status& why);
  absl::Status StartLink(Peer& peer, bool active, uint64_t nonce, LinkAgreement agreement);
  void OpenIfReady(Peer& peer);
  void End(PeerIterator peer, const absl::Status& why, bool peer_dead);
  void EndAndTell(PeerIterator peer, const absl::Status& why, const absl::Status& told);

  // ConnectionOwner
  void OnLinkUp(FramedConnection& connection) override;
  void OnBroken(FramedConnection& connection, const absl::Status& why) override;
  void OnCloseRequested(FramedConnection& connection, std::string_view why) override;
  void SendGrant(FramedConnection& connection, ByteSpan grant) override;

  SimFabric* const fabric_;
  const SimFabric::NodeId node_;
  Random random_;
  ExportTable exports_;
  ConnectionTable table_;
  const EngineContext engine_;
  SimLinkDomain links_;
  FramingDomain framing_;
  std::map<std::string, SimListener*> listeners_;
  std::map<uint64_t, Peer> peers_;
  // Of peers_, so that one of many thousands is found and counted without a look at the others.
  std::unordered_map<const FramedConnection*, uint64_t> ids_;
  std::map<std::string, ClientShares> connections_;  // of each listener
  uint64_t next_peer_ = 1;
};

}  // namespace weft
