#include "rpc/server/server_call.h"

#include <utility>

#include "core/block_memory.h"
#include "core/process_wide.h"
#include "core/status.h"
#include "core/strings.h"
#include "rpc/layout/method_layouts.h"
#include "rpc/server/completion_records.h"
#include "rpc/server/dispatch.h"
#include "rpc/server/handler_task.h"
#include "rpc/server/server_connection.h"
#include "rpc/server/server_core.h"
#include "rpc/server/server_stream_handles.h"
#include "rpc/wire/status_text.h"

namespace weft {
namespace {

// The arena's own first block: both messages of most methods, without a heap block.
constexpr size_t kFirstBlockBytes = 1024;
constexpr size_t kFirstBlockUnits = kFirstBlockBytes / sizeof(std::max_align_t);

}  // namespace

uint64_t ServerContext::remaining_us() const {
  if (deadline_ns_ == kNever) return kNoDeadline;
  const auto& call = static_cast<const ServerCall&>(*this);
  const uint64_t now_ns = call.connection_->core().engine().clock().NowNs();
  return now_ns >= deadline_ns_ ? 0 : (deadline_ns_ - now_ns) / kNsPerUs;
}

Priority ServerContext::priority() const { return static_cast<const ServerCall&>(*this).priority_; }

const PathInfo& ServerContext::path() const {
  return static_cast<const ServerCall&>(*this).connection_->path();
}

const std::string& ServerContext::peer_id() const {
  static constinit ProcessWide<std::string> none;
  const ServedPeer* const peer = static_cast<const ServerCall&>(*this).connection_->peer().get();
  return peer == nullptr ? none.Get() : peer->id();
}

uint64_t ServerContext::peer_incarnation() const {
  const ServedPeer* const peer = static_cast<const ServerCall&>(*this).connection_->peer().get();
  return peer == nullptr ? 0 : peer->incarnation();
}

void ServerCall::FinishLater(absl::Status status) {
  if (connection_->core().engine().OnEngine()) {
    return connection_->Complete(*this, std::move(status));
  }
  if (uses_extras_) Extras().Forget();
  status_ = std::move(status);
  connection_->core().FinishElsewhere(this);
}

bool ServerCall::StartDeadline(uint32_t remaining_us) {
  EngineCore& engine = connection_->core().engine();
  const uint64_t announced_ns = connection_->connection()->announced_ns();
  deadline_ns_ = (announced_ns != 0 ? announced_ns : engine.turn_ns()) + remaining_us * kNsPerUs;
  return engine.clock().NowNs() < deadline_ns_;
}

absl::Status ServerCall::WhyRefused(const MethodEntry* entry, uint16_t method,
                                    ByteSpan body) const {
  const ServerCore& core = connection_->core();
  if (core.draining()) {
    return NotRunError(absl::StatusCode::kUnavailable,
                       "the server is shutting down (not run, safe to retry)");
  }
  if (entry == nullptr) {
    return NotRunError(absl::StatusCode::kUnimplemented,
                       StrCat("no method has the number ", method, "; this server has ",
                              core.methods().size(), " methods"));
  }
  if (body.size() > core.options().max_request_bytes) {
    return core.RequestTooLargeError(body.size());
  }
  if (request_bytes_ == 0 && !body.empty()) {
    return core.RunningBytesError(*connection_->held_bytes());
  }
  if (cancelled()) {
    return NotRunError(absl::StatusCode::kCancelled,
                       "the caller cancelled before the request arrived");
  }
  if (remaining_us() == 0) return ExpiredError();
  return WhyUndecoded(*entry->method, body, request_);
}

absl::Status ServerCall::CountIn(uint16_t method, Admission::What what) {
  Admission& admission = *connection_->core().admission();
  WEFT_RETURN_IF_ERROR(admission.Admit(connection_->client_count(), method, what, &admitted_));
  is_counted_ = true;
  return absl::OkStatus();
}

void ServerCall::LeaveLimits(AdaptiveLimit::End end) {
  is_counted_ = false;
  connection_->core().admission()->Release(admitted_, end);
}

AdaptiveLimit::End ServerCall::HowEnded(const absl::Status& status) const {
  if (remaining_us() == 0) return AdaptiveLimit::End::kExpired;
  return status.ok() && !cancelled() ? AdaptiveLimit::End::kServed : AdaptiveLimit::End::kOther;
}

void ServerCall::CompleteHandedOver() { connection_->Complete(*this, std::move(status_)); }

void ServerCall::GiveFirstBlock::operator()(std::max_align_t* block) const {
  GiveTable(block, kFirstBlockUnits);
}

void ServerCall::MakeMessages(const MethodDescriptor& method) {
  if (arena_) {
    arena_->Reset();
  } else {
    first_block_.reset(TakeTable<std::max_align_t>(kFirstBlockUnits));
    google::protobuf::ArenaOptions options;
    options.initial_block = reinterpret_cast<char*>(first_block_.get());
    options.initial_block_size = kFirstBlockBytes;
    arena_.emplace(options);
  }
  method.make_messages(&*arena_, &request_, &reply_);
  method_ = &method;
}

bool ServerCall::DecodeLayouts(const MethodDescriptor& method, ByteSpan body) {
  if (method_ == &method) [[likely]] {
    ClearBody(method.layouts->reply, reply_);
  } else {
    MakeMessages(method);
  }
  return DecodeBody(method.layouts->request, body, request_);
}

void ServerCall::TrimIfLarge() {
  calls_to_look_ = kCallsPerLook;
  const bool large = request_bytes_ > kKeepBytes || reply_bytes_ > kKeepBytes ||
                     (arena_ && arena_->SpaceAllocated() > kKeepBytes);
  reply_bytes_ = 0;
  if (!large || !arena_) return;
  arena_->Reset();
  method_ = nullptr;
}

const CompletionId* ServerContext::completion_id() const {
  const auto& call = static_cast<const ServerCall&>(*this);
  const CompletionRecord* const record = call.record();
  return record == nullptr ? nullptr : &record->id;
}

ServerBulk& ServerContext::bulk() {
  auto& call = static_cast<ServerCall&>(*this);
  if (!call.uses_bulk_) call.BeginBulk({});
  return *call.bulk_;
}

void ServerCall::BeginBulk(std::span<const Window> windows) {
  if (bulk_ == nullptr) bulk_ = std::make_unique<ServerBulk>(this);
  bulk_->Begin(connection_, windows);
  uses_more_ = uses_bulk_ = true;
}

void ServerCall::TakeWindows(std::span<const Window> windows) {
  has_windows_ = true;
  BeginBulk(windows);
}

FrameMemory& FrameMemoryOf(ServerContext& context) {
  return static_cast<ServerCall&>(context).frame_memory();
}

// --- streams ------------------------------------------------------------------------------------

EngineCore& ServerCall::engine() const { return connection_->core().engine(); }

void ServerCall::BeginStream(ServerStreams& streams, ServerConnection* connection, CallSlot* slot,
                             CallId id) {
  Begin(connection, slot, id);
  if (stream_ == nullptr) stream_ = std::make_unique<ServerStream>(this);
  stream_->Begin(streams);
  uses_more_ = uses_stream_ = true;
}

// --- extras -------------------------------------------------------------------------------------

void ServerCall::BeginExtras() {
  if (extras_.load(std::memory_order_relaxed) == nullptr) {
    extras_.store(new ServerExtras(this), std::memory_order_release);
    // This thread looks for a cancel next, and the engine's that cancels looks for the extras: one
    // of both sees the other.
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }
  uses_more_ = uses_extras_ = true;
}

absl::Status ServerCall::StartInterceptors(std::string_view service) {
  ServerCore& core = connection_->core();
  if (core.options().interceptors.empty()) return absl::OkStatus();
  return Extras().Intercept(core.options().interceptors, service, core.engine().clock());
}

void ServerCall::EndExtras(const absl::Status& status) {
  ServerExtras& extras = Extras();
  extras.EndInterception(status, connection_->core().engine().clock());
  extras.Forget();
  extras.StopWatching(connection_->core().engine().timers());
}

const Metadata& ServerContext::metadata() const {
  static constinit ProcessWide<Metadata> none;
  const auto& call = static_cast<const ServerCall&>(*this);
  return call.uses_extras_ ? call.extras_.load(std::memory_order_relaxed)->received : none.Get();
}

const absl::Cord& ServerContext::attachment() const {
  static constinit ProcessWide<absl::Cord> none;
  const auto& call = static_cast<const ServerCall&>(*this);
  return call.uses_extras_ ? call.extras_.load(std::memory_order_relaxed)->attachment : none.Get();
}

void ServerContext::SetReplyAttachment(absl::Cord attachment) {
  static_cast<ServerCall&>(*this).Extras().reply_attachment = std::move(attachment);
}

absl::Status ServerContext::AddReplyMetadata(std::string_view key, std::string_view value) {
  return static_cast<ServerCall&>(*this).Extras().reply.Add(key, value);
}

void ServerContext::OnCancel(Function<void()> callback) {
  auto& call = static_cast<ServerCall&>(*this);
  ServerExtras& extras = call.Extras();
  if (!extras.OnCancel(callback)) return callback();
  EngineCore& engine = call.connection_->core().engine();
  // For a handler on an executor the deadline is watched already.
  if (deadline_ns_ != kNever && engine.OnEngine()) {
    extras.WatchDeadline(engine.timers(), deadline_ns_);
  }
}

void internal::CancelWith(ServerContext& context, std::weak_ptr<Cancellable> what) {
  auto& call = static_cast<ServerCall&>(context);
  if (call.Extras().CancelWith(what)) return;
  if (const std::shared_ptr<Cancellable> now = what.lock()) static_cast<void>(now->Cancel());
}

uint64_t internal::DeadlineNs(const ServerContext& context) {
  return static_cast<const ServerCall&>(context).deadline_ns();
}

// --- cancelling ---------------------------------------------------------------------------------

void ServerCall::Cancel() {
  // An attempt that waits for the first one.
  if (CompletionRecord* const known = record(); known != nullptr && known->running != this) {
    return known->running->Cancel();
  }
  // One whose interceptors have not said yet that it may wait.
  if (const ServerExtras* const extras = extras_.load(std::memory_order_acquire);
      extras != nullptr && extras->repeats) {
    connection_->core().records().Cancel(*this, extras->repeats->id);
  }
  cancelled_.store(true, std::memory_order_relaxed);
  if (has_windows_ && !connection_->TakeBack(*this)) return;
  SetCancelled();
}

void ServerCall::SetCancelled() {
  cancelled_.store(true, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);  // as in BeginExtras()
  if (uses_stream_) stream_->SetCancelled();
  // Of an earlier call, perhaps: then nobody wants to be told.
  if (ServerExtras* const extras = extras_.load(std::memory_order_acquire)) extras->Run();
}

void ServerCall::Expire() {
  // Handlers may end it inside, as soon as the last transfer has.
  if (has_windows_) bulk_->Expire();
  if (state_ == State::kRunning) SetCancelled();
}

namespace internal {

StreamHandle StreamOf(HandledCall& call) {
  auto& own = static_cast<ServerCall&>(call);
  if (!own.is_stream()) return {};
  return {&own.stream(), &own.engine()};
}

bool EndUnlessOneWay(HandledCall& call) {
  if (static_cast<ServerCall&>(call).is_one_way()) return false;
  call.Finish(NotRunError(absl::StatusCode::kUnimplemented,
                          StrCat("method ", call.method().name,
                                 " takes one-way messages; it was called for a reply (not run)")));
  return true;
}

void HandledCall::FinishLater(absl::Status status) {
  static_cast<ServerCall&>(*this).FinishLater(std::move(status));
}

void HandledCall::FinishDropped() {
  Finish(absl::InternalError(StrCat("the handler of ", method().name, " dropped the call")));
}

absl::Status NotImplemented(const ServerContext& context) {
  return NotRunError(
      absl::StatusCode::kUnimplemented,
      StrCat("method ", context.method().name, " (", context.method().request_type, " to ",
             context.method().reply_type, ") is not implemented by this server"));
}

}  // namespace internal

}  // namespace weft
