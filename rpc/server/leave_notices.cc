#include "rpc/server/leave_notices.h"

#include "rpc/wire/frame.h"

namespace weft {

void LeaveNotices::SetClient(const rpc::ClientHello& hello) {
  takes_goaway_ = hello.takes_goaway();
  takes_moved_ = hello.takes_moved();
  moves_ahead_ = hello.moves_ahead();
  leaves_idle_ = hello.leaves_idle();
  drives_itself_ = hello.drives_itself();
}

void LeaveNotices::SendGoaway(Connection& connection, uint32_t running, bool too_early) {
  if (goaway_ == State::kTold) return;
  if (moved_ == State::kOwed) moved_ = State::kNone;
  const MessageSpace frame = too_early ? MessageSpace() : connection.Append(kCallHeaderBytes);
  goaway_ = frame.data == nullptr ? State::kOwed : State::kTold;
  if (frame.data == nullptr) return;
  EncodeGoaway(running + connection.stats().large_under_way, frame.data);
}

bool LeaveNotices::SendMoved(Connection& connection, bool too_early) {
  if (!takes_moved_ || told_moved() || goaway_ != State::kNone) return false;
  const MessageSpace frame = too_early ? MessageSpace() : connection.Append(kCallHeaderBytes);
  moved_ = frame.data == nullptr ? State::kOwed : State::kTold;
  if (frame.data != nullptr) EncodeMoved(frame.data);
  return told_moved();
}

bool LeaveNotices::MayMove(Connection& connection) const {
  return connection.state() == Connection::State::kOpen && takes_moved_ && moves_ahead_ &&
         (drives_itself_ || called_lately_) && !is_asked_to_move() &&
         !connection.memory().peer_uses_leases() && !connection.engine_wanted();
}

bool LeaveNotices::LookIsIdle(Connection& connection, bool runs_calls) {
  if (!leaves_idle_ || is_asked_to_move()) return false;
  const ConnectionStats stats = connection.stats();
  const bool in_use =
      runs_calls || stats.large_under_way > 0 || connection.memory().peer_uses_leases();
  const bool was_used = messages_ != stats.messages_received;
  // What is in use now will have been when the next look comes.
  messages_ = in_use ? kUsed : stats.messages_received;
  if (in_use || was_used) {
    unused_looks_ = 0;
    told_idle_ = false;
    return false;
  }
  if (told_idle_ || ++unused_looks_ < kLooksInIdleTimeout) return false;
  const MessageSpace frame = connection.Append(kCallHeaderBytes);
  if (frame.data == nullptr) return false;  // at the next look
  EncodeIdle(static_cast<uint32_t>(stats.messages_received), frame.data);
  told_idle_ = true;
  return true;
}

}  // namespace weft
