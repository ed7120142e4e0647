#include "examples/raftkv/services.h"

#include <utility>

#include "core/clock.h"
#include "core/histogram.h"
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

void KvService::LimitServer(const kv::StoreLimits& limits, weft::ServerOptions* options) {
  constexpr uint64_t kOfAField = 32;      // tags and lengths, beside its name and value
  constexpr uint64_t kOfARequest = 4096;  // the rest, and what is a little too large: told in words
  options->max_request_bytes = limits.max_record_bytes + limits.max_key_bytes +
                               limits.max_record_fields * kOfAField + kOfARequest;
}

void KvService::StartPut(weft::UnaryCall<kv::PutRequest, kv::PutReply> call) {
  if (absl::Status status = StateMachine::Check(call.request(), state_.limits()); !status.ok()) {
    return call.Finish(std::move(status));
  }
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
  if (absl::Status status = state_.limits().CheckKey(call.request().key()); !status.ok()) {
    return call.Finish(std::move(status));
  }
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

// A call of Measure(), which ends with the last of its commands.
struct ClusterService::Measuring {
  Measuring(weft::UnaryCall<MeasureRequest, MeasureReply> measured, uint64_t now_ns,
            uint64_t for_ns)
      : call(std::move(measured)), start_ns(now_ns), end_ns(now_ns + for_ns) {}

  weft::UnaryCall<MeasureRequest, MeasureReply> call;
  const uint64_t start_ns;
  const uint64_t end_ns;
  uint64_t proposed = 0;
  uint64_t under_way = 0;
  weft::LatencyHistogram latency;  // of those that were carried out
  absl::Status status;             // the first that was not
};

void ClusterService::StartMeasure(weft::UnaryCall<MeasureRequest, MeasureReply> call) {
  constexpr uint32_t kMaxOutstanding = 1'024;
  constexpr uint32_t kMaxMilliseconds = 60'000;
  constexpr uint32_t kMaxValueBytes = 65'536;
  const MeasureRequest& request = call.request();
  if (request.outstanding() < 1 || request.outstanding() > kMaxOutstanding ||
      request.milliseconds() < 1 || request.milliseconds() > kMaxMilliseconds ||
      request.value_bytes() > kMaxValueBytes) {
    return call.Finish(absl::InvalidArgumentError(
        weft::StrCat("outstanding is ", request.outstanding(), " (1 to ", kMaxOutstanding,
                     "), milliseconds ", request.milliseconds(), " (1 to ", kMaxMilliseconds,
                     "), value_bytes ", request.value_bytes(), " (0 to ", kMaxValueBytes, ")")));
  }
  if (!measuring_.expired()) {
    return call.Finish(absl::FailedPreconditionError(
        "another measurement is under way: try again when it has ended"));
  }
  const uint64_t now_ns = weft::Clock::Real().NowNs();
  const uint64_t duration_ns = uint64_t{request.milliseconds()} * 1'000'000;
  const uint32_t outstanding = request.outstanding();
  const auto measuring = std::make_shared<Measuring>(std::move(call), now_ns, duration_ns);
  measuring_ = measuring;
  for (uint32_t i = 0; i < outstanding && measuring->status.ok(); ++i) ProposeMeasured(measuring);
}

void ClusterService::ProposeMeasured(const std::shared_ptr<Measuring>& measuring) {
  constexpr uint64_t kKeys = 1'000;
  Command command;
  kv::PutRequest& put = *command.mutable_put();
  put.set_key(weft::StrCat("measured-", measuring->proposed++ % kKeys));
  kv::Field& field = *put.add_fields();
  field.set_name("field0");
  field.set_value(std::string(measuring->call.request().value_bytes(), 'v'));
  ++measuring->under_way;
  const uint64_t proposed_ns = weft::Clock::Real().NowNs();
  replica_.Execute(std::move(command), [this, measuring, proposed_ns](const absl::Status& status,
                                                                      const Outcome* outcome) {
    Measuring& all = *measuring;
    --all.under_way;
    const uint64_t now_ns = weft::Clock::Real().NowNs();
    const absl::Status result = status.ok() ? StatusOf(*outcome) : status;
    if (result.ok()) all.latency.Record(now_ns - proposed_ns);
    if (all.status.ok()) all.status = result;
    if (all.status.ok() && now_ns < all.end_ns) return ProposeMeasured(measuring);
    if (all.under_way > 0) return;
    MeasureReply& reply = *all.call.reply();
    reply.set_commands(all.latency.count());
    reply.set_elapsed_ns(now_ns - all.start_ns);
    reply.set_p50_ns(all.latency.Percentile(50));
    reply.set_p99_ns(all.latency.Percentile(99));
    reply.set_p999_ns(all.latency.Percentile(99.9));
    all.call.Finish(all.status);
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
