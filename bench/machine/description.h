// What machine this is, for the record: figures without it mean little.
//
// Threads: any. Errors: what cannot be found out is "" or 0.
#pragma once

#include <string>

namespace weft::bench {

struct MachineDescription {
  std::string cpu;  // "AMD EPYC 9B45"
  int processors = 0;
  std::string kernel;        // "Linux 6.18.5 x86_64"
  std::string distribution;  // "Debian GNU/Linux 12 (bookworm)"
  std::string compiler;      // "g++ 12.2.0"
  std::string governor;      // of processor 0: "performance"; "": the kernel does not set its speed
  // How the kernel's TCP finds its rate: "cubic", "bbr". With pacing, 1 MiB over tcp costs timers
  // (docs/performance.md).
  std::string congestion_control;
  bool is_virtual = false;  // a hypervisor is there
};

MachineDescription DescribeMachine();

// Of texts in the form of /proc/cpuinfo and /etc/os-release: the value of the first line with that
// name, without quotes. "" when there is none.
std::string ValueIn(const std::string& text, const std::string& name, char separator);

}  // namespace weft::bench
