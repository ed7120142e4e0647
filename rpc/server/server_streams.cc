#include "rpc/server/server_streams.h"

#include <array>
#include <span>
#include <string>
#include <utility>

#include "core/check.h"
#include "core/inline.h"
#include "core/status.h"
#include "core/strings.h"
#include "rpc/server/server_connection.h"
#include "rpc/server/server_core.h"
#include "rpc/wire/extras.h"
#include "rpc/wire/status_text.h"

namespace weft {
namespace {

bool HasOneReply(const MethodDescriptor& method) {
  return method.kind == MethodKind::kClientStreaming;
}
bool HasOneRequest(const MethodDescriptor& method) {
  return method.kind == MethodKind::kServerStreaming;
}

}  // namespace

// --- one stream ---------------------------------------------------------------------------------

ServerStream::ServerStream(ServerCall* call)
    : call_(*call), early_ends_(call->engine()), stream_(*this, early_ends_) {}

void ServerStream::Begin(ServerStreams& streams) {
  streams_ = &streams;
  failure_ = absl::OkStatus();
  stream_.Reset();
}

Stream& ServerStream::stream() { return stream_; }

void ServerStream::Stop(bool also_writes) {
  if (also_writes) stream_.CloseWrites();
  stream_.IgnoreReads();
  stream_.RunCallbacksLater();
}

bool ServerStream::SendOwed() { return streams_->SendEnd(call_); }

void ServerStream::Fail(absl::Status why) {
  // What a client sends that cannot be decoded is its mistake; what lacks fields here is not.
  if (absl::IsInvalidArgument(why)) why = absl::InternalError(why.message());
  if (absl::IsDataLoss(why)) why = absl::InvalidArgumentError(why.message());
  if (failure_.ok()) failure_ = std::move(why);
  call_.SetCancelled();
}

void ServerStream::OnQuiet() { streams_->FreeWhenQuiet(call_); }

// --- frames -------------------------------------------------------------------------------------

ServerStreams::ServerStreams(ServerConnection* connection, StreamLimits limits)
    : connection_(*connection),
      max_streams_(limits.max_streams),
      streams_(
          &connection->core().stats().running_bytes, connection->held_bytes(),
          {connection->core().options().max_running_bytes,
           connection->core().options().max_request_bytes, connection->core().least_of_client()}) {
  const ServerOptions& options = connection->core().options();
  streams_.Open(connection->connection(),
                {options.stream_window_messages, options.stream_window_bytes}, limits.window,
                connection->max_reply_bytes());
  if (max_streams_ > 0) slots_.Reserve(max_streams_);
}

const char* ServerStreams::OnFrame(ByteSpan frame) {
  const uint16_t kind = CallFrameKindOf(frame);
  if (kind == TwoWayKind(StreamFrameKind::kData, /*to_opener=*/false)) [[likely]]
    return OnData(frame);
  switch (static_cast<StreamFrameKind>(kind & 0xFF)) {
    case StreamFrameKind::kData:
      return OnData(frame);
    case StreamFrameKind::kCredit:
      return OnCredit(frame);
    case StreamFrameKind::kOpen:
      return OnOpen(frame);
    case StreamFrameKind::kCancel:
      return OnCancel(frame);
    case StreamFrameKind::kEnd:
      break;
  }
  return "an end of a stream from a client";
}

WEFT_INLINE const char* ServerStreams::OnData(ByteSpan frame) {
  DataHeader data;
  ByteSpan message;
  if (!DecodeData(frame, /*to_opener=*/false, &data, &message)) [[unlikely]]
    return "data of a stream whose fields disagree";
  ServerCall* const call = Find(data.id);
  if (call == nullptr) [[unlikely]]
    return WhyNotFound(frame);
  if (!data.has_message) [[unlikely]]
    return call->stream().OnHalfClose(data.number);
  return call->stream().OnData(data.number, data.last, message);
}

const char* ServerStreams::OnCredit(ByteSpan frame) {
  CreditHeader credit;
  if (!DecodeCredit(frame, /*to_opener=*/false, &credit)) {
    return "credit of a stream whose fields disagree";
  }
  ServerCall* const call = Find(credit.id);
  return call == nullptr ? WhyNotFound(frame) : call->stream().OnCredit(credit);
}

CallSlot* ServerStreams::Reach(uint32_t slot) {
  if (slot >= max_streams_) return nullptr;
  while (slot >= slots_.size()) slots_.Grow();
  // The first may have moved.
  if (CallSlot& first = slots_[0]; first.call != nullptr) first.call->slot_ = &first;
  return &slots_[slot];
}

WEFT_INLINE ServerCall* ServerStreams::Find(CallId id) {
  if (id.slot >= slots_.size()) [[unlikely]]
    return nullptr;
  const CallSlot& slot = slots_[id.slot];
  return slot.generation == id.generation ? slot.call : nullptr;
}

WEFT_COLD const char* ServerStreams::WhyNotFound(ByteSpan frame) {
  const CallId id = CallIdOf(frame);
  if (id.slot < slots_.size()) {
    const CallSlot& slot = slots_[id.slot];
    const auto newer = static_cast<int32_t>(id.generation - slot.generation);
    if (slot.used && (newer < 0 || (newer == 0 && slot.call == nullptr))) return nullptr;
  }
  return "a frame of a stream that is not open";
}

WEFT_COLD const char* ServerStreams::OnCancel(ByteSpan frame) {
  CallId id;
  CallSlot* const slot = DecodeStreamCancel(frame, &id) ? Reach(id.slot) : nullptr;
  if (slot == nullptr) return "a cancel that names no stream";
  if (slot->IsFreeFor(id.generation)) {
    slot->early_cancel = id.generation;  // its open may come behind
  } else if (slot->call != nullptr && slot->generation == id.generation) {
    slot->call->Cancel();
  }
  return nullptr;
}

WEFT_COLD const char* ServerStreams::OnOpen(ByteSpan frame) {
  OpenHeader header;
  std::array<Window, kMaxWindows> windows;
  if (!DecodeOpen(frame, &header, &windows) || header.windows > connection_.max_windows()) {
    return "an open of a stream whose fields disagree";
  }
  Metadata metadata;
  if (!header.extras.empty() && !DecodeExtras(header.extras, &metadata, /*details=*/nullptr)) {
    return "an open of a stream with metadata that makes no sense";
  }
  CallSlot* const slot = Reach(header.id.slot);
  if (slot == nullptr) return "a stream slot that was not agreed on";
  if (slot->call != nullptr) return "a stream slot that is in use";
  if (!slot->IsFreeFor(header.id.generation)) return "a stream slot's generation that is not new";
  ServerCore& core = connection_.core();
  ServerCall& call = *core.calls().Take();
  slot->call = &call;
  slot->generation = header.id.generation;
  slot->used = true;
  call.BeginStream(*this, &connection_, slot, header.id);
  call.priority_ = header.priority;
  if (header.windows > 0) call.TakeWindows(std::span(windows).first(header.windows));
  connection_.HoldOn();
  ++running_;
  ++core.stats().requests;
  call.stream().Open(streams_, header.id, /*is_client=*/false, header.waits, header.priority);
  const MethodEntry* const entry = core.methods().Find(header.method);
  absl::Status admitted = Admit(call, header, entry);
  if (admitted.ok() && !header.extras.empty()) {
    admitted = call.Extras().TakeMetadata(connection_, header.extras.size(), std::move(metadata));
  }
  if (!admitted.ok()) {
    ++core.stats().refused;
    Complete(call, std::move(admitted));
    return nullptr;
  }
  if (header.waits) call.stream().GrantAll();
  Start(call, *entry);
  return nullptr;
}

absl::Status ServerStreams::Admit(ServerCall& call, const OpenHeader& header,
                                  const MethodEntry* entry) {
  const ServerCore& core = connection_.core();
  const uint32_t cancelled = std::exchange(call.slot_->early_cancel, 0);
  const bool early_cancel = cancelled != 0 && cancelled == header.id.generation;
  const bool in_time = call.StartClock(header.remaining_us);
  if (core.draining()) {
    return NotRunError(absl::StatusCode::kUnavailable,
                       "the server is shutting down (not run, safe to retry)");
  }
  if (entry == nullptr) {
    return absl::UnimplementedError(StrCat("no method has the number ", header.method,
                                           "; this server has ", core.methods().size(),
                                           " methods"));
  }
  if (ClientAccess* const access = connection_.access();
      access != nullptr && !access->MayCall(header.method)) {
    return access->Refuse(header.method);
  }
  if (entry->method->kind == MethodKind::kUnary || entry->method->kind == MethodKind::kOneWay) {
    return absl::UnimplementedError(
        StrCat("method ", entry->method->name, " has one request and one reply: it is no stream"));
  }
  if (early_cancel) return absl::CancelledError("the caller cancelled before the stream was open");
  if (!in_time) {
    return NotRunError(absl::StatusCode::kDeadlineExceeded,
                       "it expired before its handler could run");
  }
  if (connection_.core().admission() == nullptr) return absl::OkStatus();
  return call.CountIn(header.method, Admission::What::kStream);
}

// Runs the handler; one that takes a single request, when that is here.
void ServerStreams::Start(ServerCall& call, const MethodEntry& entry) {
  call.PrepareMessages(*entry.method);
  if (!HasOneRequest(*entry.method)) return connection_.RunWatched(call, entry);
  connection_.WatchDeadline(call);
  call.stream().Read(call.request_.message, [this, &call, &entry](bool ok) {
    if (absl::Status why = ok ? TakeRequest(call) : WhyNoRequest(call, *entry.method); !why.ok()) {
      return connection_.Complete(call, std::move(why));
    }
    connection_.RunWatched(call, entry);
  });
}

// It stays until the handler has finished, as that of a call, and counts as that.
absl::Status ServerStreams::TakeRequest(ServerCall& call) {
  const size_t bytes = call.stream().read_bytes();
  WEFT_RETURN_IF_ERROR(connection_.core().Charge(bytes, *connection_.held_bytes()));
  call.request_bytes_ = static_cast<uint32_t>(bytes);
  return absl::OkStatus();
}

absl::Status ServerStreams::WhyNoRequest(const ServerCall& call,
                                         const MethodDescriptor& method) const {
  if (call.remaining_us() == 0) {
    return NotRunError(absl::StatusCode::kDeadlineExceeded, "it expired before its request came");
  }
  if (call.cancelled()) return absl::CancelledError();
  return absl::InvalidArgumentError(
      StrCat("method ", method.name, " takes one request, and there is none"));
}

// --- the end ------------------------------------------------------------------------------------

void ServerStreams::OnFinished(ServerCall& call) {
  call.server_stream()->Stop(/*also_writes=*/!HasOneReply(call.method()));
}

void ServerStreams::Complete(ServerCall& call, absl::Status status) {
  call.CountOut(status);
  ServerStream& stream = *call.server_stream();
  bool reply_waits = false;
  if (status.ok() && stream.failure_.ok() && !call.cancelled() && HasOneReply(call.method())) {
    const google::protobuf::MessageLite& reply = *call.reply_.message;
    // There is credit for it: nothing was sent before.
    reply_waits = stream.stream_.TryWrite(reply, /*last=*/false) == StreamResult::kNotYet;
    if (reply_waits) {
      stream.stream_.Write(reply, /*last=*/false, nullptr);
    }
  }
  if (!stream.failure_.ok()) {
    status = stream.failure_;
  } else if (call.cancelled() && status.ok()) {  // nobody reads it
    status = call.remaining_us() == 0 ? absl::DeadlineExceededError("the handler took too long")
                                      : absl::CancelledError();
  }
  call.status_ = std::move(status);
  call.state_ = ServerCall::State::kReplying;
  stream.Stop(/*also_writes=*/!reply_waits);
  if (streams_.connection() == nullptr) return LeaveSlot(call);
  stream.stream_.Owe();
  connection_.FlushUnlessInTurn();
}

// False: there is no room now.
bool ServerStreams::SendEnd(ServerCall& call) {
  Stream& stream = call.stream();
  const absl::Status& status = call.status_;
  const std::string_view text =
      status.ok() ? std::string_view() : CutStatusText(ToStd(status.message()));
  const std::string extras = connection_.ReplyExtras(call);
  const MessageSpace frame =
      streams_.connection()->Append(EndFrameBytes(extras.size(), text.size()));
  if (frame.data == nullptr) return false;
  EncodeEnd({stream.id(), static_cast<uint16_t>(status.code()), IsNotRun(status), stream.sent(),
             AsBytes(extras), AsBytes(text)},
            frame.data);
  ServerTallies& stats = connection_.core().stats();
  ++(status.ok() ? stats.replies_ok : stats.replies_failed);
  LeaveSlot(call);
  return true;
}

// The slot is free for the next stream, and the call for the next call, as soon as nothing of it is
// under way.
void ServerStreams::LeaveSlot(ServerCall& call) {
  Stream& stream = call.stream();
  connection_.ForgetRelease(call);
  call.slot_->call = nullptr;
  call.slot_ = &nowhere_;
  stream.CloseWrites();
  stream.RunCallbacksLater();
  stream.Disconnect();
  FreeWhenQuiet(call);
}

void ServerStreams::FreeWhenQuiet(ServerCall& call) {
  if (!call.stream().quiet() || call.slot_ != &nowhere_) return;
  --running_;
  call.uses_stream_ = false;
  connection_.Free(call);  // this may be gone now
}

void ServerStreams::CancelAll() {
  ForEach([](ServerCall& call) { call.Cancel(); });
}

void ServerStreams::Close() {
  streams_.Close();
  for (const CallSlot& slot : slots_) {
    if (slot.call == nullptr) continue;
    ServerCall& call = *slot.call;
    if (call.state_ == ServerCall::State::kReplying) {
      LeaveSlot(call);
      continue;
    }
    call.StopTransfers(absl::UnavailableError("the client is gone"));
    if (slot.call == nullptr) continue;  // it waited for the last of them
    call.stream().Disconnect();
    call.SetCancelled();
  }
}

void ServerStreams::CheckInvariants() {
  uint32_t taken = 0;
  ForEach([&taken](ServerCall& call) {
    call.stream().CheckInvariants();
    ++taken;
  });
  WEFT_CHECK(taken <= running_);  // Ours: invariants, which tests ask for
}

}  // namespace weft
