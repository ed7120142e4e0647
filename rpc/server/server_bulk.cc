#include "rpc/server/server_bulk.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "core/check.h"
#include "core/crc32c.h"
#include "core/status.h"
#include "core/strings.h"
#include "rpc/operation/on_engine.h"
#include "rpc/server/server_call.h"
#include "rpc/server/server_connection.h"
#include "rpc/server/server_core.h"

namespace weft {
namespace {

const char* NameOf(Rights rights) { return rights == kMayRead ? "read" : "written"; }

}  // namespace

ServerBulk::ServerBulk(ServerCall* call) : call_(call) {
  static_assert(kMaxTransfers <= 32, "used_ has a bit for each");
  for (Slot& slot : slots_) slot.owner = this;
}

EngineCore& ServerBulk::engine() const { return connection_->core().engine(); }

// Where libfabric tells no length of what was read.
bool ServerBulk::is_over_ofi_tcp() const { return connection_->path().kind == PathKind::kOfiTcp; }

// --- checks -------------------------------------------------------------------------------------

absl::Status ServerBulk::CheckPart(uint32_t window, uint64_t offset, const Slice& local,
                                   Rights rights) const {
  if (!local.valid()) {
    return absl::InvalidArgumentError(
        StrCat("a slice of ", local.length, " bytes at ", local.offset, " leaves its memory"));
  }
  if (window == 0 || window > count_) {
    return absl::InvalidArgumentError(
        StrCat("window ", window, " is not there: the client lends ", count_));
  }
  const Window& lent = windows_[window - 1];
  if (lent.rights != rights) {
    return absl::InvalidArgumentError(
        StrCat("window ", window, " is not lent to be ", NameOf(rights)));
  }
  if (offset > lent.span.length || local.length > lent.span.length - offset) {
    return absl::InvalidArgumentError(StrCat(local.length, " bytes at ", offset, " leave window ",
                                             window, " of ", lent.span.length, " bytes"));
  }
  return absl::OkStatus();
}

absl::StatusOr<uint32_t> ServerBulk::TakeWindowFor(size_t bytes) {
  while (next_push_ < count_ && windows_[next_push_].rights != kMayWrite) ++next_push_;
  if (next_push_ == count_) {
    return absl::InvalidArgumentError(StrCat(
        "the client lends no (further) memory for a pushed payload, which has ", bytes, " bytes"));
  }
  const uint64_t room = windows_[next_push_].span.length;
  if (bytes > room) {
    return absl::ResourceExhaustedError(
        StrCat("the pushed payload has ", bytes, " bytes; the client lends ", room, " for it"));
  }
  return ++next_push_;
}

// --- starting -----------------------------------------------------------------------------------

absl::StatusOr<ServerBulk::Slot*> ServerBulk::Take(uint32_t window, uint64_t offset,
                                                   const Slice& local, Rights rights) {
  // Only this thread sets bits: a free one stays free.
  const auto index = static_cast<uint32_t>(std::countr_one(used_.load(std::memory_order_acquire)));
  if (index >= kMaxTransfers) {
    return absl::ResourceExhaustedError(
        StrCat(kMaxTransfers, " transfers of this call are under way"));
  }
  used_.fetch_or(uint32_t{1} << index, std::memory_order_relaxed);
  Slot& slot = slots_[index];
  slot.push = rights == kMayWrite;
  slot.priority = call_->priority();
  slot.local = local;
  slot.remote = windows_[window - 1].span.Slice(offset, local.length);
  slot.window = window;
  slot.verify = false;
  return &slot;
}

void ServerBulk::Go(Slot& slot) {
  if (engine().OnEngine()) return Post(slot);
  PostSurely(engine(), [this, &slot] { Post(slot); });
}

// All Start*: `*done` is taken if a transfer was started, and left if there was an error, or
// nothing to move.
absl::Status ServerBulk::StartPart(uint32_t window, uint64_t offset, const Slice& local,
                                   Rights rights, Done* done) {
  WEFT_RETURN_IF_ERROR(CheckPart(window, offset, local, rights));
  if (local.length == 0) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(Slot* const slot, Take(window, offset, local, rights));
  slot->done = std::exchange(*done, {});
  Go(*slot);
  return absl::OkStatus();
}

absl::Status ServerBulk::StartFetch(const Bulk& field, const Slice& into, bool verify, Done* done) {
  if (field.length() == 0) return VerifyPayload({}, field);
  if (field.length() > into.length) {
    return absl::ResourceExhaustedError(
        StrCat("the payload has ", field.length(), " bytes; there is room for ", into.length));
  }
  if (!field.has_crc32c() && is_over_ofi_tcp()) {
    return absl::InvalidArgumentError(StrCat(
        "the payload of ", field.length(),
        " bytes has no CRC32C, and over ofi_tcp nothing "
        "else shows that it has come whole: BulkCall::Send() and Describe() make one there"));
  }
  const Slice front = {into.memory, into.offset, static_cast<size_t>(field.length())};
  WEFT_RETURN_IF_ERROR(CheckPart(field.window(), field.offset(), front, kMayRead));
  WEFT_ASSIGN_OR_RETURN(Slot* const slot, Take(field.window(), field.offset(), front, kMayRead));
  slot->verify = verify && field.has_crc32c();
  slot->crc32c = field.crc32c();
  slot->done = std::exchange(*done, {});
  Go(*slot);
  return absl::OkStatus();
}

absl::Status ServerBulk::StartPush(const Slice& from, Bulk* field, const BulkOptions& options,
                                   Done* done) {
  if (!from.valid()) return CheckPart(0, 0, from, kMayWrite);
  WEFT_ASSIGN_OR_RETURN(const uint32_t window, TakeWindowFor(from.length));
  DescribePayload(from.bytes(), window, {.crc32c = options.crc32c || is_over_ofi_tcp()}, field);
  return StartPart(window, 0, from, kMayWrite, done);
}

absl::Status ServerBulk::StartPushInto(const Slice& from, const Bulk& place, Bulk* field,
                                       const BulkOptions& options, Done* done) {
  if (!from.valid()) return CheckPart(0, 0, from, kMayWrite);
  if (from.length > place.length()) {
    return absl::ResourceExhaustedError(StrCat("the payload has ", from.length,
                                               " bytes; the client has room for ", place.length(),
                                               " where it is to go"));
  }
  // `field` may be `place`.
  const uint32_t window = place.window();
  const uint64_t offset = place.offset();
  if (from.length > 0) WEFT_RETURN_IF_ERROR(CheckPart(window, offset, from, kMayWrite));
  DescribePayload(from.bytes(), from.length == 0 ? 0 : window,
                  {.crc32c = options.crc32c || is_over_ofi_tcp()}, field);
  if (from.length == 0) return absl::OkStatus();
  field->set_offset(offset);
  return StartPart(window, offset, from, kMayWrite, done);
}

// --- what handlers call -------------------------------------------------------------------------

void ServerBulk::Settle(absl::Status started, Done done) {
  if (done) return done(std::move(started));
  if (refusal_.ok()) refusal_ = std::move(started);
}

void ServerBulk::Fetch(const Bulk& field, const Slice& into, Done done) {
  absl::Status started = StartFetch(field, into, /*verify=*/true, &done);
  Settle(std::move(started), std::move(done));
}

void ServerBulk::Push(const Slice& from, Bulk* field, Done done) {
  Push(from, field, {}, std::move(done));
}

void ServerBulk::Push(const Slice& from, Bulk* field, const BulkOptions& options, Done done) {
  absl::Status started = StartPush(from, field, options, &done);
  Settle(std::move(started), std::move(done));
}

void ServerBulk::Push(const Slice& from, const Bulk& place, Bulk* field, const BulkOptions& options,
                      Done done) {
  absl::Status started = StartPushInto(from, place, field, options, &done);
  Settle(std::move(started), std::move(done));
}

void ServerBulk::Read(uint32_t window, uint64_t offset, const Slice& into, Done done) {
  absl::Status started = StartPart(window, offset, into, kMayRead, &done);
  Settle(std::move(started), std::move(done));
}

void ServerBulk::Write(const Slice& from, uint32_t window, uint64_t offset, Done done) {
  absl::Status started = StartPart(window, offset, from, kMayWrite, &done);
  Settle(std::move(started), std::move(done));
}

template <class Start>
absl::Status ServerBulk::Block(Start&& start) {
  EngineCore& engine = this->engine();
  if (engine.InTurn()) {
    return absl::FailedPreconditionError(
        "a blocking transfer in a handler that runs on the engine would wait for itself: use the "
        "form with a callback, or run the handler on an executor");
  }
  absl::Status result;
  Waiter waiter;
  Done done = [&](absl::Status status) {
    result = std::move(status);
    engine.Finish(waiter);
  };
  WEFT_RETURN_IF_ERROR(start(&done));
  if (!done) engine.Wait(waiter);  // else there was nothing to move
  return result;
}

absl::Status ServerBulk::Fetch(const Bulk& field, const Slice& into) {
  WEFT_RETURN_IF_ERROR(
      Block([&](Done* done) { return StartFetch(field, into, /*verify=*/false, done); }));
  if (field.length() == 0) return absl::OkStatus();
  // On this thread: the engine has others to serve.
  return VerifyPayload(into.bytes().first(field.length()), field);
}

absl::Status ServerBulk::Push(const Slice& from, Bulk* field, const BulkOptions& options) {
  return Block([&](Done* done) { return StartPush(from, field, options, done); });
}

absl::Status ServerBulk::Push(const Slice& from, const Bulk& place, Bulk* field,
                              const BulkOptions& options) {
  return Block([&](Done* done) { return StartPushInto(from, place, field, options, done); });
}

absl::Status ServerBulk::Read(uint32_t window, uint64_t offset, const Slice& into) {
  return Block([&](Done* done) { return StartPart(window, offset, into, kMayRead, done); });
}

absl::Status ServerBulk::Write(const Slice& from, uint32_t window, uint64_t offset) {
  return Block([&](Done* done) { return StartPart(window, offset, from, kMayWrite, done); });
}

// --- the engine's part --------------------------------------------------------------------------

void ServerBulk::Begin(ServerConnection* connection, std::span<const Window> windows) {
  connection_ = connection;
  std::copy(windows.begin(), windows.end(), windows_.begin());
  count_ = static_cast<uint32_t>(windows.size());
  next_push_ = 0;
  refusal_ = failure_ = stopped_ = expired_ = absl::OkStatus();
  held_ = false;
}

bool ServerBulk::Hold(absl::Status* status) {
  if (used_.load(std::memory_order_acquire) != 0) {
    held_ = true;
    status_ = std::move(*status);
    return true;
  }
  if (status->ok()) *status = refusal_.ok() ? failure_ : refusal_;
  return false;
}

void ServerBulk::Post(Slot& slot) {
  absl::Status started = !stopped_.ok()   ? stopped_
                         : !expired_.ok() ? expired_
                                          : connection_->Start(slot);
  if (!started.ok()) Finish(slot, std::move(started));
}

void ServerBulk::Stop(absl::Status why) {
  if (!stopped_.ok()) return;
  stopped_ = std::move(why);
  EndTransfers(stopped_);
}

void ServerBulk::Expire() {
  if (!stopped_.ok() || !expired_.ok()) return;
  expired_ = absl::DeadlineExceededError("the call's deadline has passed");
  EndTransfers(expired_);
}

void ServerBulk::EndTransfers(const absl::Status& why) {
  for (Slot& slot : slots_) connection_->Hurry(slot);
  for (Slot& slot : slots_) {
    // The others are the provider's, or still on their way to the engine.
    if (!slot.linked()) continue;
    slot.Unlink();
    Finish(slot, why);
  }
}

void ServerBulk::OnEnded(Slot& slot, bool posted, const absl::Status& status) {
  posted_ -= posted;
  Finish(slot, status.ok() ? Verify(slot) : Explain(slot, status));
}

absl::Status ServerBulk::Explain(const Slot& slot, const absl::Status& status) {
  return Annotate(status, StrCat(slot.push ? "push " : "fetch ", slot.local.length,
                                 " bytes, window ", slot.window));
}

absl::Status ServerBulk::Verify(const Slot& slot) {
  if (!slot.verify) return absl::OkStatus();
  Bulk field;
  field.set_length(slot.local.length);
  field.set_crc32c(slot.crc32c);
  field.set_has_crc32c(true);
  return VerifyPayload(slot.local.bytes(), field);
}

void ServerBulk::Finish(Slot& slot, absl::Status status) {
  if (!status.ok() && failure_.ok() && (held_ || !slot.done)) failure_ = status;
  // The slot stays taken meanwhile: a call that ends inside is held, so that all this remains.
  if (Done done = std::exchange(slot.done, nullptr)) done(std::move(status));
  const auto index = static_cast<uint32_t>(&slot - slots_.data());
  const uint32_t bit = uint32_t{1} << index;
  const bool last = used_.fetch_and(~bit, std::memory_order_acq_rel) == bit;
  if (quiet()) connection_->OnQuiet(*call_);
  if (last && held_) {
    held_ = false;
    connection_->Complete(*call_, std::move(status_));
  }
}

}  // namespace weft
