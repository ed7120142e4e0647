// `weft help [COMMAND]`.
#pragma once

#include <string>
#include <vector>

#include "tools/weft/command.h"

namespace weft::tools {

// Every command with its summary.
std::string HelpOnAll(const std::vector<Command>& commands);

// Its arguments and details.
std::string HelpOn(const Command& command);

// The command of that name; null if there is none.
const Command* FindCommand(const std::vector<Command>& commands, const std::string& name);

}  // namespace weft::tools
