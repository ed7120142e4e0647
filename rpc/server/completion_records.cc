#include "rpc/server/completion_records.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/bytes.h"
#include "core/check.h"
#include "core/clock.h"
#include "core/random.h"
#include "core/status.h"
#include "core/strings.h"
#include "rpc/layout/method_layouts.h"
#include "rpc/server/handler_task.h"
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

// Ours: Stop() has cancelled them
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
  session.tenant = &tenants_[name.tenant];
  ++session.tenant->sessions;
  core_.stats().sessions = static_cast<uint32_t>(sessions_.size());
  Touch(session);
  if (!armed()) core_.engine().timers().Schedule(this, session.heard_ns + lease_ns());
  return session;
}

SessionRecords* CompletionRecords::FindSession(const SessionId& id, uint32_t tenant) {
  const auto found = sessions_.find(id);
  if (found == sessions_.end()) return nullptr;
  SessionRecords& session = found->second;
  return session.name.tenant != tenant || session.ended ? nullptr : &session;
}

absl::Status CompletionRecords::CheckNewSession(ServerConnection& connection) {
  const ServerOptions& options = core_.options();
  std::vector<SessionId>& opened = connection.opened_sessions();
  std::erase_if(opened, [this](const SessionId& id) { return !sessions_.contains(id); });
  if (opened.size() >= kMaxConnectionSessions) {
    return NotRunError(absl::StatusCode::kResourceExhausted,
                       StrCat("this connection has opened ", opened.size(),
                              " sessions that have not ended, as many as one may (not run, safe to "
                              "retry)"));
  }
  if (sessions_.size() >= options.max_sessions) {
    return NotRunError(absl::StatusCode::kResourceExhausted,
                       StrCat("the server keeps ", sessions_.size(),
                              " sessions of clients, as many as ServerOptions::max_sessions "
                              "allows (not run, safe to retry)"));
  }
  if (!options.tenant_of) return absl::OkStatus();
  const auto tenant = tenants_.find(connection.tenant());
  if (tenant == tenants_.end() || tenant->second.sessions < (options.max_sessions + 1) / 2) {
    return absl::OkStatus();
  }
  return NotRunError(absl::StatusCode::kResourceExhausted,
                     StrCat("clients of this tenant have ", tenant->second.sessions,
                            " sessions, half of what ServerOptions::max_sessions allows for all "
                            "(not run, safe to retry)"));
}

absl::StatusOr<SessionId> CompletionRecords::Renew(const SessionId& id,
                                                   ServerConnection& connection) {
  if (id != SessionId()) {
    SessionRecords* const session = FindSession(id, connection.tenant());
    if (session == nullptr) return NoSessionError();
    Touch(*session);
    return id;
  }
  WEFT_RETURN_IF_ERROR(CheckNewSession(connection));
  const CompletionStore::Session name = {NewSessionId(), connection.tenant()};
  if (CompletionStore* const store = core_.options().completion_store) {
    if (const absl::Status added = store->AddSession(name); !added.ok()) {
      return NotRunError(absl::StatusCode::kUnavailable,
                         StrCat("the server's store takes no session: ", ToStd(added.message()),
                                " (not run, safe to retry)"));
    }
  }
  connection.opened_sessions().push_back(name.id);
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
  if (--session.tenant->sessions == 0) tenants_.erase(session.name.tenant);
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
  record.session->tenant->bytes += bytes;
  shares_.Take(record.session->client, bytes);
  core_.stats().record_bytes = shares_.all();
}

CompletionRecord& CompletionRecords::Add(SessionRecords& session, const CompletionId& id) {
  CompletionRecord& record = session.records[id.sequence];
  record.id = id;
  record.session = &session;
  Charge(record, kRecordBytes);
  return record;
}

void CompletionRecords::Erase(CompletionRecord& record) {
  // Ours: callers erase what nobody waits for
  WEFT_DCHECK(record.running == nullptr && record.waiting.empty());
  record.session->bytes -= record.charged_bytes;
  record.session->tenant->bytes -= record.charged_bytes;
  shares_.Give(record.session->client, record.charged_bytes);
  core_.stats().record_bytes = shares_.all();
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
  const bool by_tenant = core_.options().tenant_of != nullptr;
  const uint64_t own = by_tenant ? session.tenant->bytes : session.bytes;
  if (own + kRecordBytes > most / 2) {  // one that does not take its answers
    return NotRunError(absl::StatusCode::kResourceExhausted,
                       StrCat("the ", by_tenant ? "tenant" : "session", " has records of ", own,
                              " bytes, half of what ServerOptions::max_record_bytes allows for all "
                              "(not run, safe to retry)"));
  }
  // Replies of calls that ran may have taken a tenant beyond its half, or a client beyond all that
  // it can have: that is not the others'.
  uint64_t held = shares_.all();
  bool has_room;
  if (by_tenant) {
    if (held + kRecordBytes > most) {
      held = 0;
      for (const auto& [id, tenant] : tenants_) held += std::min(tenant.bytes, most / 2);
    }
    has_room = held + kRecordBytes <= most;
  } else {
    const uint64_t reserve = most - AllButReserve(most);
    has_room = shares_.HasRoom(session.client, kRecordBytes, most) ||
               shares_.Of(session.client) + kRecordBytes <= shares_.ShareOf(reserve);
  }
  if (has_room) return absl::OkStatus();
  return NotRunError(absl::StatusCode::kResourceExhausted,
                     StrCat("records of calls that run exactly once have ", held,
                            " bytes; ServerOptions::max_record_bytes is ", most,
                            by_tenant ? "" : ", an eighth of it for clients that have less",
                            " (not run, safe to retry)"));
}

absl::StatusOr<CompletionRecords::Known> CompletionRecords::Look(SessionRecords& session,
                                                                 const CompletionId& id) const {
  if (const auto found = session.records.find(id.sequence); found != session.records.end()) {
    return Known{&found->second, std::nullopt};
  }
  if (!session.restored) return Known();
  absl::StatusOr<std::optional<CompletionStore::Outcome>> stored =
      core_.options().completion_store->Find(id);
  if (stored.ok()) return Known{nullptr, *std::move(stored)};
  return NotRunError(absl::StatusCode::kUnavailable,
                     StrCat("the server's store cannot be asked for the call's outcome: ",
                            ToStd(stored.status().message()), " (not run, safe to retry)"));
}

// --- attempts -----------------------------------------------------------------------------------

bool CompletionRecords::Begin(ServerCall& call, uint16_t method, const OnceAttempt& attempt) {
  SessionRecords* const session = FindSession(attempt.id.session, call.connection_->tenant());
  if (session != nullptr) {
    Touch(*session);
    Acknowledge(*session, attempt.first_unanswered);
  }
  if (absl::Status good = CheckAttempt(call, session, attempt); !good.ok()) {
    Refuse(call, std::move(good));
    return false;
  }
  absl::StatusOr<Known> known = Look(*session, attempt.id);
  if (!known.ok()) {
    Refuse(call, known.status());
    return false;
  }
  if (*known && !core_.options().interceptors.empty()) {
    call.Extras().repeats = attempt;
    return true;
  }
  if (*known) {
    Repeat(call, *std::move(known));
    return false;
  }
  if (session->bytes == 0) session->client = call.connection_->path().client;
  absl::Status room = CheckRoom(*session, attempt);
  // The first attempt alone counts towards limits: others wait for it.
  if (room.ok() && core_.admission() != nullptr) {
    room = call.CountIn(method, Admission::What::kCall);
  }
  if (!room.ok()) {
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

// Interceptors may have taken their time, on another thread: what was known then may be no more.
void CompletionRecords::OnAllowed(ServerCall& call, absl::Status status) {
  ServerConnection& connection = *call.connection_;
  const OnceAttempt attempt = *std::exchange(call.Extras().repeats, std::nullopt);
  if (connection.connection() == nullptr || call.cancelled()) {
    status = call.remaining_us() == 0 ? ExpiredError() : absl::CancelledError();
  }
  // What has run, or not, are other attempts.
  if (!status.ok()) return connection.Complete(call, NotRunError(std::move(status)));
  SessionRecords* const session = FindSession(attempt.id.session, connection.tenant());
  if (absl::Status good = CheckAttempt(call, session, attempt); !good.ok()) {
    return Refuse(call, std::move(good));
  }
  absl::StatusOr<Known> known = Look(*session, attempt.id);
  if (!known.ok()) return Refuse(call, known.status());
  if (*known) return Repeat(call, *std::move(known));
  Refuse(call, NotRunError(absl::StatusCode::kUnavailable,
                           "the call's earlier attempt was not run after all (not run, safe to "
                           "retry)"));
}

void CompletionRecords::Cancel(const ServerCall& call, const CompletionId& id) {
  SessionRecords* const session = FindSession(id.session, call.connection_->tenant());
  if (session != nullptr) CancelRunning(*session, id.sequence);
}

void CompletionRecords::GiveUp(const SessionId& session, std::span<const uint64_t> sequences) {
  // Ours: Renew() has just found it, and it is there to the end: a lease ends by a timer
  SessionRecords& given_up_in = sessions_.at(session);
  for (const uint64_t sequence : sequences) CancelRunning(given_up_in, sequence);
}

// Each handler may end inside, and others with it.
void CompletionRecords::End(const SessionId& id) {
  SessionRecords& session = sessions_.at(id);  // Ours: as in GiveUp(), which comes before
  auto next = session.records.begin();
  while (next != session.records.end()) {
    const uint64_t sequence = next->first;
    if (next->second.running != nullptr) next->second.running->Cancel();
    next = session.records.upper_bound(sequence);
  }
  session.ended = true;
  if (session.running == 0) Expire(session);
}

// The handler may end inside, and others with it.
void CompletionRecords::CancelRunning(SessionRecords& session, uint64_t sequence) {
  const auto found = session.records.find(sequence);
  if (found != session.records.end() && found->second.running != nullptr) {
    found->second.running->Cancel();
  }
}

void CompletionRecords::Repeat(ServerCall& call, Known known) {
  ++core_.stats().repeated;
  if (known.record != nullptr) return AnswerOrWait(call, *known.record);
  Answer(call, std::move(known.stored->status), known.stored->reply);
}

// A further attempt of a call that has a record: from it, or as soon as it is done.
void CompletionRecords::AnswerOrWait(ServerCall& call, CompletionRecord& record) {
  if (record.method != &call.method()) {
    return Refuse(call, InvalidError("the session has a call of this number already, of another "
                                     "method (not run)"));
  }
  if (record.running != nullptr) {
    call.Extras().record = &record;
    record.waiting.PushBack(&call);
    return;
  }
  call.Extras().reply = record.metadata;
  call.Extras().reply_attachment = record.attachment;
  Answer(call, record.status, record.reply);
}

void CompletionRecords::Answer(ServerCall& call, absl::Status status, const std::string& reply) {
  if (status.ok() && !DecodeReply(reply, call)) {
    status = absl::InternalError(StrCat("the recorded reply of ", reply.size(),
                                        " bytes cannot be decoded as ", call.method().reply_type));
  }
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
  // Not before: what ends inside may not take the session away.
  if (--session.running == 0 && session.ended) Expire(session);
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
      // Ours: invariants, which tests ask for
      WEFT_CHECK(record.id.session == id && record.id.sequence == sequence);
      WEFT_CHECK(record.running != nullptr || record.waiting.empty());
      running += record.running != nullptr;
      bytes += record.charged_bytes;
    }
    // Ours: invariants, which tests ask for
    WEFT_CHECK(running == session.running && session.records.size() <= kMaxSessionCalls);
  }
  // Ours: invariants, which tests ask for
  WEFT_CHECK(bytes == core_.stats().record_bytes && bytes == shares_.all());
  uint64_t tenants_bytes = 0;
  uint32_t tenants_sessions = 0;
  for (const auto& [tenant, records] : tenants_) {
    tenants_bytes += records.bytes;
    tenants_sessions += records.sessions;
  }
  // Ours: invariants, which tests ask for
  WEFT_CHECK(tenants_bytes == bytes && tenants_sessions == sessions_.size());
  WEFT_CHECK(by_age_.CountSlowly() == sessions_.size());
}

}  // namespace weft
