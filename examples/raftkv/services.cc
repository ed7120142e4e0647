#include "examples/raftkv/services.h"

#include <utility>

#include "core/random.h"
#include "core/strings.h"
#include "examples/process/cpu_time.h"
#include "weft/path.h"

namespace raftkv {
namespace {

absl::Status StatusOf(const Outcome& outcome) {
  return {static_cast<absl::StatusCode>(outcome.code()), outcome.text()};
}

}  // namespace

void KvService::StartPut(weft::UnaryCall<kv::PutRequest, kv::PutReply> call) {
  for (const kv::Field& field : call.request().fields()) {
    if (field.has_bulk()) {
      return call.Finish(absl::InvalidArgumentError(
          "a replicated server takes values in the message: they go into its log"));
    }
  }
  Command command;
  *command.mutable_put() = call.request();
  replica_.Execute(std::move(command), [call = std::move(call)](const absl::Status& status,
                                                                const Outcome* outcome) mutable {
    if (!status.ok()) return call.Finish(status);
    call.reply()->set_created(outcome->flag());
    call.Finish(StatusOf(*outcome));
  });
}

void KvService::StartDelete(weft::UnaryCall<kv::DeleteRequest, kv::DeleteReply> call) {
  Command command;
  *command.mutable_remove() = call.request();
  replica_.Execute(std::move(command), [call = std::move(call)](const absl::Status& status,
                                                                const Outcome* outcome) mutable {
    if (!status.ok()) return call.Finish(status);
    call.reply()->set_existed(outcome->flag());
    call.Finish(StatusOf(*outcome));
  });
}

void KvService::StartGet(weft::UnaryCall<kv::GetRequest, kv::GetReply> call) {
  replica_.Read([this, call = std::move(call)](const absl::Status& status) mutable {
    call.Finish(status.ok() ? state_.Get(call.request().key(), call.reply()) : status);
  });
}

void KvService::StartScan(weft::UnaryCall<kv::ScanRequest, kv::ScanReply> call) {
  replica_.Read([this, call = std::move(call)](const absl::Status& status) mutable {
    call.Finish(status.ok() ? state_.Scan(call.request(), call.reply()) : status);
  });
}

absl::Status KvService::Stats(weft::ServerContext& context, const kv::StatsRequest&,
                              kv::StatsReply* reply) {
  reply->set_caller(weft::SecurityText(context.path()));
  reply->set_cpu_ns(ProcessCpuNs());
  reply->set_records(state_.header().records());
  return absl::OkStatus();
}

void ClusterService::StartOpenSessions(
    weft::UnaryCall<OpenSessionsRequest, OpenSessionsReply> call) {
  const uint32_t count = call.request().count();
  if (count < 1 || count > StateMachine::kMaxSessionsAtOnce) {
    return call.Finish(
        absl::InvalidArgumentError(weft::StrCat("1 to ", StateMachine::kMaxSessionsAtOnce,
                                                " sessions can be opened at once, not ", count)));
  }
  Command command;
  for (uint32_t i = 0; i < count; ++i) {
    // 0 means none.
    const uint64_t id = weft::SecureRandom64() | 1;
    command.mutable_open_sessions()->add_ids(id);
    call.reply()->add_sessions(id);
  }
  replica_.Execute(std::move(command), [call = std::move(call)](const absl::Status& status,
                                                                const Outcome* outcome) mutable {
    call.Finish(status.ok() ? StatusOf(*outcome) : status);
  });
}

absl::Status ClusterService::Status(weft::ServerContext&, const StatusRequest& request,
                                    StatusReply* reply) {
  replica_.Describe(network_, reply);
  if (request.restart_commit_latency()) replica_.RestartCommitLatency();
  return absl::OkStatus();
}

void ClusterService::StartChange(weft::UnaryCall<ChangeRequest, ChangeReply> call) {
  const ChangeRequest request = call.request();
  replica_.Change(request, [call = std::move(call)](const absl::Status& status) mutable {
    call.Finish(status);
  });
}

void ClusterService::StartTransfer(weft::UnaryCall<TransferRequest, TransferReply> call) {
  const uint64_t id = call.request().id();
  replica_.Transfer(id, [this, call = std::move(call)](const absl::Status& status) mutable {
    if (status.ok()) {
      StatusReply now;
      replica_.Describe(nullptr, &now);
      call.reply()->set_leader_id(now.leader().id());
    }
    call.Finish(status);
  });
}

}  // namespace raftkv
