// weft: what an operator asks of this host and of servers, and needs to try them. `weft help` lists
// the commands. What is none of them is a program of its own: `weft blockd disk.img` becomes
// `weft_blockd disk.img`, found beside this program or in PATH.
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
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

int NoSuchCommand(const std::string& name) {
  std::fprintf(stderr, "weft: no command \"%s\"\n%s", name.c_str(), HelpOnAll(Commands()).c_str());
  return kUsage;
}

int CannotStart(const std::string& program, int error) {
  std::fprintf(stderr, "weft: cannot start %s: %s\n", program.c_str(), std::strerror(error));
  return kFailed;
}

// Becomes the program, and returns only if there is none or it cannot be started. One that lies
// beside this program is of its version, and is meant whatever PATH has.
int BecomeProgram(const std::string& name, std::vector<std::string> arguments) {
  // Neither an option nor the name of a file elsewhere.
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz0123456789_-";
  if (name.empty() || name.front() == '-' || name.find_first_not_of(kLetters) != name.npos) {
    return NoSuchCommand(name);
  }
  std::string program = "weft_" + name;
  std::vector<char*> argv = {program.data()};
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  std::error_code unknown;
  const std::filesystem::path here = std::filesystem::read_symlink("/proc/self/exe", unknown);
  // What lies outside of this process's root has a relative name there, "(unreachable)/...".
  if (!unknown && here.is_absolute()) {
    std::string beside = (here.parent_path() / program).string();
    argv[0] = beside.data();
    ::execv(beside.c_str(), argv.data());
    const int error = errno;
    if (::access(beside.c_str(), F_OK) == 0) return CannotStart(beside, error);
  }
  argv[0] = program.data();
  ::execvp(program.c_str(), argv.data());
  // EACCES may be of a folder in PATH, which need not have had it.
  if (errno == ENOENT || errno == ENOTDIR || errno == EACCES) return NoSuchCommand(name);
  return CannotStart(program, errno);
}

int RunHelp(const std::vector<std::string>& arguments) {
  if (arguments.empty()) {
    std::fputs(HelpOnAll(Commands()).c_str(), stdout);
    return kDone;
  }
  const Command* command = FindCommand(Commands(), arguments[0]);
  if (command == nullptr) return BecomeProgram(arguments[0], {"--help"});
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
  if (command == nullptr) return BecomeProgram(name, arguments);
  if (!arguments.empty() && (arguments[0] == "--help" || arguments[0] == "-h")) {
    return RunHelp({name});
  }
  return command->run(arguments);
}

}  // namespace
}  // namespace weft::tools

int main(int argc, char** argv) { return weft::tools::Run({argv + 1, argv + argc}); }
