#include "tools/weft/help.h"

#include <algorithm>

namespace weft::tools {
namespace {

std::string Invocation(const Command& command) {
  const std::string arguments = command.arguments;
  return std::string(command.name) + (arguments.empty() ? "" : " " + arguments);
}

}  // namespace

std::string HelpOnAll(const std::vector<Command>& commands) {
  size_t width = 0;
  for (const Command& command : commands) width = std::max(width, Invocation(command).size());
  std::string text = "usage: weft COMMAND\n\n";
  for (const Command& command : commands) {
    std::string name = Invocation(command);
    name.resize(width, ' ');
    text += "  " + name + "  " + command.summary + "\n";
  }
  return text +
         "\n`weft NAME ...` runs a program weft_NAME, as weft_blockd is one, that is beside weft "
         "or in\n"
         "PATH. `weft help COMMAND` tells more. Exit status: 0 done, 1 failed, 2 wrong usage.\n";
}

std::string HelpOn(const Command& command) {
  const std::string details = command.details;
  return "usage: weft " + Invocation(command) + "\n\n" + command.summary + ".\n" +
         (details.empty() ? "" : "\n" + details);
}

const Command* FindCommand(const std::vector<Command>& commands, const std::string& name) {
  const auto found = std::find_if(commands.begin(), commands.end(),
                                  [&](const Command& command) { return name == command.name; });
  return found == commands.end() ? nullptr : &*found;
}

}  // namespace weft::tools
