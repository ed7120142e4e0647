#include "transport/doorbell.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

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

absl::Status CheckPage(int page_fd, const struct stat& facts) {
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

// One engine's page, as it is mapped here.
class PeerDoorbell::Page {
 public:
  Page(const struct stat& facts, void* memory)
      : device_(facts.st_dev), inode_(facts.st_ino), memory_(memory) {}
  ~Page() { munmap(memory_, kPageBytes); }
  Page(const Page&) = delete;
  Page& operator=(const Page&) = delete;

  // While this is mapped, no other file has its number.
  bool Is(const struct stat& facts) const {
    return device_ == facts.st_dev && inode_ == facts.st_ino;
  }
  const std::atomic<uint32_t>* armed() const {
    return static_cast<const std::atomic<uint32_t>*>(memory_);
  }

 private:
  const dev_t device_;
  const ino_t inode_;
  void* const memory_;
};

absl::StatusOr<std::shared_ptr<const PeerDoorbell::Page>> PeerDoorbell::Map(int page_fd) {
  static std::mutex mutex;
  static auto* const known = new std::vector<std::weak_ptr<const Page>>;  // guarded by mutex
  struct stat facts;
  if (fstat(page_fd, &facts) != 0) return StatusFromErrno(errno, "fstat of a peer's doorbell page");
  WEFT_RETURN_IF_ERROR(CheckPage(page_fd, facts));
  const std::lock_guard<std::mutex> lock(mutex);
  std::erase_if(*known, [](const auto& page) { return page.expired(); });
  for (const std::weak_ptr<const Page>& page : *known) {
    if (auto mapped = page.lock(); mapped != nullptr && mapped->Is(facts)) return mapped;
  }
  void* const memory = mmap(nullptr, kPageBytes, PROT_READ, MAP_SHARED, page_fd, /*offset=*/0);
  if (memory == MAP_FAILED) return StatusFromErrno(errno, "mapping a peer's doorbell page");
  auto page = std::make_shared<const Page>(facts, memory);
  known->push_back(page);
  return page;
}

absl::StatusOr<std::unique_ptr<PeerDoorbell>> PeerDoorbell::Open(int event_fd, int page_fd) {
  std::unique_ptr<PeerDoorbell> bell(new PeerDoorbell);
  bell->event_fd_ = event_fd;
  absl::StatusOr<std::shared_ptr<const Page>> page = Map(page_fd);
  close(page_fd);
  WEFT_RETURN_IF_ERROR(page.status());
  WEFT_RETURN_IF_ERROR(CheckEvent(event_fd));
  bell->page_ = *std::move(page);
  bell->armed_ = bell->page_->armed();
  return bell;
}

PeerDoorbell::~PeerDoorbell() {
  if (event_fd_ >= 0) close(event_fd_);
}

void PeerDoorbell::Ring() {
  FullFence();
  RingAfterFence();
}

void PeerDoorbell::Wake() { WriteEvent(event_fd_); }

}  // namespace weft
