#include "transport/control/host_facts.h"

#include <fcntl.h>
#include <unistd.h>

#include "core/process_wide.h"
#include "transport/descriptor.h"

namespace weft {
namespace {

std::string ReadBootId() {
  const Descriptor file(::open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return "";
  char text[64];
  const ssize_t bytes = ::read(file.get(), text, sizeof(text));
  if (bytes <= 0) return "";
  const std::string_view line(text, static_cast<size_t>(bytes));
  return std::string(line.substr(0, line.find('\n')));
}

}  // namespace

HostFacts ReadHostFacts() {
  HostFacts facts;
  static constinit ProcessWide<std::string> boot_id;
  facts.boot_id = boot_id.Get(ReadBootId);
  facts.user_id = ::geteuid();
  facts.process_id = ::getpid();
  return facts;
}

}  // namespace weft
