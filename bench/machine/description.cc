#include "bench/machine/description.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <sstream>

#include "core/strings.h"

namespace weft::bench {
namespace {

std::string Contents(const char* path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string Stripped(const std::string& text, const char* of) {
  const size_t first = text.find_first_not_of(of);
  if (first == std::string::npos) return "";
  return text.substr(first, text.find_last_not_of(of) - first + 1);
}

std::string Kernel() {
  utsname name = {};
  if (uname(&name) != 0) return "";
  return StrCat(name.sysname, " ", name.release, " ", name.machine);
}

std::string Compiler() {
#if defined(__clang__)
  return __VERSION__;  // begins with its name
#else
  return StrCat("g++ ", __VERSION__);
#endif
}

bool HasWord(const std::string& text, const std::string& word) {
  std::istringstream words(text);
  for (std::string next; words >> next;) {
    if (next == word) return true;
  }
  return false;
}

}  // namespace

std::string ValueIn(const std::string& text, const std::string& name, char separator) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const size_t at = line.find(separator);
    if (at == std::string::npos || Stripped(line.substr(0, at), " \t") != name) continue;
    return Stripped(line.substr(at + 1), " \t\"");
  }
  return "";
}

MachineDescription DescribeMachine() {
  MachineDescription machine;
  const std::string cpu = Contents("/proc/cpuinfo");
  machine.cpu = ValueIn(cpu, "model name", ':');
  machine.processors = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  machine.kernel = Kernel();
  machine.distribution = ValueIn(Contents("/etc/os-release"), "PRETTY_NAME", '=');
  machine.compiler = Compiler();
  machine.governor =
      Stripped(Contents("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"), " \n");
  machine.congestion_control =
      Stripped(Contents("/proc/sys/net/ipv4/tcp_congestion_control"), " \n");
  machine.is_virtual = HasWord(ValueIn(cpu, "flags", ':'), "hypervisor");
  return machine;
}

}  // namespace weft::bench
