#include "rpc/client/client_stream.h"

#include <limits>
#include <utility>

#include "core/check.h"
#include "core/fork_guard.h"
#include "core/strings.h"
#include "rpc/client/bulk_call.h"
#include "rpc/client/call_context.h"
#include "rpc/client/client_calls.h"
#include "rpc/client/client_connection.h"
#include "rpc/client/client_stream_handles.h"
#include "rpc/client/client_streams.h"
#include "rpc/client/lent_memory.h"
#include "rpc/stream/run_or_post.h"
#include "rpc/wire/extras.h"
#include "rpc/wire/status_text.h"
#include "weft/status.h"

namespace weft {
namespace {

// How the server has ended it.
absl::Status StatusOf(const EndHeader& header) {
  if (header.status == 0) return absl::OkStatus();
  absl::Status status(static_cast<absl::StatusCode>(header.status),
                      ToAbsl(AsStringView(header.text)));
  if (header.not_run) return WithDelivery(std::move(status), Delivery::kNotSent);
  if (!MayBeWeftsOwn(status.code())) return status;
  return WithDelivery(std::move(status), Delivery::kMayHaveRun);
}

absl::Status NotSent(absl::Status status) {
  return WithDelivery(std::move(status), Delivery::kNotSent);
}
absl::Status MayHaveRun(absl::Status status) {
  return WithDelivery(std::move(status), Delivery::kMayHaveRun);
}

}  // namespace

ClientStream::ClientStream(ClientStreams& streams)
    : home_(streams), streams_(&streams), stream_(*this, streams.early_ends()) {}

EngineCore& ClientStream::engine() { return home_.engine(); }

// --- the start ----------------------------------------------------------------------------------

void ClientStream::Begin(const Beginning& beginning) {
  stream_.Reset();
  state_ = State::kNew;
  in_slot_ = end_has_come_ = has_messages_ = false;
  has_handle_ = true;
  beginning_ = beginning;
  request_.clear();
  end_status_ = status_ = absl::OkStatus();
  deadline_ns_ = kNever;
  if (beginning.timeout_us != 0) {
    deadline_ns_ = LaterByUs(engine().clock().NowNs(), beginning.timeout_us);
  }
  if (beginning.context == nullptr || beginning.context->deadline_ns() >= deadline_ns_) return;
  deadline_ns_ = beginning.context->deadline_ns();
  beginning_.timeout_us = beginning.context->timeout_us();
}

void ClientStream::Start(bool may_open) {
  ++streams_->stats().calls_started;
  streams_->Take(*this);
  if (!beginning_.valid.ok()) return End(beginning_.valid);
  if (beginning_.context != nullptr && !beginning_.context->Attach([this] { Cancel(); })) {
    return End(NotSent(absl::CancelledError("cancelled by the caller (not sent)")));
  }
  if (deadline_ns_ != kNever) engine().timers().Schedule(this, deadline_ns_);
  if (beginning_.has_request) stream_.WriteEncoded(request_, /*last=*/true);
  if (streams_->Start(*this, may_open)) return;
  End(NotSent(absl::ResourceExhaustedError(
      StrCat("as many streams wait already for ", streams_->address(),
             " as ChannelOptions::max_queued_calls allows (not sent)"))));
}

uint32_t ClientStream::RemainingUs() {
  if (deadline_ns_ == kNever) return 0;
  const uint64_t now_ns = engine().clock().NowNs();
  // Not 0, which would mean that there is no deadline.
  const uint64_t remaining_us =
      deadline_ns_ > now_ns + kNsPerUs ? (deadline_ns_ - now_ns) / kNsPerUs : 1;
  // More than an hour and eleven minutes does not fit: the client alone watches such a deadline.
  return remaining_us <= std::numeric_limits<uint32_t>::max() ? static_cast<uint32_t>(remaining_us)
                                                              : 0;
}

// --- the end ------------------------------------------------------------------------------------

void ClientStream::Cancel() {
  if (state_ == State::kWaiting) {
    return Abandon(NotSent(absl::CancelledError("cancelled by the caller (not sent)")));
  }
  Abandon(MayHaveRun(
      absl::CancelledError("cancelled by the caller (the stream was open and may have run)")));
}

void ClientStream::Fail(absl::Status why) {
  if (state_ == State::kEnded) return FailBehindTheEnd(std::move(why));
  Abandon(state_ == State::kWaiting ? NotSent(std::move(why)) : MayHaveRun(std::move(why)));
}

// What the server had sent before its end, and was not read until now, cannot be decoded.
void ClientStream::FailBehindTheEnd(absl::Status why) {
  if (status_.ok()) status_ = MayHaveRun(std::move(why));
  stream_.IgnoreReads();
  stream_.RunCallbacksLater();
}

// Ends it before the server does.
void ClientStream::Abandon(absl::Status status) {
  if (state_ != State::kWaiting && state_ != State::kOpen) return;
  const bool tell = state_ == State::kOpen && !end_has_come_;
  if (state_ == State::kWaiting) streams_->StopWaiting(*this);
  End(std::move(status));
  // Before what is more urgent: the stream holds a slot, and perhaps memory, until it is answered.
  if (tell) stream_.OweUrgently();
}

bool ClientStream::SendOwed() {
  const MessageSpace frame = streams_->connection().connection()->Append(kCallHeaderBytes);
  if (frame.data == nullptr) return false;
  EncodeStreamCancel(stream_.id(), frame.data);
  return true;
}

const char* ClientStream::OnEnd(const EndHeader& header) {
  if (end_has_come_) return "a second end of a stream";
  if (const char* wrong = stream_.SetTotal(header.messages)) return wrong;
  end_has_come_ = true;
  has_messages_ = header.messages != 0;
  end_status_ = StatusOf(header);
  if (!header.extras.empty() && !TakeExtras(header.extras)) {
    // Nothing of it is to be trusted.
    end_status_ = MayHaveRun(absl::DataLossError(StrCat(
        "the metadata of the stream's end from ", streams_->address(), " cannot be decoded")));
  }
  if (stream_.all_received()) TakeEnd();
  return nullptr;
}

bool ClientStream::TakeExtras(ByteSpan extras) {
  if (beginning_.context != nullptr) return beginning_.context->TakeReply(extras, &end_status_);
  Metadata metadata;  // nobody reads it
  return DecodeExtras(extras, &metadata, end_status_.ok() ? nullptr : &end_status_);
}

void ClientStream::OnAllReceived() {
  if (end_has_come_) TakeEnd();
}

void ClientStream::TakeEnd() {
  Connection& connection = *streams_->connection().connection();
  streams_->LeaveSlot(*this);
  if (state_ != State::kOpen) {
    if (beginning_.loan != nullptr) ReleaseLoan();
    return FreeIfUnused();
  }
  if (end_status_.ok() && beginning_.reply != nullptr && !has_messages_) {
    end_status_ = MayHaveRun(
        absl::DataLossError(StrCat("the stream from ", streams_->address(), " has no reply")));
  }
  stream_.EndReads();
  if (beginning_.loan == nullptr) return End(std::move(end_status_));
  // Nothing is sent any more, which need not wait for the memory.
  stream_.CloseWrites();
  stream_.RunCallbacksLater();
  streams_->lent().EndWhenReclaimed(connection, *beginning_.loan, std::move(end_status_),
                                    [this](absl::Status status) { End(std::move(status)); });
}

void ClientStream::ReleaseLoan() {
  // Who waits for the memory goes on: the stream stays, whatever he does.
  in_callback_ = true;
  LentMemory::Release(*streams_->connection().connection(),
                      *std::exchange(beginning_.loan, nullptr));
  in_callback_ = false;
}

void ClientStream::OnLoss(uint64_t first_unsent, const absl::Status& not_sent,
                          const absl::Status& may_have_run) {
  in_slot_ = false;
  stream_.Disconnect();
  if (state_ != State::kOpen) {
    beginning_.loan = nullptr;  // reclaimed with the connection
    return FreeIfUnused();
  }
  stream_.EndReads();
  End(message_number_ < first_unsent ? may_have_run : not_sent);
}

void ClientStream::End(absl::Status status) {
  state_ = State::kEnded;
  if (in_slot_) streams_->OnAbandoned();
  status_ = std::move(status);
  engine().timers().Cancel(this);
  ++(status_.ok() ? streams_->stats().calls_ok : streams_->stats().calls_failed);
  if (status_.ok()) streams_->CountOk();
  stream_.CloseWrites();
  // What has come of a stream that the server has ended, or that was lost, can still be read.
  if (!stream_.all_received()) stream_.IgnoreReads();
  stream_.RunCallbacksLater();
  if (on_finished_) engine().timers().Schedule(this, 0);
  const auto context = std::exchange(beginning_.context, nullptr);
  if (context != nullptr || beginning_.loan != nullptr) {
    // Interceptors end, and who waits for the memory goes on: the stream stays, whatever they do.
    in_callback_ = true;
    Loan* const loan = beginning_.loan;
    // Until its slot is free the server has the memory: see ReleaseLoan().
    if (loan != nullptr && !(in_slot_ && loan->is_lent())) beginning_.loan = nullptr;
    if (loan != nullptr) loan->EndUse();
    if (context != nullptr) context->Detach(status_);
    in_callback_ = false;
  }
  FreeIfUnused();
}

void ClientStream::Finish(Function<void(absl::Status)> done) {
  WEFT_CHECK(!on_finished_);  // User: one Finish()
  on_finished_ = std::move(done);
  if (beginning_.reply == nullptr) stream_.DropReads();
  stream_.WritesDone();
  stream_.RunCallbacksLater();
  if (state_ == State::kEnded) engine().timers().Schedule(this, 0);
}

void ClientStream::OnTimer() {
  if (state_ == State::kEnded) return RunFinished();
  ++streams_->stats().deadlines_exceeded;
  const std::string after = StrCat("no end of the stream from ", streams_->address(), " within ",
                                   DurationText(beginning_.timeout_us));
  if (state_ == State::kWaiting) {
    const char* why = streams_->connection().connection() == nullptr
                          ? "there was no connection"
                          : "all slots or credits were in use";
    return Abandon(NotSent(
        absl::DeadlineExceededError(StrCat(after, ": ", why, " (not sent, safe to retry)"))));
  }
  if (!in_slot_) {
    return Abandon(MayHaveRun(absl::DeadlineExceededError(
        StrCat("the end of the stream from ", streams_->address(),
               " has come, but the memory that it had lent was not reclaimed within ",
               DurationText(beginning_.timeout_us)))));
  }
  Abandon(
      MayHaveRun(absl::DeadlineExceededError(StrCat(after, " (it was open and may have run)"))));
}

void ClientStream::RunFinished() {
  engine().timers().Cancel(this);
  if (on_finished_ && status_.ok() && beginning_.reply != nullptr) {
    // Only now: whoever waits for the end keeps the reply until then. What cannot be decoded
    // changes status_.
    static_cast<void>(stream_.TryRead(beginning_.reply));
  }
  if (Function<void(absl::Status)> done = std::move(on_finished_)) {
    // Until it has returned the stream stays, whatever it does.
    in_callback_ = true;
    done(status_);
    in_callback_ = false;
  }
  FreeIfUnused();
}

void ClientStream::Release() {
  has_handle_ = false;
  if (state_ == State::kEnded) {
    stream_.IgnoreReads();
    stream_.RunCallbacksLater();
    return FreeIfUnused();
  }
  Cancel();
}

void ClientStream::FreeIfUnused() {
  if (state_ == State::kEnded && !has_handle_ && !in_slot_ && !in_callback_ && !on_finished_ &&
      !armed() && stream_.quiet()) {
    home_.Free(*this);
  }
}

// The channel ends: what is due runs now.
void ClientStream::Shutdown(const absl::Status& gone) {
  WEFT_CHECK(!has_handle_);  // User: handles of streams go before their channel
  EndWithServer(gone);
}

// The same of one of many servers: handles may stay.
void ClientStream::EndWithServer(const absl::Status& gone) {
  if (state_ == State::kWaiting) streams_->StopWaiting(*this);
  in_slot_ = false;
  stream_.Disconnect();
  if (state_ != State::kEnded) End(gone);
}

// --- for any thread -----------------------------------------------------------------------------

namespace internal {

ClientStream* StartStream(Channel& channel, uint32_t method,
                          const google::protobuf::MessageLite* request,
                          google::protobuf::MessageLite* reply, const CallOptions& options) {
  EngineCore& engine = CoreOf(channel.engine());
  ClientCalls& calls = ConnectionOf(channel).calls();
  // Whatever is done with it ends at once: its engine is the parent's.
  if (engine.forked()) return new ClientStream(calls.streams());
  ClientStream::Beginning beginning;
  beginning.method = method;
  beginning.reply = reply;
  beginning.has_request = request != nullptr;
  beginning.wait_for_server = options.wait_for_server;
  beginning.priority = options.priority;
  beginning.server_key = options.server_key;
  beginning.timeout_us =
      options.timeout_us != 0 ? options.timeout_us : calls.options().default_timeout_us;
  if (request != nullptr && !request->IsInitialized()) {
    beginning.valid = absl::InvalidArgumentError(
        StrCat("the request lacks required fields of ", std::string(request->GetTypeName()), ": ",
               request->InitializationErrorString(), " (not sent)"));
  } else if (absl::StatusOr<CallContext*> context = calls.BeginContext(method, options.context);
             context.ok()) {
    if (*context != nullptr) beginning.context = (*context)->shared_from_this();
    if (*context != nullptr && !(*context)->attachment().empty()) {
      beginning.valid = absl::InvalidArgumentError("a stream has no attachment (not sent)");
    }
  } else {
    beginning.valid = context.status();
  }
  if (beginning.valid.ok() && options.bulk != nullptr) {
    const absl::StatusOr<Loan*> loan = options.bulk->BeginStream(engine);
    if (loan.ok()) beginning.loan = *loan;
    if (!loan.ok()) beginning.valid = NotSent(loan.status());
  }
  const auto begin = [&](ClientStream& stream) {
    stream.Begin(beginning);
    if (request != nullptr) stream.SetRequest(*request);
  };
  const bool on_engine = engine.OnEngine();
  if (engine.Enter()) {
    ClientStream& stream = calls.streams().New();
    begin(stream);
    calls.StartStream(stream);
    if (!on_engine) calls.Flush();
    engine.Leave();
    return &stream;
  }
  auto* const stream = new ClientStream(calls.streams());
  begin(*stream);
  RunOrPost(engine, stream->stream(), [&calls, stream] { calls.StartStream(*stream); });
  return stream;
}

void ReleaseStream(ClientStream* stream) {
  EngineCore& engine = stream->engine();
  if (engine.forked()) return LeaveBehind(std::move(stream));
  const bool on_engine = engine.OnEngine();
  const bool behind = stream->stream().posted();
  if (behind || !engine.Enter()) {
    return RunOrPost(engine, stream->stream(), [stream] { stream->Release(); });
  }
  // It stays until the connection has been told.
  stream->stream().BeginPosted();
  stream->Release();
  if (!on_engine) stream->stream().Flush();
  stream->stream().EndPosted();
  engine.Leave();
}

StreamHandle HandleOf(ClientStream& stream) { return {&stream.stream(), &stream.engine()}; }

void CancelStream(ClientStream& stream) {
  RunOrPost(stream.engine(), stream.stream(), [&stream] { stream.Cancel(); });
}

void FinishStream(ClientStream& stream, Function<void(absl::Status)> done) {
  if (stream.engine().forked()) return done(NotPostedError(stream.engine()));
  RunOrPost(stream.engine(), stream.stream(),
            [&stream, done = std::move(done)]() mutable { stream.Finish(std::move(done)); });
}

absl::Status FinishStream(ClientStream& stream) {
  EngineCore& engine = stream.engine();
  if (engine.InTurn()) {
    return absl::FailedPreconditionError(
        "a blocking Finish() inside a callback of its own engine would wait for itself: use the "
        "form with a callback");
  }
  Waiter waiter;
  absl::Status status;
  FinishStream(stream, [&](absl::Status ended) {
    status = std::move(ended);
    engine.Finish(waiter);
  });
  engine.Wait(waiter);
  return status;
}

}  // namespace internal
}  // namespace weft
