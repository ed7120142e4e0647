#include "transport/ofi/port_watch.h"

#include <fcntl.h>
#include <unistd.h>

#include <string_view>
#include <utility>

#include "core/strings.h"

namespace weft {
namespace {

std::string FolderOf(const std::string& sysfs, const std::string& port) {
  const size_t colon = port.rfind(':');
  if (colon == std::string::npos) return "";
  return StrCat(sysfs, "/class/infiniband/", port.substr(0, colon), "/ports/",
                port.substr(colon + 1));
}

Descriptor Open(const std::string& path) {
  return Descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
}

// "DOWN" where the file says "1: DOWN"; empty: it could not be read.
std::string ReadWord(const Descriptor& file) {
  char text[64];  // "6: LinkErrorRecovery" is the longest
  const ssize_t bytes = file.valid() ? ::pread(file.get(), text, sizeof(text), 0) : 0;
  if (bytes <= 0) return "";
  std::string_view line(text, static_cast<size_t>(bytes));
  line = line.substr(0, line.find('\n'));
  const size_t colon = line.find(": ");
  return std::string(colon == std::string_view::npos ? line : line.substr(colon + 2));
}

}  // namespace

PortWatch::PortWatch(const std::string& sysfs, const std::string& port, const Clock* clock,
                     TimerWheel* timers, Function<bool(const absl::Status&)> told)
    : port_(port),
      folder_(FolderOf(sysfs, port)),
      state_(Open(folder_ + "/state")),
      clock_(clock),
      timers_(timers),
      told_(std::move(told)) {}

absl::Status PortWatch::Begin() {
  absl::Status found = Look();
  if (found.ok() && !armed()) LookLater();
  return found;
}

void PortWatch::LookLater() {
  if (timers_ != nullptr) timers_->Schedule(this, clock_->NowNs() + kLookNs);
}

void PortWatch::OnTimer() {
  if (told_(Look())) LookLater();
}

absl::Status PortWatch::Look() const {
  const std::string word = ReadWord(state_);
  if (word.empty() || word.rfind("ACTIVE", 0) == 0) return absl::OkStatus();
  const std::string physical = ReadWord(Open(folder_ + "/phys_state"));
  return absl::UnavailableError(
      StrCat("the RDMA port ", port_, " is ", word, physical.empty() ? "" : ", ", physical,
             ": look at its cable, at the switch, and at its interface (rdma link, ip link)"));
}

}  // namespace weft
