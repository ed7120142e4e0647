// One connection of a session between peers: both servers call each other on it.
//
// It has two halves, which know nothing of each other: the calls that this side makes (the
// channel's ClientCalls), and those that it serves (a ServerConnection). Which half a frame is for
// is seen from its kind (rpc/wire/peer_frame.h). When there is room again, they take turns.
//
//   a side's   from                                        to
//   calls
//   kNone      accepted the connection, and has not begun  kOpen: begin; kOver
//   kOpen      dialed the connection; begin                kOver: end
//   kOver      end; there will be no more on this connection
//
// When neither side calls any more nobody needs the connection, and it is closed.
//
// Threads: the engine's.
// Lifetime: made by its session for a dial or an arriving connection; deletes itself in OnClosed().
//   Both halves stay until they have heard OnClosed().
// Errors: a peer that sends what it must not loses this connection.
// Invariants: the calling half hears OnOpen() only when the other side knows that it calls.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/bytes.h"
#include "transport/transport.h"

namespace weft {

class PeerSession;

class PeerConnection final : public ConnectionHandler {
 public:
  // `dialed`: by this side. `incarnation`: of the other server, 0 if it is not known yet.
  PeerConnection(PeerSession& session, bool dialed, uint64_t incarnation);

  // REQUIRES: once, before anything else. `serving`: the half that serves; null: of a dial.
  void Start(Connection& connection, ConnectionHandler* serving);

  Connection& connection() { return *connection_; }
  bool dialed() const { return dialed_; }
  bool is_open() const { return is_open_; }
  uint64_t incarnation() const { return incarnation_; }
  void set_incarnation(uint64_t incarnation) { incarnation_ = incarnation; }

  // The half that calls. It hears OnClosed(); and OnOpen(), at the earliest from BeginCalls().
  // REQUIRES: may_attach().
  void Attach(ConnectionHandler* calling) { calling_ = calling; }
  bool may_attach() const { return calling_ == nullptr && mine_ != Calls::kOver && !closing_; }
  bool attached() const { return calling_ != nullptr; }
  // Tells the other side that this one calls, now or when there is room, and then the half; once.
  // Nothing happens before the connection is open, or without such a half.
  void BeginCalls();
  // This side makes no more calls and waits for none. `deaf`: the half that calls is not told of
  // frames any more.
  void EndCalls(bool deaf);

  // The half that calls hears no more of it.
  void GiveUp(std::string_view why);
  void Close(std::string_view why);

 private:
  enum class Calls : uint8_t { kNone = 1, kOpen = 2, kOver = 3 };

  void OnOpen(Connection& connection) override;
  void OnMessage(Connection& connection, ByteSpan message) override;
  void OnWritable(Connection& connection) override;
  void OnClosed(Connection& connection, const absl::Status& why) override;

  void OnServingFrame(ByteSpan frame);
  void OnCallingFrame(ByteSpan frame);
  void OnSessionFrame(ByteSpan frame);
  bool TrySendBegin();
  bool TrySendEnd();
  void ProtocolError(std::string_view what);

  PeerSession& session_;
  Connection* connection_ = nullptr;
  ConnectionHandler* calling_ = nullptr;
  ConnectionHandler* serving_ = nullptr;
  const bool dialed_;
  bool is_open_ = false;
  bool closing_ = false;
  bool deaf_ = false;
  bool begun_ = false;       // the half that calls has heard OnOpen()
  bool begin_owed_ = false;  // there was no room for it
  bool end_owed_ = false;
  bool calling_first_ = false;  // who is told first that there is room
  Calls mine_;
  Calls theirs_;
  uint64_t incarnation_;
};

}  // namespace weft
