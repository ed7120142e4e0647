#include "tools/weft/explain.h"

#include <cstdio>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "core/clock.h"
#include "core/status.h"
#include "core/strings.h"
#include "tools/weft/command.h"
#include "tools/weft/explain_report.h"
#include "transport/security_flags.h"

namespace weft::tools {

const char kExplainDetails[] =
    "ADDRESS           as a client would dial it: host:port, [v6]:port or unix:/path\n"
    "--paths=LIST      these only, in this order: shm, verbs, tcp,    (WEFT_PATHS)\n"
    "                  ofi_tcp (both sides have to name it)\n"
    "--deny=LIST       of those, not these                            (WEFT_PATHS=^...)\n"
    "--devices=LIST    RDMA devices or ports: mlx5_0, mlx5_0:1        (WEFT_DEVICES)\n"
    "--subnets=LIST    RDMA addresses in these: 10.1.0.0/16           (WEFT_SUBNETS)\n"
    "--gid-index=N     RDMA addresses with this GID                   (WEFT_GID_INDEX)\n"
    "--routed          RDMA between subnets too                       (WEFT_ROUTED=1)\n"
    "--probes=N        round trips to measure, 1000 if not given; 0: none. A tenth as many more\n"
    "                  have 1 ms of silence before each, so that they find the server asleep\n"
    "--path-timeout-ms=N  for each path, 1000 if not given\n"
    "--json            for programs; docs/paths.md explains its members\n"
    "--tls-...         for servers that want TLS: the flags that all programs have\n"
    "                  (weft cert, docs/guide.md)\n"
    "\n"
    "Connects as an rpc client, without a call. For each path, in the order tried: what became of\n"
    "it, and why. \"client:\" is this side. docs/paths.md (installed: "
    "share/doc/weft/docs/paths.md)\n"
    "says what to do about each reason.\n"
    "Exit status 1: no connection.\n";

namespace {

constexpr uint32_t kMaxProbes = 1'000'000;
constexpr uint32_t kMaxTimeoutMs = 600'000;

absl::StatusOr<uint32_t> ParseNumber(const std::string& name, const std::string& value,
                                     uint32_t max) {
  uint32_t number = 0;
  if (absl::SimpleAtoi(value, &number) && number <= max) return number;
  return absl::InvalidArgumentError(StrCat(name, "=", value, ": it must be a number, 0..", max));
}

// One option with a value.
absl::Status SetOption(const std::string& name, const std::string& value, ExplainCommand* command) {
  LinkOptions& link = command->options.link;
  if (name == "--paths" || name == "--deny") {
    absl::StatusOr<std::vector<PathKind>> kinds = ParsePathList(value);
    if (!kinds.ok()) return Annotate(kinds.status(), StrCat(name, "=", value));
    (name == "--paths" ? link.paths : link.denied_paths) = *std::move(kinds);
  } else if (name == "--devices") {
    link.devices = absl::StrSplit(value, ',');
  } else if (name == "--subnets") {
    link.subnets = absl::StrSplit(value, ',');
  } else if (name == "--gid-index") {
    WEFT_ASSIGN_OR_RETURN(const uint32_t index, ParseNumber(name, value, 4095));
    link.gid_index = static_cast<int>(index);
  } else if (name == "--probes") {
    WEFT_ASSIGN_OR_RETURN(command->options.probes, ParseNumber(name, value, kMaxProbes));
    command->options.paused_probes = (command->options.probes + 9) / 10;
  } else if (name == "--path-timeout-ms") {
    WEFT_ASSIGN_OR_RETURN(const uint32_t ms, ParseNumber(name, value, kMaxTimeoutMs));
    link.path_timeout_ns = ms * kNsPerMs;
  } else {
    return absl::InvalidArgumentError(StrCat("\"", name, "\" is not understood"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ExplainCommand> ParseExplain(std::vector<std::string> arguments) {
  ExplainCommand command;
  WEFT_ASSIGN_OR_RETURN(command.options.security, TakeSecurityFlags(&arguments));
  for (const std::string& argument : arguments) {
    const size_t equals = argument.find('=');
    if (argument == "--json") {
      command.as_json = true;
    } else if (argument == "--routed") {
      command.options.link.allow_routed = true;
    } else if (argument.rfind("--", 0) == 0 && equals != std::string::npos) {
      WEFT_RETURN_IF_ERROR(
          SetOption(argument.substr(0, equals), argument.substr(equals + 1), &command));
    } else if (argument.rfind('-', 0) == 0 || !command.address.empty()) {
      return absl::InvalidArgumentError(StrCat("\"", argument, "\" is not understood"));
    } else {
      command.address = argument;
    }
  }
  if (command.address.empty())
    return absl::InvalidArgumentError("whose paths? An address is needed");
  // Many candidates may each take their time; a person waits rather than misses the last.
  command.options.link.connect_timeout_ns =
      4'000'000'000 + 10 * command.options.link.path_timeout_ns;
  return command;
}

int RunExplain(const std::vector<std::string>& arguments) {
  const absl::StatusOr<ExplainCommand> command = ParseExplain(arguments);
  if (!command.ok()) {
    std::fprintf(stderr, "weft explain: %s (weft help explain)\n",
                 std::string(command.status().message()).c_str());
    return kUsage;
  }
  const Explanation explanation = ExplainServer(command->address, command->options);
  const std::string text = command->as_json ? ExplainJson(explanation) : ExplainText(explanation);
  std::fputs(text.c_str(), stdout);
  return explanation.connected.ok() ? kDone : kFailed;
}

}  // namespace weft::tools
