// weft: what an operator asks of this host and of servers, and needs to try them. `weft help` lists
// the commands. What is none of them is a program of its own: `weft blockd disk.img` becomes
// `weft_blockd disk.img`, found beside this program or in PATH.
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
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

// Does not return where there is such a program and it can be started.
void BecomeProgram(const std::string& name, const std::vector<std::string>& arguments) {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz0123456789_-";
  if (name.find_first_not_of(kLetters) != std::string::npos) return;  // no other folder's
  std::string program = "weft_" + name;
  std::vector<std::string> words = arguments;
  std::vector<char*> argv = {program.data()};
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  std::error_code unknown;
  const std::filesystem::path here = std::filesystem::read_symlink("/proc/self/exe", unknown);
  if (!unknown) ::execv((here.parent_path() / program).c_str(), argv.data());
  ::execvp(program.c_str(), argv.data());
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
  if (command == nullptr) {
    BecomeProgram(name, arguments);
    return NoSuchCommand(name);
  }
  if (!arguments.empty() && (arguments[0] == "--help" || arguments[0] == "-h")) {
    return RunHelp({name});
  }
  return command->run(arguments);
}

}  // namespace
}  // namespace weft::tools

int main(int argc, char** argv) { return weft::tools::Run({argv + 1, argv + argc}); }
