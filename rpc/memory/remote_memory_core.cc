#include "rpc/memory/remote_memory_core.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/check.h"
#include "core/clock.h"
#include "core/status.h"
#include "core/strings.h"
#include "rpc/wire/status_text.h"
#include "weft/status.h"

namespace weft {
namespace {

std::string RightsText(Rights rights) {
  std::string text;
  if ((rights & kMayRead) != 0) text += " read";
  if ((rights & kMayWrite) != 0) text += " write";
  if ((rights & kMayUseAtomics) != 0) text += " atomics";
  return text.empty() ? " none" : text;
}

Rights NeededBy(RemoteOperation::Kind kind) {
  switch (kind) {
    case RemoteOperation::Kind::kRead:
      return kMayRead;
    case RemoteOperation::Kind::kWrite:
      return kMayWrite;
    default:
      return kMayUseAtomics;
  }
}

// Answers that will be the same next time.
bool IsForGood(const absl::Status& why) {
  switch (why.code()) {
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kUnimplemented:
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kDataLoss:
      return true;
    default:
      return false;
  }
}

absl::Status NotSent(absl::Status status) {
  return WithDelivery(std::move(status), Delivery::kNotSent);
}

}  // namespace

RemoteMemoryCore::RemoteMemoryCore(EngineCore& engine, ClientConnection& client,
                                   const RegionHandle& handle, const RemoteMemoryOptions& options)
    : engine_(engine),
      client_(client),
      handle_(handle),
      size_(handle.length()),
      rights_(handle.rights()),
      options_(options),
      early_ends_(engine) {}

// --- what can be said beforehand ----------------------------------------------------------------

absl::Status RemoteMemoryCore::Check(const RemoteOperation& operation) const {
  if (absl::Status allowed = CheckRights(operation); !allowed.ok()) return allowed;
  return operation.moves() ? CheckPieces(operation) : CheckAtomic(operation);
}

absl::Status RemoteMemoryCore::CheckRights(const RemoteOperation& operation) const {
  const Rights needed = NeededBy(operation.kind);
  if ((rights_ & needed) != 0) [[likely]]
    return absl::OkStatus();
  return NotSent(absl::PermissionDeniedError(
      StrCat("the operation needs the right to", RightsText(needed),
             "; the handle grants:", RightsText(rights_), " (not sent)")));
}

absl::Status RemoteMemoryCore::CheckPieces(const RemoteOperation& operation) const {
  if (operation.pieces.empty() || operation.pieces.size() > kMaxBatchTransfers) {
    return NotSent(absl::InvalidArgumentError(StrCat("a batch has 1 to ", kMaxBatchTransfers,
                                                     " pieces; this one has ",
                                                     operation.pieces.size(), " (not sent)")));
  }
  for (const RemotePiece& piece : operation.pieces) {
    const uint64_t length = piece.local.length;
    if (!piece.local.valid() || length == 0) {
      return NotSent(absl::InvalidArgumentError(
          StrCat("a piece of ", length, " bytes at offset ", piece.local.offset,
                 " does not lie in its local memory (not sent)")));
    }
    if (options_.timeout_us != 0) {
      const absl::Status pinnable = piece.local.memory->CheckPinnable();
      if (!pinnable.ok()) [[unlikely]]
        return NotSent(Annotate(pinnable, "not sent"));
    }
    if (piece.offset > size_ || length > size_ - piece.offset) {
      return NotSent(absl::InvalidArgumentError(StrCat(length, " bytes at offset ", piece.offset,
                                                       " do not lie in the ", size_,
                                                       " bytes of the remote memory (not sent)")));
    }
  }
  return absl::OkStatus();
}

absl::Status RemoteMemoryCore::CheckAtomic(const RemoteOperation& operation) const {
  constexpr uint64_t kBytes = sizeof(uint64_t);
  if (operation.offset % kBytes == 0 && size_ >= kBytes && operation.offset <= size_ - kBytes) {
    return absl::OkStatus();
  }
  return NotSent(absl::InvalidArgumentError(
      StrCat("an atomic's offset is a multiple of 8 within the ", size_,
             " bytes of the remote memory; this one is ", operation.offset, " (not sent)")));
}

// --- the lease ----------------------------------------------------------------------------------

void RemoteMemoryCore::Open(Function<void(absl::Status)> done) {
  on_opened_ = std::move(done);
  Watch();
  Ask();
}

void RemoteMemoryCore::Watch() {
  if (std::exchange(watching_, true)) return;
  client_.Watch(this);
  connection_ = client_.open_connection();
}

void RemoteMemoryCore::Report(const absl::Status& opened) {
  if (Function<void(absl::Status)> done = std::exchange(on_opened_, nullptr)) done(opened);
}

// Whatever is missing for the next operation: a connection, or a lease. What comes of it is heard
// later, or inside.
void RemoteMemoryCore::Ask() {
  if (gone_ != nullptr) return;
  if (connection_ == nullptr) return client_.WantConnection();
  if (Lease::state() != Lease::State::kIdle) return;
  const absl::Status asked =
      connection_->memory().Resolve(handle_, options_.layout, options_.lease_us * kNsPerUs, this);
  // When not open, OnConnectionLost() is on its way.
  if (asked.ok() || connection_->state() != Connection::State::kOpen) return;
  Refuse(asked, IsForGood(asked));
}

// The lease holds now. One that lapses is asked for again, one half through is renewed.
bool RemoteMemoryCore::Usable() {
  if (connection_ == nullptr || Lease::state() != Lease::State::kHeld) return false;
  const uint64_t now_ns = engine_.InTurn() ? engine_.turn_ns() : engine_.clock().NowNs();
  if (now_ns < renew_at_ns_) [[likely]]
    return true;
  if (now_ns < usable_until_ns()) {
    Renew();
    return Lease::state() == Lease::State::kHeld;
  }
  // Too late: with nothing under way a new one is as good, and one answer sooner.
  if (posted_ == 0) {
    GiveBack();
  } else {
    Renew();
  }
  return false;
}

void RemoteMemoryCore::Renew() {
  if (renewing_) return;
  renewing_ = true;
  const absl::Status asked = connection_->memory().Renew(options_.lease_us * kNsPerUs, this);
  if (asked.ok()) return;
  renewing_ = false;
  LookAtLeaseHalfThrough();  // and try again, if there is something to look for
}

// Half of what is left of the lease.
void RemoteMemoryCore::LookAtLeaseHalfThrough() {
  const uint64_t now_ns = engine_.clock().NowNs();
  renew_at_ns_ = usable_until_ns() > now_ns ? now_ns + (usable_until_ns() - now_ns) / 2 : now_ns;
}

// When what is under way needs a renewal. kNever: it is asked for, or too late, or there is no
// lease: OnGranted() or OnEnded() follows, or nothing needs one.
uint64_t RemoteMemoryCore::RenewalDueNs() const {
  const bool may_renew =
      Lease::state() == Lease::State::kHeld && !renewing_ && renew_at_ns_ < usable_until_ns();
  return may_renew ? renew_at_ns_ : kNever;
}

void RemoteMemoryCore::RenewIfDue(uint64_t now_ns) {
  if (!in_use() || now_ns < RenewalDueNs()) return;
  if (now_ns < usable_until_ns()) return Renew();
  renew_at_ns_ = usable_until_ns();  // nobody has driven the engine: its end is on its way
}

void RemoteMemoryCore::GiveBack() {
  if (Lease::state() == Lease::State::kIdle) return;
  // Ours: a connection that is lost has ended its leases before
  WEFT_DCHECK(connection_ != nullptr);
  giving_back_ = true;
  connection_->memory().Return(this);
  giving_back_ = false;
  renewing_ = false;
}

void RemoteMemoryCore::OnGranted() {
  renewing_ = false;
  lacks_lease_ = false;
  client_.PeerAnswered();
  LookAtLeaseHalfThrough();
  if (remote().length != size_) {
    GiveBack();
    return Refuse(absl::DataLossError(StrCat("the owner grants ", remote().length,
                                             " bytes on a handle of ", size_)),
                  /*for_good=*/true);
  }
  if (in_use()) WakeBy(RenewalDueNs());
  Report(absl::OkStatus());
  Pump();
}

void RemoteMemoryCore::OnEnded(const absl::Status& why) {
  renewing_ = false;
  outlived_ = outlived_ || posted_ > 0;
  if (giving_back_ || gone_ != nullptr) return;
  if (absl::IsUnavailable(why)) return;  // OnConnectionLost() follows
  if (absl::IsDeadlineExceeded(why) || absl::IsCancelled(why)) {
    if (wanted()) Ask();
    return;
  }
  Refuse(why, IsForGood(why));
}

void RemoteMemoryCore::Refuse(const absl::Status& why, bool for_good) {
  if (for_good) refused_ = why;
  lacks_lease_ = absl::IsResourceExhausted(why);
  Report(why);
  FailWaiting(why);
}

// --- the connection -----------------------------------------------------------------------------

void RemoteMemoryCore::OnConnected(Connection& connection) {
  connection_ = &connection;
  proofs_.OnConnected();
  lacks_lease_ = false;
  outlived_ = false;
  if (wanted()) Ask();
}

void RemoteMemoryCore::OnConnectionLeaving(const absl::Status& why) {
  if (!refused_.ok()) return;
  leaving_ = true;
  refused_ = why;
  Report(why);
  FailWaiting(why);
  EndTheQuestion();
}

void RemoteMemoryCore::OnConnectionLost() {
  connection_ = nullptr;
  proofs_.OnConnectionLost();
  if (std::exchange(leaving_, false)) refused_ = absl::OkStatus();
  while (RemoteOperation* const operation = written_.PopFront()) {
    --posted_;
    End(*operation, LossText(*operation, absl::UnavailableError("it ended before the answer")));
  }
  if (gone_ != nullptr) return LookForTheEnd();
  if (wanted()) Ask();
}

void RemoteMemoryCore::OnNoConnection(const absl::Status& why) {
  Report(why);
  FailWaiting(why);
}

// --- operations ---------------------------------------------------------------------------------

void RemoteMemoryCore::Start(RemoteOperation& operation, const absl::Status& valid) {
  operation.core = this;
  if (!valid.ok()) return End(operation, valid);
  if (!watching_) [[unlikely]]
    Watch();
  if (Begin(operation) == Posted::kDone) End(operation, absl::OkStatus());
}

bool RemoteMemoryCore::MoveNow(RemoteOperation::Kind kind, uint64_t offset, const Slice& local) {
  const bool inside = offset <= size_ && local.length <= size_ - offset;
  if (!inside || local.length == 0 || !local.valid() || !local.memory->is_pinnable() ||
      (rights_ & NeededBy(kind)) == 0) [[unlikely]]
    return false;  // Check() says so in words
  if (Lease::state() != Lease::State::kHeld || !waiting_.empty() || !refused_.ok()) [[unlikely]]
    return false;
  if (done_since_turn_ + 1 == kDonePerTurn) [[unlikely]]
    return false;
  const auto way =
      kind == RemoteOperation::Kind::kRead ? TransferKind::kRead : TransferKind::kWrite;
  const RemoteSpan there = remote().Slice(offset, local.length);
  if (!connection_->memory().MoveNow(way, local.bytes(), there)) return false;
  ++done_since_turn_;
  return true;
}

Posted RemoteMemoryCore::Begin(RemoteOperation& operation) {
  operation.core = this;
  if (!refused_.ok()) [[unlikely]] {
    End(operation, NotSent(refused_));
    return Posted::kPending;
  }
  // Nobody overtakes those who wait.
  if (waiting_.empty() && Usable()) [[likely]] {
    bool room = true;
    const absl::StatusOr<Posted> posted = Post(operation, &room);
    if (posted.ok()) [[likely]] {
      if (*posted == Posted::kPending) {
        WatchDeadline(operation);
      } else {
        done_since_turn_ = (done_since_turn_ + 1) % kDonePerTurn;
      }
      return *posted;
    }
    if (room) {
      End(operation, NotSent(posted.status()));
      return Posted::kPending;
    }
  }
  Enqueue(operation);
  return Posted::kPending;
}

void RemoteMemoryCore::StartFromCallback(RemoteOperation& operation, const absl::Status& valid) {
  early_ends_.WhileStarting(operation, [&] { Start(operation, valid); });
}

Posted RemoteMemoryCore::BeginFromCallback(RemoteOperation& operation, const absl::Status& valid) {
  operation.core = this;
  Posted posted = Posted::kPending;
  early_ends_.WhileStarting(operation, [&] {
    if (!valid.ok()) return End(operation, valid);
    posted = Begin(operation);
  });
  if (posted == Posted::kDone) Drop(operation);
  return posted;
}

// Unless it is pending, its caller ends it. *room = false: there is none now, and OnRoom() or
// OnConnectionLost() will come.
absl::StatusOr<Posted> RemoteMemoryCore::Post(RemoteOperation& operation, bool* room) {
  CountPosted();
  operation.state = RemoteOperation::State::kPosted;
  proofs_.SetWhatItProves(operation);  // an atomic
  const absl::StatusOr<Posted> posted = Submit(operation);
  if (posted.ok() && *posted == Posted::kPending) {
    if (operation.kind == RemoteOperation::Kind::kWrite) proofs_.OnWriteBegun();
    return posted;
  }
  --posted_;
  operation.state = RemoteOperation::State::kNew;
  *room =
      !absl::IsResourceExhausted(posted.status()) && !absl::IsFailedPrecondition(posted.status());
  return posted;
}

absl::StatusOr<Posted> RemoteMemoryCore::Submit(RemoteOperation& operation) {
  switch (operation.kind) {
    case RemoteOperation::Kind::kFetchAdd:
      WEFT_RETURN_IF_ERROR(connection_->memory().FetchAdd(
          remote().Slice(operation.offset, sizeof(uint64_t)), operation.operand, &operation));
      return Posted::kPending;
    case RemoteOperation::Kind::kCompareSwap:
      WEFT_RETURN_IF_ERROR(
          connection_->memory().CompareSwap(remote().Slice(operation.offset, sizeof(uint64_t)),
                                            operation.operand, operation.desired, &operation));
      return Posted::kPending;
    default:
      return SubmitPieces(operation);
  }
}

absl::StatusOr<Posted> RemoteMemoryCore::SubmitPieces(RemoteOperation& operation) {
  const size_t count = operation.pieces.size();
  for (size_t i = 0; i < count; ++i) {
    const RemotePiece& piece = operation.pieces[i];
    absl::StatusOr<const Region*> region = piece.local.memory->For(*connection_);
    if (!region.ok()) {
      // Waiting would not help.
      return absl::InternalError(absl::StrCat(
          "the local memory cannot be registered: ", region.status().message(), " (not sent)"));
    }
    transfers_[i] = {*region, piece.local.offset, remote().Slice(piece.offset, piece.local.length)};
  }
  if (operation.acknowledged) {
    const RemotePiece& last = operation.pieces[count - 1];
    operation.offset = last.offset + last.local.length - 1;
  }
  const TransferKind kind = operation.kind == RemoteOperation::Kind::kRead ? TransferKind::kRead
                            : operation.unordered ? TransferKind::kWriteUnordered
                                                  : TransferKind::kWrite;
  return connection_->memory().Post(kind, absl::MakeConstSpan(transfers_.data(), count),
                                    &operation);
}

void RemoteMemoryCore::Enqueue(RemoteOperation& operation) {
  if (waiting_count_ >= options_.max_waiting) {
    const std::string text =
        StrCat(waiting_count_, " operations wait already for memory of ", client_.address(),
               ", as many as RemoteMemoryOptions::max_waiting allows (not sent)");
    return End(operation, NotSent(absl::ResourceExhaustedError(text)));
  }
  operation.KeepPieces();
  operation.state = RemoteOperation::State::kWaiting;
  waiting_.PushBack(&operation);
  ++waiting_count_;
  WatchDeadline(operation);
  if (operation.is_ordered_write()) {
    operation.holds_calls = true;
    client_.calls().HoldCalls();
  }
  Ask();
}

// Off the queue, and nobody waits for it there any more.
void RemoteMemoryCore::Leave(RemoteOperation& operation) {
  IntrusiveList<RemoteOperation>::Remove(&operation);
  --waiting_count_;
}

void RemoteMemoryCore::Pump() {
  if (pumping_) return;  // from inside: the loop below goes on
  pumping_ = true;
  while (RemoteOperation* operation = waiting_.Front()) {
    if (!Usable()) {
      Ask();
      break;
    }
    // Off the queue first: if it ends here, its callback may start others.
    Leave(*operation);
    bool room = true;
    const absl::StatusOr<Posted> posted = Post(*operation, &room);
    if (!room) {
      operation->state = RemoteOperation::State::kWaiting;
      waiting_.PushFront(operation);
      ++waiting_count_;
      break;
    }
    if (std::exchange(operation->holds_calls, false)) client_.calls().ReleaseCalls();
    if (posted.ok() && *posted == Posted::kPending) continue;
    End(*operation, NotSent(posted.status()));
  }
  pumping_ = false;
}

// An acknowledged write is over here. The proof behind it says when it has arrived; where there can
// be none, it ends.
void RemoteMemoryCore::AskForProof(RemoteOperation& operation) {
  proofs_.SetWhatItProves(operation);
  const absl::StatusOr<Posted> asked = PostProof(operation);
  operation.proof_asked = asked.ok();
  operation.state = RemoteOperation::State::kPosted;
  if (asked.ok() && *asked == Posted::kPending) return WakeBy(RenewalDueNs());
  if (absl::IsResourceExhausted(asked.status()) || absl::IsFailedPrecondition(asked.status())) {
    // OnRoom() or OnConnectionLost() comes.
    operation.state = RemoteOperation::State::kWritten;
    return written_.PushBack(&operation);
  }
  if (asked.ok()) proofs_.OnEnded(operation, /*ok=*/true);
  --posted_;
  End(operation, WithDelivery(asked.status(), Delivery::kMayHaveRun));
}

// By the owner's card, or else by its engine.
absl::StatusOr<Posted> RemoteMemoryCore::PostProof(RemoteOperation& operation) {
  if (connection_ == nullptr) return absl::FailedPreconditionError("not connected");
  if ((rights_ & kMayRead) != 0 && proofs_.MayRead(*connection_) && Usable()) {
    const RemoteSpan last_byte = remote().Slice(operation.offset, 1);
    return proofs_.Post(*connection_, &last_byte, &client_.SpareByte(), operation);
  }
  return proofs_.Post(*connection_, nullptr, nullptr, operation);
}

void RemoteMemoryCore::AskForProofs() {
  while (RemoteOperation* const operation = written_.PopFront()) {
    AskForProof(*operation);
    if (written_.Back() == operation) return;  // no room
  }
}

void RemoteMemoryCore::AskTheQuestion() {
  RemoteOperation& operation = *NewOperation();
  proofs_.OnQuestionBegun(&operation);
  operation.core = this;
  operation.kind = RemoteOperation::Kind::kWrite;
  operation.acknowledged = true;
  operation.pieces = {};
  operation.offset = 0;
  operation.done = [this](const absl::Status&) {
    if (proofs_.OnQuestionEnded()) Recover();
  };
  CountPosted();
  AskForProof(operation);
}

void RemoteMemoryCore::Recover() {
  if (gone_ != nullptr || connection_ == nullptr || !refused_.ok()) return;
  if (lacks_lease_) Ask();
  if (proofs_.WantsQuestion()) AskTheQuestion();
}

// The connection or this is to end: the owner has as long to answer as behind a deadline.
void RemoteMemoryCore::EndTheQuestion() {
  RemoteOperation* const question = proofs_.question();
  if (question == nullptr) return;
  question->deadline_ns = engine_.clock().NowNs();
  Expire(*question);
  ArmTimer();
}

void RemoteMemoryCore::OnRoom() {
  AskForProofs();
  if (gone_ != nullptr) return LookForTheEnd();
  Pump();
}

void RemoteMemoryCore::OnOperationComplete(RemoteOperation& operation, const absl::Status& status) {
  const bool is_late = operation.state == RemoteOperation::State::kLate;
  if (operation.kind != RemoteOperation::Kind::kRead) {
    proofs_.OnEnded(operation, status.ok());
  }
  if (operation.acknowledged && !operation.proof_asked && !is_late && status.ok()) [[unlikely]] {
    AskForProof(operation);
  } else {
    --posted_;
    if (is_late) [[unlikely]] {
      EndLate(operation);
    } else {
      End(operation, status.ok() ? absl::OkStatus() : LossText(operation, status));
    }
  }
  if (gone_ != nullptr) [[unlikely]]
    return LookForTheEnd();
  if (!waiting_.empty()) Pump();
  if (leaving_ && posted_ == 0) [[unlikely]]
    client_.EndIfLeft();
}

absl::Status RemoteMemoryCore::LossText(const RemoteOperation& operation,
                                        const absl::Status& why) const {
  const char* what = operation.kind == RemoteOperation::Kind::kRead
                         ? " (nothing was changed, safe to retry)"
                         : " (it may have been carried out)";
  if (absl::IsPermissionDenied(why)) {
    return WithDelivery(RefusalText(why, what), Delivery::kMayHaveRun);
  }
  const std::string text =
      absl::StrCat("lost the connection to ", client_.address(), ": ", why.message(), what);
  return WithDelivery(
      absl::IsDataLoss(why) ? absl::DataLossError(text) : absl::UnavailableError(text),
      Delivery::kMayHaveRun);
}

// The owner has refused what it grants by the handle: it has closed the lease.
absl::Status RemoteMemoryCore::RefusalText(const absl::Status& why, const char* what) const {
  if (absl::IsAborted(refused_)) return absl::AbortedError(absl::StrCat(refused_.message(), what));
  const bool is_over = outlived_ || Lease::state() != Lease::State::kHeld ||
                       engine_.clock().NowNs() >= usable_until_ns();
  if (!is_over) return why;  // what the owner says of it is not here yet
  return absl::UnavailableError(StrCat(
      "the lease on memory of ", client_.address(),
      " ended before the operation: it was not renewed in time, or its handle has expired", what));
}

void RemoteMemoryCore::End(RemoteOperation& operation, absl::Status status) {
  Deadlines::Remove(&operation);
  if (std::exchange(operation.holds_calls, false)) client_.calls().ReleaseCalls();
  operation.state = RemoteOperation::State::kDone;
  operation.Finish(std::move(status));
}

void RemoteMemoryCore::FailWaiting(const absl::Status& status) {
  // Callbacks may start operations: these wait for the next time.
  IntrusiveList<RemoteOperation> failed;
  failed.SpliceBack(waiting_);
  waiting_count_ = 0;
  if (failed.empty()) return;
  const absl::Status not_sent = NotSent(status);
  while (RemoteOperation* operation = failed.PopFront()) End(*operation, not_sent);
}

// --- deadlines ----------------------------------------------------------------------------------

// Of one that gets under way; its lease is to last as long.
void RemoteMemoryCore::WatchDeadline(RemoteOperation& operation) {
  uint64_t due_ns = RenewalDueNs();
  if (options_.timeout_us != 0) {
    operation.KeepPieces();
    const uint64_t now_ns = engine_.InTurn() ? engine_.turn_ns() : engine_.clock().NowNs();
    operation.deadline_ns = now_ns + options_.timeout_us * kNsPerUs;
    watched_.PushBack(&operation);
    due_ns = std::min(due_ns, operation.deadline_ns);
  }
  WakeBy(due_ns);
}

// The timer may be set for a late one, behind that.
void RemoteMemoryCore::WakeBy(uint64_t due_ns) {
  if (due_ns < (armed() ? Timer::deadline_ns() : kNever)) engine_.timers().Schedule(this, due_ns);
}

void RemoteMemoryCore::ArmTimer() {
  uint64_t next_ns = in_use() ? RenewalDueNs() : kNever;
  for (const Deadlines* list : {&watched_, &late_}) {
    if (const RemoteOperation* first = list->Front()) {
      next_ns = std::min(next_ns, first->deadline_ns);
    }
  }
  if (!undelivered_.empty()) {
    next_ns = std::min(next_ns, engine_.clock().NowNs() + kDeliverAgainNs);
  }
  if (next_ns != kNever) engine_.timers().Schedule(this, next_ns);
}

void RemoteMemoryCore::OnTimer() {
  const uint64_t now_ns = engine_.clock().NowNs();
  while (RemoteOperation* const first = watched_.Front()) {
    if (first->deadline_ns > now_ns) break;
    Expire(*first);  // its callback may start others
  }
  RemoteOperation* const late = late_.Front();
  if (late != nullptr && late->deadline_ns <= now_ns) {
    // They complete when it has ended. None is asked about again.
    for (RemoteOperation& operation : late_) operation.deadline_ns = kNever;
    const std::string why = StrCat("an operation on its memory has not ended ",
                                   DurationText(kLatePatienceUs), " after its deadline");
    client_.EndConnection(
        absl::UnavailableError(StrCat("the client gave up the connection: ", why)), why);
  }
  RenewIfDue(now_ns);
  DeliverAgain();
  ArmTimer();
  if (gone_ != nullptr) return LookForTheEnd();  // this may be gone now
  if (leaving_ && posted_ == 0) client_.EndIfLeft();
}

void RemoteMemoryCore::Expire(RemoteOperation& operation) {
  const std::string after = StrCat("the operation on memory of ", client_.address(),
                                   " has not ended within ", DurationText(options_.timeout_us));
  if (operation.state == RemoteOperation::State::kWaiting) {
    Leave(operation);
    const char* const why = connection_ == nullptr                  ? "there was no connection"
                            : Lease::state() == Lease::State::kHeld ? "too many were under way"
                                                                    : "the owner gave no lease";
    return End(operation, NotSent(absl::DeadlineExceededError(
                              StrCat(after, ": ", why, " (not sent, safe to retry)"))));
  }
  const char* const what = operation.kind == RemoteOperation::Kind::kRead
                               ? " (nothing was changed, safe to retry)"
                               : " (it may have been carried out)";
  absl::Status late =
      WithDelivery(absl::DeadlineExceededError(StrCat(after, what)), Delivery::kMayHaveRun);
  if (operation.state == RemoteOperation::State::kWritten) {
    IntrusiveList<RemoteOperation>::Remove(&operation);
    --posted_;
    return End(operation, std::move(late));
  }
  // Ours: only these states have a deadline
  WEFT_CHECK(operation.state == RemoteOperation::State::kPosted);
  Deadlines::Remove(&operation);
  operation.state = RemoteOperation::State::kLate;
  operation.deadline_ns += kLatePatienceUs * kNsPerUs;
  {
    const std::lock_guard<std::mutex> lock(reclaim_mutex_);
    operation.late_number = ++late_count_;
    late_.PushBack(&operation);
  }
  if (operation.moves()) {
    for (const RemotePiece& piece : operation.pieces) piece.local.memory->Pin(piece.local.offset);
  }
  operation.CallBack(std::move(late), /*recycle=*/false);
}

// The transport touches its memory no more.
void RemoteMemoryCore::EndLate(RemoteOperation& operation) {
  if (operation.moves()) {
    for (const RemotePiece& piece : operation.pieces) piece.local.memory->Unpin(piece.local.offset);
  }
  operation.state = RemoteOperation::State::kDone;
  std::vector<Function<void()>> due;
  {
    const std::lock_guard<std::mutex> lock(reclaim_mutex_);
    Deadlines::Remove(&operation);
    const uint64_t first = late_.empty() ? kNever : late_.Front()->late_number;
    for (; !when_reclaimed_.empty() && when_reclaimed_.front().first < first;
         when_reclaimed_.pop_front()) {
      due.push_back(std::move(when_reclaimed_.front().second));
    }
  }
  Recycle(&operation);
  for (Function<void()>& then : due) then();
}

bool RemoteMemoryCore::HoldWhileLate(Function<void()>& then) {
  const std::lock_guard<std::mutex> lock(reclaim_mutex_);
  if (late_.empty()) return false;
  when_reclaimed_.emplace_back(late_count_, std::move(then));
  return true;
}

// --- other engines ------------------------------------------------------------------------------

void RemoteMemoryCore::Deliver(EngineCore& to, Function<void()> task) {
  undelivered_.emplace_back(&to, std::move(task));
  if (undelivered_.size() > 1) return;  // behind those before it
  DeliverAgain();
  ArmTimer();
}

void RemoteMemoryCore::DeliverAgain() {
  while (!undelivered_.empty()) {
    auto& [to, task] = undelivered_.front();
    if (!to->Post(std::move(task))) return;  // what was refused is as it was
    undelivered_.pop_front();
  }
}

// --- operations with callbacks ------------------------------------------------------------------

bool RemoteMemoryCore::Defer(RemoteOperation& operation, absl::Status* status) {
  if (!early_ends_.IsStarting(operation) || early_ends_.count() >= options_.max_waiting)
    return false;
  operation.early_status = std::move(*status);
  early_ends_.Add(operation);
  return true;
}

// --- the end ------------------------------------------------------------------------------------

void RemoteMemoryCore::Shutdown(Waiter* gone) {
  gone_ = gone;
  const absl::Status cancelled = absl::CancelledError("the RemoteMemory was destroyed (not sent)");
  // Not CANCELLED, nor posted: a callback that starts its operation again would do so for ever.
  leaving_ = false;
  refused_ = absl::FailedPreconditionError(
      "the RemoteMemory is being destroyed; a callback starts no operation then (not sent)");
  Report(cancelled);
  FailWaiting(cancelled);
  EndTheQuestion();
  early_ends_.RunAll();
  LookForTheEnd();
}

void RemoteMemoryCore::LookForTheEnd() {
  if (posted_ > 0) return;
  early_ends_.RunAll();               // what callbacks have started meanwhile
  if (!undelivered_.empty()) return;  // the timer comes back
  GiveBack();
  EngineCore& engine = engine_;
  Waiter* gone = gone_;
  ClientConnection& client = client_;
  delete this;
  client.EndIfLeft();
  engine.Finish(*gone);
}

}  // namespace weft
