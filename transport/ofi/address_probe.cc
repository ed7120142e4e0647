#include "transport/ofi/address_probe.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "core/status.h"

namespace weft {

absl::StatusOr<std::unique_ptr<ProbeBell>> ProbeBell::Create() {
  const int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (fd < 0) return StatusFromErrno(errno, "eventfd");
  return std::unique_ptr<ProbeBell>(new ProbeBell(fd));
}

ProbeBell::~ProbeBell() { close(fd_); }

void ProbeBell::Ring() { eventfd_write(fd_, 1); }

void ProbeBell::Silence() {
  eventfd_t ignored;
  eventfd_read(fd_, &ignored);
}

AddressProbe::AddressProbe(InfoPtr info, ProbeBell* bell)
    : info_(std::move(info)), bell_(bell), thread_([this] { Run(); }) {}

AddressProbe::~AddressProbe() { thread_.join(); }

void AddressProbe::Run() {
  result_ = FindWay(info_.get());
  done_.store(true, std::memory_order_release);
  bell_->Ring();
}

}  // namespace weft
