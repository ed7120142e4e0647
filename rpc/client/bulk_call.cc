#include "rpc/client/bulk_call.h"

#include <utility>

#include "core/check.h"
#include "core/status.h"
#include "core/strings.h"
#include "rpc/client/channel.h"
#include "rpc/client/client_connection.h"
#include "rpc/operation/on_engine.h"

namespace weft {

BulkCall::BulkCall(Channel& channel) : engine_(channel.engine()) {
  for (LentWindow& window : windows_) window.owner = this;
}

BulkCall::~BulkCall() {
  if (state() == State::kReclaimed) return;
  WEFT_CHECK(!engine_.InTurn());
  if (WaitReclaimed(kReleasePatienceUs)) return;
  RunOnEngine(engine_, [this] { EndConnection(); });
  WEFT_CHECK(WaitReclaimed(Engine::kNoDeadline));
}

void BulkCall::EndConnection() {
  if (client_ != nullptr) client_->GiveUp("the server has not given back the memory of a call");
}

// --- before the call ----------------------------------------------------------------------------

void BulkCall::Mistake(absl::Status status) {
  if (mistake_.ok()) mistake_ = std::move(status);
}

BulkCall::LentWindow* BulkCall::Add(const MemorySlice& slice, Rights rights) {
  if (state() == State::kPinned) {
    Mistake(
        absl::FailedPreconditionError("the memory of a call cannot be changed while it is lent"));
    return nullptr;
  }
  if (!slice.valid()) {
    Mistake(absl::InvalidArgumentError(
        StrCat("a slice of ", slice.length, " bytes at ", slice.offset,
               slice.memory == nullptr
                   ? " has no memory"
                   : StrCat(" leaves its memory of ", slice.memory->bytes().size(), " bytes"),
               " (not sent)")));
    return nullptr;
  }
  if (count_ == kMaxWindows) {
    Mistake(absl::InvalidArgumentError(
        StrCat("a call lends at most ", kMaxWindows, " windows (not sent)")));
    return nullptr;
  }
  LentWindow& window = windows_[count_++];
  window.slice = slice;
  window.rights = rights;
  window.arrival = Arrival::kUntouched;
  return &window;
}

void BulkCall::Send(const MemorySlice& from, Bulk* field, const BulkOptions& options) {
  field->Clear();
  if (from.valid() && from.length == 0) return DescribePayload({}, 0, options, field);
  if (Add(from, kMayRead) != nullptr) {
    DescribePayload(from.bytes(), count_, options, field);
  }
}

uint32_t BulkCall::Receive(const MemorySlice& into) {
  return Add(into, kMayWrite) != nullptr ? count_ : 0;
}

void BulkCall::Clear() {
  WEFT_CHECK(state() == State::kReclaimed);
  count_ = 0;
  mistake_ = absl::OkStatus();
}

absl::Status BulkCall::Begin(const Engine& engine) {
  WEFT_RETURN_IF_ERROR(mistake_);
  if (&engine != &engine_) {
    return absl::InvalidArgumentError(
        "CallOptions::bulk was made for a channel of another engine (not sent)");
  }
  if (state_.exchange(State::kPinned, std::memory_order_acq_rel) == State::kPinned) {
    return absl::FailedPreconditionError(
        "CallOptions::bulk is in use by another call, or its memory is still pinned by one "
        "(not sent)");
  }
  for (uint32_t i = 0; i < count_; ++i) windows_[i].arrival = Arrival::kUntouched;
  return absl::OkStatus();
}

// --- after the call -----------------------------------------------------------------------------

absl::StatusOr<MutableByteSpan> BulkCall::Received(const Bulk& field) {
  if (state() == State::kPinned) {
    return absl::FailedPreconditionError("the memory of the call is still pinned");
  }
  if (field.length() == 0) return MutableByteSpan();
  if (field.window() == 0 || field.window() > count_) {
    return absl::DataLossError(StrCat("the reply's payload is said to be in window ",
                                      field.window(), "; the call has lent ", count_));
  }
  LentWindow& window = windows_[field.window() - 1];
  if (window.rights != kMayWrite) {
    return absl::DataLossError(StrCat("the reply's payload is said to be in window ",
                                      field.window(), ", which was lent to be read only"));
  }
  if (field.length() > window.slice.length) {
    return absl::DataLossError(StrCat("the reply's payload is said to have ", field.length(),
                                      " bytes in a window of ", window.slice.length));
  }
  const MutableByteSpan payload = window.slice.bytes().first(field.length());
  WEFT_RETURN_IF_ERROR(VerifyPayload(payload, field));
  window.arrival = Arrival::kComplete;
  return payload;
}

BulkCall::Arrival BulkCall::arrival(uint32_t window) const {
  WEFT_CHECK(window >= 1 && window <= count_);
  return windows_[window - 1].arrival;
}

bool BulkCall::WaitReclaimed(uint64_t timeout_us) {
  if (state() == State::kReclaimed || engine_.InTurn()) return state() == State::kReclaimed;
  const uint64_t now_ns = engine_.clock().NowNs();
  const uint64_t deadline_ns = timeout_us < (Engine::kNoDeadline - now_ns) / kNsPerUs
                                   ? now_ns + timeout_us * kNsPerUs
                                   : Engine::kNoDeadline;
  Waiter waiter;
  RunOnEngine(engine_, [&] {
    if (state() == State::kReclaimed) return engine_.Finish(waiter);
    waiter_ = &waiter;
  });
  if (engine_.Wait(waiter, deadline_ns)) return true;
  RunOnEngine(engine_, [&] { waiter_ = nullptr; });
  return state() == State::kReclaimed;
}

void BulkCall::WhenReclaimed(Function<void()> then) {
  if (state() == State::kReclaimed) return then();
  bool reclaimed = false;
  RunOnEngine(engine_, [&] {
    reclaimed = state() == State::kReclaimed;
    if (!reclaimed) then_ = std::move(then);
  });
  if (reclaimed) then();
}

// --- lending ------------------------------------------------------------------------------------

absl::Status BulkCall::Lend(Connection& connection, std::byte* to) {
  for (uint32_t i = 0; i < count_; ++i) {
    LentWindow& window = windows_[i];
    Window entry = {{}, window.rights};
    if (window.slice.length > 0) {
      absl::StatusOr<std::unique_ptr<Region>> region = connection.memory().Register(
          window.slice.bytes(),
          window.rights == kMayRead ? Access::kRemoteRead : Access::kRemoteWrite);
      if (!region.ok()) {
        // Nobody has heard of the others' keys.
        for (LentWindow& other : windows_) other.region.reset();
        return Annotate(region.status(), StrCat("lend ", window.slice.length, " bytes"));
      }
      window.region = *std::move(region);
      entry.span = window.region->remote();
    }
    EncodeWindow(entry, to + i * kWindowBytes);
  }
  for (uint32_t i = 0; i < count_; ++i) {
    LentWindow& window = windows_[i];
    if (window.rights == kMayWrite) window.arrival = Arrival::kUndefined;
    window.pinned = window.region != nullptr;  // an empty one lies in no buffer
    if (window.pinned) window.slice.memory->Pin(window.slice.offset);
  }
  releasing_ = false;
  return absl::OkStatus();
}

void BulkCall::Release(Connection& connection) {
  if (releasing_) return;
  releasing_ = true;
  pinned_ = 1;  // until all have been asked for
  for (LentWindow& window : windows_) {
    if (window.region == nullptr) continue;
    ++pinned_;
    if (connection.memory().Reclaim(std::move(window.region), &window)) --pinned_;
  }
  OnWindowReclaimed();
}

void BulkCall::OnWindowReclaimed() {
  if (--pinned_ > 0) return;
  for (LentWindow& window : windows_) {
    if (std::exchange(window.pinned, false)) window.slice.memory->Unpin(window.slice.offset);
  }
  client_->OnReclaimed(*this);
}

void BulkCall::Reclaimed() {
  Waiter* const waiter = std::exchange(waiter_, nullptr);
  Function<void()> then = std::exchange(then_, nullptr);
  Engine& engine = engine_;
  client_ = nullptr;
  state_.store(State::kReclaimed, std::memory_order_release);
  if (waiter != nullptr) engine.Finish(*waiter);
  if (then) then();
}

}  // namespace weft
