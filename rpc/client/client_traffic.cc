// The way of calls through a ClientConnection: out, back, and out of time.
#include <algorithm>
#include <limits>
#include <utility>

#include "core/check.h"
#include "core/inline.h"
#include "core/status.h"
#include "core/strings.h"
#include "rpc/client/bulk_call.h"
#include "rpc/client/client_steps.h"
#include "rpc/layout/method_layouts.h"
#include "rpc/wire/status_text.h"
#include "weft/status.h"

namespace weft {
namespace {

size_t BytesOf(const ClientCall& call) {
  return call.request != nullptr ? RequestBytes(*call.request) : RequestBytes(call.encoded);
}

SlabHandle HandleOf(ByteSpan frame) {
  const CallId id = CallIdOf(frame);
  return {id.slot, id.generation};
}

// How the reply travels. REQUIRES: call.layouts.
LayoutSide ReplySide(const ClientCall& call) {
  const LayoutSide& side = call.layouts->reply;
  return call.reply_converted ? LayoutSide{side.type, 0} : side;
}

// An error that the server has answered: its own, or the handler's.
WEFT_COLD absl::Status AnsweredError(const ReplyHeader& header, ByteSpan text) {
  absl::Status status(static_cast<absl::StatusCode>(header.status), ToAbsl(AsStringView(text)));
  if (header.not_run) return WithDelivery(std::move(status), Delivery::kNotSent);
  if (!absl::IsUnavailable(status) && !absl::IsDeadlineExceeded(status)) return status;
  return WithDelivery(std::move(status), Delivery::kMayHaveRun);
}

}  // namespace

// --- out ----------------------------------------------------------------------------------------

void ClientConnection::Start(ClientCall& call) {
  ++stats_.calls_started;
  if (MaySend() && TrySend(call) != Sent::kNotNow) return;
  Enqueue(call);
}

void ClientConnection::StartTimed(ClientCall& call, const absl::Status& valid) {
  if (!valid.ok()) return End(call, valid);
  // Before the start: afterwards the call may be gone.
  if (call.deadline_ns != kNever) engine_.timers().Schedule(&call, call.deadline_ns);
  Start(call);
}

void ClientConnection::StartFromCallback(CallbackCall& call, const absl::Status& valid) {
  early_ends_.WhileStarting(call, [&] { StartTimed(call, valid); });
}

ClientConnection::Sent ClientConnection::TrySend(ClientCall& call) {
  const uint16_t method = methods_.Find(call.method);
  if (method != MethodTable::kUnknown) [[likely]]
    return Send(call, method);
  const absl::StatusOr<MethodTable::Agreed> agreed = methods_.Resolve(call.method, address_);
  if (!agreed.ok()) return Refuse(call, agreed.status());
  return agreed->as_wanted ? Send(call, agreed->number) : SendConverted(call, *agreed);
}

// For a server that takes less in fixed layouts than the caller has.
WEFT_COLD ClientConnection::Sent ClientConnection::SendConverted(
    ClientCall& call, const MethodTable::Agreed& agreed) {
  const std::string_view record = call.encoded;
  const LayoutSide& request = call.layouts->request;
  std::string encoded;
  if (request.fixed() && !agreed.request_fixed) {
    encoded = request.type->to_protobuf(record.data());
    call.encoded = encoded;
  }
  call.reply_converted = call.layouts->reply.fixed() && !agreed.reply_fixed;
  const Sent sent = Send(call, agreed.number);
  if (sent != Sent::kCompleted) call.encoded = record;
  // The next server may take the layout.
  if (sent == Sent::kNotNow) call.reply_converted = false;
  return sent;
}

ClientConnection::Sent ClientConnection::Send(ClientCall& call, uint16_t method) {
  if (call.bulk != nullptr) return TrySendWithWindows(call, method);
  const size_t bytes = BytesOf(call);
  if (bytes > max_request_bytes_) return Refuse(call, CheckSize(bytes, 0));
  const bool sent = call.request != nullptr ? SendRequest(call, method, *call.request)
                                            : SendRequest(call, method, call.encoded);
  return sent ? Sent::kYes : Sent::kNotNow;
}

// As Send(), for a call that lends memory: that can fail after room was made.
WEFT_COLD ClientConnection::Sent ClientConnection::TrySendWithWindows(ClientCall& call,
                                                                      uint16_t method) {
  const uint32_t windows = call.bulk->window_count();
  const size_t header_bytes = kCallHeaderBytes + windows * kWindowBytes;
  const size_t bytes = BytesOf(call);
  if (absl::Status possible = CheckSize(bytes, windows); !possible.ok()) {
    return Refuse(call, std::move(possible));
  }
  SlabHandle handle;
  Slot* const slot = slots_->Allocate(&handle);
  if (slot == nullptr) return Sent::kNotNow;
  const absl::StatusOr<std::byte*> frame = connection_->Reserve(header_bytes + bytes);
  if (!frame.ok()) {
    slots_->Free(handle);
    return Sent::kNotNow;
  }
  if (absl::Status lent = Lend(call, handle, *frame + kCallHeaderBytes); !lent.ok()) {
    connection_->Abandon();
    slots_->Free(handle);
    return Refuse(call, WithDelivery(Annotate(std::move(lent), "not sent"), Delivery::kNotSent));
  }
  EncodeRequest({{handle.slot, handle.generation}, method, RemainingUs(call)}, *frame, windows);
  if (call.request != nullptr) {
    EncodeRequestTo(*call.request, *frame + header_bytes);
  } else {
    EncodeRequestTo(call.encoded, *frame + header_bytes);
  }
  *slot = {&call, connection_->Commit(header_bytes + bytes), false};
  call.slot = handle;
  call.state = ClientCall::State::kSent;
  return Sent::kYes;
}

WEFT_COLD ClientConnection::Sent ClientConnection::Refuse(ClientCall& call, absl::Status why) {
  End(call, std::move(why));
  return Sent::kCompleted;
}

absl::Status ClientConnection::CheckSize(size_t bytes, uint32_t windows) const {
  if (windows > max_windows_) {
    return absl::UnimplementedError(StrCat("the call lends ", windows, " windows; the server at ",
                                           address_, " takes ", max_windows_, " (not sent)"));
  }
  const uint64_t most =
      std::min<uint64_t>(max_request_bytes_, kMaxPayloadBytes - windows * kWindowBytes);
  if (bytes <= most) return absl::OkStatus();
  return WithDelivery(
      absl::ResourceExhaustedError(StrCat("the request has ", bytes, " bytes; the server at ",
                                          address_, " takes at most ", most, " (not sent)")),
      Delivery::kNotSent);
}

WEFT_COLD uint32_t ClientConnection::TimeLeftUs(const ClientCall& call) const {
  uint64_t remaining_us = call.timeout_us;
  if (call.state == ClientCall::State::kQueued) {
    const uint64_t now_ns = engine_.clock().NowNs();
    // Not 0, which would mean that there is no deadline.
    remaining_us =
        call.deadline_ns > now_ns + kNsPerUs ? (call.deadline_ns - now_ns) / kNsPerUs : 1;
  }
  // More than an hour and eleven minutes does not fit: the client alone watches such a deadline.
  return remaining_us <= std::numeric_limits<uint32_t>::max() ? static_cast<uint32_t>(remaining_us)
                                                              : 0;
}

void ClientConnection::Enqueue(ClientCall& call) {
  if (state_ == State::kEnded) {
    return End(
        call, WithDelivery(absl::CancelledError(StrCat("the channel to ", address_, " was closed")),
                           Delivery::kNotSent));
  }
  if (queued_ >= options_.max_queued_calls) {
    const std::string text =
        StrCat(queued_, " calls wait already for ", address_,
               ", as many as ChannelOptions::max_queued_calls allows (not sent)");
    return End(call, WithDelivery(absl::ResourceExhaustedError(text), Delivery::kNotSent));
  }
  call.KeepRequest();
  call.state = ClientCall::State::kQueued;
  queue_.PushBack(&call);
  ++queued_;
  if (state_ == State::kIdle) BeginAttempt();
}

void ClientConnection::Pump() {
  if (cancels_owed_ > 0) SendOwedCancels();
  while (state_ == State::kOpen && !held()) {
    ClientCall* call = queue_.Front();
    if (call == nullptr) return;
    // Off the queue first: if the call ends here, its callback may start others.
    IntrusiveList<ClientCall>::Remove(call);
    --queued_;
    // It may be gone after this, unless it was sent.
    const Sent sent = TrySend(*call);
    if (sent == Sent::kNotNow) {
      queue_.PushFront(call);
      ++queued_;
      return;
    }
    if (sent == Sent::kYes && call->kind == ClientCall::Kind::kCallback) {
      static_cast<CallbackCall*>(call)->ForgetRequest();
    }
  }
}

void ClientConnection::OnWritable(Connection&) {
  if (state_ != State::kOpen) return;
  for (ConnectionWatcher& watcher : watchers_) watcher.OnRoom();
  Pump();
}

// --- back ---------------------------------------------------------------------------------------

void ClientConnection::OnMessage(Connection&, ByteSpan message) {
  WEFT_DCHECK(state_ == State::kOpen && close_reason_.ok());
  if (!IsOkReply(message)) [[unlikely]]
    return OnOtherFrame(message);
  OnOkReply(message);
}

WEFT_COLD void ClientConnection::OnOtherFrame(ByteSpan frame) {
  const uint16_t kind = CallFrameKindOf(frame);
  if (kind == static_cast<uint16_t>(CallFrameKind::kReleased)) return OnReleased(frame);
  if (kind != static_cast<uint16_t>(CallFrameKind::kReply)) {
    return ProtocolError("neither a reply nor a release");
  }
  ReplyHeader header;
  ByteSpan body;
  if (!DecodeReply(frame, &header, &body)) {
    return ProtocolError("a reply whose fields disagree");
  }
  const Slot* const slot = slots_->Release(HandleOf(frame));
  if (slot == nullptr) return ProtocolError("a reply to no call");
  failures_ = 0;
  OnOtherReply(frame, *slot);
  if (queued_ > 0) Pump();
}

WEFT_INLINE void ClientConnection::OnOkReply(ByteSpan frame) {
  const Slot* const slot = slots_->Release(HandleOf(frame));
  if (slot == nullptr) [[unlikely]]
    return ProtocolError("a reply to no call");
  failures_ = 0;
  ClientCall* const call = slot->call;
  if (call != nullptr && call->bulk == nullptr && IsDecoded(frame.subspan(kCallHeaderBytes), *call))
      [[likely]] {
    EndWell(*call);
  } else {
    OnOtherReply(frame, *slot);
  }
  if (queued_ > 0) [[unlikely]]
    Pump();
}

// An error, one that cannot be decoded, one with memory to reclaim, or one that comes too late. The
// slot is free already.
WEFT_COLD void ClientConnection::OnOtherReply(ByteSpan frame, Slot slot) {
  ReplyHeader header;
  ByteSpan body;
  if (!DecodeReply(frame, &header, &body)) return;  // it was looked at before
  if (slot.call == nullptr) {
    OnLateReply({header.id.slot, header.id.generation}, slot);
  } else if (slot.call->bulk != nullptr) {
    EndWithBulk(*slot.call, OutcomeOf(header, body, *slot.call));
  } else {
    End(*slot.call, OutcomeOf(header, body, *slot.call));
  }
}

// The call has ended before.
WEFT_COLD void ClientConnection::OnLateReply(SlabHandle handle, const Slot& slot) {
  ++stats_.late_replies;
  --stats_.abandoned;
  if (slot.cancel_owed) --cancels_owed_;
  ReleaseAbandoned(handle);
}

// True: the call has the reply. Else OutcomeOf() has the error.
WEFT_INLINE bool ClientConnection::IsDecoded(ByteSpan body, ClientCall& call) const {
  if (body.size() > max_reply_bytes_) [[unlikely]]
    return false;
  if (call.layouts != nullptr) [[unlikely]]
    return IsDecodedInLayout(body, call);
  return call.reply.message->ParsePartialFromArray(body.data(), static_cast<int>(body.size())) &&
         call.reply.message->IsInitialized();
}

bool ClientConnection::IsDecodedInLayout(ByteSpan body, ClientCall& call) const {
  if (call.reply_converted) [[unlikely]]
    return DecodeProtobuf(call.layouts->reply.type, body, call.reply);
  return DecodeBody(call.layouts->reply, body, call.reply);
}

// Reads the reply; the call's status.
WEFT_COLD absl::Status ClientConnection::OutcomeOf(const ReplyHeader& header, ByteSpan body,
                                                   ClientCall& call) const {
  if (header.status != 0) {
    return AnsweredError(header, body);
  }
  if (body.size() > options_.max_reply_bytes) {
    return absl::ResourceExhaustedError(StrCat("the reply has ", body.size(),
                                               " bytes; ChannelOptions::max_reply_bytes is ",
                                               options_.max_reply_bytes, " (the request has run)"));
  }
  if (call.layouts != nullptr && call.layouts->reply.type != nullptr) {
    const LayoutSide side = ReplySide(call);
    if (DecodeBody(side, body, call.reply)) return absl::OkStatus();
    return absl::DataLossError(StrCat("the reply from ", address_, " cannot be decoded: ",
                                      WhyNotDecoded(side, body, call.reply)));
  }
  google::protobuf::MessageLite& reply = *call.reply.message;
  if (!reply.ParsePartialFromArray(body.data(), static_cast<int>(body.size()))) {
    return absl::DataLossError(StrCat("the reply of ", body.size(), " bytes from ", address_,
                                      " cannot be decoded as ", std::string(reply.GetTypeName())));
  }
  if (!reply.IsInitialized()) {
    return absl::DataLossError(StrCat("the reply from ", address_, " lacks required fields of ",
                                      std::string(reply.GetTypeName()), ": ",
                                      reply.InitializationErrorString()));
  }
  return absl::OkStatus();
}

// A call that was sent, and lends nothing, has its reply.
WEFT_INLINE void ClientConnection::EndWell(ClientCall& call) {
  if (call.deadline_ns != kNever) engine_.timers().Cancel(&call);
  call.state = ClientCall::State::kDone;
  ++stats_.calls_ok;
  if (call.kind != ClientCall::Kind::kCallback) return call.Complete(absl::OkStatus());
  auto& by_callback = static_cast<CallbackCall&>(call);
  by_callback.done(absl::OkStatus());
  by_callback.done = nullptr;
  Recycle(by_callback);
}

void ClientConnection::End(ClientCall& call, absl::Status status) {
  if (call.armed()) engine_.timers().Cancel(&call);
  if (call.bulk != nullptr) LeaveBulk(call);
  call.state = ClientCall::State::kDone;
  ++(status.ok() ? stats_.calls_ok : stats_.calls_failed);
  call.Complete(std::move(status));
}

// --- out of time --------------------------------------------------------------------------------

void ClientConnection::Expire(ClientCall& call) {
  ++stats_.deadlines_exceeded;
  const std::string after =
      StrCat("no reply from ", address_, " within ", DurationText(call.timeout_us));
  if (call.state == ClientCall::State::kQueued) {
    IntrusiveList<ClientCall>::Remove(&call);
    --queued_;
    const char* why =
        state_ != State::kOpen ? "there was no connection" : "all slots or credits were in use";
    return End(call, WithDelivery(absl::DeadlineExceededError(
                                      StrCat(after, ": ", why, " (not sent, safe to retry)")),
                                  Delivery::kNotSent));
  }
  if (call.state == ClientCall::State::kReclaiming) return End(call, LateReclaimError(call));
  WEFT_CHECK(call.state == ClientCall::State::kSent);
  Slot* slot = slots_->Get(call.slot);
  slot->call = nullptr;
  ++stats_.abandoned;
  SendCancel(call.slot, *slot);
  FlushUnlessInTurn();
  End(call, WithDelivery(absl::DeadlineExceededError(
                             StrCat(after, " (the request was sent and may have run)")),
                         Delivery::kMayHaveRun));
}

void ClientConnection::SendCancel(SlabHandle handle, Slot& slot) {
  absl::StatusOr<std::byte*> frame = connection_->Reserve(kCallHeaderBytes);
  cancels_owed_ += !frame.ok() && !slot.cancel_owed;
  cancels_owed_ -= frame.ok() && slot.cancel_owed;
  slot.cancel_owed = !frame.ok();
  if (!frame.ok()) return;
  EncodeCancel({handle.slot, handle.generation}, *frame);
  connection_->Commit(kCallHeaderBytes);
}

void ClientConnection::SendOwedCancels() {
  slots_->ForEach([this](SlabHandle handle, Slot& slot) {
    if (slot.cancel_owed) SendCancel(handle, slot);
  });
}

// --- loss ---------------------------------------------------------------------------------------

void ClientConnection::FailSlots(const absl::Status& not_sent, const absl::Status& may_have_run,
                                 uint64_t first_unsent) {
  if (!slots_) return;
  // Callbacks may start calls: first everything is settled, then they run.
  IntrusiveList<ClientCall> unsent;
  IntrusiveList<ClientCall> sent;
  slots_->ForEach([&](Slot& slot) {
    if (slot.call != nullptr) {
      (slot.message_number >= first_unsent ? unsent : sent).PushBack(slot.call);
    }
  });
  slots_.reset();
  cancels_owed_ = 0;
  stats_.abandoned = 0;
  while (ClientCall* call = unsent.PopFront()) End(*call, not_sent);
  while (ClientCall* call = sent.PopFront()) End(*call, may_have_run);
}

void ClientConnection::FailQueue(const absl::Status& status, bool also_patient) {
  IntrusiveList<ClientCall> failed;
  for (ClientCall& call : queue_) {
    if (call.wait_for_server && !also_patient) continue;
    IntrusiveList<ClientCall>::Remove(&call);
    --queued_;
    failed.PushBack(&call);
  }
  while (ClientCall* call = failed.PopFront()) End(*call, status);
}

}  // namespace weft
