#include "transport/ofi/address_probe.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>

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

absl::StatusOr<std::unique_ptr<AddressProbe>> AddressProbe::Start(InfoPtr info, ProbeBell* bell) {
  std::unique_ptr<AddressProbe> probe(new AddressProbe(std::move(info), bell));
  const auto run = [](void* self) -> void* {
    static_cast<AddressProbe*>(self)->Run();
    return nullptr;
  };
  if (const int error = pthread_create(&probe->thread_, nullptr, run, probe.get()); error != 0) {
    return StatusFromErrno(error, "a thread to look for the way to a peer");
  }
  probe->running_ = true;
  return probe;
}

AddressProbe::~AddressProbe() {
  if (running_) pthread_join(thread_, nullptr);
}

void AddressProbe::Run() {
  result_ = FindWay(info_.get());
  done_.store(true, std::memory_order_release);
  bell_->Ring();
}

}  // namespace weft
