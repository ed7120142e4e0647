// raftkv_admin: looks at the members of a replicated key-value store, and changes who they are.
//
//   raftkv_admin --server=ADDRESS[,ADDRESS...] COMMAND [ARGUMENT...]
//
// Exit status: 0 done, 1 failed, 2 the command line is wrong.
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "core/status.h"
#include "core/strings.h"
#include "examples/kv/client/cluster.h"
#include "examples/raftkv/raftkv.weft.h"
#include "weft/engine.h"
#include "weft/security.h"

ABSL_FLAG(std::string, server, "", "where clients reach members: ADDRESS,ADDRESS,...");
ABSL_FLAG(uint32_t, timeout_ms, 10'000, "how long to try");
ABSL_FLAG(bool, restart_latency, false,
          "status: the member counts its commits anew behind this answer");

namespace raftkv {
namespace {

constexpr char kHelp[] =
    "raftkv_admin --server=ADDRESS[,ADDRESS...] COMMAND\n\n"
    "  status             what each of the members that --server names says of itself\n"
    "  add ID ADDRESS     a new member, at the address that other members will reach it by; then\n"
    "                     start its process\n"
    "  promote ID         it votes, as soon as it has caught up\n"
    "  demote ID          it does not vote any more\n"
    "  remove ID          it is no member any more; then end its process\n"
    "  transfer [ID]      another member leads\n"
    "  measure OUTSTANDING MILLISECONDS BYTES\n"
    "                     the leader proposes commands by itself, so many at a time, each with so\n"
    "                     many bytes, and says how long they took\n";

struct CommandRow {
  const char* name;
  size_t min_arguments;
  size_t max_arguments;
  ChangeRequest::Kind kind;
};
constexpr CommandRow kCommands[] = {
    {"status", 0, 0, ChangeRequest::UNKNOWN},  {"add", 2, 2, ChangeRequest::ADD},
    {"promote", 1, 1, ChangeRequest::PROMOTE}, {"demote", 1, 1, ChangeRequest::DEMOTE},
    {"remove", 1, 1, ChangeRequest::REMOVE},   {"transfer", 0, 1, ChangeRequest::UNKNOWN},
    {"measure", 3, 3, ChangeRequest::UNKNOWN},
};

double ToUs(uint64_t ns) { return static_cast<double>(ns) / 1e3; }

void Print(const std::string& address, const StatusReply& reply) {
  absl::PrintF("%s: member %d, term %d, last entry %d, state of entry %d, %d records; leader: %s\n",
               address, reply.id(), reply.term(), reply.last_index(), reply.applied_index(),
               reply.records(),
               reply.leader().id() == 0
                   ? "unknown"
                   : absl::StrFormat("%d at %s", reply.leader().id(), reply.leader().address()));
  absl::PrintF(
      "  %d commands in %d entries and %d barriers proposed, %d snapshots taken, %d "
      "restored\n",
      reply.commands_proposed(), reply.entries_proposed(), reply.barriers_proposed(),
      reply.snapshots_taken(), reply.snapshots_restored());
  const StatusReply::CommitLatency& latency = reply.commit_latency();
  if (latency.entries() > 0) {
    absl::PrintF(
        "  %d entries committed as leader: p50 %.1f us, p99 %.1f us, p99.9 %.1f us, at most %.1f "
        "us\n",
        latency.entries(), ToUs(latency.p50_ns()), ToUs(latency.p99_ns()), ToUs(latency.p999_ns()),
        ToUs(latency.max_ns()));
  }
  if (reply.written_into_rings() + reply.taken_from_rings() > 0) {
    absl::PrintF("  entries of %d messages written into rings, of %d taken out of them\n",
                 reply.written_into_rings(), reply.taken_from_rings());
  }
  if (reply.acknowledged_by_writes() > 0) {
    absl::PrintF("  %d messages acknowledged by their writes alone\n",
                 reply.acknowledged_by_writes());
  }
  if (reply.recovering()) {
    absl::PrintF("  does not vote until a leader has made up for the memory that it has lost\n");
  }
  for (const StatusReply::Member& member : reply.members()) {
    absl::PrintF("  member %d at %s: %s%s%s\n", member.id(), member.address(), member.role(),
                 member.path().empty() ? "" : ", over ", member.path());
  }
}

absl::Status ShowAll(weft::Engine& engine, const std::vector<std::string>& addresses,
                     const weft::ChannelOptions& options, const weft::CallOptions& call) {
  absl::Status first;
  StatusRequest request;
  request.set_restart_commit_latency(absl::GetFlag(FLAGS_restart_latency));
  for (const std::string& address : addresses) {
    StatusReply reply;
    auto channel = weft::Channel::Open(engine, address, options);
    const absl::Status status =
        channel.ok() ? Cluster::Stub(**channel).Status(request, &reply, call) : channel.status();
    if (status.ok()) {
      Print(address, reply);
    } else {
      absl::PrintF("%s: %s\n", address, status.ToString());
      if (first.ok()) first = status;
    }
  }
  return first;
}

absl::Status Run(const std::vector<std::string>& words, const CommandRow& command,
                 const std::optional<weft::SecurityOptions>& security) {
  const std::vector<std::string> addresses =
      absl::StrSplit(absl::GetFlag(FLAGS_server), ',', absl::SkipEmpty());
  WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<weft::Engine> engine,
                        weft::OpenNetworkEngine({.drive = weft::EngineOptions::Drive::kCaller}));
  weft::ChannelOptions options;
  options.security = security;
  weft::CallOptions call;
  call.timeout_us = uint64_t{absl::GetFlag(FLAGS_timeout_ms)} * 1000;
  if (words[0] == "status") return ShowAll(*engine, addresses, options, call);

  ChangeRequest change;
  ChangeReply changed;
  TransferRequest transfer;
  TransferReply transferred;
  uint64_t id = 0;
  if (words.size() > 1) id = std::strtoull(words[1].c_str(), nullptr, 10);
  change.set_kind(command.kind);
  change.set_id(id);
  if (words.size() > 2) change.set_address(words[2]);
  transfer.set_id(id);
  const bool measures = words[0] == "measure";
  MeasureRequest measure;
  MeasureReply measured;
  if (measures) {
    uint32_t numbers[3];
    for (size_t i = 0; i < 3; ++i) {
      if (!absl::SimpleAtoi(words[i + 1], &numbers[i])) {
        return absl::InvalidArgumentError(
            weft::StrCat("measure: \"", words[i + 1], "\" is not a number of 32 bits"));
      }
    }
    measure.set_outstanding(numbers[0]);
    measure.set_milliseconds(numbers[1]);
    measure.set_value_bytes(numbers[2]);
    call.timeout_us += uint64_t{numbers[1]} * 1000;
  }
  WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<kv::client::Cluster> cluster,
                        kv::client::Cluster::Open(*engine, addresses, options, call, /*lanes=*/1));
  std::optional<absl::Status> ended;
  cluster->Run(
      0,
      [&](weft::Channel& to, weft::CallOptions attempt, kv::client::Cluster::Done done) {
        attempt.timeout_us = call.timeout_us;  // to catch up takes time
        const Cluster::Stub stub(to);
        if (measures) return stub.Measure(measure, &measured, attempt, std::move(done));
        if (command.kind == ChangeRequest::UNKNOWN) {
          return stub.Transfer(transfer, &transferred, attempt, std::move(done));
        }
        stub.Change(change, &changed, attempt, std::move(done));
      },
      [&](absl::Status status) { ended = std::move(status); });
  engine->RunUntil([&] { return ended.has_value(); });
  if (ended->ok() && measures) {
    absl::PrintF("%d commands in %.1f ms: p50 %.1f us, p99 %.1f us, p99.9 %.1f us\n",
                 measured.commands(), ToUs(measured.elapsed_ns()) / 1e3, ToUs(measured.p50_ns()),
                 ToUs(measured.p99_ns()), ToUs(measured.p999_ns()));
  }
  if (ended->ok()) absl::PrintF("done\n");
  return *ended;
}

}  // namespace
}  // namespace raftkv

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage(weft::StrCat(raftkv::kHelp, "\n", weft::kSecurityFlagsHelp));
  const auto security = weft::TakeSecurityFlags(&argc, argv);
  if (!security.ok()) {
    std::cerr << "raftkv_admin: " << security.status() << std::endl;
    return 2;
  }
  const std::vector<char*> given = absl::ParseCommandLine(argc, argv);
  const std::vector<std::string> words(given.begin() + 1, given.end());
  for (const raftkv::CommandRow& command : raftkv::kCommands) {
    if (words.empty() || words[0] != command.name) continue;
    if (words.size() - 1 < command.min_arguments || words.size() - 1 > command.max_arguments ||
        absl::GetFlag(FLAGS_server).empty()) {
      break;
    }
    const absl::Status status = raftkv::Run(words, command, *security);
    if (status.ok()) return 0;
    std::cerr << "raftkv_admin: " << status << std::endl;
    return 1;
  }
  std::cerr << raftkv::kHelp;
  return 2;
}
