#include "rpc/server/server_connection.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <span>
#include <utility>

#include "core/check.h"
#include "core/inline.h"
#include "core/log.h"
#include "core/status.h"
#include "core/strings.h"
#include "core/trace.h"
#include "rpc/layout/method_layouts.h"
#include "rpc/operation/attachment.h"
#include "rpc/server/handler_task.h"
#include "rpc/server/server_core.h"
#include "rpc/server/task_handlers.h"
#include "rpc/wire/beside.h"
#include "rpc/wire/extras.h"
#include "rpc/wire/status_text.h"

namespace weft {
namespace {

// `once`: null where calls that run exactly once do not come.
bool IsDecodedMetadata(ByteSpan extras, Metadata* metadata, OnceExtras* once = nullptr) {
  return extras.empty() || DecodeExtras(extras, metadata, /*details=*/nullptr, once);
}

}  // namespace

static_assert(kMaxOutstandingCalls + kControlCalls <= std::numeric_limits<uint16_t>::max() - 1);

// --- life ---------------------------------------------------------------------------------------

ServerConnection::ServerConnection(ServerCore& core, Connection& connection,
                                   std::shared_ptr<ServedPeer> peer)
    : core_(core),
      connection_(&connection),
      is_guarded_(core.options().authorizer != nullptr || core.admission() != nullptr),
      held_bytes_(core.HeldBytesOf(connection.path().client)),
      one_way_(core.engine()),
      backlog_(core.engine(), core.options(), [this](std::string_view why) { EndSlowReader(why); }),
      peer_(std::move(peer)) {
  path_.client = connection.path().client;  // the rest when it is open
  if (core.options().authorizer != nullptr) access_ = std::make_unique<ClientAccess>(core, path_);
  if (peer_ != nullptr) peer_->OnHalfMade();
}

void ServerConnection::Begin(Connection& connection, std::string_view client_hello) {
  if (absl::Status agreed = AgreeWith(client_hello); !agreed.ok()) {
    return Close(ToStd(agreed.message()));
  }
  core_.SetTenant(connection);
  tenant_ = connection.memory().tenant();
  if (core_.admission() != nullptr) client_count_ = core_.admission()->CountOf(path_);
  connection.prefetch().Register(HotBytes().data(), HotBytes().size());
  if (core_.moved()) SendMoved();
  if (!core_.draining()) return;
  // A client that was not told, and sent a call now, would not know whether it had run.
  if (notices_.takes_goaway()) return SendGoaway();
  Close("the server is shutting down");
}

// Slot 0, which clients with one call at a time have it in, is among these.
ByteSpan ServerConnection::HotBytes() const {
  const auto* const begin = reinterpret_cast<const std::byte*>(this);
  const auto* const end = reinterpret_cast<const std::byte*>(&access_ + 1);
  return {begin, static_cast<size_t>(end - begin)};
}

absl::Status ServerConnection::AgreeWith(std::string_view client_hello) {
  rpc::ClientHello hello;
  if (!hello.ParseFromArray(client_hello.data(), static_cast<int>(client_hello.size()))) {
    return absl::FailedPreconditionError("the client's hello cannot be decoded");
  }
  WEFT_RETURN_IF_ERROR(ServerCore::CheckClientHello(hello));
  const uint32_t slots =
      std::min(hello.max_outstanding_calls(), core_.options().max_outstanding_calls) +
      std::min(hello.control_calls(), kControlCalls);
  max_reply_bytes_ =
      static_cast<uint32_t>(std::min<uint64_t>(hello.max_reply_bytes(), kMaxPayloadBytes));
  max_windows_ = std::min(hello.max_windows(), kMaxWindows);
  max_extras_ = std::min(hello.max_extras_bytes(), kMaxExtrasBytes);
  stream_limits_ = BoundedStreamLimits(std::min(hello.max_streams(), core_.options().max_streams),
                                       hello.stream_window_messages(), hello.stream_window_bytes());
  takes_attachments_ = hello.takes_attachments();
  notices_.SetClient(hello);
  path_ = connection_->path();
  transfers_.SetInFlightLimit(InFlightLimitOf(path_.kind),
                              core_.options().link.transfer_timeout_ns);
  slots_.Reserve(slots);
  return absl::OkStatus();
}

void ServerConnection::ProtocolError(std::string_view what) {
  ++core_.stats().protocol_errors;
  WEFT_LOG_EVERY_N_SEC(kWarning, 1, "closing the connection of ", path_.peer,
                       ": malformed frame: ", what);
  GiveUp(StrCat("malformed frame: ", what));
}

void ServerConnection::GiveUp(std::string_view why) {
  state_ = State::kGivenUp;
  connection_->Close(why);
  connection_ = nullptr;
  if (streams_ != nullptr) streams_->GiveUp();
}

void ServerConnection::OnClosed(Connection&, const absl::Status&) {
  state_ = State::kClosed;
  connection_ = nullptr;
  ++running_;  // keeps this alive for now
  for (const CallSlot& slot : slots_) {
    if (slot.call == nullptr) continue;
    ServerCall& call = *slot.call;
    if (call.state_ == ServerCall::State::kReplying) {
      Free(call);
      continue;
    }
    call.StopTransfers(absl::UnavailableError("the client is gone"));
    if (slot.call == nullptr) continue;  // it waited for the last of them
    if (call.record() != nullptr && core_.records().OnConnectionLost(call)) continue;
    call.SetCancelled();
  }
  if (streams_ != nullptr) streams_->Close();
  if (!notices_.told_moved()) one_way_.CancelAll();  // else its client has only gone on elsewhere
  if (peer_ != nullptr && transfers_.none_posted()) peer_->OnHalfQuiet();
  if (--running_ == 0) core_.Retire(this);
}

void ServerConnection::CancelAll() {
  // The connection stays, and the next half registers its own.
  if (connection_ != nullptr) {
    connection_->prefetch().Unregister(HotBytes().data(), HotBytes().size());
  }
  for (const CallSlot& slot : slots_) {
    if (slot.call != nullptr) slot.call->Cancel();
  }
  if (streams_ != nullptr) streams_->CancelAll();
  one_way_.CancelAll();
}

// --- requests -----------------------------------------------------------------------------------

void ServerConnection::OnMessage(Connection& connection, ByteSpan message) {
  WEFT_DCHECK(connection_ != nullptr);  // Ours: framing delivers nothing once it is closed
  const uint16_t kind = CallFrameKindOf(message);
  if (kind == static_cast<uint16_t>(CallFrameKind::kRequest)) [[likely]]
    return OnRequest(connection, message);
  IsStreamKind(kind) ? OnStreamFrame(message) : OnOtherFrame(message);
}

WEFT_APART void ServerConnection::OnRequest(Connection&, ByteSpan message) {
  ByteSpan body;
  const RequestHeader header = DecodeRequest(message, &body);
  ServerCall* const call = TakeSlot(header.id);
  if (call == nullptr) [[unlikely]]
    return;
  if (is_guarded_ && IsStopped(*call, header.method, /*counts=*/true)) [[unlikely]]
    return;
  Accept(*call, header, body);
}

WEFT_COLD void ServerConnection::OnOtherFrame(ByteSpan frame) {
  const uint16_t kind = CallFrameKindOf(frame);
  if (kind == OneWayKind()) return OnOneWay(frame);
  const uint32_t low = kind & 0xFF;
  const uint32_t windows = WindowsOf(kind);
  if (low == static_cast<uint32_t>(CallFrameKind::kOneWay) && windows == 0) return OnOneWay(frame);
  if (kind == static_cast<uint16_t>(CallFrameKind::kCancel)) return OnCancel(frame);
  if (low != static_cast<uint32_t>(CallFrameKind::kRequest) || !HasPriority(kind) ||
      windows > max_windows_) {
    return ProtocolError("neither a request nor a cancel");
  }
  OnRequestWithMore(frame, kind);
}

WEFT_COLD void ServerConnection::OnRequestWithMore(ByteSpan frame, uint16_t kind) {
  ByteSpan body;
  std::array<Window, kMaxWindows> windows;
  const uint32_t count = WindowsOf(kind);
  const RequestHeader header = DecodeRequest(frame, &body);
  if (!DecodeWindows(count, &body, &windows)) {
    return ProtocolError("a request with windows that make no sense");
  }
  ByteSpan extras;
  ByteSpan attachment;
  Metadata metadata;
  OnceExtras once;
  if (!DecodeBeside(kind, &body, &extras, &attachment) ||
      !IsDecodedMetadata(extras, &metadata, &once)) {
    return ProtocolError("a request with metadata or an attachment that makes no sense");
  }
  ServerCall* const call = TakeSlot(header.id);
  if (call == nullptr) return;
  call->priority_ = PriorityOf(kind);
  if (is_guarded_ && IsStopped(*call, header.method, /*counts=*/!once.attempt)) return;
  if (count > 0) call->TakeWindows(std::span(windows).first(count));
  absl::Status taken = TakeBeside(*call, extras, std::move(metadata), body, attachment);
  if (!taken.ok()) return Refuse(*call, std::move(taken));
  if (once.attempt) return AcceptOnce(*call, header, body, *once.attempt);
  Accept(*call, header, body);
}

// Whether the client may not call the method, or not now: then the call has been answered so. It
// `counts` towards the limits, unless it is an attempt of a call that runs exactly once.
// REQUIRES: is_guarded_.
WEFT_APART bool ServerConnection::IsStopped(ServerCall& call, uint16_t method, bool counts) {
  absl::Status why;
  if (access_ != nullptr && !access_->MayCall(method)) {
    why = access_->Refuse(method);
  } else if (counts && core_.admission() != nullptr && core_.methods().Find(method) != nullptr) {
    why = call.CountIn(method, Admission::What::kCall);
  }
  if (why.ok()) [[likely]]
    return false;
  Refuse(call, std::move(why));
  return true;
}

// Nothing of it was looked at.
void ServerConnection::Refuse(ServerCall& call, absl::Status why) {
  if (!call.is_one_way()) {
    ++core_.stats().requests;
    ++core_.stats().refused;
  }
  Complete(call, std::move(why));
}

// What came beside the message `body`; empty: nothing.
absl::Status ServerConnection::TakeBeside(ServerCall& call, ByteSpan extras, Metadata metadata,
                                          ByteSpan body, ByteSpan attachment) {
  if (!extras.empty()) {
    WEFT_RETURN_IF_ERROR(call.Extras().TakeMetadata(*this, extras.size(), std::move(metadata)));
  }
  if (attachment.empty()) return absl::OkStatus();
  return call.Extras().TakeAttachment(*this, *connection_, body.size(), attachment);
}

// Of a call that runs exactly once.
void ServerConnection::AcceptOnce(ServerCall& call, const RequestHeader& header, ByteSpan body,
                                  const OnceAttempt& attempt) {
  ++core_.stats().requests;
  const MethodEntry* const entry = core_.methods().Find(header.method);
  if (!IsAdmitted(call, entry, header, body) || !IsDecoded(call, *entry, body)) {
    if (call.cancelled()) core_.records().Cancel(call, attempt.id);
    return RunOwnOrRefuse(call, entry, header, body);
  }
  if (!core_.records().Begin(call, header.method, attempt)) return;
  RunWatched(call, *entry);
}

WEFT_INLINE void ServerConnection::Accept(ServerCall& call, const RequestHeader& header,
                                          ByteSpan body) {
  ++core_.stats().requests;
  const MethodEntry* const entry = core_.methods().Find(header.method);
  if (!IsAdmitted(call, entry, header, body) || !IsDecoded(call, *entry, body)) [[unlikely]]
    return RunOwnOrRefuse(call, entry, header, body);
  if (entry->executor != nullptr && HandOver(call, *entry, /*watch=*/true)) [[unlikely]]
    return;
  if (call.RunHere(*entry->method, *entry->service)) [[likely]]
    AnswerInTurn(call);
}

// The slot of a new call, if the client may use it; else ends the connection.
WEFT_INLINE ServerCall* ServerConnection::TakeSlot(CallId id) {
  if (id.slot >= slots_.size()) [[unlikely]] {
    if (ReachSlot(id.slot) == nullptr) {
      RefuseSlot(nullptr);
      return nullptr;
    }
  }
  CallSlot& slot = slots_[id.slot];
  if (!slot.IsFreeFor(id.generation)) [[unlikely]] {
    RefuseSlot(&slot);
    return nullptr;
  }
  ServerCall* const call = core_.calls().Take();
  slot.call = call;
  slot.generation = id.generation;
  slot.used = true;
  call->Begin(this, &slot, id);
  ++running_;
  return call;
}

// Whether it is of the slot's call: a large request is overtaken by the small frames behind it.
WEFT_COLD bool ServerConnection::TakeEarlyCancel(CallSlot& slot) {
  const bool is_its = std::exchange(slot.early_cancel, 0) == slot.generation;
  slot.call->cancelled_.store(is_its, std::memory_order_relaxed);
  return is_its;
}

// Makes the slots up to this one, if it is among those agreed on: clients use the lowest ones.
WEFT_COLD CallSlot* ServerConnection::ReachSlot(uint32_t slot) {
  if (slot >= slots_.capacity()) return nullptr;
  while (slot >= slots_.size()) slots_.Grow();
  // The first may have moved. (Calls that ask for their slot by its number need no such repair, and
  // cost 4 instructions more each.)
  if (CallSlot& first = slots_[0]; first.call != nullptr) first.call->slot_ = &first;
  return &slots_[slot];
}

WEFT_COLD void ServerConnection::RefuseSlot(const CallSlot* slot) {
  if (slot == nullptr) return ProtocolError("a call slot that was not agreed on");
  if (slot->call != nullptr) return ProtocolError("a call slot that is in use");
  ProtocolError("a call slot's generation that is not new");
}

// Whether a request may take what it needs, and takes it. Else ServerCall::WhyRefused() knows why.
WEFT_INLINE bool ServerConnection::IsAdmitted(ServerCall& call, const MethodEntry* entry,
                                              const RequestHeader& header, ByteSpan body) {
  if (entry == nullptr || body.size() > core_.options().max_request_bytes ||
      !core_.MayHold(body.size(), *held_bytes_)) [[unlikely]] {
    return false;
  }
  call.request_bytes_ = static_cast<uint32_t>(body.size());
  core_.Hold(body.size(), *held_bytes_);
  if (call.slot_->early_cancel != 0 && TakeEarlyCancel(*call.slot_)) [[unlikely]]
    return false;
  return call.StartClock(header.remaining_us);
}

WEFT_INLINE bool ServerConnection::IsDecoded(ServerCall& call, const MethodEntry& entry,
                                             ByteSpan body) {
  if (entry.method->layouts != nullptr) [[unlikely]]
    return call.DecodeLayouts(*entry.method, body);
  call.PrepareMessages(*entry.method);
  google::protobuf::MessageLite& request = *call.request_.message;
  return request.ParsePartialFromArray(body.data(), static_cast<int>(body.size())) &&
         request.IsInitialized();
}

// No service has a method for it, or it is not admitted: runs the server's own method, if it is one
// for that, or answers it.
WEFT_COLD void ServerConnection::RunOwnOrRefuse(ServerCall& call, const MethodEntry* entry,
                                                const RequestHeader& header, ByteSpan body) {
  if (entry == nullptr) {
    entry = core_.OwnMethod(header.method);
    if (entry != nullptr && IsAdmitted(call, entry, header, body) && IsDecoded(call, *entry, body))
      return RunAside(call, *entry);
  }
  ++core_.stats().refused;
  Complete(call, call.WhyRefused(entry, header.method, body));
}

// --- streams ------------------------------------------------------------------------------------

void ServerConnection::OnStreamFrame(ByteSpan frame) {
  if (streams_ == nullptr && stream_limits_.max_streams == 0) [[unlikely]]
    return ProtocolError("a frame of a stream, of which none were agreed on");
  if (streams_ == nullptr) streams_ = std::make_unique<ServerStreams>(this, stream_limits_);
  if (const char* wrong = streams_->OnFrame(frame)) [[unlikely]]
    ProtocolError(wrong);
}

void ServerConnection::WatchDeadline(ServerCall& call) {
  if (call.deadline_ns_ == kNever) return;
  call.Extras().WatchDeadline(core_.engine().timers(), call.deadline_ns_);
}

void ServerConnection::RunWatched(ServerCall& call, const MethodEntry& entry) {
  WatchDeadline(call);
  RunAside(call, entry);
}

// Runs the handler of a call that Complete() ends, and not AnswerInTurn().
void ServerConnection::RunAside(ServerCall& call, const MethodEntry& entry) {
  if (entry.executor != nullptr && HandOver(call, entry, /*watch=*/false)) return;
  if (call.RunHere(*entry.method, *entry.service)) Complete(call, std::move(call.status_));
}

void ServerConnection::FlushUnlessInTurn() {
  if (connection_ != nullptr && !core_.engine().in_turn()) connection_->Flush();
}

// --- one-way messages ---------------------------------------------------------------------------

void ServerConnection::OnOneWay(ByteSpan frame) {
  RequestHeader header;
  ByteSpan extras;
  ByteSpan attachment;
  ByteSpan body;
  Metadata metadata;
  const uint16_t kind = CallFrameKindOf(frame);
  const bool has_more = kind != OneWayKind();
  if (!DecodeOneWay(frame, &header, &body) ||
      (has_more && !(DecodeBeside(kind, &body, &extras, &attachment) &&
                     IsDecodedMetadata(extras, &metadata)))) {
    return ProtocolError("a one-way message whose fields make no sense");
  }
  const MethodEntry* const entry = core_.methods().Find(header.method);
  const bool takes_it = entry != nullptr && entry->method->kind == MethodKind::kOneWay;
  if (!takes_it && !core_.draining()) {
    return ProtocolError("a one-way message to a method that takes none");
  }
  ServerTallies& stats = core_.stats();
  ++stats.requests;
  ++stats.one_way;
  if (one_way_.size() == core_.options().max_outstanding_calls) [[unlikely]] {
    ++stats.one_way_dropped;
    WEFT_LOG_EVERY_N_SEC(kWarning, 1, "dropped a one-way message of ", path_.peer, ": ",
                         one_way_.size(),
                         " are running, as many as "
                         "ServerOptions::max_outstanding_calls allows");
    return core_.OnCallEnded();
  }
  ServerCall& call = *core_.calls().Take();
  call.BeginOneWay(this, one_way_.nowhere());
  call.priority_ = PriorityOf(kind);
  ++running_;
  one_way_.Add(call);
  if (is_guarded_ && IsStopped(call, header.method, /*counts=*/true)) [[unlikely]]
    return;
  if (!IsAdmitted(call, entry, header, body)) [[unlikely]]
    return Complete(call, call.WhyRefused(entry, header.method, body));
  if (has_more) [[unlikely]] {
    absl::Status taken = TakeBeside(call, extras, std::move(metadata), body, attachment);
    if (!taken.ok()) return Complete(call, std::move(taken));
  }
  if (!IsDecoded(call, *entry, body)) [[unlikely]]
    return Complete(call, call.WhyRefused(entry, header.method, body));
  one_way_.Watch(call);
  RunAside(call, *entry);
}

// It is over: nobody is told.
void ServerConnection::CompleteOneWay(ServerCall& call, const absl::Status& status) {
  if (!status.ok()) [[unlikely]] {
    const bool dropped = IsNotRun(status);
    ++(dropped ? core_.stats().one_way_dropped : core_.stats().one_way_failed);
    WEFT_LOG_EVERY_N_SEC(kWarning, 1, dropped ? "dropped" : "the handler has failed",
                         " a one-way message of ", path_.peer, ": ", status.ToString());
  }
  one_way_.Remove(call);
  call.is_one_way_ = false;
  const bool may_tell = notices_.owes_any() && connection_ != nullptr;
  Free(call);  // with a connection this stays
  if (may_tell) SendOwedNotice();
}

// --- cancels ------------------------------------------------------------------------------------

void ServerConnection::OnCancel(ByteSpan frame) {
  CallId id;
  // Its request may come behind.
  CallSlot* const slot = DecodeNotice(frame, &id) ? ReachSlot(id.slot) : nullptr;
  if (slot == nullptr) return ProtocolError("a cancel that names no call");
  if (slot->call == nullptr) {
    slot->early_cancel = id.generation;
  } else if (slot->generation == id.generation) {
    slot->call->Cancel();
  }
}

// --- replies ------------------------------------------------------------------------------------

// Of a call that its handler has finished before it returned: most calls.
WEFT_INLINE void ServerConnection::AnswerInTurn(ServerCall& call) {
  // Replies that wait for credit are not overtaken.
  if (connection_ != nullptr && !call.uses_more_ && call.status_.ok() && waiting_replies_ == 0 &&
      TrySendReply(call)) [[likely]]
    return FreeAnswered(call);
  Complete(call, std::move(call.status_));
}

void ServerConnection::Complete(ServerCall& call, absl::Status status) {
  if (call.uses_more_) [[unlikely]] {
    // The handler has finished: it is told of nothing any more.
    if (call.uses_extras_) call.Extras().Forget();
    // With transfers under way it comes here again.
    if (call.uses_bulk_ && call.bulk_->Hold(&status)) {
      if (call.uses_stream_) streams_->OnFinished(call);
      return;
    }
    if (call.is_repeated()) return core_.records().OnAllowed(call, std::move(status));
    call.CountOut(status);
    if (call.uses_extras_) call.EndExtras(status);
    if (call.uses_extras_ && call.record() != nullptr) core_.records().OnEnd(call, status);
    if (call.uses_stream_) return streams_->Complete(call, std::move(status));
    if (call.is_one_way_) return CompleteOneWay(call, status);
  }
  call.CountOut(status);
  call.status_ = std::move(status);
  // The reply of an asynchronous handler, an error, one that must wait, or one that cannot be sent.
  if (connection_ == nullptr) return Free(call);
  call.state_ = ServerCall::State::kReplying;
  if (!waiting_.may_pass(call.priority_) || !TrySend(call)) {
    return LetWait(call);
  }
  Free(call);
  if (!core_.engine().in_turn()) connection_->Flush();
}

void ServerConnection::LetWait(ServerCall& call) {
  waiting_.PushBack(&call, call.priority_);
  ++waiting_replies_;
  const size_t bytes = call.status_.ok()
                           ? EncodedReplyBytes(call.method(), call.reply_, ReplyAttachmentOf(call))
                           : call.status_.message().size();
  call.unsent_bytes_ = static_cast<uint32_t>(bytes);
  core_.ChargeReply(bytes);
  backlog_.Add(bytes);
  core_.EndSlowest();
}

void ServerConnection::EndSlowReader(std::string_view why) {
  ++core_.stats().slow_readers;
  WEFT_LOG_EVERY_N_SEC(kInfo, 1, "closing the connection of ", path_.peer, ": ", why);
  if (connection_ != nullptr) GiveUp(why);
  for (const CallSlot& slot : slots_) {
    const bool waits = slot.call != nullptr && slot.call->state_ == ServerCall::State::kReplying;
    if (waits) Free(*slot.call);
  }
}

void ServerConnection::OnWritable(Connection&) {
  if (notices_.owes_any()) SendOwedNotice();
  if (releases_owed_ > 0) SendOwedReleases();
  transfers_.Pump();
  if (streams_ == nullptr) return SendWaitingReplies(Priority::kBackground);
  streams_first_ = !streams_first_;
  for (const Priority least : {Priority::kControl, Priority::kNormal, Priority::kBackground}) {
    if (streams_first_) streams_->Pump(least);
    SendWaitingReplies(least);
    if (!streams_first_) streams_->Pump(least);
  }
}

// Sends those that are at least as urgent.
void ServerConnection::SendWaitingReplies(Priority least) {
  while (connection_ != nullptr) {
    ServerCall* call = waiting_.Front(least);
    if (call == nullptr || !TrySend(*call)) return;
    Free(*call);
  }
}

bool ServerConnection::TrySend(ServerCall& call) {
  if (call.status_.ok()) {
    call.status_ = CheckReply(call);
    if (call.status_.ok()) return TrySendReply(call);
  }
  return TrySendError(call);
}

template <class Write>
WEFT_INLINE bool ServerConnection::TrySendBody(ServerCall& call, size_t bytes, Write write) {
  if (call.cancelled() || bytes > max_reply_bytes_) [[unlikely]]
    return false;
  if (call.uses_more_) [[unlikely]]
    return TrySendWithExtras(call, bytes, write);
  const MessageSpace frame = connection_->Append(kCallHeaderBytes + bytes);
  if (frame.data == nullptr) [[unlikely]]
    return false;
  EncodeReply({call.id_, 0, 0}, frame.data);
  write(frame.data + kCallHeaderBytes);
  Trace(TracePoint::kWritten);
  call.reply_bytes_ = static_cast<uint32_t>(bytes);
  ++core_.stats().replies_ok;
  return true;
}

// The rest of TrySendBody(), for a call that may have metadata or an attachment for its caller.
WEFT_COLD bool ServerConnection::TrySendWithExtras(ServerCall& call, size_t bytes,
                                                   absl::FunctionRef<void(std::byte*)> write) {
  const std::string extras = ReplyExtras(call);
  const Beside beside = {extras, ReplyAttachmentOf(call)};
  const MessageSpace frame =
      connection_->Append(kCallHeaderBytes + beside.bytes_before() + bytes + beside.bytes_behind());
  if (frame.data == nullptr) return false;
  EncodeReply({call.id_, 0, 0}, frame.data, beside.bits());
  write(beside.Encode(bytes, frame.data + kCallHeaderBytes));
  Trace(TracePoint::kWritten);
  call.reply_bytes_ = static_cast<uint32_t>(bytes);
  ++core_.stats().replies_ok;
  return true;
}

// What goes behind the reply; null: nothing.
const absl::Cord* ServerConnection::ReplyAttachmentOf(const ServerCall& call) {
  if (!call.uses_extras_) return nullptr;
  const absl::Cord& attachment = call.extras_.load(std::memory_order_relaxed)->reply_attachment;
  return attachment.empty() ? nullptr : &attachment;
}

// What goes in front of the reply, or of the error that the call has ended with; empty: nothing.
std::string ServerConnection::ReplyExtras(const ServerCall& call) const {
  if (max_extras_ < kMaxExtrasBytes) return {};
  return EncodeExtras(
      call.uses_extras_ ? call.extras_.load(std::memory_order_relaxed)->reply : Metadata(),
      call.status_);
}

// False: no credit, or the reply cannot be sent at all: CheckReply() knows.
WEFT_INLINE bool ServerConnection::TrySendReply(ServerCall& call) {
  if (call.method().layouts != nullptr) [[unlikely]]
    return TrySendInLayout(call);
  return TrySendMessage(call);
}

// For a method with structs of fixed layout.
bool ServerConnection::TrySendInLayout(ServerCall& call) {
  const LayoutSide& side = call.method().layouts->reply;
  if (!side.fixed()) return TrySendProtobuf(call);
  return TrySendBody(call, side.fixed_bytes,
                     [&](std::byte* to) { std::memcpy(to, call.reply_.record, side.fixed_bytes); });
}

// The same, where the reply is a message, or its struct must be converted into one.
bool ServerConnection::TrySendProtobuf(ServerCall& call) {
  const LayoutType* const type = call.method().layouts->reply.type;
  if (type == nullptr) return TrySendMessage(call);
  const std::string encoded = type->to_protobuf(call.reply_.record);
  return TrySendBody(call, encoded.size(),
                     [&](std::byte* to) { std::memcpy(to, encoded.data(), encoded.size()); });
}

WEFT_INLINE bool ServerConnection::TrySendMessage(ServerCall& call) {
  const google::protobuf::MessageLite& reply = *call.reply_.message;
  const size_t bytes = reply.ByteSizeLong();
  return reply.IsInitialized() && TrySendBody(call, bytes, [&reply](std::byte* to) {
           reply.SerializeWithCachedSizesToArray(reinterpret_cast<uint8_t*>(to));
         });
}

absl::Status ServerConnection::CheckReply(const ServerCall& call) const {
  if (call.cancelled()) {  // nobody reads it, but for a caller whose clock is slower
    return call.remaining_us() == 0 ? absl::DeadlineExceededError("the handler took too long")
                                    : absl::CancelledError();
  }
  const size_t before =
      call.uses_extras_ ? ExtrasBlockBytes(max_extras_) + kAttachmentHeaderBytes : 0;
  return CheckReplyFor(
      {takes_attachments_, std::min<size_t>(max_reply_bytes_, kMaxPayloadBytes - before)},
      call.method(), call.reply_, ReplyAttachmentOf(call));
}

bool ServerConnection::TrySendError(ServerCall& call) {
  const std::string_view text = CutStatusText(ToStd(call.status_.message()));
  const std::string extras = ReplyExtras(call);
  const size_t header_bytes = kCallHeaderBytes + ExtrasBlockBytes(extras.size());
  absl::StatusOr<std::byte*> frame = connection_->Reserve(header_bytes + text.size());
  if (!frame.ok()) return false;
  const Beside beside = {extras};
  EncodeReply({call.id_, static_cast<uint16_t>(call.status_.code()),
               static_cast<uint32_t>(text.size()), IsNotRun(call.status_)},
              *frame, beside.bits());
  std::byte* const to = beside.Encode(text.size(), *frame + kCallHeaderBytes);
  std::copy_n(reinterpret_cast<const std::byte*>(text.data()), text.size(), to);
  connection_->Commit(header_bytes + text.size());
  ++core_.stats().replies_failed;
  return true;
}

// --- lent memory --------------------------------------------------------------------------------

absl::Status ServerConnection::Start(BulkTransfer& transfer) {
  if (connection_ == nullptr) return absl::UnavailableError("the client is gone");
  transfers_.Start(transfer);
  return absl::OkStatus();
}

TimerWheel& ServerConnection::timers() { return core_.engine().timers(); }
uint64_t ServerConnection::now_ns() { return core_.engine().clock().NowNs(); }

void ServerConnection::FinishEnd() {
  if (state_ == State::kClosed && peer_ != nullptr && transfers_.none_posted())
    peer_->OnHalfQuiet();
  if (--running_ == 0 && state_ == State::kClosed) core_.Retire(this);
}

bool ServerConnection::TakeBack(ServerCall& call) {
  const CallSlot& slot = *call.slot_;
  call.bulk_->Stop(absl::CancelledError("nobody waits for its end any more"));
  if (slot.call != &call) return false;  // it waited for the last of them
  if (call.bulk_->quiet()) OnQuiet(call);
  return true;
}

void ServerConnection::OnQuiet(ServerCall& call) {
  // A reply says the same.
  if (connection_ == nullptr || call.state_ != ServerCall::State::kRunning || call.released_)
    return;
  call.released_ = true;
  if (TrySendReleased(call)) return;
  call.release_owed_ = true;
  ++releases_owed_;
}

bool ServerConnection::TrySendReleased(ServerCall& call) {
  const MessageSpace frame = connection_->Append(kCallHeaderBytes);
  if (frame.data == nullptr) return false;
  call.is_stream() ? EncodeStreamRelease(call.id_, frame.data)
                   : EncodeNotice(CallFrameKind::kReleased, call.id_, frame.data);
  return true;
}

void ServerConnection::SendOwedReleases() {
  const auto send = [this](ServerCall& call) {
    if (connection_ == nullptr || !call.release_owed_ || !TrySendReleased(call)) return;
    ForgetRelease(call);
  };
  for (const CallSlot& slot : slots_) {
    if (slot.call != nullptr) send(*slot.call);
  }
  if (streams_ != nullptr) streams_->ForEach(send);
}

void ServerConnection::ForgetRelease(ServerCall& call) {
  releases_owed_ -= std::exchange(call.release_owed_, false);
}

// --- a client that is to leave ------------------------------------------------------------------

void ServerConnection::SendGoaway() {
  if (connection_ == nullptr || !notices_.takes_goaway()) return;
  notices_.SendGoaway(*connection_, running_, /*too_early=*/one_way_.size() > 0);
  FlushUnlessInTurn();
}

void ServerConnection::SendMoved() {
  if (connection_ == nullptr) return;
  if (notices_.SendMoved(*connection_, /*too_early=*/one_way_.size() > 0)) FlushUnlessInTurn();
}

void ServerConnection::SendOwedNotice() { notices_.owes_goaway() ? SendGoaway() : SendMoved(); }

// --- the end of a call --------------------------------------------------------------------------

void ServerConnection::Free(ServerCall& call) {
  ForgetRelease(call);
  if (IntrusiveList<ServerCall>::IsLinked(&call)) {
    IntrusiveList<ServerCall>::Remove(&call);
    --waiting_replies_;
    core_.UnchargeReply(call.unsent_bytes_);
    backlog_.Remove(call.unsent_bytes_);
  }
  if (call.uses_extras_) {
    core_.LetGo(call.Extras().Clear(), *held_bytes_);
  }
  call.status_ = absl::OkStatus();
  FreeAnswered(call);
}

// Free() for a call that had no windows, no error, and has not waited.
WEFT_INLINE void ServerConnection::FreeAnswered(ServerCall& call) {
  core_.LetGo(call.request_bytes_, *held_bytes_);
  call.CountOutInTurn();
  call.End();
  call.slot_->call = nullptr;
  core_.calls().Give(&call);
  core_.OnCallEnded();
  if (--running_ == 0 && state_ == State::kClosed) core_.Retire(this);
}

void ServerConnection::CheckInvariants() {
  // Ours: invariants, which tests ask for
  WEFT_CHECK((connection_ != nullptr) == (state_ == State::kServing));
  uint32_t busy = 0, replying = 0, owed = 0;
  uint64_t unsent = 0;
  for (const CallSlot& slot : slots_) {
    if (slot.call == nullptr) continue;
    const ServerCall& call = *slot.call;
    // Ours: invariants, which tests ask for
    WEFT_CHECK(call.state_ != ServerCall::State::kFree && call.id_.generation == slot.generation);
    ++busy;
    owed += call.release_owed_;
    replying += call.state_ == ServerCall::State::kReplying;
  }
  if (streams_ != nullptr) {
    streams_->CheckInvariants();
    streams_->ForEach([&owed](const ServerCall& call) { owed += call.release_owed_; });
    busy += streams_->running();
  }
  one_way_.CheckInvariants();
  waiting_.ForEach([&unsent](const ServerCall& call) { unsent += call.unsent_bytes_; });
  // Ours: invariants, which tests ask for
  WEFT_CHECK(busy + one_way_.size() == running_ && owed == releases_owed_ &&
             replying == waiting_.CountSlowly() && replying == waiting_replies_ &&
             unsent == backlog_.bytes());
}

}  // namespace weft
