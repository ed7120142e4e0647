#include "transport/doorbell.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include "core/block_memory.h"
#include "core/fork_guard.h"
#include "core/full_fence.h"
#include "core/process_wide.h"
#include "core/status.h"
#include "transport/descriptor_message.h"
#include "transport/memory_file.h"

namespace weft {
namespace {

constexpr size_t kPageBytes = 4096;

// What peers must not be able to do with the page: resize it under us, or write to it. The seal
// against writes leaves this process's own mapping, made before, writable.
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL;

// The one byte of a ring.
constexpr std::byte kRing{1};

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
  CountTaken(MemoryKind::kShared, kPageBytes);
  if (fcntl(bell->page_fd_, F_ADD_SEALS, kSeals) != 0) {
    return StatusFromErrno(errno, "sealing the doorbell page");
  }
  return bell;
}

Doorbell::~Doorbell() {
  if (armed_ != nullptr) {
    munmap(armed_, kPageBytes);
    CountGiven(MemoryKind::kShared, kPageBytes);
  }
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
  if (armed_->load(std::memory_order_relaxed) == 0) return;
  const uint64_t one = 1;
  // The only failure is a full counter (EAGAIN), after 2^64 rings: no process has so many.
  [[maybe_unused]] const ssize_t written = write(event_fd_, &one, sizeof(one));
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
  static constinit ProcessMutex mutex;
  static constinit ProcessWide<std::vector<std::weak_ptr<const Page>>> all;
  auto& known = all.Get();  // guarded by mutex
  struct stat facts;
  WEFT_ASSIGN_OR_RETURN(const uint64_t bytes, SealedFileBytes(page_fd));
  if (bytes != kPageBytes) {
    return absl::InvalidArgumentError("a peer's doorbell page has the wrong size");
  }
  if (fstat(page_fd, &facts) != 0) return StatusFromErrno(errno, "fstat of a peer's doorbell page");
  const std::lock_guard lock(mutex);
  std::erase_if(known, [](const auto& page) { return page.expired(); });
  for (const std::weak_ptr<const Page>& page : known) {
    if (auto mapped = page.lock(); mapped != nullptr && mapped->Is(facts)) return mapped;
  }
  void* const memory = mmap(nullptr, kPageBytes, PROT_READ, MAP_SHARED, page_fd, /*offset=*/0);
  if (memory == MAP_FAILED) return StatusFromErrno(errno, "mapping a peer's doorbell page");
  auto page = std::make_shared<const Page>(facts, memory);
  known.push_back(page);
  return page;
}

absl::StatusOr<std::unique_ptr<PeerDoorbell>> PeerDoorbell::Open(Poller* poller,
                                                                 Descriptor&& socket,
                                                                 const Descriptor& page) {
  std::unique_ptr<PeerDoorbell> bell(new PeerDoorbell(poller));
  WEFT_ASSIGN_OR_RETURN(bell->page_, Map(page.get()));
  bell->armed_ = bell->page_->armed();
  WEFT_RETURN_IF_ERROR(poller->Add(socket.get(), EPOLLIN, bell.get()));
  bell->socket_ = std::move(socket);
  return bell;
}

void PeerDoorbell::HangUpSocket() {
  if (!socket_.valid()) return;
  poller_->Remove(socket_.get());
  HangUp(std::move(socket_));
}

void PeerDoorbell::OnReady(uint32_t) {
  std::byte ring[1];
  const absl::StatusOr<DescriptorMessage> message = ReceiveDescriptors(socket_.get(), ring);
  if (absl::IsUnavailable(message.status())) return;
  const bool is_ring = message.ok() && message->bytes == 1 && message->descriptors.empty();
  if (!is_ring) HangUpSocket();
}

void PeerDoorbell::Ring() {
  FullFence();
  RingAfterFence();
}

// Where there is no room for the byte, those before it ring already.
void PeerDoorbell::Wake() {
  [[maybe_unused]] const ssize_t sent =
      send(socket_.get(), &kRing, sizeof(kRing), MSG_DONTWAIT | MSG_NOSIGNAL);
}

}  // namespace weft
