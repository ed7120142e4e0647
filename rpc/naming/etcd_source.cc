#include "rpc/naming/etcd_source.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "core/log.h"
#include "core/random.h"
#include "core/status.h"
#include "core/strings.h"
#include "rpc/naming/targets.h"
#include "rpc/operation/on_engine.h"

namespace weft {
namespace {

// The first text that is behind all that begin with the prefix, which ends in "/".
std::string EndOf(const std::string& prefix) {
  std::string end = prefix;
  ++end.back();
  return end;
}

bool MakesSense(int64_t revision) {
  return revision > 0 && revision < std::numeric_limits<int64_t>::max();
}

}  // namespace

absl::StatusOr<std::unique_ptr<AddressSource>> MakeEtcdSource(std::string_view target,
                                                              const EtcdOptions& options) {
  WEFT_ASSIGN_OR_RETURN(EtcdTarget parsed, ParseEtcdTarget(target, options));
  WEFT_RETURN_IF_ERROR(LoadCurlLibrary());
  return std::unique_ptr<AddressSource>(std::make_unique<EtcdSource>(std::move(parsed), options));
}

void EtcdSource::Start(EngineCore& engine, AddressSource::Host* host, uint64_t refresh_us) {
  engine_ = &engine;
  host_ = host;
  refresh_us_ = refresh_us;
  client_ = std::make_unique<EtcdClient>(engine, target_.endpoints, options_,
                                         static_cast<EtcdClient::Host&>(*this));
  backoff_ = std::make_unique<Backoff>(kMinPauseUs, kMaxPauseUs, SecureRandom64());
  engine.timers().Schedule(this, 0);
}

void EtcdSource::OnTimer() {
  if (state_ != State::kWatching) return Read();
  backoff_->OnAnswer();  // the watch has lasted: what fails now fails for the first time
  Watch();
}

void EtcdSource::Read() {
  state_ = State::kReading;
  revision_ = 0;
  rpc::EtcdRangeRequest request;
  request.set_key(target_.prefix);
  request.set_range_end(EndOf(target_.prefix));
  request.set_limit(kMaxServersListed);
  client_->Ask("/v3/kv/range", request);
}

void EtcdSource::Watch() {
  state_ = State::kWatching;
  rpc::EtcdWatchRequest request;
  rpc::EtcdWatchRequest::Create& create = *request.mutable_create_request();
  create.set_key(target_.prefix);
  create.set_range_end(EndOf(target_.prefix));
  create.set_start_revision(revision_ + 1);
  // So that revision_ is not compacted away where nothing changes.
  create.set_progress_notify(true);
  watch_answers_ = false;
  client_->AskForStream("/v3/watch", request);
}

void EtcdSource::Pause(const absl::Status& why) {
  state_ = State::kPaused;
  backoff_->OnFailure();
  ScheduleIn(*engine_, *this, backoff_->NextPauseUs());
  // Before: told later, the list would say that the source works.
  if (std::exchange(telling_.due, false)) TellServers();
  host_->OnSourceFailed(why);
}

// What it answers is of no use.
void EtcdSource::LeaveEndpoint(const absl::Status& why) {
  const absl::Status told = Annotate(why, StrCat("etcd at ", client_->endpoint()));
  client_->NextEndpoint();
  Pause(told);
}

void EtcdSource::OnEtcdMessage(std::string_view json) {
  if (state_ == State::kWatching && !std::exchange(watch_answers_, true)) {
    ScheduleIn(*engine_, *this, refresh_us_);
  }
  const absl::Status taken = state_ == State::kReading ? TakeList(json) : TakeChanges(json);
  if (!taken.ok()) LeaveEndpoint(taken);
}

void EtcdSource::OnEtcdEnd(const absl::Status& status) {
  if (!status.ok()) return Pause(status);
  if (state_ == State::kWatching) {
    return LeaveEndpoint(absl::UnavailableError("a watch has ended"));
  }
  Watch();
  SayServers();
}

absl::Status EtcdSource::TakeList(std::string_view json) {
  rpc::EtcdRangeReply reply;
  WEFT_RETURN_IF_ERROR(ParseEtcdJson(json, &reply));
  if (!MakesSense(reply.header().revision())) {
    return absl::UnavailableError(
        StrCat("it has sent a list of revision ", reply.header().revision()));
  }
  if (reply.more() || reply.kvs_size() > static_cast<int>(kMaxServersListed)) {
    return absl::UnavailableError(
        StrCat("it has more than ", kMaxServersListed, " keys below ", target_.prefix));
  }
  revision_ = reply.header().revision();
  cluster_ = reply.header().cluster_id();
  servers_.clear();
  for (const rpc::EtcdKeyValue& entry : reply.kvs()) Put(entry);
  return absl::OkStatus();
}

absl::Status EtcdSource::TakeChanges(std::string_view json) {
  rpc::EtcdWatchReply reply;
  WEFT_RETURN_IF_ERROR(ParseEtcdJson(json, &reply));
  const rpc::EtcdWatchReply::Result& result = reply.result();
  if (reply.has_error() || result.canceled()) {
    const std::string& why = reply.has_error() ? reply.error().message() : result.cancel_reason();
    return absl::UnavailableError(
        StrCat("a watch has ended",
               result.compact_revision() > 0 ? ": what has changed is compacted away" : "",
               why.empty() ? "" : ": ", why.substr(0, kMaxValueBytes)));
  }
  const rpc::EtcdHeader& header = result.header();
  if (header.cluster_id() != cluster_ || (result.created() && header.revision() < revision_)) {
    return absl::UnavailableError(StrCat("it does not have what was read: it is of cluster ",
                                         header.cluster_id(), " at revision ", header.revision(),
                                         ", that was of ", cluster_, " at ", revision_));
  }
  bool changed = false;
  for (const rpc::EtcdEvent& event : result.events()) {
    if (event.type() == rpc::EtcdEvent::PUT) {
      changed |= Put(event.kv());
    } else {
      changed |= servers_.erase(event.kv().key()) > 0;
    }
    if (MakesSense(event.kv().mod_revision())) {
      revision_ = std::max(revision_, event.kv().mod_revision());
    }
  }
  if (servers_.size() > kMaxServersListed) {
    telling_.due = false;
    return absl::UnavailableError(
        StrCat("it has more than ", kMaxServersListed, " keys below ", target_.prefix));
  }
  // Of a message without events alone: others may be followed by more of the same revision.
  if (!result.created() && result.events().empty() && MakesSense(header.revision())) {
    revision_ = std::max(revision_, header.revision());
  }
  if (changed) SayServers();
  return absl::OkStatus();
}

// Whether the servers are other ones then.
bool EtcdSource::Put(const rpc::EtcdKeyValue& entry) {
  const std::string& key = entry.key();
  if (!key.starts_with(target_.prefix)) return false;
  absl::StatusOr<std::vector<ListedServer>> server =
      absl::InvalidArgumentError(StrCat("it has ", entry.value().size(), " bytes"));
  if (entry.value().size() <= kMaxValueBytes) server = ParseServerList(entry.value(), "\n");
  if (server.ok() && server->size() == 1) {
    ListedServer& known = servers_[key];
    if (known == server->front()) return false;
    known = std::move(server->front());
    return true;
  }
  WEFT_LOG_EVERY_N_SEC(kWarning, 60, "the value of etcd's key ", key.substr(0, kMaxValueBytes),
                       " is no server, and is left out: ",
                       server.ok() ? "it has not one line" : ToStd(server.status().message()));
  return servers_.erase(key) > 0;
}

void EtcdSource::SayServers() {
  telling_.due = telling_.armed();
  if (telling_.due) return;
  ScheduleIn(*engine_, telling_, kTellUs);
  TellServers();
}

void EtcdSource::TellServers() {
  if (servers_.empty()) {
    return host_->OnSourceFailed(
        absl::UnavailableError(StrCat("etcd has no server below ", target_.prefix)));
  }
  std::vector<ListedServer> servers;
  servers.reserve(servers_.size());
  for (const auto& [key, server] : servers_) servers.push_back(server);
  host_->OnServers(std::move(servers));
}

}  // namespace weft
