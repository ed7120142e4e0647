#include "rpc/server_connection.h"

#include <algorithm>
#include <array>
#include <utility>

#include "core/log.h"
#include "core/strings.h"
#include "rpc/hello.pb.h"
#include "rpc/server_core.h"
#include "rpc/status_text.h"

namespace weft {
namespace {

// A handler on its way through an executor. Finishes the call also when it is dropped unrun.
class HandlerTask {
 public:
  HandlerTask(ServerCall* call, const MethodEntry* entry) : call_(call), entry_(entry) {}
  HandlerTask(HandlerTask&& other) noexcept
      : call_(std::exchange(other.call_, nullptr)), entry_(other.entry_) {}
  HandlerTask& operator=(HandlerTask&&) = delete;
  ~HandlerTask() {
    if (call_ == nullptr) return;
    call_->Finish(absl::ResourceExhaustedError(
        "the server's executor has no room for another call (not run, safe to retry)"));
  }

  void operator()() {
    ServerCall& call = *std::exchange(call_, nullptr);
    if (call.cancelled() || call.remaining_us() == 0) {
      return call.Finish(
          absl::DeadlineExceededError("the call expired before its handler could run"));
    }
    entry_->method->start(*entry_->service, call);
  }

 private:
  ServerCall* call_;
  const MethodEntry* entry_;
};

}  // namespace

// --- life ---------------------------------------------------------------------------------------

void ServerConnection::OnOpen(Connection& connection) {
  if (absl::Status agreed = AgreeWith(connection.peer_hello()); !agreed.ok()) {
    return Close(ToStd(agreed.message()));
  }
  if (core_.options().tenant_of) connection.set_tenant(core_.options().tenant_of(path_));
  if (core_.draining()) Close("the server is shutting down");
}

absl::Status ServerConnection::AgreeWith(const std::string& client_hello) {
  rpc::ClientHello hello;
  if (!hello.ParseFromString(client_hello)) {
    return absl::FailedPreconditionError("the client's hello cannot be decoded");
  }
  if (hello.protocol() != kRpcProtocolVersion) {
    return absl::FailedPreconditionError(StrCat("the client speaks version ", hello.protocol(),
                                                " of the call protocol, this server version ",
                                                kRpcProtocolVersion));
  }
  slots_ = std::min(hello.max_outstanding_calls(), core_.options().max_outstanding_calls);
  max_reply_bytes_ = std::min<uint64_t>(hello.max_reply_bytes(), kMaxPayloadBytes);
  max_windows_ = std::min(hello.max_windows(), kMaxWindows);
  path_ = connection_->path();
  calls_ = std::make_unique<ServerCall[]>(slots_);
  for (uint32_t i = 0; i < slots_; ++i) calls_[i].Attach(this, &core_.engine().clock(), &path_);
  return absl::OkStatus();
}

void ServerConnection::Close(std::string_view why) {
  if (connection_ != nullptr) connection_->Close(why);
}

void ServerConnection::ProtocolError(std::string_view what) {
  ++core_.stats().protocol_errors;
  WEFT_LOG(kWarning, "closing the connection of ", path_.peer, ": malformed frame: ", what);
  connection_->Close(StrCat("malformed frame: ", what));
  connection_ = nullptr;  // nothing more is taken or sent
}

void ServerConnection::OnClosed(Connection&, const absl::Status&) {
  connection_ = nullptr;
  closed_ = true;
  ++running_;  // keeps this alive for now
  for (uint32_t i = 0; i < slots_; ++i) {
    ServerCall& call = calls_[i];
    if (call.state_ == ServerCall::State::kReplying) Free(call);
    if (call.state_ == ServerCall::State::kRunning) {
      call.cancelled_.store(true, std::memory_order_relaxed);
      if (call.has_windows_) call.bulk_->Stop(absl::UnavailableError("the client is gone"));
    }
  }
  if (--running_ == 0) core_.Retire(this);
}

// --- requests -----------------------------------------------------------------------------------

void ServerConnection::OnMessage(Connection&, ByteSpan message) {
  if (connection_ == nullptr) return;
  switch (CallFrameKindOf(message)) {
    case static_cast<uint16_t>(CallFrameKind::kRequest):
      return OnRequest(message);
    case static_cast<uint16_t>(CallFrameKind::kCancel):
      return OnCancel(message);
    default:
      break;
  }
  const uint16_t kind = CallFrameKindOf(message);
  const uint32_t windows = kind >> 8;
  if (kind != RequestKind(windows) || windows > max_windows_) {
    return ProtocolError("neither a request nor a cancel");
  }
  OnRequestWithWindows(message, windows);
}

void ServerConnection::OnRequest(ByteSpan frame) {
  ByteSpan body;
  const RequestHeader header = DecodeRequest(frame, &body);
  Accept(header, body, {});
}

void ServerConnection::OnRequestWithWindows(ByteSpan frame, uint32_t count) {
  ByteSpan body;
  std::array<Window, kMaxWindows> windows;
  const RequestHeader header = DecodeRequest(frame, &body);
  if (!DecodeWindows(count, &body, &windows)) {
    return ProtocolError("a request with windows that make no sense");
  }
  Accept(header, body, std::span(windows).first(count));
}

void ServerConnection::Accept(const RequestHeader& header, ByteSpan body,
                              std::span<const Window> windows) {
  ServerCall* call = TakeSlot(header.id);
  if (call == nullptr) return;
  if (!windows.empty()) [[unlikely]]
    call->TakeWindows(windows);
  ++core_.stats().requests;
  const MethodEntry* entry = core_.methods().Find(header.method);
  absl::Status ready = Prepare(*call, entry, header, body);
  if (ready.ok()) return Run(*call, *entry);
  ++core_.stats().refused;
  Complete(*call, std::move(ready));
}

// The slot of a new call, if the client may use it; else ends the connection.
ServerCall* ServerConnection::TakeSlot(CallId id) {
  if (id.slot >= slots_) {
    ProtocolError("a call slot that was not agreed on");
    return nullptr;
  }
  ServerCall& call = calls_[id.slot];
  if (call.state_ != ServerCall::State::kFree) {
    ProtocolError("a call slot that is in use");
    return nullptr;
  }
  // Generations may wrap around: newer is what lies in the half circle ahead.
  if (call.used_ && static_cast<int32_t>(id.generation - call.id_.generation) <= 0) {
    ProtocolError("a call slot's generation that is not new");
    return nullptr;
  }
  call.Begin(id);
  ++running_;
  ++core_.stats().running;
  return &call;
}

absl::Status ServerConnection::Prepare(ServerCall& call, const MethodEntry* entry,
                                       const RequestHeader& header, ByteSpan body) {
  if (entry == nullptr) {
    return absl::UnimplementedError(StrCat("no method has the number ", header.method,
                                           "; this server has ", core_.methods().size(),
                                           " methods"));
  }
  if (core_.draining()) {
    return absl::UnavailableError("the server is shutting down (not run, safe to retry)");
  }
  if (body.size() > core_.options().max_request_bytes) {
    return absl::ResourceExhaustedError(StrCat("the request has ", body.size(),
                                               " bytes; this server takes at most ",
                                               core_.options().max_request_bytes, " (not run)"));
  }
  if (body.size() > core_.options().max_running_bytes - core_.stats().running_bytes) {
    return absl::ResourceExhaustedError(StrCat(
        "requests of ", core_.stats().running_bytes, " bytes are running; this server takes ",
        core_.options().max_running_bytes, " at most (not run, safe to retry)"));
  }
  call.request_bytes_ = body.size();
  core_.stats().running_bytes += body.size();
  if (call.cancelled()) {
    return absl::CancelledError("the caller cancelled before the request arrived");
  }
  if (absl::Status in_time = call.StartClock(header.remaining_us, core_.engine().turn_ns());
      !in_time.ok()) {
    return in_time;
  }
  call.PrepareMessages(*entry->method);
  if (!call.request_->ParsePartialFromArray(body.data(), static_cast<int>(body.size()))) {
    return absl::InvalidArgumentError(StrCat("the request of ", body.size(), " bytes for method ",
                                             entry->method->name, " cannot be decoded as ",
                                             entry->method->request_type));
  }
  if (!call.request_->IsInitialized()) {
    return absl::InvalidArgumentError(
        StrCat("the request for method ", entry->method->name, " lacks required fields of ",
               entry->method->request_type, ": ", call.request_->InitializationErrorString()));
  }
  return absl::OkStatus();
}

void ServerConnection::Run(ServerCall& call, const MethodEntry& entry) {
  if (entry.executor == nullptr) return entry.method->start(*entry.service, call);
  entry.executor->Run(HandlerTask(&call, &entry));
}

void ServerConnection::OnCancel(ByteSpan frame) {
  CallId id;
  if (!DecodeNotice(frame, &id) || id.slot >= slots_) {
    return ProtocolError("a cancel that names no call");
  }
  calls_[id.slot].Cancel(id.generation);
}

// --- replies ------------------------------------------------------------------------------------

void ServerConnection::Complete(ServerCall& call, absl::Status status) {
  // With transfers under way it comes here again.
  if (call.bulk_ != nullptr && call.bulk_->Hold(&status)) [[unlikely]]
    return;
  call.status_ = std::move(status);
  if (connection_ == nullptr) return Free(call);
  call.state_ = ServerCall::State::kReplying;
  // Replies that wait for credit are not overtaken.
  if (!waiting_.empty() || !TrySend(call)) {
    waiting_.PushBack(&call);
    return;
  }
  Free(call);
  if (!core_.engine().InTurn()) connection_->Flush();
}

void ServerConnection::OnWritable(Connection&) {
  if (releases_owed_ > 0) SendOwedReleases();
  if (connection_ != nullptr) transfers_.Pump(*connection_);
  while (connection_ != nullptr) {
    ServerCall* call = waiting_.Front();
    if (call == nullptr || !TrySend(*call)) return;
    Free(*call);
  }
}

bool ServerConnection::TrySend(ServerCall& call) {
  if (call.status_.ok() && TrySendReply(call)) return true;
  return !call.status_.ok() && TrySendError(call);
}

// False: no credit, or the reply cannot be sent at all and status_ now says why.
bool ServerConnection::TrySendReply(ServerCall& call) {
  const size_t bytes = call.reply_->ByteSizeLong();
  call.status_ = CheckReply(call, bytes);
  if (!call.status_.ok()) return false;
  absl::StatusOr<std::byte*> frame = connection_->Reserve(kCallHeaderBytes + bytes);
  if (!frame.ok()) return false;
  EncodeReply({call.id_, 0, 0}, *frame);
  call.reply_->SerializeWithCachedSizesToArray(
      reinterpret_cast<uint8_t*>(*frame + kCallHeaderBytes));
  connection_->Commit(kCallHeaderBytes + bytes);
  call.reply_bytes_ = bytes;
  ++core_.stats().replies_ok;
  return true;
}

absl::Status ServerConnection::CheckReply(const ServerCall& call, size_t bytes) const {
  if (call.cancelled()) return absl::CancelledError();  // nobody reads it
  if (bytes > max_reply_bytes_) {
    return absl::ResourceExhaustedError(StrCat("the reply of method ", call.method().name, " has ",
                                               bytes, " bytes; this client takes at most ",
                                               max_reply_bytes_, " (the request has run)"));
  }
  if (!call.reply_->IsInitialized()) {
    return absl::InternalError(
        StrCat("the reply of method ", call.method().name,
               " lacks required fields: ", call.reply_->InitializationErrorString()));
  }
  return absl::OkStatus();
}

bool ServerConnection::TrySendError(ServerCall& call) {
  const std::string_view text = CutStatusText(ToStd(call.status_.message()));
  absl::StatusOr<std::byte*> frame = connection_->Reserve(kCallHeaderBytes + text.size());
  if (!frame.ok()) return false;
  EncodeReply(
      {call.id_, static_cast<uint16_t>(call.status_.code()), static_cast<uint32_t>(text.size())},
      *frame);
  std::copy_n(reinterpret_cast<const std::byte*>(text.data()), text.size(),
              *frame + kCallHeaderBytes);
  connection_->Commit(kCallHeaderBytes + text.size());
  ++core_.stats().replies_failed;
  return true;
}

// --- lent memory --------------------------------------------------------------------------------

absl::Status ServerConnection::Start(BulkTransfer& transfer) {
  if (connection_ == nullptr) return absl::UnavailableError("the client is gone");
  transfers_.Start(*connection_, transfer);
  return absl::OkStatus();
}

void ServerConnection::TakeBack(ServerCall& call) {
  call.bulk_->Stop(absl::CancelledError("nobody waits for the call any more"));
  if (call.bulk_->quiet()) OnQuiet(call);
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
  absl::StatusOr<std::byte*> frame = connection_->Reserve(kCallHeaderBytes);
  if (!frame.ok()) return false;
  EncodeNotice(CallFrameKind::kReleased, call.id_, *frame);
  connection_->Commit(kCallHeaderBytes);
  return true;
}

void ServerConnection::SendOwedReleases() {
  for (uint32_t i = 0; i < slots_ && connection_ != nullptr; ++i) {
    if (!calls_[i].release_owed_ || !TrySendReleased(calls_[i])) continue;
    calls_[i].release_owed_ = false;
    --releases_owed_;
  }
}

// --- the end of a call --------------------------------------------------------------------------

void ServerConnection::Free(ServerCall& call) {
  releases_owed_ -= std::exchange(call.release_owed_, false);
  IntrusiveList<ServerCall>::Remove(&call);
  core_.stats().running_bytes -= call.request_bytes_;
  call.End();
  core_.OnCallEnded();
  if (--running_ == 0 && closed_) core_.Retire(this);
}

void ServerConnection::CheckInvariants() {
  uint32_t busy = 0;
  uint32_t replying = 0;
  uint32_t owed = 0;
  for (uint32_t i = 0; i < slots_; ++i) {
    busy += calls_[i].state_ != ServerCall::State::kFree;
    owed += calls_[i].release_owed_;
    replying += calls_[i].state_ == ServerCall::State::kReplying;
  }
  WEFT_CHECK(busy == running_);
  WEFT_CHECK(replying == waiting_.CountSlowly());
  WEFT_CHECK(owed == releases_owed_);
}

}  // namespace weft
