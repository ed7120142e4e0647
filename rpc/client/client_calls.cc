#include "rpc/client/client_calls.h"

#include <algorithm>
#include <utility>

#include "core/check.h"
#include "core/inline.h"
#include "core/status.h"
#include "core/strings.h"
#include "rpc/client/balancer.h"
#include "rpc/client/call_context.h"
#include "rpc/client/client_steps.h"
#include "rpc/client/client_stream.h"
#include "rpc/client/client_streams.h"
#include "rpc/layout/method_layouts.h"
#include "rpc/operation/attachment.h"
#include "rpc/wire/beside.h"
#include "rpc/wire/status_text.h"
#include "weft/status.h"

namespace weft {
namespace {

// What the call has beside its request. `most_bytes`: of extras.
Beside BesideOf(const ClientCall& call, uint32_t most_bytes) {
  if (call.context == nullptr) return {};
  const absl::Cord& attachment = call.context->attachment();
  return {call.context->ExtrasWithin(most_bytes), attachment.empty() ? nullptr : &attachment};
}

SlabHandle HandleOf(ByteSpan frame) {
  const CallId id = CallIdOf(frame);
  return {id.slot, id.generation};
}

bool IsDecodedInLayout(ByteSpan body, ClientCall& call) {
  if (call.reply_converted) [[unlikely]]
    return DecodeProtobuf(call.layouts->reply.type, body, call.reply);
  return DecodeBody(call.layouts->reply, body, call.reply);
}

// True: the call has the reply. Else ClientCall::OutcomeOf() has the error.
WEFT_INLINE bool IsDecoded(ByteSpan body, ClientCall& call, uint64_t max_reply_bytes) {
  if (body.size() > max_reply_bytes) [[unlikely]]
    return false;
  if (call.layouts != nullptr) [[unlikely]]
    return IsDecodedInLayout(body, call);
  return call.reply.message->ParsePartialFromArray(body.data(), static_cast<int>(body.size())) &&
         call.reply.message->IsInitialized();
}

// Whether the server takes what a request has beside it: `most_bytes` of extras.
absl::Status CheckBeside(const Beside& beside, uint32_t most_bytes, bool takes_attachments,
                         const std::string& address) {
  if (beside.attachment != nullptr && !takes_attachments) {
    return absl::UnimplementedError(
        StrCat("the server at ", address, " takes no attachments (not sent)"));
  }
  return CheckMetadata(beside.extras.size(), most_bytes, address);
}

// Whether the server takes a request of so many bytes, with its attachment, behind these.
absl::Status CheckSize(size_t bytes, uint64_t most_bytes, uint32_t windows, uint32_t most_windows,
                       size_t bytes_before, const std::string& address) {
  WEFT_RETURN_IF_ERROR(CheckWindows("call", windows, most_windows, address));
  const uint64_t most =
      std::min<uint64_t>(most_bytes, kMaxPayloadBytes - windows * kWindowBytes - bytes_before);
  if (bytes <= most) return absl::OkStatus();
  return absl::ResourceExhaustedError(StrCat("the request has ", bytes, " bytes; the server at ",
                                             address, " takes at most ", most, " (not sent)"));
}

absl::Status NoSessionsError(const std::string& address) {
  return absl::AbortedError(StrCat("the server at ", address,
                                   " keeps no sessions: it cannot tell what became of an earlier "
                                   "attempt (not sent)"));
}

absl::Status LateReclaimError(const ClientCall& call, const std::string& address) {
  const std::string text = StrCat("the reply from ", address,
                                  " has come, but the memory that the call had lent was not "
                                  "reclaimed within ",
                                  DurationText(call.timeout_us));
  return WithDelivery(absl::DeadlineExceededError(text), Delivery::kMayHaveRun);
}

std::unique_ptr<RetriedCalls> MakeRetriedCalls(ClientCalls& calls, MethodTable& methods,
                                               EngineCore& engine, const std::string& address,
                                               const ChannelOptions& options, ChannelStats& stats) {
  if (options.retry.max_attempts <= 1) return nullptr;
  // As many as can be under way or queued.
  const uint32_t most = options.max_outstanding_calls + options.max_queued_calls;
  return std::make_unique<RetriedCalls>(calls, methods, engine, address, options.retry, most,
                                        stats);
}

}  // namespace

WEFT_COLD uint32_t TimeLeftUs(const ClientCall& call, Clock& clock) {
  uint64_t remaining_us = call.timeout_us;
  if (call.state == ClientCall::State::kQueued) {
    const uint64_t now_ns = clock.NowNs();
    // Not 0, which would mean that there is no deadline.
    remaining_us =
        call.deadline_ns > now_ns + kNsPerUs ? (call.deadline_ns - now_ns) / kNsPerUs : 1;
  }
  return ToRemainingUs(remaining_us);
}

ClientCalls::ClientCalls(ClientCallsHost* host, EngineCore& engine, const std::string& address,
                         const ChannelOptions& options, ClientCalls* front)
    : max_reply_bytes_(options.max_reply_bytes),
      methods_(front != nullptr ? front->methods_.bound() : nullptr),
      host_(*host),
      engine_(engine),
      address_(address),
      options_(options),
      lent_(
          [this](std::string_view why) {
            host_.EndConnection(
                absl::UnavailableError(StrCat("the client gave up the connection: ", why)), why);
          },
          [this] {
            if (state_ == State::kLeaving) host_.OnCallsLeft();
          }),
      streams_(std::make_unique<ClientStreams>(engine, address, options, methods_, lent_, stats_,
                                               front != nullptr ? front->streams_.get() : nullptr)),
      retried_(MakeRetriedCalls(*this, methods_, engine, address, options, stats_)),
      early_ends_(engine) {}

ClientCalls::~ClientCalls() = default;

// --- the connection -----------------------------------------------------------------------------

absl::Status ClientCalls::Open(Connection& connection, const rpc::ServerHello& hello) {
  if (hello.max_outstanding_calls() == 0 || !methods_.Learn(hello)) {
    return absl::FailedPreconditionError("the server's hello makes no sense");
  }
  sent_.Open(std::min(hello.max_outstanding_calls(), options_.max_outstanding_calls),
             std::min(hello.control_calls(), kControlCalls));
  takes_priorities_ = hello.control_calls() > 0;
  takes_attachments_ = hello.takes_attachments();
  max_request_bytes_ = std::min<uint64_t>(hello.max_request_bytes(), kMaxPayloadBytes);
  max_windows_ = std::min(hello.max_windows(), kMaxWindows);
  max_extras_ = std::min(hello.max_extras_bytes(), kMaxExtrasBytes);
  streams_->Open(connection, takes_priorities_,
                 BoundedStreamLimits(std::min(hello.max_streams(), options_.max_streams),
                                     hello.stream_window_messages(), hello.stream_window_bytes()),
                 max_windows_, max_extras_, max_request_bytes_);
  if (retried_ != nullptr) retried_->OnConnected(hello.session_lease_us());
  prefetch_ = &connection.prefetch();
  ListHotLines(&PrefetchList::Register);
  answered_ = false;
  notice_ = Notice::kNone;
  SetNext(nullptr);
  state_ = State::kOpen;
  connection_ = &connection;
  return absl::OkStatus();
}

void ClientCalls::Close(Connection& connection, const absl::Status& not_sent,
                        const absl::Status& may_have_run) {
  connection_ = nullptr;
  const bool left = std::exchange(state_, State::kClosed) == State::kLeaving;
  if (left && next_ == nullptr) static_cast<void>(waiting_.Release());
  prefetch_ = &PrefetchList::None();
  methods_.Forget();
  lent_.ReclaimAll(connection);
  streams_->Close(connection.first_unsent(), not_sent, may_have_run);
  EndSent(connection.first_unsent(), not_sent, may_have_run);
}

void ClientCalls::Leave() {
  state_ = State::kLeaving;
  if (next_ == nullptr) waiting_.Hold();
  if (some_wait()) host_.OnCallWaits();
}

bool ClientCalls::none_under_way() const {
  return sent_.in_use() == sent_.abandoned() && streams_->in_slots() == 0;
}

bool ClientCalls::none_awaited() const {
  return sent_.in_use() == sent_.abandoned() && streams_->in_slots() == streams_->abandoned();
}

void ClientCalls::EndSent(uint64_t first_unsent, const absl::Status& not_sent,
                          const absl::Status& may_have_run) {
  // Callbacks may start calls: first everything is settled, then they run.
  IntrusiveList<ClientCall> unsent;
  IntrusiveList<ClientCall> sent;
  sent_.Close(first_unsent, &unsent, &sent);
  while (ClientCall* call = unsent.PopFront()) End(*call, not_sent);
  while (ClientCall* call = sent.PopFront()) End(*call, may_have_run);
}

void ClientCalls::EndWaiting(const absl::Status& status, bool also_patient) {
  IntrusiveList<ClientCall> ended;
  streams_->EndWaiting(status, also_patient);
  waiting_.TakeAll(also_patient, &ended);
  while (ClientCall* call = ended.PopFront()) End(*call, status);
}

void ClientCalls::Shutdown(const absl::Status& gone) {
  if (retried_ != nullptr) retried_->EndSession();
  state_ = State::kEnded;
  connection_ = nullptr;
  ListHotLines(&PrefetchList::Unregister);  // the connection may be a peer's, and stay
  prefetch_ = &PrefetchList::None();
  const absl::Status may_have_run = WithDelivery(gone, Delivery::kMayHaveRun);
  EndSent(0, may_have_run, may_have_run);
  EndWaiting(WithDelivery(gone, Delivery::kNotSent), /*also_patient=*/true);
  if (balancer_ != nullptr) balancer_->Shutdown();
  lent_.EndCalls(may_have_run);
  if (retried_ != nullptr) retried_->Shutdown(gone);
  // Callbacks of each may start some of the other, which end at once.
  do {
    early_ends_.RunAll();
    streams_->Shutdown(may_have_run);
  } while (early_ends_.count() > 0);
}

// What each call touches: registers it for prefetch, or takes it back.
void ClientCalls::ListHotLines(void (PrefetchList::*list)(const void*, size_t)) {
  (prefetch_->*list)(&connection_, 2 * kCacheLineBytes);  // to the first slot
  (prefetch_->*list)(this, kCacheLineBytes);
  (prefetch_->*list)(&methods_, 1);           // the first methods' numbers
  (prefetch_->*list)(engine_.hot_line(), 1);  // as a reply ends the call's timer
}

ChannelStats ClientCalls::stats() const {
  ChannelStats stats = stats_;
  stats.outstanding = sent_.in_use();
  stats.abandoned = sent_.abandoned();
  stats.queued = waiting_.size();
  stats.streams = streams_->in_slots();
  return stats;
}

void ClientCalls::CheckInvariants() {
  // Ours: invariants, which tests ask for
  WEFT_CHECK((connection_ != nullptr) == (is_open() || state_ == State::kLeaving));
  waiting_.CheckInvariants(options_.max_queued_calls + kControlCalls);
  sent_.CheckInvariants();
  streams_->CheckInvariants();
}

// --- callback calls -----------------------------------------------------------------------------

WEFT_COLD CallbackCall& ClientCalls::MakeCallbackCall() { return *new CallbackCall(*this); }

bool ClientCalls::Defer(CallbackCall& call, absl::Status* status) {
  if (!early_ends_.IsStartingAny()) return false;
  call.early_status = std::move(*status);
  early_ends_.Add(call);
  return true;
}

// --- out ----------------------------------------------------------------------------------------

void ClientCalls::Start(ClientCall& call) {
  ++stats_.calls_started;
  call.carrier = this;
  call.answered = false;
  if (call.context != nullptr && !call.context->Attach([this, &call] { Cancel(call); })) {
    return End(call, WithDelivery(absl::CancelledError("cancelled by the caller (not sent)"),
                                  Delivery::kNotSent));
  }
  if (retried_ != nullptr && call.may_retry && retried_->Start(call)) return;
  StartAttempt(call);
}

void ClientCalls::StartAttempt(ClientCall& call) {
  if (SendAttempt(call) != Sent::kNotNow) return;
  if (ended()) {
    // Not CANCELLED: a callback that starts a cancelled call again would do so for ever.
    absl::Status ended = absl::FailedPreconditionError(
        StrCat("the channel to ", address_,
               " is being destroyed; a callback starts no call then (not "
               "sent)"));
    return End(call, WithDelivery(std::move(ended), Delivery::kNotSent));
  }
  uint32_t most = options_.max_queued_calls;
  if (call.priority == Priority::kControl) most += kControlCalls;
  if (call.priority == Priority::kBackground) most -= most / 8;  // which others have
  if (!waiting_.PushBack(call, most)) {
    // A later call finds the connection.
    if (!is_open()) host_.OnCallWaits();
    const std::string text =
        StrCat(waiting_.size(), " calls wait already for ", address_,
               ", as many as ChannelOptions::max_queued_calls allows (not sent)");
    return End(call, WithDelivery(absl::ResourceExhaustedError(text), Delivery::kNotSent));
  }
  call.KeepRequest();
  if (!is_open()) host_.OnCallWaits();
}

ClientCalls::Sent ClientCalls::SendAttempt(ClientCall& attempt) {
  if (!waiting_.may_pass(attempt.priority)) return Sent::kNotNow;
  if (next_ != nullptr) return SendAtNext(attempt);
  if (connection_ != nullptr) return TrySend(attempt);
  return balancer_ != nullptr && !ended() ? balancer_->Send(attempt) : Sent::kNotNow;
}

void ClientCalls::StartTimed(ClientCall& call, const absl::Status& valid) {
  if (!valid.ok()) return End(call, valid);
  // Before the start: afterwards the call may be gone.
  if (call.deadline_ns != kNever) engine_.timers().Schedule(&call, call.deadline_ns);
  Start(call);
}

void ClientCalls::StartFromCallback(CallbackCall& call, const absl::Status& valid) {
  early_ends_.WhileStarting(call, [&] { StartTimed(call, valid); });
}

ClientCalls::Sent ClientCalls::TrySend(ClientCall& call) {
  const uint16_t method = methods_.Find(call.method);
  if (method != MethodTable::kUnknown) [[likely]]
    return Send(call, method);
  const absl::StatusOr<MethodTable::Agreed> agreed = methods_.Resolve(call.method, address_);
  if (!agreed.ok()) return Refuse(call, agreed.status());
  return agreed->as_wanted ? Send(call, agreed->number) : SendConverted(call, *agreed);
}

// For a server that takes less in fixed layouts than the caller has.
WEFT_COLD ClientCalls::Sent ClientCalls::SendConverted(ClientCall& call,
                                                       const MethodTable::Agreed& agreed) {
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

ClientCalls::Sent ClientCalls::Send(ClientCall& call, uint16_t method) {
  if (!call.is_plain) return call.one_way ? SendOneWay(call, method) : SendWithMore(call, method);
  const size_t bytes = RequestBytes(call);
  if (bytes > max_request_bytes_)
    return Refuse(call, CheckSize(bytes, max_request_bytes_, 0, max_windows_, 0, address_));
  const bool sent = call.request != nullptr ? SendRequest(call, method, *call.request)
                                            : SendRequest(call, method, call.encoded);
  return sent ? Sent::kYes : Sent::kNotNow;
}

// Whether the server takes what Send() would send, beside its message of so many bytes.
absl::Status ClientCalls::CheckSendable(const ClientCall& call, const Beside& beside,
                                        size_t message_bytes) const {
  if (call.one_way && call.loan != nullptr) {
    return absl::InvalidArgumentError(
        "a one-way message lends no memory: nobody says when the server is done with it (not "
        "sent)");
  }
  WEFT_RETURN_IF_ERROR(CheckBeside(beside, max_extras_, takes_attachments_, address_));
  const uint32_t windows = call.loan != nullptr ? call.loan->size() : 0;
  return CheckSize(message_bytes + beside.bytes_behind(), max_request_bytes_, windows, max_windows_,
                   beside.bytes_before(), address_);
}

// As Send(), for a call that lends memory, has a context, or is not kNormal.
WEFT_COLD ClientCalls::Sent ClientCalls::SendWithMore(ClientCall& call, uint16_t method) {
  if (call.context != nullptr && call.context->is_once() && !retried_->ServerHasSessions()) {
    call.context->SetOutcomeUnknown();
    return Refuse(call, NoSessionsError(address_));
  }
  const Beside beside = BesideOf(call, max_extras_);
  const size_t message_bytes = RequestBytes(call);
  absl::Status possible = CheckSendable(call, beside, message_bytes);
  if (!possible.ok()) return Refuse(call, std::move(possible));
  const uint32_t windows = call.loan != nullptr ? call.loan->size() : 0;
  const size_t windows_end = kCallHeaderBytes + windows * kWindowBytes;
  SlabHandle handle;
  SentCalls::Slot* const slot = sent_.TakeFor(call.priority, &handle);
  if (slot == nullptr) return Sent::kNotNow;
  const size_t frame_bytes =
      windows_end + beside.bytes_before() + message_bytes + beside.bytes_behind();
  const absl::StatusOr<std::byte*> frame = connection_->Reserve(frame_bytes);
  if (!frame.ok()) {
    sent_.GiveBack(handle);
    return Sent::kNotNow;
  }
  if (call.loan != nullptr) {
    absl::Status lent = lent_.Lend(*connection_, *call.loan, {handle.slot, handle.generation},
                                   *frame + kCallHeaderBytes);
    if (!lent.ok()) {
      connection_->Abandon();
      sent_.GiveBack(handle);
      return Refuse(call, Annotate(std::move(lent), "not sent"));
    }
  }
  EncodeRequest({{handle.slot, handle.generation}, method, RemainingUs(call, engine_.clock())},
                *frame, RequestKind(windows, beside.bits(), Told(call.priority)));
  EncodeRequestTo(call, beside.Encode(message_bytes, *frame + windows_end));
  sent_.FillFor(slot, handle, call, connection_->Commit(frame_bytes));
  return Sent::kYes;
}

// As Send(), for a message to a one-way method: it ends here.
ClientCalls::Sent ClientCalls::SendOneWay(ClientCall& call, uint16_t method) {
  const Beside beside = BesideOf(call, max_extras_);
  const size_t message_bytes = RequestBytes(call);
  absl::Status possible = CheckSendable(call, beside, message_bytes);
  if (!possible.ok()) [[unlikely]]
    return Refuse(call, std::move(possible));
  const MessageSpace frame = connection_->Append(kCallHeaderBytes + beside.bytes_before() +
                                                 message_bytes + beside.bytes_behind());
  if (frame.data == nullptr) [[unlikely]]
    return Sent::kNotNow;
  EncodeOneWay(method, RemainingUs(call, engine_.clock()), frame.data,
               OneWayKind(beside.bits(), Told(call.priority)));
  EncodeRequestTo(call, beside.Encode(message_bytes, frame.data + kCallHeaderBytes));
  Trace(TracePoint::kWritten);
  End(call, absl::OkStatus());
  return Sent::kCompleted;
}

Priority ClientCalls::Told(Priority priority) const {
  return takes_priorities_ ? priority : Priority::kNormal;
}

WEFT_COLD ClientCalls::Sent ClientCalls::Refuse(ClientCall& call, absl::Status why) {
  End(call, WithDelivery(std::move(why), Delivery::kNotSent));
  return Sent::kCompleted;
}

void ClientCalls::Pump() {
  if (sent_.owes_cancels()) {
    sent_.SendOwedCancels([this](SlabHandle slot) { return SendCancel(slot); });
  }
  if (balancer_ != nullptr)
    streams_->MoveWaiting([this](uint64_t key) { return balancer_->ChooseStreams(key); });
  if (next_ != nullptr) streams_->MoveWaiting([this](uint64_t) { return NextStreams(); });
  streams_first_ = !streams_first_;
  for (const Priority least : {Priority::kControl, Priority::kNormal, Priority::kBackground}) {
    if (streams_first_) streams_->Pump(least, MayOpenStreams());
    PumpCalls(least);
    if (!streams_first_) streams_->Pump(least, MayOpenStreams());
  }
  if (waiting_.room_wanted() && (watcher_ != nullptr || HasRoom())) {
    waiting_.SetRoomWanted(false);
    watcher_ != nullptr ? watcher_->OnFreed() : host_.OnRoom();
  }
  if (state_ == State::kLeaving) host_.OnCallsLeft();
}

uint32_t ClientCalls::load() const {
  return sent_.in_use() + streams_->in_slots() + waiting_.size();
}

// Sends those that are at least as urgent.
void ClientCalls::PumpCalls(Priority least) {
  while (connection_ != nullptr || balancer_ != nullptr || next_ != nullptr) {
    // Off the queue first: if the call ends here, its callback may start others.
    ClientCall* const call = waiting_.PopFront(least);
    if (call == nullptr) return;
    // It may be gone after this, unless it was sent.
    const Sent sent = balancer_ != nullptr
                          ? balancer_->Send(*call)
                          : (next_ != nullptr ? SendAtNext(*call) : TrySend(*call));
    if (sent == Sent::kNotNow) return waiting_.Return(*call);
    if (sent == Sent::kYes && call->kind == ClientCall::Kind::kCallback) {
      static_cast<CallbackCall*>(call)->ForgetRequest();
    }
  }
}

// --- over a bridge ------------------------------------------------------------------------------

void ClientCalls::SetNext(ClientCalls* next) {
  if (std::exchange(next_, next) == next) return;
  waiting_.SetElsewhere(next != nullptr);
  if (state_ != State::kLeaving) return;
  next == nullptr ? waiting_.Hold() : static_cast<void>(waiting_.Release());
}

ClientCalls::Sent ClientCalls::SendAtNext(ClientCall& call) {
  ClientCalls& next = *next_;
  call.carrier = &next;
  const Sent sent = next.SendAttempt(call);
  if (sent != Sent::kNotNow) {
    next.FlushUnlessInTurn();
    return sent;
  }
  call.carrier = call.client;
  if (next.is_open()) next.WantRoom();
  return Sent::kNotNow;
}

ClientStreams* ClientCalls::NextStreams() {
  if (next_ == nullptr || !next_->is_open()) return nullptr;
  if (next_->streams().has_slot()) return &next_->streams();
  next_->WantRoom();
  return nullptr;
}

// If it has none, it will tell.
bool ClientCalls::NextHasRoom() {
  if (!waiting_.may_pass(Priority::kNormal)) return false;
  if (next_->HasRoom()) return true;
  if (next_->is_open()) next_->WantRoom();
  return false;
}

// --- back ---------------------------------------------------------------------------------------

void ClientCalls::OnMessage(Connection& connection, ByteSpan message) {
  // Ours: framing delivers nothing once it is closed
  WEFT_DCHECK(connection_ == &connection && connection.state() == Connection::State::kOpen);
  if (IsOkReply(message)) [[likely]]
    return OnOkReply(connection, message);
  IsStreamKind(CallFrameKindOf(message)) ? OnStreamFrame(message) : OnOtherFrame(message);
}

WEFT_COLD void ClientCalls::OnOtherFrame(ByteSpan frame) {
  const uint16_t kind = CallFrameKindOf(frame);
  if (kind == static_cast<uint16_t>(CallFrameKind::kReleased)) return OnReleased(frame);
  if (kind == kStreamReleaseKind) {
    const char* const wrong = streams_->OnRelease(frame);
    return wrong != nullptr ? ProtocolError(wrong) : void();
  }
  if (kind == static_cast<uint16_t>(CallFrameKind::kGoaway)) return OnGoaway(frame);
  if (kind == static_cast<uint16_t>(CallFrameKind::kMoved)) return OnMoved(frame);
  if (kind == static_cast<uint16_t>(CallFrameKind::kIdle)) return host_.OnIdle(frame);
  if (!IsReplyKind(kind)) return ProtocolError("neither a reply nor a notice");
  ReplyHeader header;
  ByteSpan body;
  if (!DecodeReply(frame, &header, &body)) {
    return ProtocolError("a reply whose fields disagree");
  }
  const SentCalls::Slot* const slot = sent_.Release(HandleOf(frame));
  if (slot == nullptr) return ProtocolError("a reply to no call");
  answered_ = true;
  OnOtherReply(frame, *slot);
  if (!waiting_.may_pass()) Pump();
}

void ClientCalls::OnStreamFrame(ByteSpan frame) {
  if (const char* wrong = streams_->OnFrame(frame)) [[unlikely]]
    return ProtocolError(wrong);
  answered_ = true;
  // A slot may be free.
  if (streams_->some_wait()) [[unlikely]]
    streams_->Pump(Priority::kBackground, MayOpenStreams());
  if (state_ == State::kLeaving) [[unlikely]]
    host_.OnCallsLeft();
}

void ClientCalls::StartStream(ClientStream& stream) {
  ClientStreams* const server =
      balancer_ != nullptr ? balancer_->ChooseStreams(stream.server_key()) : NextStreams();
  stream.BelongTo(server != nullptr ? *server : *streams_);
  if (ended()) {
    // Not CANCELLED: a callback that starts its stream again would do so for ever.
    absl::Status closed = absl::FailedPreconditionError(
        StrCat("the channel to ", address_, " is being destroyed (not sent)"));
    stream.Refuse(WithDelivery(std::move(closed), Delivery::kNotSent));
  }
  if (server != nullptr) return stream.Start(/*may_open=*/true);
  stream.Start(connection_ != nullptr && MayOpenStreams());
  // Without a queue none can wait: the next one finds a connection.
  const bool wants = streams_->some_wait() || options_.max_queued_calls == 0;
  if (!is_open() && !ended() && wants) host_.OnCallWaits();
}

bool ClientCalls::some_wait() const { return !waiting_.empty() || streams_->some_wait(); }

// Takes the unused Connection so that OnMessage() can jump here with its arguments in place.
WEFT_APART void ClientCalls::OnOkReply(Connection&, ByteSpan frame) {
  const SentCalls::Slot* const slot = sent_.Release(HandleOf(frame));
  if (slot == nullptr) [[unlikely]]
    return ProtocolError("a reply to no call");
  answered_ = true;
  ClientCall* const call = slot->call;
  if (call != nullptr && call->is_plain &&
      IsDecoded(frame.subspan(kCallHeaderBytes), *call, max_reply_bytes_)) [[likely]] {
    EndWell(*call);
  } else {
    OnOtherReply(frame, *slot);
  }
  // Calls wait, or the connection is being left.
  if (!waiting_.may_pass()) [[unlikely]]
    Pump();
}

// An error, one that cannot be decoded, one with memory to reclaim, or one that comes too late. The
// slot is free already.
WEFT_COLD void ClientCalls::OnOtherReply(ByteSpan frame, SentCalls::Slot slot) {
  ReplyHeader header;
  ByteSpan body;
  if (!DecodeReply(frame, &header, &body)) return;  // it was looked at before
  ClientCall* const call = slot.call;
  if (call == nullptr) {  // it has ended before
    ++stats_.late_replies;
    sent_.OnLateReply(slot);
    return lent_.Release(*connection_, CallIdOf(frame));
  }
  call->answered = true;
  absl::Status outcome = call->OutcomeOf(header, body, address_, max_reply_bytes_);
  if (!call->TakeExtras(header.extras, &outcome)) {
    // Nothing of it is to be trusted.
    outcome = WithDelivery(absl::DataLossError(StrCat("the metadata of the reply from ", address_,
                                                      " cannot be decoded")),
                           Delivery::kMayHaveRun);
  }
  if (!header.attachment.empty() && outcome.ok() && call->context != nullptr) {
    call->context->TakeReplyAttachment(
        KeepAttachment(*connection_, body.size(), header.attachment));
  }
  if (call->loan == nullptr) return End(*call, std::move(outcome));
  call->state = ClientCall::State::kReclaiming;
  lent_.EndWhenReclaimed(*connection_, *call->loan, std::move(outcome),
                         [this, call](absl::Status ended) { End(*call, std::move(ended)); });
}

void ClientCalls::ProtocolError(std::string_view what) {
  host_.EndConnection(absl::DataLossError(StrCat("the server sent a malformed frame: ", what)),
                      what);
}

// The server is done with the memory of a call that has ended before.
void ClientCalls::OnReleased(ByteSpan frame) {
  CallId id;
  if (!DecodeNotice(frame, &id)) return ProtocolError("a release whose fields disagree");
  if (!sent_.IsAbandoned({id.slot, id.generation})) {
    return ProtocolError("a release of what was not cancelled");
  }
  lent_.Release(*connection_, id);
}

void ClientCalls::OnGoaway(ByteSpan frame) {
  uint32_t unanswered = 0;
  if (!DecodeNumber(frame, &unanswered)) return ProtocolError("a goaway whose fields disagree");
  if (notice_ == Notice::kGoaway) return ProtocolError("a second goaway");
  notice_ = Notice::kGoaway;
  host_.OnGoaway(unanswered == 0);
}

void ClientCalls::OnMoved(ByteSpan frame) {
  CallId id;
  if (!DecodeNotice(frame, &id) || id != CallId()) {
    return ProtocolError("a moved whose fields disagree");
  }
  if (notice_ != Notice::kNone) {
    return ProtocolError("a second moved, or one behind a goaway");
  }
  notice_ = Notice::kMoved;
  host_.OnMoved();
}

// A call that was sent, and lends nothing, has its reply.
WEFT_INLINE void ClientCalls::EndWell(ClientCall& call) {
  if (call.deadline_ns != kNever) engine_.timers().Cancel(&call);
  call.state = ClientCall::State::kDone;
  ++stats_.calls_ok;
  if (call.kind != ClientCall::Kind::kCallback) return call.Complete(absl::OkStatus());
  auto& by_callback = static_cast<CallbackCall&>(call);
  by_callback.done(absl::OkStatus());
  by_callback.done = nullptr;
  by_callback.client->Recycle(by_callback);
}

void ClientCalls::End(ClientCall& call, absl::Status status) {
  if (call.armed()) engine_.timers().Cancel(&call);
  if (!call.is_plain) {
    call.is_plain = true;
    // What an attempt lends is its call's.
    if (call.loan != nullptr && call.kind != ClientCall::Kind::kAttempt) {
      std::exchange(call.loan, nullptr)->EndUse();
    }
    if (call.context != nullptr) std::exchange(call.context, nullptr)->Detach(status);
  }
  call.state = ClientCall::State::kDone;
  if (watcher_ != nullptr) watcher_->OnEnd(call, status);
  if (call.kind != ClientCall::Kind::kAttempt) {
    ++(status.ok() ? stats_.calls_ok : stats_.calls_failed);
  }
  call.Complete(std::move(status));
}

// --- back-pressure ------------------------------------------------------------------------------

void ClientCalls::WantRoom() {
  waiting_.SetRoomWanted(true);
  if (!is_open()) host_.OnCallWaits();
}

bool ClientCalls::HasRoom() {
  if (balancer_ != nullptr) return waiting_.may_pass(Priority::kNormal) && balancer_->HasRoom();
  if (next_ != nullptr) return NextHasRoom();
  if (connection_ == nullptr || !waiting_.may_pass(Priority::kNormal) || sent_.full()) {
    return false;
  }
  // If it is refused, OnWritable() follows.
  if (!connection_->Reserve(kCallHeaderBytes).ok()) return false;
  connection_->Abandon();
  return true;
}

// --- contexts -----------------------------------------------------------------------------------

absl::StatusOr<CallContext*> ClientCalls::BeginContext(uint32_t method, ClientContext* given) {
  const std::vector<ClientInterceptor*>& interceptors = options_.interceptors;
  if (given == nullptr && interceptors.empty()) return nullptr;
  const std::shared_ptr<CallContext> own =
      given == nullptr ? std::make_shared<CallContext>() : nullptr;
  CallContext* const context = own != nullptr ? own.get() : &ContextOf(*given);
  WEFT_RETURN_IF_ERROR(context->Begin(engine_));
  if (!interceptors.empty()) {
    const MethodTable::Name name = methods_.NameOf(method);
    WEFT_RETURN_IF_ERROR(context->Intercept(interceptors, name.service, name.method, address_));
  }
  context->Seal();
  if (own != nullptr) context->KeepItself();
  return context;
}

// --- out of time --------------------------------------------------------------------------------

void ClientCalls::Expire(ClientCall& call) {
  if (call.state == ClientCall::State::kRetried) return call.retried->Expire();
  if (call.carrier != this) return call.carrier->Expire(call);
  ++stats_.deadlines_exceeded;
  const bool one_way = call.state == ClientCall::State::kQueued && call.one_way;
  const std::string after = StrCat(one_way ? "not handed to a connection to " : "no reply from ",
                                   address_, " within ", DurationText(call.timeout_us));
  if (call.state == ClientCall::State::kQueued) {
    waiting_.Remove(call);
    const char* why = balancer_ != nullptr        ? "no server was ready that had room"
                      : state_ == State::kLeaving ? "the server was about to shut down"
                      : !is_open()                ? "there was no connection"
                                                  : "all slots or credits were in use";
    return End(call, WithDelivery(absl::DeadlineExceededError(
                                      StrCat(after, ": ", why, " (not sent, safe to retry)")),
                                  Delivery::kNotSent));
  }
  if (call.state == ClientCall::State::kReclaiming)
    return End(call, LateReclaimError(call, address_));
  Abandon(call);
  End(call, WithDelivery(absl::DeadlineExceededError(
                             StrCat(after, " (the request was sent and may have run)")),
                         Delivery::kMayHaveRun));
}

void ClientCalls::Cancel(ClientCall& call) {
  if (call.state == ClientCall::State::kRetried) return call.retried->Cancel();
  if (call.carrier != this) return call.carrier->Cancel(call);
  if (call.state == ClientCall::State::kQueued) {
    waiting_.Remove(call);
    return End(call, WithDelivery(absl::CancelledError("cancelled by the caller (not sent)"),
                                  Delivery::kNotSent));
  }
  if (call.state == ClientCall::State::kSent) Abandon(call);
  End(call, WithDelivery(absl::CancelledError(
                             "cancelled by the caller (the request was sent and may have run)"),
                         Delivery::kMayHaveRun));
}

// Nobody waits for the reply any more. The server is told.
void ClientCalls::Abandon(ClientCall& call) {
  WEFT_CHECK(call.state == ClientCall::State::kSent);  // Ours: callers have looked
  sent_.Abandon(call, [this](SlabHandle slot) { return SendCancel(slot); });
  if (state_ == State::kLeaving) host_.OnCallsLeft();
  FlushUnlessInTurn();
}

void ClientCalls::Drop(ClientCall& call) {
  // On a list: its connection is gone, and it would have been completed next.
  if (IntrusiveList<ClientCall>::IsLinked(&call)) return IntrusiveList<ClientCall>::Remove(&call);
  call.carrier->Abandon(call);
}

// False: there is no room now.
bool ClientCalls::SendCancel(SlabHandle slot) {
  const absl::StatusOr<std::byte*> frame = connection_->Reserve(kCallHeaderBytes);
  if (!frame.ok()) return false;
  EncodeCancel({slot.slot, slot.generation}, *frame);
  connection_->Commit(kCallHeaderBytes);
  return true;
}

}  // namespace weft
