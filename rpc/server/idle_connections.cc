#include "rpc/server/idle_connections.h"

#include "rpc/wire/frame.h"

namespace weft {

bool IdleLooks::Look(Connection& connection, bool runs_calls) {
  if (!may_leave_) return false;
  const ConnectionStats stats = connection.stats();
  const bool in_use =
      runs_calls || stats.large_under_way > 0 || connection.memory().peer_uses_leases();
  const bool was_used = messages_ != stats.messages_received;
  // What is in use now will have been when the next look comes.
  messages_ = in_use ? kUsed : stats.messages_received;
  if (in_use || was_used) {
    unused_ = 0;
    told_ = false;
    return false;
  }
  if (told_ || ++unused_ < kInTimeout) return false;
  const MessageSpace frame = connection.Append(kCallHeaderBytes);
  if (frame.data == nullptr) return false;  // at the next look
  EncodeIdle(static_cast<uint32_t>(stats.messages_received), frame.data);
  told_ = true;
  return true;
}

}  // namespace weft
