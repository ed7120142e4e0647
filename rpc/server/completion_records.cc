#include "rpc/server/completion_records.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "core/bytes.h"
#include "core/check.h"
#include "core/clock.h"
#include "core/random.h"
#include "core/strings.h"
#include "rpc/layout/method_layouts.h"
#include "rpc/server/server_connection.h"
#include "rpc/server/server_core.h"
#include "rpc/wire/status_text.h"

namespace weft {
namespace {

// How the reply is in memory; null: as a message.
const LayoutType* ReplyType(const MethodDescriptor& method) {
  return method.layouts == nullptr ? nullptr : method.layouts->reply.type;
}

std::string EncodedReply(const internal::HandledCall& call) {
  const LayoutType* const type = ReplyType(call.method());
  return type == nullptr ? call.reply().message->SerializePartialAsString()
                         : type->to_protobuf(call.reply().record);
}

bool DecodeReply(const std::string& encoded, const internal::HandledCall& call) {
  const LayoutType* const type = ReplyType(call.method());
  if (type != nullptr) return DecodeProtobuf(type, AsBytes(encoded), call.reply());
  return call.reply().message->ParsePartialFromString(encoded);
}

// What a record that is done keeps.
uint64_t BytesOf(const CompletionRecord& record) {
  uint64_t bytes = record.reply.size() + record.attachment.size() + record.status.message().size() +
                   record.metadata.bytes();
  record.status.ForEachPayload([&bytes](absl::string_view url, const absl::Cord& payload) {
    bytes += url.size() + payload.size();
  });
  return bytes;
}

SessionId NewSessionId() { return {SecureRandom64(), SecureRandom64()}; }

absl::Status NoSessionError() {
  return OutcomeUnknownError("its session has expired, or the server was restarted");
}

absl::Status InvalidError(std::string_view what) {
  return NotRunError(absl::StatusCode::kInvalidArgument, what);
}

}  // namespace

CompletionRecords::~CompletionRecords() { WEFT_CHECK(detached_.empty()); }

uint64_t CompletionRecords::lease_ns() const { return core_.options().session_lease_us * kNsPerUs; }

// --- sessions -----------------------------------------------------------------------------------

void CompletionRecords::Restore() {
  CompletionStore* const store = core_.options().completion_store;
  if (store == nullptr || std::exchange(restored_, true)) return;
  for (const CompletionStore::Session& name : store->Sessions()) AddSession(name).restored = true;
}

SessionRecords& CompletionRecords::AddSession(const CompletionStore::Session& name) {
  SessionRecords& session = sessions_[name.id];
  session.name = name;
  core_.stats().sessions = static_cast<uint32_t>(sessions_.size());
  Touch(session);
  if (!armed()) core_.engine().timers().Schedule(this, session.heard_ns + lease_ns());
  return session;
}

SessionRecords* CompletionRecords::FindSession(const SessionId& id, uint32_t tenant) {
  const auto found = sessions_.find(id);
  return found == sessions_.end() || found->second.name.tenant != tenant ? nullptr : &found->second;
}

absl::StatusOr<SessionId> CompletionRecords::Renew(const SessionId& id, uint32_t tenant) {
  if (id != SessionId()) {
    SessionRecords* const session = FindSession(id, tenant);
    if (session == nullptr) return NoSessionError();
    Touch(*session);
    return id;
  }
  if (sessions_.size() >= core_.options().max_sessions) {
    return NotRunError(absl::StatusCode::kResourceExhausted,
                       StrCat("the server keeps ", sessions_.size(),
                              " sessions of clients, as many as ServerOptions::max_sessions "
                              "allows (not run, safe to retry)"));
  }
  const CompletionStore::Session name = {NewSessionId(), tenant};
  if (CompletionStore* const store = core_.options().completion_store) {
    if (const absl::Status added = store->AddSession(name); !added.ok()) {
      return NotRunError(absl::StatusCode::kUnavailable,
                         StrCat("the server's store takes no session: ", ToStd(added.message()),
                                " (not run, safe to retry)"));
    }
  }
  return AddSession(name).name.id;
}

void CompletionRecords::Touch(SessionRecords& session) {
  session.heard_ns = core_.engine().clock().NowNs();
  by_age_.Remove(&session);
  by_age_.PushBack(&session);
}

void CompletionRecords::OnTimer() {
  core_.HoldEnd();
  EndLeases();
  core_.LetEnd();  // this may be gone now
}

void CompletionRecords::EndLeases() {
  const uint64_t now_ns = core_.engine().clock().NowNs();
  while (SessionRecords* const oldest = by_age_.Front()) {
    const uint64_t ends_ns = oldest->heard_ns + lease_ns();
    if (ends_ns > now_ns) return core_.engine().timers().Schedule(this, ends_ns);
    if (oldest->running == 0) {
      Expire(*oldest);
      continue;
    }
    // What runs has a record to the end, whoever wants it.
    Touch(*oldest);
    CancelDetachedOf(*oldest);
  }
}

void CompletionRecords::Expire(SessionRecords& session) {
  const SessionId id = session.name.id;
  if (CompletionStore* const store = core_.options().completion_store) store->RemoveSession(id);
  while (!session.records.empty()) Erase(session.records.begin()->second);
  sessions_.erase(id);
  core_.stats().sessions = static_cast<uint32_t>(sessions_.size());
}

// Its client does not come back for them: it waits for none, on any connection. Each handler may
// end inside, and others with it.
void CompletionRecords::CancelDetachedOf(SessionRecords& session) {
  auto next = session.records.begin();
  while (next != session.records.end()) {
    const uint64_t sequence = next->first;
    const CompletionRecord& record = next->second;
    if (record.linked() && record.waiting.empty() && !record.running->cancelled()) {
      record.running->SetCancelled();
    }
    next = session.records.upper_bound(sequence);
  }
}

void CompletionRecords::CancelDetached() {
  IntrusiveList<CompletionRecord> seen;
  while (CompletionRecord* const record = detached_.PopFront()) {
    seen.PushBack(record);
    if (!record->running->cancelled()) record->running->SetCancelled();
  }
  detached_.SpliceBack(seen);
}

void CompletionRecords::Stop() {
  CheckInvariants();
  if (armed()) core_.engine().timers().Cancel(this);
}

// --- records ------------------------------------------------------------------------------------

void CompletionRecords::Charge(CompletionRecord& record, uint64_t bytes) {
  record.charged_bytes += bytes;
  record.session->bytes += bytes;
  core_.stats().record_bytes += bytes;
}

CompletionRecord& CompletionRecords::Add(SessionRecords& session, const CompletionId& id) {
  CompletionRecord& record = session.records[id.sequence];
  record.id = id;
  record.session = &session;
  Charge(record, kRecordBytes);
  return record;
}

void CompletionRecords::Erase(CompletionRecord& record) {
  WEFT_DCHECK(record.running == nullptr && record.waiting.empty());
  core_.stats().record_bytes -= record.charged_bytes;
  record.session->bytes -= record.charged_bytes;
  record.session->records.erase(record.id.sequence);
}

// The client has the answers below this.
void CompletionRecords::Acknowledge(SessionRecords& session, uint64_t first_unanswered) {
  if (first_unanswered <= session.first_unanswered) return;
  session.first_unanswered = first_unanswered;
  auto record = session.records.begin();
  while (record != session.records.end() && record->first < first_unanswered) {
    CompletionRecord& old = (record++)->second;
    if (old.running == nullptr) Erase(old);
  }
  if (CompletionStore* const store = core_.options().completion_store) {
    store->Forget(session.name.id, first_unanswered);
  }
}

absl::Status CompletionRecords::CheckAttempt(const ServerCall& call, const SessionRecords* session,
                                             const OnceAttempt& attempt) const {
  if (session == nullptr) return NoSessionError();
  if (attempt.id.sequence < session->first_unanswered) {
    return OutcomeUnknownError("its client has said that it has the answer");
  }
  if (call.has_windows_) {
    return InvalidError("a call that lends memory cannot run exactly once (not run)");
  }
  return absl::OkStatus();
}

absl::Status CompletionRecords::CheckRoom(const SessionRecords& session,
                                          const OnceAttempt& attempt) const {
  if (session.records.size() >= kMaxSessionCalls ||
      attempt.id.sequence - session.first_unanswered >= kMaxSessionCalls) {
    return NotRunError(
        absl::StatusCode::kResourceExhausted,
        StrCat("the session has ", session.records.size(), " calls without an answer; ",
               kMaxSessionCalls, " are allowed, counted from the oldest (not run, safe to retry)"));
  }
  const uint64_t most = core_.options().max_record_bytes;
  if (session.bytes + kRecordBytes > most / 2) {  // one that does not take its answers
    return NotRunError(
        absl::StatusCode::kResourceExhausted,
        StrCat("the session has records of ", session.bytes, " bytes, half of what ",
               "ServerOptions::max_record_bytes allows for all (not run, safe to retry)"));
  }
  const uint64_t held = core_.stats().record_bytes;
  if (held + kRecordBytes > most) {
    return NotRunError(absl::StatusCode::kResourceExhausted,
                       StrCat("records of calls that run exactly once have ", held,
                              " bytes; ServerOptions::max_record_bytes is ",
                              core_.options().max_record_bytes, " (not run, safe to retry)"));
  }
  return absl::OkStatus();
}

absl::StatusOr<CompletionRecord*> CompletionRecords::Look(SessionRecords& session,
                                                          const CompletionId& id) {
  if (const auto found = session.records.find(id.sequence); found != session.records.end()) {
    return &found->second;
  }
  if (!session.restored) return nullptr;
  absl::StatusOr<std::optional<CompletionStore::Outcome>> kept =
      core_.options().completion_store->Find(id);
  if (!kept.ok()) {
    return NotRunError(absl::StatusCode::kUnavailable,
                       StrCat("the server's store cannot be asked for the call's outcome: ",
                              ToStd(kept.status().message()), " (not run, safe to retry)"));
  }
  if (!kept->has_value()) return nullptr;
  if (session.records.size() >= kMaxSessionCalls) {
    return NotRunError(absl::StatusCode::kResourceExhausted,
                       StrCat("the session has ", session.records.size(),
                              " calls without an answer (not run, safe to retry)"));
  }
  CompletionRecord& record = Add(session, id);
  record.status = std::move((*kept)->status);
  record.reply = std::move((*kept)->reply);
  Charge(record, BytesOf(record));
  return &record;
}

// --- attempts -----------------------------------------------------------------------------------

bool CompletionRecords::Begin(ServerCall& call, const OnceAttempt& attempt) {
  SessionRecords* const session = FindSession(attempt.id.session, call.connection_->tenant());
  if (session != nullptr) {
    Touch(*session);
    Acknowledge(*session, attempt.first_unanswered);
  }
  if (absl::Status good = CheckAttempt(call, session, attempt); !good.ok()) {
    Refuse(call, std::move(good));
    return false;
  }
  const absl::StatusOr<CompletionRecord*> known = Look(*session, attempt.id);
  if (!known.ok()) {
    Refuse(call, known.status());
    return false;
  }
  if (CompletionRecord* const record = *known) {
    ++core_.stats().repeated;
    AnswerOrWait(call, *record);
    return false;
  }
  if (absl::Status room = CheckRoom(*session, attempt); !room.ok()) {
    Refuse(call, std::move(room));
    return false;
  }
  CompletionRecord& record = Add(*session, attempt.id);
  record.method = &call.method();
  record.running = &call;
  ++session->running;
  call.Extras().record = &record;
  return true;
}

void CompletionRecords::Cancel(const ServerCall& call, const CompletionId& id) {
  SessionRecords* const session = FindSession(id.session, call.connection_->tenant());
  if (session == nullptr) return;
  const auto found = session->records.find(id.sequence);
  if (found != session->records.end() && found->second.running != nullptr) {
    found->second.running->Cancel();
  }
}

// A further attempt of a call that has a record: from it, or as soon as it is done.
void CompletionRecords::AnswerOrWait(ServerCall& call, CompletionRecord& record) {
  if (record.method != nullptr && record.method != &call.method()) {
    return Refuse(call, InvalidError("the session has a call of this number already, of another "
                                     "method (not run)"));
  }
  if (record.running != nullptr) {
    call.Extras().record = &record;
    record.waiting.PushBack(&call);
    return;
  }
  absl::Status status = record.status;
  if (status.ok() && !DecodeReply(record.reply, call)) {
    status = absl::InternalError(StrCat("the recorded reply of ", record.reply.size(),
                                        " bytes cannot be decoded as ", call.method().reply_type));
  }
  call.Extras().reply = record.metadata;
  call.Extras().reply_attachment = record.attachment;
  call.connection_->Complete(call, std::move(status));
}

void CompletionRecords::Refuse(ServerCall& call, absl::Status why) {
  ServerConnection& connection = *call.connection_;
  ++connection.core().stats().refused;
  connection.Complete(call, std::move(why));
}

void CompletionRecords::OnEnd(ServerCall& call, const absl::Status& status) {
  CompletionRecord& record = *std::exchange(call.Extras().record, nullptr);
  if (record.running != &call) return;  // it has waited, and its connection is gone
  SessionRecords& session = *record.session;
  session.detached -= record.linked();
  record.Unlink();
  record.running = nullptr;
  --session.running;
  Touch(session);
  IntrusiveList<ServerCall> waiting;
  waiting.SpliceBack(record.waiting);
  const bool has_run = !IsNotRun(status);
  if (has_run) {
    record.status = status;
    if (status.ok()) record.reply = EncodedReply(call);
    record.metadata = call.Extras().reply;
    if (status.ok()) record.attachment = call.Extras().reply_attachment;
    Charge(record, BytesOf(record));
  }
  while (ServerCall* const other = waiting.PopFront()) {
    other->Extras().record = nullptr;
    if (has_run) {
      AnswerOrWait(*other, record);
    } else {
      other->connection_->Complete(*other, status);
    }
  }
  if (!has_run || record.id.sequence < session.first_unanswered) Erase(record);
}

bool CompletionRecords::OnConnectionLost(ServerCall& call) {
  CompletionRecord& record = *call.Extras().record;
  if (record.running == &call) {
    // A client that comes again and again may not have more of them than those that stay.
    if (core_.closing() || record.session->detached >= core_.options().max_outstanding_calls) {
      return false;
    }
    detached_.PushBack(&record);
    ++record.session->detached;
    return true;
  }
  IntrusiveList<ServerCall>::Remove(&call);
  call.connection_->Complete(call, absl::CancelledError());  // nobody reads it
  return true;
}

void CompletionRecords::CheckInvariants() {
  uint64_t bytes = 0;
  for (const auto& [id, session] : sessions_) {
    uint32_t running = 0;
    for (const auto& [sequence, record] : session.records) {
      WEFT_CHECK(record.id.session == id && record.id.sequence == sequence);
      WEFT_CHECK(record.running != nullptr || record.waiting.empty());
      running += record.running != nullptr;
      bytes += record.charged_bytes;
    }
    WEFT_CHECK(running == session.running && session.records.size() <= kMaxSessionCalls);
  }
  WEFT_CHECK(bytes == core_.stats().record_bytes);
  WEFT_CHECK(by_age_.CountSlowly() == sessions_.size());
}

}  // namespace weft
