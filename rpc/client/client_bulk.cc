// The way of lent memory through a ClientConnection: registered with a request, released when the
// call is over, reclaimed when nothing can touch it any more.
#include <utility>

#include "core/status.h"
#include "core/strings.h"
#include "rpc/client/bulk_call.h"
#include "rpc/client/client_connection.h"
#include "rpc/wire/status_text.h"
#include "weft/status.h"

namespace weft {

// The windows go out with the request: from now on the server may use them.
absl::Status ClientConnection::Lend(ClientCall& call, SlabHandle slot, std::byte* table) {
  WEFT_RETURN_IF_ERROR(call.bulk->Lend(*connection_, table));
  call.bulk->client_ = this;
  call.bulk->call_ = &call;
  call.bulk->slot_ = slot;
  lent_.PushBack(call.bulk);
  return absl::OkStatus();
}

// The reply of a call that has lent memory: the call ends when that is reclaimed.
void ClientConnection::EndWithBulk(ClientCall& call, absl::Status status) {
  BulkCall& bulk = *call.bulk;
  if (!bulk.linked()) return End(call, std::move(status));  // nothing was lent
  call.state = ClientCall::State::kReclaiming;
  bulk.outcome_ = std::move(status);
  bulk.Release(*connection_);
}

void ClientConnection::OnReclaimed(BulkCall& bulk) {
  IntrusiveList<BulkCall>::Remove(&bulk);
  ClientCall* const call = bulk.call_;
  if (call == nullptr) return bulk.Reclaimed();
  // Else the connection is gone, and the call is about to end.
  if (call->state == ClientCall::State::kReclaiming) End(*call, std::move(bulk.outcome_));
}

// The end of a call, with its memory reclaimed or not.
void ClientConnection::LeaveBulk(ClientCall& call) {
  BulkCall& bulk = *std::exchange(call.bulk, nullptr);
  bulk.call_ = nullptr;
  if (!bulk.linked()) bulk.Reclaimed();
}

absl::Status ClientConnection::LateReclaimError(const ClientCall& call) const {
  const std::string text = StrCat("the reply from ", address_,
                                  " has come, but the memory that the call had lent was not "
                                  "reclaimed within ",
                                  DurationText(call.timeout_us));
  return WithDelivery(absl::DeadlineExceededError(text), Delivery::kMayHaveRun);
}

// The server is done with the windows of a call that had ended before its reply: it says so, or its
// reply does, or the connection's end.
BulkCall* ClientConnection::FindLent(SlabHandle slot) {
  for (BulkCall& bulk : lent_) {
    if (bulk.slot_ == slot) return &bulk;
  }
  return nullptr;
}

void ClientConnection::ReleaseAbandoned(SlabHandle slot) {
  if (BulkCall* bulk = FindLent(slot)) bulk->Release(*connection_);
}

void ClientConnection::OnReleased(ByteSpan frame) {
  CallId id;
  if (!DecodeNotice(frame, &id)) return ProtocolError("a release whose fields disagree");
  const SlabHandle handle{id.slot, id.generation};
  const Slot* slot = slots_->Get(handle);
  if (slot == nullptr || slot->call != nullptr) {
    return ProtocolError("a release of what was not cancelled");
  }
  ReleaseAbandoned(handle);
}

// The connection is gone, and with it every way to the memory.
void ClientConnection::ReclaimAll(Connection& connection) {
  while (BulkCall* bulk = lent_.Front()) {
    bulk->Release(connection);
    WEFT_CHECK(lent_.Front() != bulk);
  }
}

void ClientConnection::GiveUp(std::string_view why) {
  if (connection_ == nullptr || state_ != State::kOpen) return;
  close_reason_ = absl::UnavailableError(StrCat("the client gave up the connection: ", why));
  connection_->Close(why);
}

}  // namespace weft
