// All sessions of one server with peers, by the peers' ids.
//
// There is one for each peer that a channel was opened to, and for each that has a connection; so
// there are never more than the program's channels and the listeners' connections.
//
// Threads: the engine's. Lifetime: a member of its server, which outlives all channels to peers.
// Errors: of OnIncoming(): what the peer is told.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "rpc/peer/peer_session.h"
#include "rpc/wire/hello.pb.h"
#include "transport/engine.h"
#include "transport/transport.h"

namespace weft {

class PeerSessions {
 public:
  // The server.
  class Host {
   public:
    // The half of a connection that serves the peer. It hears OnClosed(), and then ends itself.
    virtual ConnectionHandler* MakeServing(Connection& connection,
                                           std::shared_ptr<ServedPeer> peer) = 0;
    // In the place of its OnOpen(): the connection has been open for a while. `client_hello`: an
    // encoded rpc::ClientHello.
    virtual void BeginServing(ConnectionHandler& serving, Connection& connection,
                              std::string_view client_hello) = 0;
    // Whose handles the peer may use on a connection, which has opened.
    virtual void SetTenant(Connection& connection) = 0;
    // In the place of its OnClosed(): the connection stays, and the peer waits for no call any
    // more.
    virtual void EndServing(ConnectionHandler& serving, Connection& connection) = 0;
    virtual void OnProtocolError() = 0;
    virtual void OnPeerConnectionGone() = 0;
    // What this server tells of itself.
    virtual rpc::ServerHello MakeHello() const = 0;

   protected:
    ~Host() = default;
  };

  // `own_id`: empty, there are no peers. `incarnation`: random, not 0.
  PeerSessions(Host& host, EngineCore& engine, std::string own_id, uint64_t incarnation)
      : host_(host), engine_(engine), own_id_(std::move(own_id)), incarnation_(incarnation) {}
  ~PeerSessions();
  PeerSessions(const PeerSessions&) = delete;
  PeerSessions& operator=(const PeerSessions&) = delete;

  // A session for a channel, which joins it, or Unreserve()s it. Errors: INVALID_ARGUMENT,
  // ALREADY_EXISTS, and FAILED_PRECONDITION: this server has no id.
  absl::StatusOr<PeerSession*> Reserve(const std::string& id, const std::string& address);
  void Unreserve(PeerSession& session);

  // A connection that a peer has dialed. As Acceptor::OnIncoming().
  absl::StatusOr<ConnectionHandler*> OnIncoming(Connection& connection,
                                                const rpc::PeerHello& hello);

  // This side dials no more.
  void Stop();
  void CloseAll(std::string_view why);
  // Connections that have not closed.
  uint32_t connections() const { return connections_; }
  // Sessions whose connection is open.
  uint32_t open() const;
  // Calls of this server to peers, or operations on their memory, have no end yet.
  bool has_calls() const;
  bool has_channels() const;

  // --- for sessions -----------------------------------------------------------------------------

  Host& host() { return host_; }
  EngineCore& engine() { return engine_; }
  const std::string& own_id() const { return own_id_; }
  uint64_t incarnation() const { return incarnation_; }
  bool stopped() const { return stopped_; }
  // What a dial to `wanted` says besides the channel's hello.
  std::string EncodeHelloTo(const std::string& wanted) const;
  void OnConnectionMade() { ++connections_; }
  void OnConnectionGone(PeerSession& session);
  void ForgetIfIdle(PeerSession& session);

 private:
  PeerSession& SessionOf(const std::string& id);

  Host& host_;
  EngineCore& engine_;
  const std::string own_id_;
  const uint64_t incarnation_;
  bool stopped_ = false;
  uint32_t connections_ = 0;
  std::map<std::string, std::unique_ptr<PeerSession>> sessions_;
};

}  // namespace weft
