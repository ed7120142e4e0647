// `weft explain ADDRESS`.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/weft/explain_server.h"

namespace weft::tools {

extern const char kExplainDetails[];

struct ExplainCommand {
  std::string address;
  bool as_json = false;
  ExplainOptions options;
};
// INVALID_ARGUMENT names the argument and what it may be.
absl::StatusOr<ExplainCommand> ParseExplain(std::vector<std::string> arguments);

int RunExplain(const std::vector<std::string>& arguments);

}  // namespace weft::tools
