// What the user asked for, checked: kv_client [FLAGS] COMMAND [ARGUMENT...].
//
// Threads:  ParseCommandLine in main(), once.
// Errors:   INVALID_ARGUMENT says which word or flag is wrong and what it could be.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "examples/kv/ycsb/workload.h"
#include "weft/path.h"
#include "weft/security.h"

namespace kv::client {

enum class CommandKind : uint8_t {
  kGet = 1,
  kPut,
  kDelete,
  kScan,
  kLoad,
  kVerify,
  kExplain,
  kCheck,
  kYcsb,
};

struct YcsbOptions {
  std::vector<ycsb::Workload> workloads;
  uint64_t records = 100'000;
  uint32_t fields = 10;
  uint32_t value_bytes = 100;  // of each field
  uint64_t operations = 0;     // of each workload; 0: as many as fit into `seconds`
  double seconds = 5;
  uint64_t seed = 1;
  bool load = true;     // store the records first
  std::string results;  // file that gets a line of figures for each workload; empty: none
};

// How records are got.
enum class GetMode : uint8_t {
  kRpc = 1,
  kOneSided,  // by remote reads of the server's index
};

struct CommandLine {
  CommandKind command = CommandKind::kExplain;
  std::vector<std::string> arguments;  // as many as the command takes
  std::string server;
  std::vector<weft::PathKind> paths;  // empty: not restricted
  std::optional<weft::SecurityOptions> security;
  uint64_t timeout_us = 0;
  uint32_t outstanding = 0;  // load, verify, ycsb: calls under way at once
  GetMode get = GetMode::kRpc;
  uint32_t limit = 0;  // scan
  YcsbOptions ycsb;
};

// The command and its arguments, without the flags.
struct Command {
  CommandKind kind;
  std::vector<std::string> arguments;
};
absl::StatusOr<Command> ParseCommand(const std::vector<std::string>& words);

// "a,C" or "abc" -> the workloads, in this order.
absl::StatusOr<std::vector<ycsb::Workload>> ParseWorkloads(std::string_view text);

// Reads the flags and the words between them, and moves the pointers of `argv`. Ends the process
// after --help and on an unknown flag.
absl::StatusOr<CommandLine> ParseCommandLine(int argc, char** argv);

// What --help says: commands and what they do.
std::string CommandHelp();

}  // namespace kv::client
