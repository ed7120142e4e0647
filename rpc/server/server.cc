#include "rpc/server/server.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "core/check.h"
#include "core/fork_guard.h"
#include "core/status.h"
#include "core/strings.h"
#include "rpc/server/admission.h"
#include "rpc/server/handover.h"
#include "rpc/server/registration.h"
#include "rpc/server/server_core.h"
#include "rpc/wire/peer_frame.h"
#include "rpc/wire/stream_frame.h"

namespace weft {
namespace {

// Bounds of options. Less than 64 KiB would take clients for slow that are not; less than 100 ms
// would take a scheduler's hiccup for that.
constexpr uint64_t kFewestUnsentReplyBytes = uint64_t{64} << 10;
constexpr uint64_t kShortestReplyTimeoutUs = 100'000;
constexpr uint64_t kLongestReplyTimeoutUs = 3'600'000'000;
// More often would be felt by calls; an hour is as good as never.
constexpr uint64_t kShortestRebalanceUs = 1'000;
constexpr uint64_t kLongestRebalanceUs = 3'600'000'000;

absl::Status CheckEngines(const ServerOptions& options) {
  if (options.engines < 1 || options.engines > kMaxEngines) {
    return absl::InvalidArgumentError(StrCat("ServerOptions::engines is ", options.engines,
                                             "; 1 to ", kMaxEngines, " are allowed"));
  }
  if (!options.cpus.empty() && options.cpus.size() != options.engines) {
    return absl::InvalidArgumentError(StrCat("ServerOptions::cpus are ", options.cpus.size(),
                                             "; one for each of ", options.engines,
                                             " engines, or none, are allowed"));
  }
  if (options.cpu >= 0 && (options.engines > 1 || !options.cpus.empty())) {
    return absl::InvalidArgumentError(
        StrCat("ServerOptions::cpu is ", options.cpu,
               " beside several engines, or cpus; set ServerOptions::cpus alone"));
  }
  if (options.engines == 1) return absl::OkStatus();
  // What these know belongs to one engine: a client that comes again may be another one's.
  if (!options.peer_id.empty()) {
    return absl::InvalidArgumentError(StrCat("ServerOptions::peer_id is \"", options.peer_id,
                                             "\" beside ", options.engines,
                                             " engines: a server with peers has one engine"));
  }
  return absl::OkStatus();
}

// What a server knows of such calls belongs to one engine of one process: a client that comes again
// may reach another one, while both run calls.
absl::Status CheckExactlyOnce(const ServerOptions& options) {
  if (options.max_sessions == 0 && options.completion_store == nullptr) return absl::OkStatus();
  if (options.engines == 1 && options.handover_path.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(StrCat(
      options.max_sessions != 0 ? StrCat("ServerOptions::max_sessions is ", options.max_sessions)
                                : "ServerOptions::completion_store is set",
      " beside ", options.engines > 1 ? StrCat(options.engines, " engines") : "a handover_path",
      ": calls that run exactly once need one engine of one process; set max_sessions to 0, and no "
      "completion_store"));
}

// What one engine of several has of the server's numbers, so that all have what the option says:
// docs/guide.md, "Several engines". REQUIRES: number < options.engines.
ServerOptions PartOf(const ServerOptions& options, uint32_t number) {
  const uint32_t engines = options.engines;
  ServerOptions part = options;
  if (engines == 1) return part;
  const auto of = [&](uint32_t all) {
    return std::max(1u, all / engines + (number < all % engines ? 1 : 0));
  };
  part.limits.adaptive_least = of(options.limits.adaptive_least);
  part.limits.adaptive_most = of(options.limits.adaptive_most);
  // Every request that may be sent has room when nothing else runs, as with one engine, and leaves
  // others as much.
  part.max_running_bytes =
      std::max(options.max_running_bytes / engines,
               2 * std::min(options.max_running_bytes / 2, options.max_request_bytes));
  return part;
}

std::vector<EngineCore*> EnginesOf(const std::vector<std::unique_ptr<ServerCore>>& cores) {
  std::vector<EngineCore*> engines;
  for (const std::unique_ptr<ServerCore>& core : cores) engines.push_back(&core->engine());
  return engines;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Server>> Server::Create(Engine& engine,
                                                       const ServerOptions& options) {
  WEFT_RETURN_IF_ERROR(Check(options));
  if (options.engines != 1) {
    return absl::InvalidArgumentError(StrCat(
        "ServerOptions::engines is ", options.engines,
        ": a server on an engine of the application's has that one; Server::Create(options), "
        "without an engine, makes several"));
  }
  if (!options.handover_path.empty() && !CoreOf(engine).drives_itself()) {
    return absl::InvalidArgumentError(
        "ServerOptions::handover_path is set: the server's engine needs a thread of its own "
        "(EngineOptions::Drive::kOwnThread), for another process asks it at any time");
  }
  Cores cores;
  cores.push_back(std::make_unique<ServerCore>(CoreOf(engine), options));
  return std::unique_ptr<Server>(new Server({}, std::move(cores)));
}

std::unique_ptr<Server> Server::Make(Engines own_engines, const ServerOptions& options) {
  Cores cores;
  std::shared_ptr<CommonLimits> common;
  if (options.engines > 1) {
    common = std::make_shared<CommonLimits>(options.limits, options.engines);
  }
  for (uint32_t number = 0; number < own_engines.size(); ++number) {
    cores.push_back(std::make_unique<ServerCore>(CoreOf(*own_engines[number]),
                                                 PartOf(options, number), common));
  }
  return std::unique_ptr<Server>(new Server(std::move(own_engines), std::move(cores)));
}

absl::Status Server::Check(const ServerOptions& options) {
  WEFT_RETURN_IF_ERROR(CheckEngines(options));
  WEFT_RETURN_IF_ERROR(CheckExactlyOnce(options));
  if (options.max_outstanding_calls < 1 || options.max_outstanding_calls > kMaxOutstandingCalls) {
    return absl::InvalidArgumentError(StrCat("ServerOptions::max_outstanding_calls is ",
                                             options.max_outstanding_calls, "; 1 to ",
                                             kMaxOutstandingCalls, " are allowed"));
  }
  if (!options.peer_id.empty()) {
    WEFT_RETURN_IF_ERROR(CheckPeerId("ServerOptions::peer_id", options.peer_id));
  }
  if (options.interceptors.size() > kMaxInterceptors) {
    return absl::InvalidArgumentError(StrCat("ServerOptions::interceptors are ",
                                             options.interceptors.size(), "; ", kMaxInterceptors,
                                             " are allowed"));
  }
  if (options.session_lease_us < kShortestSessionLeaseUs ||
      options.session_lease_us > kLongestSessionLeaseUs) {
    return absl::InvalidArgumentError(
        StrCat("ServerOptions::session_lease_us is ", options.session_lease_us, "; ",
               kShortestSessionLeaseUs, " to ", kLongestSessionLeaseUs, " are allowed"));
  }
  if (options.max_unsent_reply_bytes < kFewestUnsentReplyBytes) {
    return absl::InvalidArgumentError(StrCat("ServerOptions::max_unsent_reply_bytes is ",
                                             options.max_unsent_reply_bytes, "; ",
                                             kFewestUnsentReplyBytes, " or more are allowed"));
  }
  if (options.reply_timeout_us != 0 && (options.reply_timeout_us < kShortestReplyTimeoutUs ||
                                        options.reply_timeout_us > kLongestReplyTimeoutUs)) {
    return absl::InvalidArgumentError(
        StrCat("ServerOptions::reply_timeout_us is ", options.reply_timeout_us, "; 0 or ",
               kShortestReplyTimeoutUs, " to ", kLongestReplyTimeoutUs, " are allowed"));
  }
  if (options.rebalance_us != 0 &&
      (options.rebalance_us < kShortestRebalanceUs || options.rebalance_us > kLongestRebalanceUs)) {
    return absl::InvalidArgumentError(StrCat("ServerOptions::rebalance_us is ",
                                             options.rebalance_us, "; 0 or ", kShortestRebalanceUs,
                                             " to ", kLongestRebalanceUs, " are allowed"));
  }
  WEFT_RETURN_IF_ERROR(Admission::Check(options.limits, options.engines));
  return CheckStreamOptions("ServerOptions", options.max_streams, options.stream_window_messages,
                            options.stream_window_bytes);
}

Server::Server(Engines own_engines, Cores cores)
    : own_engines_(std::move(own_engines)),
      buffers_(std::make_unique<BufferPool>(EnginesOf(cores), cores.front()->options().buffers)),
      cores_(std::move(cores)),
      registrations_(std::make_unique<Registrations>()),
      handover_(Handover::Make(cores_)) {}

// All together: while one waits for its handlers the others' clients are not to come to it.
Server::~Server() {
  Shutdown(0);
  if (!cores_.front()->engine().forked()) return;
  LeaveBehind(std::move(handover_));
  LeaveBehind(std::move(registrations_));
  LeaveBehind(std::move(cores_));
}

absl::Status Server::AddService(Service* service, Executor* executor) {
  // They have the same services, so the first one's answer is that of all.
  for (const std::unique_ptr<ServerCore>& core : cores_) {
    WEFT_RETURN_IF_ERROR(core->AddService(service, executor));
  }
  return absl::OkStatus();
}

absl::Status Server::Listen(const std::string& address) {
  if (cores_.front()->engine().forked()) return EngineCore::ForkedError();
  Descriptor taken;
  if (handover_ != nullptr) {
    WEFT_ASSIGN_OR_RETURN(taken, handover_->TakeListener(address));
  }
  absl::StatusOr<std::shared_ptr<SharedListener>> shared =
      cores_.front()->Listen(address, taken.get());
  if (!shared.ok()) return shared.status();
  for (size_t number = 1; number < cores_.size(); ++number) {
    const absl::Status joined = cores_[number]->JoinListener(*shared);
    if (joined.ok()) continue;
    while (number-- > 0) cores_[number]->StopNewestListener();
    return joined;
  }
  if (cores_.size() > 1 && cores_.front()->options().rebalance_us != 0) {
    std::vector<ServerCore*> all;
    for (const std::unique_ptr<ServerCore>& core : cores_) all.push_back(core.get());
    for (ServerCore* const core : all) core->StartRebalance(all);
  }
  return absl::OkStatus();
}

absl::Status Server::Ready() {
  if (cores_.front()->engine().forked()) return EngineCore::ForkedError();
  if (handover_ != nullptr) return handover_->Ready();
  return absl::FailedPreconditionError(
      "Server::Ready() without ServerOptions::handover_path: there is nobody to take over from");
}

std::string Server::address() const { return cores_.front()->address(); }

void Server::Wait() {
  for (const std::unique_ptr<ServerCore>& core : cores_) core->Wait();
}

// Clients that find no more of this server come before those that are told to leave.
//
// All begin before one is waited for: a handler that runs for long on one engine keeps no other
// from telling its clients. The first one has the socket that listens, and is told first.
void Server::Shutdown(uint64_t grace_us) {
  if (cores_.front()->engine().forked()) return;
  registrations_->Withdraw(EnginesOf(cores_));
  if (handover_ != nullptr) handover_->Stop();
  for (const std::unique_ptr<ServerCore>& core : cores_) core->StartShutdown(grace_us);
  for (const std::unique_ptr<ServerCore>& core : cores_) core->Shutdown(grace_us);
}

absl::StatusOr<std::unique_ptr<Buffer>> Server::AllocateBuffer(size_t bytes) {
  return buffers_->Allocate(bytes);
}
absl::StatusOr<std::unique_ptr<ExportedMemory>> Server::Export(MutableByteSpan memory,
                                                               const ExportOptions& options) {
  return ExportedMemory::Create(EnginesOf(cores_), memory, options);
}
absl::StatusOr<std::unique_ptr<ExportedMemory>> Server::AllocateExport(
    size_t bytes, const ExportOptions& options, const MappedMemoryOptions& memory) {
  return ExportedMemory::Allocate(EnginesOf(cores_), bytes, options, memory);
}

Engine& Server::engine(size_t number) {
  WEFT_CHECK(number < cores_.size());  // User: one of ServerOptions::engines
  return cores_[number]->engine();
}

bool Server::InTurn() const {
  return std::any_of(cores_.begin(), cores_.end(),
                     [](const auto& core) { return core->engine().InTurn(); });
}

ServerStats Server::stats() {
  ServerStats sum;
  const bool in_turn = InTurn();
  for (const std::unique_ptr<ServerCore>& core : cores_) {
    core->AddStats(!in_turn || core->engine().InTurn(), &sum);
  }
  sum.registered = registrations_->held().load(std::memory_order_relaxed);
  return sum;
}

std::vector<ServerStats> Server::stats_by_engine() {
  std::vector<ServerStats> stats(cores_.size());
  const bool in_turn = InTurn();
  for (size_t number = 0; number < cores_.size(); ++number) {
    ServerCore& core = *cores_[number];
    core.AddStats(!in_turn || core.engine().InTurn(), &stats[number]);
  }
  return stats;
}

}  // namespace weft
