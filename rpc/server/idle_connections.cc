#include "rpc/server/idle_connections.h"

#include "rpc/operation/on_engine.h"
#include "rpc/server/server_connection.h"
#include "rpc/server/server_core.h"
#include "rpc/wire/frame.h"

namespace weft {

void ServerCore::StartToLookForIdle() {
  const uint64_t timeout_us = options_.limits.idle_timeout_us;
  if (timeout_us != 0) ScheduleIn(engine_, *this, timeout_us / IdleLooks::kInTimeout);
}

void ServerCore::LookForIdle() {
  if (moved_) return;  // all leave
  for (ServerConnection& connection : connections_) stats_.told_idle += connection.LookIsIdle();
  StartToLookForIdle();
}

bool ServerConnection::LookIsIdle() {
  if (!idle_.may_leave || connection_ == nullptr || peer_ != nullptr || is_asked_to_move()) {
    return false;
  }
  const ConnectionStats stats = connection_->stats();
  const bool in_use =
      running_ > 0 || stats.large_under_way > 0 || connection_->memory().peer_uses_leases();
  const bool was_used = idle_.messages != stats.messages_received;
  // What is in use now will have been when the next look comes.
  idle_.messages = in_use ? IdleLooks::kUsed : stats.messages_received;
  if (in_use || was_used) {
    idle_.unused = 0;
    idle_.told = false;
    return false;
  }
  if (idle_.told || ++idle_.unused < IdleLooks::kInTimeout) return false;
  const MessageSpace frame = connection_->Append(kCallHeaderBytes);
  if (frame.data == nullptr) return false;  // at the next look
  EncodeIdle(static_cast<uint32_t>(stats.messages_received), frame.data);
  idle_.told = true;
  FlushUnlessInTurn();
  return true;
}

}  // namespace weft
