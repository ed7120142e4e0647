// Who else lives on a channel's connection, besides its calls.
//
// Threads: the engine's. Lifetime: watches from ClientConnection::Watch() until it is destroyed.
#pragma once

#include "absl/status/status.h"
#include "core/intrusive_list.h"
#include "transport/transport.h"

namespace weft {

struct ConnectionWatcherTag;

// None of these may destroy a watcher.
class ConnectionWatcher : public ListNode<ConnectionWatcherTag> {
 public:
  // There is a connection: until OnConnectionLost().
  virtual void OnConnected(Connection& connection) = 0;
  // Its server is about to shut down: what is posted goes on, and nothing new is to be posted until
  // OnConnectionLost(), which comes when no call is under way and no watcher IsBusy(), or earlier.
  virtual void OnConnectionLeaving(const absl::Status& why) = 0;
  // Something is posted on the connection. A watcher that is not any more says so by
  // ClientConnection::EndIfLeft().
  virtual bool IsBusy() const = 0;
  // It is gone; everything that was posted on it has completed.
  virtual void OnConnectionLost() = 0;
  // An attempt to connect has failed; there will be another when somebody wants it.
  virtual void OnNoConnection(const absl::Status& why) = 0;
  // ConnectionHandler::OnWritable().
  virtual void OnRoom() = 0;

 protected:
  ~ConnectionWatcher() = default;
};

}  // namespace weft
