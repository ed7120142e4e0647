// kv_client: talks to kv_server. --help lists the commands.
//
// Exit status: 0 done, 1 failed, 2 the command line is wrong, 130 interrupted.
#include <cstdio>
#include <memory>
#include <optional>

#include "absl/flags/usage.h"
#include "absl/strings/str_format.h"
#include "core/status.h"
#include "examples/kv/client/command_line.h"
#include "examples/kv/client/commands.h"
#include "examples/kv/client/connect.h"
#include "examples/kv/client/one_sided_gets.h"
#include "examples/kv/client/session.h"
#include "weft/engine.h"

namespace kv::client {
namespace {

constexpr int kFailed = 1;
constexpr int kUsage = 2;
constexpr int kInterrupted = 130;  // as shells report SIGINT

// Commands that take long: they end early on Ctrl-C, with what they have. The others just end.
bool StopsEarly(CommandKind command) {
  return command == CommandKind::kLoad || command == CommandKind::kVerify ||
         command == CommandKind::kCheck || command == CommandKind::kYcsb;
}

absl::Status Dispatch(Session& session, const CommandLine& line) {
  const auto& arguments = line.arguments;
  switch (line.command) {
    case CommandKind::kGet:
      return Get(session, arguments[0]);
    case CommandKind::kPut:
      return Put(session, arguments[0], arguments[1]);
    case CommandKind::kDelete:
      return Delete(session, arguments[0]);
    case CommandKind::kScan:
      return Scan(session, arguments.empty() ? "" : arguments[0], line.limit);
    case CommandKind::kLoad:
      return Load(session, arguments[0]);
    case CommandKind::kVerify:
      return Verify(session, arguments[0]);
    case CommandKind::kExplain:
      return Explain(session);
    case CommandKind::kCheck:
      return Check(session, line.ycsb.seconds);
    case CommandKind::kYcsb:
      return Ycsb(session, line.ycsb);
  }
  return absl::InternalError("unreachable");
}

absl::Status RunOnServer(const CommandLine& line, examples::StopSignal* stop) {
  WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<weft::Channel> channel, Connect(line));
  weft::CallOptions call;
  call.timeout_us = line.timeout_us;
  Session session{*channel, Kv::Stub(*channel), call, line.outstanding, stop};
  BulkCalls bulk(*channel, call, line.outstanding);
  session.bulk = &bulk;
  std::unique_ptr<OneSidedGets> one_sided;
  if (line.get == GetMode::kOneSided) {
    WEFT_ASSIGN_OR_RETURN(one_sided, OpenOneSidedGets(session));
    session.one_sided = one_sided.get();
  }
  return Dispatch(session, line);
}

absl::Status RunOnCluster(const CommandLine& line, examples::StopSignal* stop) {
  WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<weft::Engine> engine,
                        weft::OpenNetworkEngine({.drive = weft::EngineOptions::Drive::kCaller}));
  WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<Cluster> cluster, ConnectCluster(*engine, line));
  weft::Channel& leader = cluster->leader();
  weft::CallOptions call;
  call.timeout_us = line.timeout_us;
  Session session{leader, Kv::Stub(leader), call, line.outstanding, stop};
  session.cluster = cluster.get();
  return Dispatch(session, line);
}

absl::Status Run(const CommandLine& line) {
  std::optional<examples::StopSignal> stop;  // before the channel: before any thread
  if (StopsEarly(line.command)) stop.emplace();
  examples::StopSignal* const looked_at = stop.has_value() ? &*stop : nullptr;
  return IsCluster(line) ? RunOnCluster(line, looked_at) : RunOnServer(line, looked_at);
}

int ExitStatus(const absl::Status& status) {
  if (status.ok()) return 0;
  absl::FPrintF(stderr, "kv_client: %s\n", status.ToString());
  return absl::IsCancelled(status) ? kInterrupted : kFailed;
}

}  // namespace
}  // namespace kv::client

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage(kv::client::CommandHelp());
  const auto line = kv::client::ParseCommandLine(argc, argv);
  if (!line.ok()) {
    absl::FPrintF(stderr, "kv_client: %s\n(kv_client --help)\n",
                  std::string(line.status().message()));
    return kv::client::kUsage;
  }
  return kv::client::ExitStatus(kv::client::Run(*line));
}
