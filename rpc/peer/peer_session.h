// A server's session with one peer, named by its id: at most one connection that is used, whoever
// has dialed it, and what becomes of others that come meanwhile.
//
// Which connection it is:
//   - An attempt of this side and one of the peer at the same time: that of the side with the
//     smaller id goes on. It refuses the other's with ABORTED; the other side takes it, and gives
//     its own up. But if the last attempt of the smaller side has failed, it takes the other's: its
//     own may never arrive.
//   - A connection of the peer that arrives beside an open one: the peer has lost that one, or was
//     started again. When the new one opens, the old one is closed, and its calls end as lost. (One
//     that has crossed an attempt of this side is given up by the peer, and never opens.)
//   - An id is the peer's own word, and takes nobody's place: a connection that comes is refused
//     when it is not proved to be whom the channel's SecurityOptions ask for, or when one that is
//     there, open or in its handshake, has proved by TLS who it is, and the new one has not the
//     same names. (A peer whose names change has to end its old connection first.)
//   - Of two processes with one id the one that came later stays: the one whose place it took is
//     refused as long as it is there.
//
//   connections  from                               to
//   none         construction                       current: a dial, or one that was accepted
//   current      the one that is used, perhaps not  none; or next becomes current: it is closed
//                open yet
//   next         accepted while current was open    current: that is closed. Open, it closes that
//
// Who dials, and when, is the channel's: a Caller, if there is one. Without, the peer may still
// call this server.
//
// Threads: the engine's.
// Lifetime: belongs to PeerSessions; stays while it has a caller or a connection.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "rpc/peer/peer_connection.h"
#include "rpc/wire/hello.pb.h"
#include "transport/transport.h"

namespace weft {

class EngineCore;
class PeerSessions;

class PeerSession {
 public:
  // The channel to the peer.
  class Caller {
   public:
    // The half of connections that calls.
    virtual ConnectionHandler* calling_half() = 0;
    // What the peer has to know of it: an rpc::ClientHello, encoded.
    virtual std::string EncodeHello() const = 0;
    // Whom the channel wants.
    virtual const std::optional<SecurityOptions>& security() const = 0;
    // It may have a connection now, if it wants one: it asks by Connect().
    virtual void WantConnection() = 0;
    // The peer has dialed: this is the connection from now on. An attempt of its own was given up.
    virtual void TakeConnection(Connection& connection) = 0;
    // Calls, streams or operations on the peer's memory have no end yet.
    virtual bool has_calls() = 0;

   protected:
    ~Caller() = default;
  };

  // `address`: see Connect().
  PeerSession(PeerSessions& sessions, std::string id);

  const std::string& id() const { return id_; }
  const std::string& address() const { return address_; }
  EngineCore& engine();

  // --- for the caller ---------------------------------------------------------------------------

  // `caller` joins, and has a connection soon if there is one. REQUIRES: Reserve().
  void Join(Caller* caller);
  // As Transport::Connect(), for the caller, whose hello is in the options; it may also be a
  // connection that is there already.
  absl::StatusOr<Connection*> Connect(ConnectOptions options);
  // What the server at the other end serves, with its incarnation, of a connection that has opened.
  // An error: it is not the one that was wanted, or has not proved to be what the channel's
  // security asks of a server.
  absl::Status ReadHello(Connection& connection, rpc::ServerHello* hello);
  // The caller has left the connection: it has no calls any more, and makes no more. It still hears
  // the connection's end.
  void EndCalls();
  // The caller is gone for the program, and hears no more.
  void Leave();
  // The same, but it has to hear OnClosed() of its connection, if it has one, which cannot stay for
  // the peer then.
  void LeaveByClosing();

  // --- for PeerSessions -------------------------------------------------------------------------

  // There is going to be a caller. ALREADY_EXISTS: there is one.
  absl::Status Reserve(const std::string& address);
  void Unreserve() { reserved_ = false; }
  // A connection has come from the peer; what TLS has proved stands in its path() already. Returns
  // who handles it, or why it is refused.
  absl::StatusOr<ConnectionHandler*> OnIncoming(Connection& connection, uint64_t incarnation);
  void CloseAll(std::string_view why);
  // Attempts of this side are given up.
  void StopDialing(std::string_view why);
  bool is_open() const { return current_ != nullptr && current_->is_open(); }
  bool has_calls() const { return caller_ != nullptr && caller_->has_calls(); }
  bool has_caller() const { return caller_ != nullptr || reserved_; }
  // Nobody needs it.
  bool is_idle() const { return !has_caller() && connections_ == 0; }

  // --- for its connections ----------------------------------------------------------------------

  void OnOpen(PeerConnection& connection);
  // `calling`: its half that calls, which has not heard of it.
  void OnClosed(PeerConnection& connection, ConnectionHandler* calling, const absl::Status& why);
  std::string CallerHello() const;
  ConnectionHandler* Serve(PeerConnection& connection, std::string_view client_hello);
  void EndServing(PeerConnection& connection, ConnectionHandler& serving);
  void OnProtocolError();

 private:
  // More processes than that with one id may go on taking each other's place.
  static constexpr size_t kMostSuperseded = 64;

  absl::Status CheckNewcomer(const PeerIdentity& identity) const;
  void Supersede(uint64_t incarnation);
  void ForgetCaller(void (PeerConnection::*leave)());
  absl::StatusOr<ConnectionHandler*> Accept(Connection& connection, uint64_t incarnation,
                                            PeerConnection** place);
  void GiveUp(PeerConnection*& connection, std::string_view why);
  void Offer();

  PeerSessions& sessions_;
  const std::string id_;
  std::string address_;  // where the caller dials; empty: it does not
  Caller* caller_ = nullptr;
  bool reserved_ = false;
  absl::Status refused_;      // the last one that has come, for who it is
  bool dial_failed_ = false;  // the last of this side, and no connection has opened since
  // The incarnations whose places were taken since there is a connection, the last ones.
  std::vector<uint64_t> superseded_;
  uint32_t connections_ = 0;  // that have not closed
  PeerConnection* current_ = nullptr;
  PeerConnection* next_ = nullptr;  // only with current_
};

}  // namespace weft
