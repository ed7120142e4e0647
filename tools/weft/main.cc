// weft: what an operator asks of this host and of servers, and needs to try them. `weft help` lists
// the commands.
#include <cstdio>
#include <string>
#include <vector>

#include "tools/weft/cert.h"
#include "tools/weft/command.h"
#include "tools/weft/devices.h"
#include "tools/weft/explain.h"
#include "tools/weft/help.h"
#include "tools/weft/version.h"

namespace weft::tools {
namespace {

int RunHelp(const std::vector<std::string>& arguments);

const std::vector<Command>& Commands() {
  static const std::vector<Command> commands = {
      {"cert", "DIR [NAME[=ALSO,...]...] [OPTION...]",
       "makes an authority and certificates, to try TLS with", kCertDetails, RunCert},
      {"devices", "[--json]", "shows every path of this host, and which would be used",
       kDevicesDetails, RunDevices},
      {"explain", "ADDRESS [OPTION...]", "connects to a server and shows which path, and why",
       kExplainDetails, RunExplain},
      {"help", "[COMMAND]", "lists the commands, or explains one", "", RunHelp},
      {"version", "", "shows the versions of weft and libfabric", "", RunVersion},
  };
  return commands;
}

int NoSuchCommand(const std::string& name) {
  std::fprintf(stderr, "weft: no command \"%s\"\n%s", name.c_str(), HelpOnAll(Commands()).c_str());
  return kUsage;
}

int RunHelp(const std::vector<std::string>& arguments) {
  if (arguments.empty()) {
    std::fputs(HelpOnAll(Commands()).c_str(), stdout);
    return kDone;
  }
  const Command* command = FindCommand(Commands(), arguments[0]);
  if (command == nullptr) return NoSuchCommand(arguments[0]);
  std::fputs(HelpOn(*command).c_str(), stdout);
  return kDone;
}

int Run(std::vector<std::string> arguments) {
  if (arguments.empty()) {
    std::fputs(HelpOnAll(Commands()).c_str(), stderr);
    return kUsage;
  }
  std::string name = arguments.front();
  arguments.erase(arguments.begin());
  if (name == "--help" || name == "-h") name = "help";
  if (name == "--version") name = "version";
  const Command* command = FindCommand(Commands(), name);
  if (command == nullptr) return NoSuchCommand(name);
  if (!arguments.empty() && (arguments[0] == "--help" || arguments[0] == "-h")) {
    return RunHelp({name});
  }
  return command->run(arguments);
}

}  // namespace
}  // namespace weft::tools

int main(int argc, char** argv) { return weft::tools::Run({argv + 1, argv + argc}); }
