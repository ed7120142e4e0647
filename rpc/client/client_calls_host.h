// What the calls of a channel tell who has their connection, and ask of him.
//
// Threads: the engine's. Lifetime: outlives the ClientCalls.
#pragma once

#include <string_view>

#include "absl/status/status.h"
#include "core/bytes.h"
#include "transport/transport.h"

namespace weft {

class ClientCall;

class ClientCallsHost {
 public:
  // The events of ConnectionHandler other than OnMessage(), which ClientCalls handles itself.
  virtual void OnOpen(Connection& connection) = 0;
  virtual void OnWritable() = 0;
  virtual void OnClosed(Connection& connection, const absl::Status& why) = 0;
  // A call waits, and there is no connection, or it is being left.
  virtual void OnCallWaits() = 0;
  // The server is about to shut down. `has_none`: it has taken no call that it has not answered,
  // and takes none.
  virtual void OnGoaway(bool has_none) = 0;
  // Another process serves the address: the next connection is to that one.
  virtual void OnMoved() = 0;
  // Nothing was done on the connection for long: `frame` says what the server has (kIdle).
  virtual void OnIdle(ByteSpan frame) = 0;
  // Leaving, and perhaps nothing is under way any more.
  virtual void OnCallsLeft() = 0;
  // There is room (WantRoom()). No callback may run inside.
  virtual void OnRoom() = 0;
  // Ends the connection, for `reason`, if it is open: `why` is for the peer. Close() follows.
  virtual void EndConnection(absl::Status reason, std::string_view why) = 0;

 protected:
  ~ClientCallsHost() = default;
};

// Who hears of the calls at one of many servers. Threads, lifetime: as above.
class CallsWatcher {
 public:
  // Neither may complete a call.
  // What a call ends with; but for those that end with OK at once, which calls_ok() counts alone.
  virtual void OnEnd(const ClientCall& call, const absl::Status& status) = 0;
  // A slot or credit is free again, and WantRoom() was called.
  virtual void OnFreed() = 0;

 protected:
  ~CallsWatcher() = default;
};

}  // namespace weft
