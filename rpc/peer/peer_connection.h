// One connection of a session between peers: both servers call each other on it.
//
// It has two halves, which know nothing of each other: the calls that this side makes (the
// channel's ClientCalls), and those that it serves (a ServerConnection). Which half a frame is for
// is seen from its kind (rpc/wire/peer_frame.h). When there is room again, they take turns.
//
//   a side's   from                                     to
//   calls
//   kNone      it has accepted the connection; ended    kOpen: begin
//   kOpen      it has dialed the connection; begin      kEnding: end
//   kEnding    end                                      kNone: ended, the other side's answer
//
// A side may call, leave off, and call again, as channels come and go: each time both of its halves
// are new, and slots and generations begin anew. That nothing of the former calls is under way then
// is what end and ended are for: they overtake nothing. An end is answered when no transfer of
// those calls is under way any more, and not too many handlers of former calls run
// (served_peer.h): until then the other side cannot begin again.
//
// When neither side calls any more nobody needs the connection. Who sees that closes it: the side
// that is told of the other's end, and does not call; or that stops wanting to call, while the
// other side does not.
//
// Threads: the engine's.
// Lifetime: made by its session for a dial or an arriving connection; deletes itself in OnClosed().
//   The half that serves stays until it has heard OnClosed(), at the peer's end of calls or with
//   the connection; the half that calls until it leaves, or has heard OnClosed().
// Errors: a peer that sends what it must not loses this connection.
// Invariants: the calling half hears OnOpen() only when the other side knows that it calls.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "core/bytes.h"
#include "rpc/peer/served_peer.h"
#include "rpc/wire/peer_frame.h"
#include "transport/transport.h"

namespace weft {

class PeerSession;

class PeerConnection final : public ConnectionHandler {
 public:
  // `dialed`: by this side. `incarnation`: of the other server, 0 if it is not known yet.
  PeerConnection(PeerSession& session, bool dialed, uint64_t incarnation);
  ~PeerConnection();

  // REQUIRES: once, before anything else. `serving`: the half that serves; null: of a dial.
  void Start(Connection& connection, ConnectionHandler* serving);

  Connection& connection() { return *connection_; }
  bool dialed() const { return dialed_; }
  bool is_open() const { return is_open_; }
  uint64_t incarnation() const { return peer_->incarnation(); }
  void set_incarnation(uint64_t incarnation) { peer_->set_incarnation(incarnation); }
  // For the halves that serve.
  const std::shared_ptr<ServedPeer>& peer() const { return peer_; }
  // Something of a half that has ended is over.
  void OnServedLess() { AnswerEnd(); }

  // The half that calls. It hears OnClosed(); and OnOpen(), at the earliest from BeginCalls().
  // REQUIRES: may_attach().
  void Attach(ConnectionHandler* calling) { calling_ = calling; }
  bool may_attach() const { return calling_ == nullptr && !closing_; }
  bool attached() const { return calling_ != nullptr; }
  // Tells the other side that this one calls, and then the half; once. That is now, or when there
  // is room, or when the end of former calls is answered. Nothing happens before the connection is
  // open, or without such a half.
  void BeginCalls();
  // This side makes no more calls and waits for none.
  void EndCalls();
  // The same, and the half that calls hears no more of it. REQUIRES: attached().
  void Leave();
  // The connection closes, and the half that calls hears OnClosed(). REQUIRES: attached().
  void LeaveByClosing();

  // The half that calls hears no more of it.
  void GiveUp(std::string_view why);
  void Close(std::string_view why);

 private:
  enum class Calls : uint8_t { kNone = 1, kOpen = 2, kEnding = 3 };

  void OnOpen(Connection& connection) override;
  void OnMessage(Connection& connection, ByteSpan message) override;
  void OnWritable(Connection& connection) override;
  void OnClosed(Connection& connection, const absl::Status& why) override;

  void OnServingFrame(ByteSpan frame);
  void OnCallingFrame(ByteSpan frame);
  void OnSessionFrame(ByteSpan frame);
  void OnEnd();
  bool TrySendBegin();
  bool TrySendBehindAll(PeerFrameKind kind);
  void AnswerEnd();
  void CloseIfUnused();
  // A half is there that has not called yet.
  bool WantsToCall() const { return calling_ != nullptr && !begun_; }
  void ProtocolError(std::string_view what);

  PeerSession& session_;
  Connection* connection_ = nullptr;
  ConnectionHandler* calling_ = nullptr;
  ConnectionHandler* serving_ = nullptr;
  const bool dialed_;
  bool is_open_ = false;
  bool closing_ = false;
  bool leaves_by_closing_ = false;  // the half that calls: it hears OnClosed()
  bool begun_ = false;              // the half that calls has heard OnOpen()
  bool begin_owed_ = false;         // there was no room for it
  bool end_owed_ = false;           // the same; kEnding
  bool calling_first_ = false;      // who is told first that there is room
  Calls mine_;
  Calls theirs_;  // kEnding: the answer to the end is owed
  const std::shared_ptr<ServedPeer> peer_;
};

}  // namespace weft
