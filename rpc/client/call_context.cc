#include "rpc/client/call_context.h"

#include <utility>

#include "core/fork_guard.h"
#include "core/status.h"
#include "core/strings.h"
#include "rpc/operation/on_engine.h"
#include "rpc/wire/extras.h"
#include "weft/status.h"

namespace weft {
namespace {

// gRFC A6, "Exposed Retry Metadata".
constexpr std::string_view kPreviousAttemptsKey = "grpc-previous-rpc-attempts";

}  // namespace

absl::Status CallContext::CheckNotBegun() {
  const std::lock_guard lock(mutex_);
  if (!begun_) return absl::OkStatus();
  return absl::FailedPreconditionError("the call of this context has been started already");
}

absl::Status CallContext::AddMetadata(std::string_view key, std::string_view value) {
  WEFT_RETURN_IF_ERROR(CheckNotBegun());
  return metadata_.Add(key, value);
}

absl::Status CallContext::SetAttachment(absl::Cord attachment) {
  WEFT_RETURN_IF_ERROR(CheckNotBegun());
  attachment_ = std::move(attachment);
  return absl::OkStatus();
}

absl::Status CallContext::Begin(EngineCore& engine) {
  const std::lock_guard lock(mutex_);
  if (begun_) {
    return WithDelivery(
        absl::FailedPreconditionError("a ClientContext is for one call, and has had it (not sent)"),
        Delivery::kNotSent);
  }
  if (cancelled_) {
    return WithDelivery(absl::CancelledError("cancelled before the call was started (not sent)"),
                        Delivery::kNotSent);
  }
  begun_ = true;
  engine_ = &engine;
  return absl::OkStatus();
}

void CallContext::SealForAttempt(const CallContext* of_call, uint32_t attempts_before,
                                 const OnceAttempt* once) {
  begun_ = true;
  is_once_ = once != nullptr;
  if (of_call != nullptr) {
    metadata_ = of_call->metadata_;
    extras_ = of_call->extras_;
    attachment_ = of_call->attachment_;
  }
  if (is_once_) extras_ = EncodeExtras(metadata_, /*details=*/{}, once);
  if (attempts_before == 0) return;
  // Without room for it the attempt goes without.
  if (metadata_.Add(kPreviousAttemptsKey, std::to_string(attempts_before)).ok()) {
    all_extras_ = EncodeExtras(metadata_, /*details=*/{}, once);
  }
}

void CallContext::Reset(const absl::Status& why) {
  const std::shared_ptr<CallContext> self = std::move(self_);
  if (interception_ != nullptr) {
    Metadata before = std::move(interception_->before);
    EndInterception(why);
    metadata_ = std::move(before);  // the next call's interceptors add theirs again
  }
  const std::lock_guard lock(mutex_);
  begun_ = false;
  engine_ = nullptr;
}

// --- interceptors -------------------------------------------------------------------------------

absl::Status CallContext::Intercept(std::span<ClientInterceptor* const> interceptors,
                                    std::string_view service, std::string_view method,
                                    const std::string& address) {
  interception_ = std::make_unique<Interception>(Interception{
      interceptors, {service, method, address, metadata_, reply_metadata_}, metadata_});
  Interception& of = *interception_;
  of.start_ns = engine_->clock().NowNs();
  for (ClientInterceptor* const interceptor : interceptors) {
    of.call.data_ = &of.data[of.started];
    if (absl::Status status = interceptor->OnStart(of.call); !status.ok()) {
      status = WithDelivery(std::move(status), Delivery::kNotSent);
      Reset(status);
      return status;
    }
    ++of.started;
  }
  return absl::OkStatus();
}

void CallContext::EndInterception(const absl::Status& status) {
  const std::unique_ptr<Interception> of = std::move(interception_);
  if (of == nullptr) return;
  of->call.elapsed_ns_ = engine_->clock().NowNs() - of->start_ns;
  while (of->started > 0) {
    of->call.data_ = &of->data[--of->started];
    of->interceptors[of->started]->OnEnd(of->call, status);
  }
}

// --- cancelling ---------------------------------------------------------------------------------

absl::Status CallContext::Cancel() {
  std::unique_lock lock(mutex_, std::defer_lock);
  if (forks_ == ForkCount()) {
    lock.lock();
  } else if (!lock.try_lock()) {
    return EngineCore::ForkedError();  // a thread of the parent's has it for ever
  }
  if (engine_ != nullptr && !cancelled_) {
    const bool posted = engine_->Post([self = shared_from_this()] {
      if (Function<void()> cancel = std::move(self->cancel_)) cancel();
    });
    if (!posted) return NotPostedError(*engine_);
  }
  cancelled_ = true;
  return absl::OkStatus();
}

bool CallContext::Attach(Function<void()> cancel) {
  const std::lock_guard lock(mutex_);
  if (cancelled_) return false;
  cancel_ = std::move(cancel);
  return true;
}

void CallContext::Detach(const absl::Status& status) {
  const std::shared_ptr<CallContext> self = std::move(self_);
  EndInterception(status);
  const std::lock_guard lock(mutex_);
  cancel_ = nullptr;
  engine_ = nullptr;  // which may be gone before this
}

bool CallContext::TakeReply(ByteSpan extras, absl::Status* status) {
  OnceExtras once;
  if (DecodeExtras(extras, &reply_metadata_, status->ok() ? nullptr : status,
                   is_once_ ? &once : nullptr) &&
      !once.attempt) {
    outcome_unknown_ = once.outcome_unknown;
    return true;
  }
  reply_metadata_.Clear();  // nothing of it is to be trusted
  return false;
}

// --- for the caller -----------------------------------------------------------------------------

ClientContext::ClientContext() : shared_(std::make_shared<CallContext>()) {}
ClientContext::~ClientContext() = default;

absl::Status ClientContext::AddMetadata(std::string_view key, std::string_view value) {
  return shared_->AddMetadata(key, value);
}

absl::Status ClientContext::SetAttachment(absl::Cord attachment) {
  return shared_->SetAttachment(std::move(attachment));
}

absl::Status ClientContext::Cancel() { return shared_->Cancel(); }

const Metadata& ClientContext::reply_metadata() const { return shared_->reply_metadata(); }

const absl::Cord& ClientContext::reply_attachment() const { return shared_->reply_attachment(); }

CallContext& ContextOf(ClientContext& context) { return *context.shared_; }

absl::Status CheckMetadata(size_t bytes, uint32_t most_bytes, std::string_view address) {
  if (bytes <= most_bytes) return absl::OkStatus();
  return absl::UnimplementedError(
      most_bytes == 0 ? StrCat("the server at ", address, " takes no metadata (not sent)")
                      : StrCat("the metadata has ", bytes, " bytes encoded; the server at ",
                               address, " takes at most ", most_bytes, " (not sent)"));
}

}  // namespace weft
