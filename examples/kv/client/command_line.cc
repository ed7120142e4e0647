#include "examples/kv/client/command_line.h"

#include <utility>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage_config.h"
#include "absl/strings/str_format.h"
#include "core/clock.h"
#include "core/status.h"
#include "core/strings.h"

ABSL_FLAG(std::string, server, "",
          "address of the server, as kv_server prints it; of a group of raftkv_servers several, "
          "between commas: calls go to the one that leads");
ABSL_FLAG(std::string, paths, "",
          "paths that may be used, in this order: shm,tcp; empty: WEFT_PATHS or the best");
ABSL_FLAG(uint32_t, timeout_ms, 5000, "deadline of each call");
ABSL_FLAG(uint32_t, outstanding, 32, "load, verify, check, ycsb: under way at once");
ABSL_FLAG(std::string, get, "rpc",
          "get, verify, check, ycsb: how records are got: rpc; or one-sided, by reading the "
          "server's memory");
ABSL_FLAG(uint32_t, limit, 10, "scan: how many records; 0: as many as one reply holds");
ABSL_FLAG(std::string, workload, "A", "ycsb: one or several of A to F, as in A,B,C");
ABSL_FLAG(uint64_t, records, 100'000, "ycsb: records to store first");
ABSL_FLAG(uint32_t, fields, 10, "ycsb: fields in a record");
ABSL_FLAG(uint32_t, value_size, 100, "ycsb: bytes in a field");
ABSL_FLAG(uint64_t, operations, 0, "ycsb: of each workload; 0: as many as fit into --seconds");
ABSL_FLAG(double, seconds, 5, "check, ycsb: how long (each workload) runs");
ABSL_FLAG(uint64_t, seed, 1, "ycsb: the same seed gives the same operations");
ABSL_FLAG(bool, load, true, "ycsb: store the records first; --noload: they are there");
ABSL_FLAG(
    std::string, results, "",
    "ycsb: append a line to this file for each workload: path, workload, outstanding, "
    "operations/s, calls/s, p50, p99, p99.9 (microseconds), errors, how records were got, and "
    "the server's processor time for each operation (microseconds), between tabs");

namespace kv::client {
namespace {

// What ChannelOptions::max_outstanding_calls may be.
constexpr uint64_t kMaxOutstanding = 4096;

struct CommandRow {
  CommandKind kind;
  std::string_view name;
  std::string_view arguments;
  size_t min_arguments;
  size_t max_arguments;
  std::string_view help;
};

constexpr CommandRow kCommands[] = {
    {CommandKind::kGet, "get", "KEY", 1, 1, "print a record"},
    {CommandKind::kPut, "put", "KEY VALUE", 2, 2, "store a value"},
    {CommandKind::kDelete, "delete", "KEY", 1, 1, "remove a record"},
    {CommandKind::kScan, "scan", "[START]", 0, 1, "print --limit records in order of their keys"},
    {CommandKind::kLoad, "load", "FILE", 1, 1,
     "store each line: KEY<TAB>VALUE, or without a tab its number and the line"},
    {CommandKind::kVerify, "verify", "FILE", 1, 1, "compare each line with what is stored"},
    {CommandKind::kExplain, "explain", "", 0, 0,
     "say which path is taken, and why, and who is at its ends"},
    {CommandKind::kCheck, "check", "", 0, 0,
     "put, get and delete a few keys for --seconds; was what it saw linearizable?"},
    {CommandKind::kYcsb, "ycsb", "", 0, 0, "run --workload and print what it achieved"},
};

std::string CommandNames() {
  std::string names;
  for (const CommandRow& row : kCommands) {
    names += names.empty() ? "" : ", ";
    names += row.name;
  }
  return names;
}

absl::Status CheckRange(std::string_view flag, uint64_t value, uint64_t low, uint64_t high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return absl::InvalidArgumentError(
      weft::StrCat("--", flag, "=", value, " is not within ", low, " to ", high));
}

absl::StatusOr<YcsbOptions> ReadYcsbFlags() {
  YcsbOptions options;
  WEFT_ASSIGN_OR_RETURN(options.workloads, ParseWorkloads(absl::GetFlag(FLAGS_workload)));
  options.records = absl::GetFlag(FLAGS_records);
  options.fields = absl::GetFlag(FLAGS_fields);
  options.value_bytes = absl::GetFlag(FLAGS_value_size);
  options.operations = absl::GetFlag(FLAGS_operations);
  options.seconds = absl::GetFlag(FLAGS_seconds);
  options.seed = absl::GetFlag(FLAGS_seed);
  options.load = absl::GetFlag(FLAGS_load);
  options.results = absl::GetFlag(FLAGS_results);
  WEFT_RETURN_IF_ERROR(CheckRange("records", options.records, 1, 1'000'000'000));
  WEFT_RETURN_IF_ERROR(CheckRange("fields", options.fields, 1, 256));
  WEFT_RETURN_IF_ERROR(CheckRange("value_size", options.value_bytes, 1, 65'536));
  if (!(options.seconds > 0 && options.seconds <= 86'400)) {
    return absl::InvalidArgumentError(
        weft::StrCat("--seconds=", options.seconds, " is not within 0 to 86400"));
  }
  return options;
}

absl::StatusOr<GetMode> ReadGetFlag() {
  const std::string mode = absl::GetFlag(FLAGS_get);
  if (mode == "rpc") return GetMode::kRpc;
  if (mode == "one-sided") return GetMode::kOneSided;
  return absl::InvalidArgumentError(weft::StrCat("--get=", mode, " is neither rpc nor one-sided"));
}

absl::StatusOr<CommandLine> ReadFlags() {
  CommandLine line;
  line.server = absl::GetFlag(FLAGS_server);
  if (line.server.empty()) {
    return absl::InvalidArgumentError("--server=ADDRESS is missing: kv_server prints its address");
  }
  const std::string paths = absl::GetFlag(FLAGS_paths);
  if (!paths.empty()) {
    WEFT_ASSIGN_OR_RETURN(line.paths, weft::ParsePathList(paths));
  }
  WEFT_RETURN_IF_ERROR(CheckRange("timeout_ms", absl::GetFlag(FLAGS_timeout_ms), 1, 3'600'000));
  line.timeout_us = uint64_t{absl::GetFlag(FLAGS_timeout_ms)} * (weft::kNsPerMs / weft::kNsPerUs);
  line.outstanding = absl::GetFlag(FLAGS_outstanding);
  WEFT_RETURN_IF_ERROR(CheckRange("outstanding", line.outstanding, 1, kMaxOutstanding));
  line.limit = absl::GetFlag(FLAGS_limit);
  WEFT_ASSIGN_OR_RETURN(line.get, ReadGetFlag());
  if (line.get == GetMode::kOneSided && line.server.find(',') != std::string::npos) {
    return absl::InvalidArgumentError(
        "--get=one-sided reads one server's memory, and --server names several: members of a group "
        "are asked, so that gets see the last put");
  }
  WEFT_ASSIGN_OR_RETURN(line.ycsb, ReadYcsbFlags());
  return line;
}

}  // namespace

absl::StatusOr<Command> ParseCommand(const std::vector<std::string>& words) {
  if (words.empty()) {
    return absl::InvalidArgumentError(weft::StrCat("no command: give one of ", CommandNames()));
  }
  for (const CommandRow& row : kCommands) {
    if (row.name != words[0]) continue;
    const size_t given = words.size() - 1;
    if (given < row.min_arguments || given > row.max_arguments) {
      return absl::InvalidArgumentError(
          weft::StrCat("use: ", row.name, row.arguments.empty() ? "" : " ", row.arguments));
    }
    return Command{row.kind, {words.begin() + 1, words.end()}};
  }
  return absl::InvalidArgumentError(
      weft::StrCat("no command \"", words[0], "\": give one of ", CommandNames()));
}

absl::StatusOr<std::vector<ycsb::Workload>> ParseWorkloads(std::string_view text) {
  std::vector<ycsb::Workload> workloads;
  for (const char name : text) {
    if (name == ',') continue;
    WEFT_ASSIGN_OR_RETURN(const ycsb::Workload workload, ycsb::FindWorkload(name));
    workloads.push_back(workload);
  }
  if (workloads.empty()) return absl::InvalidArgumentError("--workload: give one of A to F");
  return workloads;
}

absl::StatusOr<CommandLine> ParseCommandLine(int argc, char** argv) {
  // Else --help looks for flags in a file of the program's name.
  absl::FlagsUsageConfig usage;
  usage.contains_help_flags = [](absl::string_view file) {
    return file.find("examples/kv/client/") != absl::string_view::npos;
  };
  absl::SetFlagsUsageConfig(usage);
  WEFT_ASSIGN_OR_RETURN(auto security, weft::TakeSecurityFlags(&argc, argv));
  const std::vector<char*> words = absl::ParseCommandLine(argc, argv);
  WEFT_ASSIGN_OR_RETURN(Command command, ParseCommand({words.begin() + 1, words.end()}));
  WEFT_ASSIGN_OR_RETURN(CommandLine line, ReadFlags());
  line.security = std::move(security);
  line.command = command.kind;
  line.arguments = std::move(command.arguments);
  return line;
}

std::string CommandHelp() {
  std::string help = "kv_client --server=ADDRESS COMMAND\n\n";
  for (const CommandRow& row : kCommands) {
    absl::StrAppendFormat(&help, "  %-18s %s\n",
                          weft::StrCat(row.name, row.arguments.empty() ? "" : " ", row.arguments),
                          weft::ToAbsl(row.help));
  }
  return weft::StrCat(help, "\n", weft::kSecurityFlagsHelp);
}

}  // namespace kv::client
