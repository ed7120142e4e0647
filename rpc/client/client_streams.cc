#include "rpc/client/client_streams.h"

#include <utility>

#include "core/check.h"
#include "core/inline.h"
#include "core/status.h"
#include "core/strings.h"
#include "rpc/client/call_context.h"
#include "weft/status.h"

namespace weft {
namespace {

std::string_view ExtrasOf(const ClientStream::Beginning& beginning) {
  return beginning.context != nullptr ? std::string_view(beginning.context->extras())
                                      : std::string_view();
}
uint32_t WindowsOf(const ClientStream::Beginning& beginning) {
  return beginning.loan != nullptr ? beginning.loan->size() : 0;
}

}  // namespace

ClientStreams::ClientStreams(EngineCore& engine, const std::string& address,
                             const ChannelOptions& options, MethodTable& methods, LentMemory& lent,
                             ChannelStats& stats, ClientStreams* front)
    : engine_(engine),
      address_(address),
      options_(options),
      methods_(methods),
      lent_(lent),
      stats_(stats),
      front_(front),
      // What this side has asked for is bounded by its own windows.
      connection_(&held_bytes_, std::make_shared<uint64_t>(0),
                  {~uint64_t{0}, options.max_reply_bytes, options.max_reply_bytes}),
      early_ends_(engine) {}

ClientStreams::~ClientStreams() { WEFT_CHECK(all_.empty()); }  // Ours: Shutdown() has freed them

// --- the connection -----------------------------------------------------------------------------

void ClientStreams::Open(Connection& connection, bool takes_priorities, StreamLimits limits,
                         uint32_t max_windows, uint32_t max_extras, uint64_t max_message_bytes) {
  takes_priorities_ = takes_priorities;
  max_windows_ = max_windows;
  max_extras_ = max_extras;
  connection_.Open(&connection, {options_.stream_window_messages, options_.stream_window_bytes},
                   limits.window, max_message_bytes);
  max_streams_ = limits.max_streams;
}

void ClientStreams::Close(uint64_t first_unsent, const absl::Status& not_sent,
                          const absl::Status& may_have_run) {
  connection_.Close();
  max_streams_ = 0;
  if (!slots_) return;
  // Who waits for the memory of one runs inside: he may end others, and what he starts waits.
  slots_->ForEach(
      [&](ClientStream*& stream) { stream->OnLoss(first_unsent, not_sent, may_have_run); });
  slots_.reset();
  abandoned_ = 0;
}

void ClientStreams::EndWaiting(const absl::Status& status, bool also_patient) {
  // Who waits for the memory of one may end others, and start some: first all are taken.
  IntrusiveList<ClientStream> ended;
  waiting_.ForEach([&](ClientStream& stream) {
    if (stream.beginning_.wait_for_server && !also_patient) return;
    IntrusiveList<ClientStream>::Remove(&stream);
    ended.PushBack(&stream);
  });
  while (ClientStream* const stream = ended.Front()) stream->Abandon(status);
}

void ClientStreams::Shutdown(const absl::Status& gone) {
  connection_.Close();
  max_streams_ = 0;
  slots_.reset();
  abandoned_ = 0;
  if (front_ != nullptr) {
    while (ClientStream* const stream = all_.Front()) {
      stream->EndWithServer(gone);  // its callbacks come later
      IntrusiveList<ClientStream, AllStreamsTag>::Remove(stream);
      stream->BelongTo(*front_);
      front_->Take(*stream);
    }
    return;
  }
  while (!all_.empty()) {
    for (ClientStream& stream : all_) stream.Shutdown(gone);
    early_ends_.RunAll();
    for (ClientStream& stream : all_) stream.OnTimer();
  }
}

void ClientStreams::Pump(Priority least, bool may_open) {
  connection_.Pump(least);
  while (may_open && connection_.connection() != nullptr) {
    ClientStream* const next = waiting_.Front(least);
    if (next == nullptr) return;
    ClientStream& stream = *next;
    StopWaiting(stream);
    if (TryOpen(stream) != Opened::kNotNow) continue;
    waiting_.PushFront(&stream, stream.beginning_.priority);
    ++waiting_count_;
    return;
  }
}

// --- streams ------------------------------------------------------------------------------------

ClientStream& ClientStreams::New() {
  ClientStream* const spare = spare_.Take();
  return spare != nullptr ? *spare : *new ClientStream(*this);
}

void ClientStreams::Free(ClientStream& stream) {
  IntrusiveList<ClientStream, AllStreamsTag>::Remove(&stream);
  spare_.Give(&stream);
}

bool ClientStreams::Start(ClientStream& stream, bool may_open) {
  stream.state_ = ClientStream::State::kWaiting;
  const Priority priority = stream.beginning_.priority;
  if (may_open && connection_.connection() != nullptr && waiting_.may_pass(priority) &&
      TryOpen(stream) != Opened::kNotNow) {
    return true;
  }
  if (waiting_count_ >= options_.max_queued_calls) return false;
  waiting_.PushBack(&stream, priority);
  ++waiting_count_;
  return true;
}

void ClientStreams::GiveWaiting(ClientStreams& to) {
  while (ClientStream* const stream = waiting_.Front(Priority::kBackground)) {
    MoveTo(*stream, to, /*may_open=*/false);
  }
}

void ClientStreams::MoveTo(ClientStream& stream, ClientStreams& to, bool may_open) {
  StopWaiting(stream);
  IntrusiveList<ClientStream, AllStreamsTag>::Remove(&stream);
  stream.BelongTo(to);
  to.Take(stream);
  if (to.Start(stream, may_open)) return;
  stream.Abandon(WithDelivery(absl::ResourceExhaustedError(
                                  StrCat("as many streams wait already for ", to.address(),
                                         " as ChannelOptions::max_queued_calls allows (not sent)")),
                              Delivery::kNotSent));
}

void ClientStreams::StopWaiting(ClientStream& stream) {
  if (!IntrusiveList<ClientStream>::IsLinked(&stream)) return;
  IntrusiveList<ClientStream>::Remove(&stream);
  --waiting_count_;
}

void ClientStreams::LeaveSlot(ClientStream& stream) {
  slots_->Free(stream.slot_);
  stream.in_slot_ = false;
  if (stream.state_ == ClientStream::State::kEnded) --abandoned_;
  stream.stream_.Disconnect();
}

// The method's number at the server, if that takes the open; else why not.
absl::StatusOr<uint16_t> ClientStreams::CheckOpen(const ClientStream& stream) {
  const ClientStream::Beginning& beginning = stream.beginning_;
  uint16_t method = methods_.Find(beginning.method);
  if (method == MethodTable::kUnknown) {
    WEFT_ASSIGN_OR_RETURN(const MethodTable::Agreed agreed,
                          methods_.Resolve(beginning.method, address_));
    method = agreed.number;
  }
  if (max_streams_ == 0) {
    return absl::UnimplementedError(
        StrCat("the server at ", address_, " takes no streams (not sent)"));
  }
  WEFT_RETURN_IF_ERROR(CheckMetadata(ExtrasOf(beginning).size(), max_extras_, address_));
  WEFT_RETURN_IF_ERROR(CheckWindows("stream", WindowsOf(beginning), max_windows_, address_));
  return method;
}

// REQUIRES: kWaiting; a connection.
ClientStreams::Opened ClientStreams::TryOpen(ClientStream& stream) {
  const auto refuse = [&stream](absl::Status why) {
    stream.Abandon(WithDelivery(std::move(why), Delivery::kNotSent));
    return Opened::kEnded;
  };
  const absl::StatusOr<uint16_t> method = CheckOpen(stream);
  if (!method.ok()) return refuse(method.status());
  const Priority priority = stream.beginning_.priority;
  if (!connection_.may_pass(priority)) return Opened::kNotNow;
  if (!slots_) slots_.emplace(max_streams_);
  SlabHandle handle;
  ClientStream** const slot = slots_->Allocate(&handle);
  if (slot == nullptr) return Opened::kNotNow;
  Connection& connection = *connection_.connection();
  const std::string_view extras = ExtrasOf(stream.beginning_);
  const uint32_t windows = WindowsOf(stream.beginning_);
  const size_t bytes = OpenFrameBytes(windows, extras.size());
  const absl::StatusOr<std::byte*> frame = connection.Reserve(bytes);
  if (!frame.ok()) {
    slots_->Free(handle);
    return Opened::kNotNow;
  }
  if (Loan* const loan = stream.beginning_.loan) {
    absl::Status lent =
        lent_.Lend(connection, *loan, LentMemory::kOfStream, *frame + kCallHeaderBytes);
    if (!lent.ok()) {
      connection.Abandon();
      slots_->Free(handle);
      return refuse(Annotate(std::move(lent), "not sent"));
    }
  }
  const bool waits = bytes > connection.eager_bytes();
  const CallId id = {handle.slot, handle.generation};
  EncodeOpen({id, *method, stream.RemainingUs(), waits, AsBytes(extras),
              takes_priorities_ ? priority : Priority::kNormal, windows},
             *frame);
  *slot = &stream;
  stream.slot_ = handle;
  stream.in_slot_ = true;
  stream.message_number_ = connection.Commit(bytes);
  stream.state_ = ClientStream::State::kOpen;
  stream.stream_.Open(connection_, id, /*is_client=*/true, waits, priority);
  stream.stream_.TrySend();
  return Opened::kYes;
}

// --- frames -------------------------------------------------------------------------------------

WEFT_INLINE ClientStream* ClientStreams::Find(CallId id) {
  if (!slots_) return nullptr;
  ClientStream** const slot = slots_->Get({id.slot, id.generation});
  return slot == nullptr ? nullptr : *slot;
}

const char* ClientStreams::OnFrame(ByteSpan frame) {
  const uint16_t kind = CallFrameKindOf(frame);
  if (kind == TwoWayKind(StreamFrameKind::kData, /*to_opener=*/true)) [[likely]]
    return OnData(frame);
  switch (static_cast<StreamFrameKind>(kind & 0xFF)) {
    case StreamFrameKind::kData:
      return OnData(frame);
    case StreamFrameKind::kCredit:
      return OnCredit(frame);
    case StreamFrameKind::kEnd:
      return OnEnd(frame);
    case StreamFrameKind::kOpen:
    case StreamFrameKind::kCancel:
      break;
  }
  return "a frame of a stream that only clients send";
}

const char* ClientStreams::OnRelease(ByteSpan frame) {
  CallId id;
  ClientStream* const stream = DecodeNotice(frame, &id) ? Find(id) : nullptr;
  if (stream == nullptr || !stream->IsToBeReleased()) {
    return "a release of what no cancelled stream has lent";
  }
  stream->ReleaseLoan();
  return nullptr;
}

WEFT_INLINE const char* ClientStreams::OnData(ByteSpan frame) {
  DataHeader data;
  ByteSpan message;
  if (!DecodeData(frame, /*to_opener=*/true, &data, &message) || data.last) [[unlikely]]
    return "data of a stream whose fields disagree";
  ClientStream* const stream = Find(data.id);
  if (stream == nullptr) [[unlikely]]
    return "a message of a stream that is not open";
  return stream->stream_.OnData(data.number, /*last=*/false, message);
}

const char* ClientStreams::OnCredit(ByteSpan frame) {
  CreditHeader credit;
  if (!DecodeCredit(frame, /*to_opener=*/true, &credit)) {
    return "credit of a stream whose fields disagree";
  }
  ClientStream* const stream = Find(credit.id);
  return stream == nullptr ? "credit of a stream that is not open"
                           : stream->stream_.OnCredit(credit);
}

const char* ClientStreams::OnEnd(ByteSpan frame) {
  EndHeader header;
  if (!DecodeEnd(frame, &header)) return "an end of a stream whose fields disagree";
  ClientStream* const stream = Find(header.id);
  return stream == nullptr ? "an end of a stream that is not open" : stream->OnEnd(header);
}

void ClientStreams::CheckInvariants() {
  uint32_t waiting = 0;
  waiting_.ForEach([&](const ClientStream& stream) {
    // Ours: invariants, which tests ask for
    WEFT_CHECK(stream.state_ == ClientStream::State::kWaiting);
    ++waiting;
  });
  // Ours: invariants, which tests ask for
  WEFT_CHECK(waiting == waiting_count_ && waiting <= options_.max_queued_calls);
  uint32_t in_slots = 0;
  for (const ClientStream& stream : all_) {
    in_slots += stream.in_slot_;
    // Ours: invariants, which tests ask for
    WEFT_CHECK(!stream.in_slot_ || stream.state_ == ClientStream::State::kOpen ||
               stream.state_ == ClientStream::State::kEnded);
    stream.stream_.CheckInvariants();
  }
  WEFT_CHECK(in_slots == this->in_slots());  // Ours: invariants, which tests ask for
}

}  // namespace weft
