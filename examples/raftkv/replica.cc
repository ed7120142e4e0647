#include "examples/raftkv/replica.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/cord.h"
#include "core/strings.h"
#include "weft/path.h"

namespace raftkv {
namespace {

using ::weft::StrCat;

std::string_view RoleName(int role) {
  switch (role) {
    case RAFT_VOTER:
      return "voter";
    case RAFT_STANDBY:
      return "stand-by";
    default:
      return "spare";
  }
}

size_t BytesOf(const Command& command) { return command.ByteSizeLong(); }

}  // namespace

// One entry of this leader, under way.
struct Replica::Proposal {
  Replica* replica = nullptr;
  std::list<Proposal>::iterator self;
  struct raft_apply apply = {};
  struct raft_barrier barrier = {};
  uint64_t applied_ns = 0;  // when raft_apply() was called; 0: it is a barrier
  std::vector<Executed> commands;
  std::vector<Done> reads;
};

struct Replica::Changing {
  Replica* replica = nullptr;
  std::list<Changing>::iterator self;
  raft_change change = {};
  Done done;
};

struct Replica::Transferring {
  Replica* replica = nullptr;
  struct raft_transfer transfer = {};
  raft_id target = 0;
  Done done;
};

// --- what libraft calls --------------------------------------------------------------------------

struct Replica::Functions {
  static Replica& Self(raft_io* io) {
    return *static_cast<Replica*>(static_cast<raft*>(io->data)->data);
  }
  static Replica& Self(raft_fsm* fsm) { return *static_cast<Replica*>(fsm->data); }

  static int Start(raft_io* io, unsigned msecs, raft_io_tick_cb tick, raft_io_recv_cb receive) {
    Replica& self = Self(io);
    self.tick_ = tick;
    self.receive_ = receive;
    return self.disk_.start(
        io, msecs,
        [](raft_io* each) {
          Replica& replica = Self(each);
          if (replica.phase_ == Phase::kFailed) return;
          replica.tick_(each);
          replica.Look();
          replica.CloseDiskWhenWritten();
        },
        [](raft_io* each, raft_message* message) {
          Replica& replica = Self(each);
          if (replica.phase_ == Phase::kFailed) return;
          replica.receive_(each, message);
          replica.Look();
        });
  }

  // libraft's, with what it has put there.
  struct Append {
    raft_io_append mine = {};
    Replica* replica = nullptr;
    raft_io_append* request = nullptr;
    raft_io_append_cb callback = nullptr;
  };

  static int AppendEntries(raft_io* io, raft_io_append* request, const raft_entry* entries,
                           unsigned n, raft_io_append_cb callback) {
    Replica& self = Self(io);
    auto append = std::make_unique<Append>();
    append->mine.data = append.get();
    append->replica = &self;
    append->request = request;
    append->callback = callback;
    const int code = self.disk_.append(io, &append->mine, entries, n, OnAppended);
    if (code != 0) return code;
    append.release();
    ++self.appends_;
    return 0;
  }

  static void OnAppended(raft_io_append* mine, int status) {
    std::unique_ptr<Append> append(static_cast<Append*>(mine->data));
    Replica& self = *append->replica;
    --self.appends_;
    if (status != 0 && self.phase_ == Phase::kRunning) {
      self.Fail(absl::ResourceExhaustedError(
          StrCat("the log cannot be written: ", raft_strerror(status), ": ", self.io_->errmsg)));
    }
    if (self.phase_ == Phase::kFailed) return;
    if (status == 0) return append->callback(append->request, status);
    self.canceled_.emplace_back(append->request, append->callback);
    while (self.appends_ == 0 && !self.canceled_.empty()) {
      const auto [request, callback] = self.canceled_.back();
      self.canceled_.pop_back();
      callback(request, status);
    }
  }

  static void Close(raft_io* io, raft_io_close_cb callback) {
    Replica& self = Self(io);
    self.disk_closed_ = callback;
    self.CloseDiskWhenWritten();
  }

  static void OnDiskClosed(raft_io* io) {
    const raft_io_close_cb closed = std::exchange(Self(io).disk_closed_, nullptr);
    if (closed != nullptr) closed(io);
  }

  static int Apply(raft_fsm* fsm, const raft_buffer* buffer, void** result) {
    Replica& self = Self(fsm);
    *result = nullptr;
    if (self.phase_ == Phase::kFailed) return RAFT_IOERR;
    // libraft says no index, and raises last_applied behind each entry.
    const uint64_t index = raft_last_applied(&self.raft_) + 1;
    const absl::Status status = self.state_.Apply(
        index, std::string_view(static_cast<const char*>(buffer->base), buffer->len));
    if (!status.ok()) {
      self.Fail(status);
      return RAFT_IOERR;
    }
    self.log_bytes_ += buffer->len;
    if (self.log_bytes_ > kMaxLogBytes) {
      raft_set_snapshot_threshold(&self.raft_, 1);
      raft_set_snapshot_trailing(&self.raft_, kTrailingOfLarge);
    }
    return 0;
  }

  static int TakeSnapshot(raft_fsm* fsm, raft_buffer** buffers, unsigned* count) {
    Replica& self = Self(fsm);
    self.pieces_.clear();  // of one that failed
    self.buffers_.clear();
    self.snapshot_ = self.state_.TakeSnapshot();
    self.log_bytes_ = 0;
    raft_set_snapshot_threshold(&self.raft_, self.options_.snapshot_entries);
    // This one's trailing is read when it has been written.
    ++self.stats_.snapshots_taken;
    return self.options_.snapshots_on_a_thread ? 0 : ReadSnapshot(fsm, buffers, count);
  }

  static int ReadSnapshot(raft_fsm* fsm, raft_buffer** buffers, unsigned* count) {
    Replica& self = Self(fsm);
    if (!self.snapshot_->Read(&self.pieces_).ok()) return RAFT_IOERR;
    for (std::string& piece : self.pieces_) self.buffers_.push_back({piece.data(), piece.size()});
    *buffers = self.buffers_.data();
    *count = static_cast<unsigned>(self.buffers_.size());
    return 0;
  }

  static int EndSnapshot(raft_fsm* fsm, raft_buffer**, unsigned*) {
    Replica& self = Self(fsm);
    self.buffers_.clear();
    self.pieces_.clear();
    self.pieces_.shrink_to_fit();
    self.snapshot_.reset();
    raft_set_snapshot_trailing(&self.raft_, kTrailing);
    return 0;
  }

  static int Restore(raft_fsm* fsm, raft_buffer* buffer) {
    Replica& self = Self(fsm);
    const absl::Status status =
        self.state_.Restore(std::string_view(static_cast<const char*>(buffer->base), buffer->len));
    // A snapshot that is none is another member's fault: libraft keeps the buffer then.
    if (absl::IsDataLoss(status)) return RAFT_MALFORMED;
    if (!status.ok()) {
      self.Fail(status);
      return RAFT_IOERR;
    }
    ++self.stats_.snapshots_restored;
    self.log_bytes_ = 0;
    raft_free(buffer->base);
    return 0;
  }
};

// --- life ----------------------------------------------------------------------------------------

absl::StatusOr<std::unique_ptr<Replica>> Replica::Create(raft_io* io, StateMachine* state,
                                                         const ReplicaOptions& options,
                                                         Done failed) {
  if (options.id == 0) return absl::InvalidArgumentError("a member's id is 1 or more");
  if (options.heartbeat_ms == 0 || options.election_ms <= options.heartbeat_ms) {
    return absl::InvalidArgumentError(StrCat("election_ms is ", options.election_ms,
                                             " and heartbeat_ms ", options.heartbeat_ms,
                                             "; the first must be larger, ten times as a rule"));
  }
  if (options.snapshot_entries == 0) {
    return absl::InvalidArgumentError("snapshot_entries is 0; it must be 1 or more");
  }
  std::unique_ptr<Replica> self(new Replica(io, state, options, std::move(failed)));
  const int code = raft_init(&self->raft_, io, &self->fsm_, options.id, options.address.c_str());
  if (code != 0) {
    self->phase_ = Phase::kClosed;
    return absl::InternalError(StrCat("raft_init: ", raft_errmsg(&self->raft_)));
  }
  self->raft_.data = self.get();
  raft_set_election_timeout(&self->raft_, options.election_ms);
  raft_set_heartbeat_timeout(&self->raft_, options.heartbeat_ms);
  raft_set_snapshot_threshold(&self->raft_, options.snapshot_entries);
  raft_set_snapshot_trailing(&self->raft_, kTrailing);
  raft_set_pre_vote(&self->raft_, true);
  return self;
}

Replica::Replica(raft_io* io, StateMachine* state, const ReplicaOptions& options, Done failed)
    : io_(io),
      state_(*state),
      options_(options),
      clock_(options.clock != nullptr ? *options.clock : weft::Clock::Real()),
      failed_(std::move(failed)),
      disk_(*io) {
  fsm_.version = 3;
  fsm_.data = this;
  fsm_.apply = Functions::Apply;
  fsm_.snapshot = Functions::TakeSnapshot;
  fsm_.restore = Functions::Restore;
  fsm_.snapshot_finalize = Functions::EndSnapshot;
  if (options.snapshots_on_a_thread) fsm_.snapshot_async = Functions::ReadSnapshot;
  io->start = Functions::Start;
  io->append = Functions::AppendEntries;
  io->close = Functions::Close;
  repair_.emplace(io);
}

Replica::~Replica() {
  if (phase_ != Phase::kClosed) {
    // Of a process that ends without Close(), on a disk that calls back at once.
    phase_ = Phase::kClosing;
    RestoreClose();
    raft_close(&raft_, nullptr);
  }
  repair_.reset();
  io_->start = disk_.start;
  io_->append = disk_.append;
  RestoreClose();
}

void Replica::RestoreClose() {
  // Whoever was between this object and the disk may be gone, and have put the disk's own there.
  if (io_->close == Functions::Close) io_->close = disk_.close;
}

absl::Status Replica::Bootstrap(const std::vector<Voter>& voters) {
  raft_configuration configuration;
  raft_configuration_init(&configuration);
  int code = 0;
  for (const Voter& voter : voters) {
    if (code != 0) break;
    code = raft_configuration_add(&configuration, voter.id, voter.address.c_str(), RAFT_VOTER);
  }
  if (code == 0) code = raft_bootstrap(&raft_, &configuration);
  raft_configuration_close(&configuration);
  if (code == 0 || code == RAFT_CANTBOOTSTRAP) return absl::OkStatus();
  return absl::InvalidArgumentError(StrCat("the members of the new group: ", raft_strerror(code)));
}

absl::Status Replica::Start(const std::string& client_address) {
  client_address_ = client_address;
  const int code = raft_start(&raft_);
  if (code != 0) return ErrorOf(code, "the member cannot start");
  phase_ = Phase::kRunning;
  if (raft_last_index(&raft_) == 0 && state_.header().applied_index() > 0) {
    return absl::FailedPreconditionError(
        StrCat("the member's log is empty, and its state is that of entry ",
               state_.header().applied_index(),
               ": the log was removed. Remove the state too, and add the member anew by another "
               "id"));
  }
  Look();
  return absl::OkStatus();
}

void Replica::Close(weft::Function<void()> closed) {
  closed_ = std::move(closed);
  phase_ = Phase::kClosing;
  RefuseWaiting(absl::UnavailableError("the member is closing (not run)"));
  raft_close(&raft_, [](raft* r) {
    Replica& self = *static_cast<Replica*>(r->data);
    self.phase_ = Phase::kClosed;
    weft::Function<void()> then = std::move(self.closed_);
    then();
  });
}

void Replica::CloseDiskWhenWritten() {
  if (disk_closed_ == nullptr || disk_closing_ || appends_ > 0) return;
  disk_closing_ = true;
  disk_.close(io_, Functions::OnDiskClosed);
}

void Replica::Fail(const absl::Status& why) {
  if (phase_ == Phase::kFailed) return;
  phase_ = Phase::kFailed;
  failed_(why);
}

bool Replica::leads() const {
  return phase_ == Phase::kRunning && raft_state(const_cast<raft*>(&raft_)) == RAFT_LEADER;
}

absl::Status Replica::NotLeading() const {
  raft_id id = 0;
  const char* address = nullptr;
  if (phase_ == Phase::kRunning) raft_leader(const_cast<raft*>(&raft_), &id, &address);
  Leader leader;
  leader.set_id(id);
  std::string words = "no leader is known now: one is being elected, or a majority is away";
  if (id == options_.id) {
    words = "the leader is handing over to another member";
  } else if (id != 0) {
    if (state_.lead().id() == id) leader.set_address(state_.lead().client_address());
    words = StrCat("the leader is member ", id,
                   leader.address().empty() ? std::string() : StrCat(" at ", leader.address()));
  }
  absl::Status status = absl::UnavailableError(
      StrCat("member ", options_.id, " does not lead; ", words, " (not run, safe to retry there)"));
  status.SetPayload(weft::ToAbsl(kLeaderPayload), absl::Cord(leader.SerializeAsString()));
  return status;
}

absl::Status Replica::ErrorOf(int code, std::string_view what) const {
  const std::string text =
      StrCat(what, ": ", raft_errmsg(const_cast<raft*>(&raft_)), " (", raft_strerror(code), ")");
  switch (code) {
    case RAFT_NOTLEADER:
      return NotLeading();
    case RAFT_LEADERSHIPLOST:
      return absl::UnavailableError(StrCat(what, ": leadership was lost; it may still happen"));
    case RAFT_SHUTDOWN:
    case RAFT_CANCELED:
      return absl::UnavailableError(StrCat(what, ": the member closes; it may still happen"));
    case RAFT_CANTCHANGE:
      return absl::FailedPreconditionError(
          StrCat(what, ": another change is under way: try again when it has ended"));
    case RAFT_DUPLICATEID:
    case RAFT_DUPLICATEADDRESS:
      return absl::AlreadyExistsError(StrCat(what, ": a member has this id or address"));
    case RAFT_NOTFOUND:
    case RAFT_BADID:
      return absl::NotFoundError(StrCat(what, ": there is no such member"));
    case RAFT_BADROLE:
      return absl::FailedPreconditionError(StrCat(what, ": the member has this role"));
    case RAFT_NOCONNECTION:
      return absl::AbortedError(
          StrCat(what, ": the member is not reached, or has not caught up in time: try again"));
    case RAFT_NOSPACE:
      return absl::ResourceExhaustedError(text);
    default:
      return absl::InternalError(text);
  }
}

// --- commands and reads --------------------------------------------------------------------------

void Replica::Execute(Command command, Executed done) {
  if (!leads()) return done(NotLeading(), nullptr);
  const size_t bytes = BytesOf(command);
  if (waiting_.size() >= kMaxWaiting || waiting_bytes_ + bytes > kMaxWaitingBytes) {
    return done(absl::ResourceExhaustedError(
                    StrCat(waiting_.size(), " commands of ", waiting_bytes_,
                           " bytes wait for the log: try again later (not run, safe to retry)")),
                nullptr);
  }
  waiting_bytes_ += bytes;
  waiting_.push_back({std::move(command), std::move(done)});
  Propose();
}

void Replica::Read(Done done) {
  if (!leads()) return done(NotLeading());
  if (reads_.size() >= kMaxWaiting) {
    return done(absl::ResourceExhaustedError(
        StrCat(reads_.size(), " reads wait for the log: try again later (not run)")));
  }
  reads_.push_back(std::move(done));
  Propose();
}

void Replica::Propose() {
  while (leads() && proposals_.size() < kMaxProposals && (!waiting_.empty() || !reads_.empty())) {
    const auto proposal = proposals_.emplace(proposals_.end());
    proposal->replica = this;
    proposal->self = proposal;
    proposal->reads = std::exchange(reads_, {});
    Entry entry;
    size_t bytes = 0;
    while (!waiting_.empty()) {
      Waiting& next = waiting_.front();
      const size_t more = BytesOf(next.command);
      if (entry.commands_size() > 0 && bytes + more > kMaxEntryBytes) break;
      bytes += more;
      waiting_bytes_ -= more;
      *entry.add_commands() = std::move(next.command);
      proposal->commands.push_back(std::move(next.done));
      waiting_.pop_front();
    }
    int code = 0;
    if (proposal->commands.empty()) {
      proposal->barrier.data = &*proposal;
      code = raft_barrier(&raft_, &proposal->barrier, [](struct raft_barrier* barrier, int status) {
        auto* const ended = static_cast<Proposal*>(barrier->data);
        ended->replica->End(ended->self, status);
      });
      ++stats_.barriers;
    } else {
      const std::string encoded = EncodeEntry(entry);
      raft_buffer buffer = {raft_malloc(encoded.size()), encoded.size()};
      std::memcpy(buffer.base, encoded.data(), encoded.size());
      proposal->apply.data = &*proposal;
      proposal->applied_ns = clock_.NowNs();
      code = raft_apply(&raft_, &proposal->apply, &buffer, 1,
                        [](struct raft_apply* apply, int status, void*) {
                          auto* const ended = static_cast<Proposal*>(apply->data);
                          ended->replica->End(ended->self, status);
                        });
      if (code != 0) raft_free(buffer.base);
      stats_.commands += proposal->commands.size();
    }
    ++stats_.entries;
    if (code != 0) End(proposal, code);
  }
}

void Replica::End(std::list<Proposal>::iterator proposal, int status) {
  std::vector<Executed> commands = std::move(proposal->commands);
  std::vector<Done> reads = std::move(proposal->reads);
  const uint64_t applied_ns = proposal->applied_ns;
  proposals_.erase(proposal);
  if (status == 0) {
    if (applied_ns != 0) commit_latency_.Record(clock_.NowNs() - applied_ns);
    // Callbacks may start others; none of those is applied inside of this.
    const std::vector<Outcome>& outcomes = state_.outcomes();
    if (outcomes.size() < commands.size()) {
      return Fail(absl::InternalError("an entry of this leader was taken for an older one"));
    }
    for (size_t i = 0; i < commands.size(); ++i) {
      commands[i](absl::OkStatus(), &outcomes[i]);
    }
    for (Done& read : reads) read(absl::OkStatus());
  } else {
    const absl::Status why = ErrorOf(status, "the command");
    for (Executed& command : commands) command(why, nullptr);
    const absl::Status not_read = NotLeading();
    for (Done& read : reads) read(not_read);
    // libraft may be ending its leadership around this, and must not be called: the tick or message
    // that it does it for is followed by Look().
    return;
  }
  Look();
}

void Replica::Look() {
  // What libraft does when a term or a vote cannot be written; it never comes back by itself.
  if (phase_ == Phase::kRunning && raft_state(&raft_) == RAFT_UNAVAILABLE) {
    return Fail(absl::InternalError(
        StrCat("libraft has given up: ", raft_errmsg(&raft_), "; ", io_->errmsg)));
  }
  if (!leads()) return RefuseWaiting(NotLeading());
  if (led_term_ != raft_.current_term) {
    led_term_ = raft_.current_term;
    Command command;
    command.mutable_lead()->set_id(options_.id);
    command.mutable_lead()->set_client_address(client_address_);
    return Execute(std::move(command), [](const absl::Status&, const Outcome*) {});
  }
  Propose();
}

void Replica::RefuseWaiting(const absl::Status& why) {
  if (waiting_.empty() && reads_.empty()) return;
  std::list<Waiting> waiting = std::exchange(waiting_, {});
  std::vector<Done> reads = std::exchange(reads_, {});
  waiting_bytes_ = 0;
  for (Waiting& each : waiting) each.done(why, nullptr);
  for (Done& read : reads) read(why);
}

// --- members -------------------------------------------------------------------------------------

void Replica::Change(const ChangeRequest& request, Done done) {
  if (!leads()) return done(NotLeading());
  const auto changing = changes_.emplace(changes_.end());
  changing->replica = this;
  changing->self = changing;
  changing->change.data = &*changing;
  changing->done = std::move(done);
  StartChange(request, &*changing);
}

void Replica::StartChange(const ChangeRequest& request, Changing* changing) {
  const raft_change_cb ended = [](raft_change* change, int status) {
    auto* const self = static_cast<Changing*>(change->data);
    Replica& replica = *self->replica;
    Done done = std::move(self->done);
    replica.changes_.erase(self->self);
    done(status == 0 ? absl::OkStatus() : replica.ErrorOf(status, "the change"));
  };
  const auto refuse = [&](absl::Status why) {
    Done done = std::move(changing->done);
    changes_.erase(changing->self);
    done(why);
  };
  int code = 0;
  switch (request.kind()) {
    case ChangeRequest::ADD:
      if (request.id() == 0 || request.address().empty()) {
        return refuse(absl::InvalidArgumentError("a new member has an id above 0 and an address"));
      }
      code = raft_add(&raft_, &changing->change, request.id(), request.address().c_str(), ended);
      break;
    case ChangeRequest::PROMOTE:
      code = raft_assign(&raft_, &changing->change, request.id(), RAFT_VOTER, ended);
      break;
    case ChangeRequest::DEMOTE:
    case ChangeRequest::REMOVE:
      if (request.id() == options_.id) {
        return refuse(absl::FailedPreconditionError(
            StrCat("member ", options_.id, " leads: transfer leadership to another one first")));
      }
      code = request.kind() == ChangeRequest::REMOVE
                 ? raft_remove(&raft_, &changing->change, request.id(), ended)
                 : raft_assign(&raft_, &changing->change, request.id(), RAFT_STANDBY, ended);
      break;
    default:
      return refuse(absl::InvalidArgumentError(
          StrCat("change ", static_cast<int>(request.kind()), " is not known")));
  }
  if (code == 0) return;
  // raft_assign() leaves it there where the entry cannot be appended, and would call it back later.
  if (leads() && raft_.leader_state.change == &changing->change) {
    raft_.leader_state.change = nullptr;
  }
  refuse(ErrorOf(code, "the change"));
}

void Replica::Transfer(raft_id id, Done done) {
  if (!leads() || transfer_ != nullptr) return done(NotLeading());
  transfer_ = std::make_unique<Transferring>();
  transfer_->replica = this;
  transfer_->transfer.data = transfer_.get();
  transfer_->done = std::move(done);
  const int code =
      raft_transfer(&raft_, &transfer_->transfer, id, [](struct raft_transfer* transfer) {
        Replica& self = *static_cast<Transferring*>(transfer->data)->replica;
        const std::unique_ptr<Transferring> ended = std::move(self.transfer_);
        const bool still = self.phase_ == Phase::kRunning && raft_state(&self.raft_) == RAFT_LEADER;
        ended->done(still ? absl::AbortedError("the other member did not take over in time")
                          : absl::OkStatus());
        self.Look();
      });
  if (code == 0) return;
  const std::unique_ptr<Transferring> refused = std::move(transfer_);
  refused->done(ErrorOf(code, "transfer leadership"));
}

void Replica::Describe(weft::embed::RaftNetwork* network, StatusReply* reply) const {
  auto* const r = const_cast<raft*>(&raft_);
  reply->set_id(options_.id);
  raft_id id = 0;
  const char* address = nullptr;
  if (phase_ == Phase::kRunning) raft_leader(r, &id, &address);
  reply->mutable_leader()->set_id(id);
  if (id != 0 && state_.lead().id() == id) {
    reply->mutable_leader()->set_address(state_.lead().client_address());
  }
  reply->set_term(r->current_term);
  reply->set_last_index(raft_last_index(r));
  reply->set_applied_index(state_.header().applied_index());
  reply->set_records(state_.header().records());
  reply->set_state_bytes(state_.header().bytes());
  reply->set_snapshots_taken(stats_.snapshots_taken);
  reply->set_snapshots_restored(stats_.snapshots_restored);
  reply->set_entries_proposed(stats_.entries);
  reply->set_commands_proposed(stats_.commands);
  reply->set_barriers_proposed(stats_.barriers);
  StatusReply::CommitLatency* const latency = reply->mutable_commit_latency();
  latency->set_entries(commit_latency_.count());
  latency->set_p50_ns(commit_latency_.Percentile(50));
  latency->set_p99_ns(commit_latency_.Percentile(99));
  latency->set_p999_ns(commit_latency_.Percentile(99.9));
  latency->set_max_ns(commit_latency_.max());
  if (network != nullptr) {
    const weft::embed::RaftRings::Stats rings = network->stats().rings;
    reply->set_written_into_rings(rings.written);
    reply->set_taken_from_rings(rings.taken);
    reply->set_acknowledged_by_writes(rings.acknowledged);
    reply->set_recovering(network->recovering());
  }
  for (unsigned i = 0; i < r->configuration.n; ++i) {
    const raft_server& server = r->configuration.servers[i];
    StatusReply::Member* const member = reply->add_members();
    member->set_id(server.id);
    member->set_address(server.address);
    member->set_role(std::string(RoleName(server.role)));
    if (network == nullptr || server.id == options_.id) continue;
    const absl::StatusOr<weft::PathInfo> path = network->PathTo(server.id);
    if (path.ok()) member->set_path(std::string(weft::PathKindName(path->kind)));
  }
}

}  // namespace raftkv
