#include "transport/doorbell.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <new>

#include "core/full_fence.h"
#include "core/status.h"

namespace weft {
namespace {

constexpr size_t kPageBytes = 4096;

// What peers must not be able to do with the page: resize it under us, or write to it. The seal
// against writes leaves this process's own mapping, made before, writable.
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL;

void WriteEvent(int event_fd) {
  const uint64_t one = 1;
  // The only failure is a full counter (EAGAIN), which means that the bell rings already.
  [[maybe_unused]] const ssize_t written = write(event_fd, &one, sizeof(one));
}

absl::Status CheckPage(int page_fd) {
  struct stat facts;
  if (fstat(page_fd, &facts) != 0) return StatusFromErrno(errno, "fstat of a peer's doorbell page");
  if (facts.st_size != static_cast<off_t>(kPageBytes)) {
    return absl::InvalidArgumentError("a peer's doorbell page has the wrong size");
  }
  // Without this seal the peer could shrink the file and our next look at it would be a SIGBUS.
  const int seals = fcntl(page_fd, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    return absl::InvalidArgumentError("a peer's doorbell page is not sealed against shrinking");
  }
  return absl::OkStatus();
}

absl::Status CheckEvent(int event_fd) {
  // A blocking descriptor in a peer's hands could stall this engine: insist on non-blocking.
  const int flags = fcntl(event_fd, F_GETFL);
  if (flags < 0) return StatusFromErrno(errno, "a peer's doorbell event");
  if ((flags & O_NONBLOCK) == 0) {
    return absl::InvalidArgumentError("a peer's doorbell event is a blocking descriptor");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Doorbell>> Doorbell::Create() {
  std::unique_ptr<Doorbell> bell(new Doorbell);
  bell->event_fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (bell->event_fd_ < 0) return StatusFromErrno(errno, "eventfd for an engine's doorbell");
  bell->page_fd_ = memfd_create("weft-doorbell", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (bell->page_fd_ < 0) return StatusFromErrno(errno, "memfd_create for an engine's doorbell");
  if (ftruncate(bell->page_fd_, kPageBytes) != 0) return StatusFromErrno(errno, "doorbell page");
  void* page =
      mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, bell->page_fd_, /*offset=*/0);
  if (page == MAP_FAILED) return StatusFromErrno(errno, "mapping the doorbell page");
  bell->armed_ = new (page) std::atomic<uint32_t>(0);
  if (fcntl(bell->page_fd_, F_ADD_SEALS, kSeals) != 0) {
    return StatusFromErrno(errno, "sealing the doorbell page");
  }
  return bell;
}

Doorbell::~Doorbell() {
  if (armed_ != nullptr) munmap(armed_, kPageBytes);
  if (page_fd_ >= 0) close(page_fd_);
  if (event_fd_ >= 0) close(event_fd_);
}

void Doorbell::Arm() {
  armed_->store(1, std::memory_order_relaxed);
  FullFence();
}

void Doorbell::Disarm() { armed_->store(0, std::memory_order_relaxed); }

void Doorbell::Ring() {
  FullFence();
  if (armed_->load(std::memory_order_relaxed) != 0) WriteEvent(event_fd_);
}

void Doorbell::Drain() {
  uint64_t rings;
  [[maybe_unused]] const ssize_t taken = read(event_fd_, &rings, sizeof(rings));
}

absl::StatusOr<std::unique_ptr<PeerDoorbell>> PeerDoorbell::Open(int event_fd, int page_fd) {
  std::unique_ptr<PeerDoorbell> bell(new PeerDoorbell);
  bell->event_fd_ = event_fd;
  absl::Status fit = CheckPage(page_fd);
  if (fit.ok()) fit = CheckEvent(event_fd);
  void* page = MAP_FAILED;
  if (fit.ok()) {
    page = mmap(nullptr, kPageBytes, PROT_READ, MAP_SHARED, page_fd, /*offset=*/0);
    if (page == MAP_FAILED) fit = StatusFromErrno(errno, "mapping a peer's doorbell page");
  }
  close(page_fd);
  if (!fit.ok()) return fit;
  bell->armed_ = static_cast<const std::atomic<uint32_t>*>(page);
  return bell;
}

PeerDoorbell::~PeerDoorbell() {
  if (armed_ != nullptr) munmap(const_cast<std::atomic<uint32_t>*>(armed_), kPageBytes);
  if (event_fd_ >= 0) close(event_fd_);
}

void PeerDoorbell::Ring() {
  FullFence();
  RingAfterFence();
}

void PeerDoorbell::Wake() { WriteEvent(event_fd_); }

}  // namespace weft
