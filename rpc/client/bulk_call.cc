#include "rpc/client/bulk_call.h"

#include <utility>

#include "core/check.h"
#include "core/status.h"
#include "core/strings.h"
#include "rpc/client/channel.h"
#include "rpc/client/client_connection.h"
#include "rpc/operation/on_engine.h"

namespace weft {

BulkCall::BulkCall(Channel& channel)
    : engine_(CoreOf(channel.engine())),
      makes_checksums_(internal::ConnectionOf(channel).makes_checksums()) {}

BulkCall::~BulkCall() {
  if (state() == State::kReclaimed || engine_.forked()) return;
  WEFT_CHECK(!engine_.InTurn());  // User: a call is not destroyed inside a callback
  if (WaitReclaimed(kReleasePatienceUs)) return;
  RunOnEngine(engine_, [this] {
    loan_.EndConnection("the server has not given back the memory of a call");
  });
  // Ours: a connection that ends gives everything back
  WEFT_CHECK(WaitReclaimed(EngineCore::kNoDeadline));
}

// --- before the call ----------------------------------------------------------------------------

void BulkCall::Mistake(absl::Status status) {
  if (mistake_.ok()) mistake_ = std::move(status);
}

bool BulkCall::Add(const Slice& slice, Rights rights) {
  if (state() == State::kPinned) {
    Mistake(
        absl::FailedPreconditionError("the memory of a call cannot be changed while it is lent"));
    return false;
  }
  if (!slice.valid()) {
    Mistake(absl::InvalidArgumentError(
        StrCat("a slice of ", slice.length, " bytes at ", slice.offset,
               slice.memory == nullptr
                   ? " lies in no buffer"
                   : StrCat(" leaves its memory of ", slice.memory->bytes().size(), " bytes"),
               " (not sent)")));
    return false;
  }
  if (loan_.size() == kMaxWindows) {
    Mistake(absl::InvalidArgumentError(
        StrCat("a call or stream lends at most ", kMaxWindows, " windows (not sent)")));
    return false;
  }
  loan_.Add(slice, rights);
  return true;
}

BulkOptions BulkCall::Checked(const BulkOptions& options) const {
  return {.crc32c = options.crc32c || makes_checksums_};
}

void BulkCall::Send(const Slice& from, Bulk* field, const BulkOptions& options) {
  field->Clear();
  if (from.valid() && from.length == 0) return DescribePayload({}, 0, options, field);
  if (Add(from, kMayRead)) DescribePayload(from.bytes(), loan_.size(), Checked(options), field);
}

uint32_t BulkCall::Receive(const Slice& into) { return Add(into, kMayWrite) ? loan_.size() : 0; }

uint32_t BulkCall::Lend(const Slice& from) { return Add(from, kMayRead) ? loan_.size() : 0; }

void BulkCall::Clear() {
  WEFT_CHECK(state() == State::kReclaimed);  // User: cleared between two calls
  loan_.Clear();
  mistake_ = absl::OkStatus();
}

absl::StatusOr<Loan*> BulkCall::Begin(const EngineCore& engine, bool stream) {
  WEFT_RETURN_IF_ERROR(mistake_);
  if (engine_.forked()) return NotPostedError(engine_);
  if (&engine != &engine_) {
    return absl::InvalidArgumentError(
        "CallOptions::bulk was made for a channel of another engine (not sent)");
  }
  if (state_.exchange(State::kPinned, std::memory_order_acq_rel) == State::kPinned) {
    return absl::FailedPreconditionError(
        "CallOptions::bulk is in use by another call or stream, or its memory is still pinned by "
        "one (not sent)");
  }
  of_stream_ = stream;
  loan_.Begin();
  return &loan_;
}

// --- during a stream ----------------------------------------------------------------------------

// REQUIRES: part.valid().
bool BulkCall::Covers(uint32_t window, const Slice& part) const {
  if (window == 0 || window > loan_.size()) return false;
  const Slice& lent = loan_[window - 1].slice;
  return part.memory == lent.memory && part.offset >= lent.offset &&
         part.offset - lent.offset + part.length <= lent.length;
}

absl::Status BulkCall::Describe(const Slice& part, Bulk* field, const BulkOptions& options) const {
  uint32_t window = 1;
  while (part.valid() && window <= loan_.size() && !Covers(window, part)) ++window;
  return Describe(window, part, field, options);
}

absl::Status BulkCall::Describe(uint32_t window, const Slice& part, Bulk* field,
                                const BulkOptions& options) const {
  field->Clear();
  if (part.valid() && part.length == 0) {
    DescribePayload({}, 0, options, field);
    return absl::OkStatus();
  }
  if (!part.valid() || !Covers(window, part)) {
    return absl::InvalidArgumentError(StrCat("the ", part.length, " bytes at ", part.offset,
                                             " of a buffer lie in no window that is lent"));
  }
  const Loan::LentWindow& lent = loan_[window - 1];
  // What is to be written there has no checksum yet.
  DescribePayload(part.bytes(), window,
                  lent.rights == kMayRead ? Checked(options) : BulkOptions{.crc32c = false}, field);
  field->set_offset(part.offset - lent.slice.offset);
  return absl::OkStatus();
}

// --- after the call -----------------------------------------------------------------------------

absl::StatusOr<MutableByteSpan> BulkCall::Received(const Bulk& field) {
  if (state() == State::kPinned && !of_stream_) {
    return absl::FailedPreconditionError("the memory of the call is still pinned");
  }
  if (field.length() == 0) return MutableByteSpan();
  if (field.window() == 0 || field.window() > loan_.size()) {
    return absl::DataLossError(StrCat("the payload is said to be in window ", field.window(), "; ",
                                      loan_.size(), " are lent"));
  }
  Loan::LentWindow& window = loan_[field.window() - 1];
  if (window.rights != kMayWrite) {
    return absl::DataLossError(StrCat("the payload is said to be in window ", field.window(),
                                      ", which was lent to be read only"));
  }
  if (field.offset() > window.slice.length ||
      field.length() > window.slice.length - field.offset()) {
    return absl::DataLossError(StrCat("the payload is said to have ", field.length(), " bytes at ",
                                      field.offset(), " in a window of ", window.slice.length));
  }
  const MutableByteSpan payload = window.slice.bytes().subspan(field.offset(), field.length());
  WEFT_RETURN_IF_ERROR(VerifyPayload(payload, field));
  if (!of_stream_) window.verified = true;
  return payload;
}

BulkCall::Arrival BulkCall::arrival(uint32_t window) const {
  WEFT_CHECK(window >= 1 && window <= loan_.size());  // User: a window of this call
  const Loan::LentWindow& lent = loan_[window - 1];
  if (lent.verified) return Arrival::kComplete;
  return lent.exposed ? Arrival::kUndefined : Arrival::kUntouched;
}

bool BulkCall::WaitReclaimed(uint64_t timeout_us) {
  if (state() == State::kReclaimed || engine_.InTurn()) return state() == State::kReclaimed;
  const uint64_t deadline_ns = LaterByUs(engine_.clock().NowNs(), timeout_us);
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

void BulkCall::OnReclaimed() {
  Waiter* const waiter = std::exchange(waiter_, nullptr);
  Function<void()> then = std::exchange(then_, nullptr);
  EngineCore& engine = engine_;
  state_.store(State::kReclaimed, std::memory_order_release);
  if (waiter != nullptr) engine.Finish(*waiter);
  if (then) then();
}

}  // namespace weft
