#include "transport/ofi/shm_lock.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>

#include "transport/ofi/quirks.h"

namespace weft {
namespace {

// The beginning of an endpoint's memory in libfabric 1.17 (all of 1.17.x).
struct EndpointHead {
  uint8_t version;
  uint8_t reserved;
  uint16_t flags;
  int32_t process_id;
  uint8_t cma[4];
  uint32_t max_buffers;
  uint64_t base_address;
  std::atomic<int32_t> lock;  // a pthread_spinlock_t
};
static_assert(offsetof(EndpointHead, lock) == 24);
static_assert(sizeof(pthread_spinlock_t) == sizeof(int32_t));

constexpr uint8_t kLayoutVersion = 4;
constexpr size_t kMappedBytes = 4096;

// What a free spin lock holds differs between processors.
int32_t OpenValue() {
  pthread_spinlock_t lock;
  pthread_spin_init(&lock, PTHREAD_PROCESS_SHARED);
  return static_cast<int32_t>(lock);
}

}  // namespace

bool ShmLock::IsKnown() { return HasQuirk(QuirkId::kShmLockOutlivesHolder); }

std::unique_ptr<ShmLock> ShmLock::Map(const std::string& endpoint) {
  const int fd = shm_open(("/" + endpoint).c_str(), O_RDWR | O_CLOEXEC, 0);
  if (fd < 0) return nullptr;
  struct stat status;
  void* page = MAP_FAILED;
  if (fstat(fd, &status) == 0 && status.st_size >= static_cast<off_t>(kMappedBytes)) {
    page = mmap(nullptr, kMappedBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  }
  close(fd);
  if (page == MAP_FAILED) return nullptr;
  std::unique_ptr<ShmLock> lock(new ShmLock(page));
  if (static_cast<const EndpointHead*>(page)->version != kLayoutVersion) return nullptr;
  return lock;
}

ShmLock::~ShmLock() { munmap(page_, kMappedBytes); }

bool ShmLock::ForceOpen() {
  static const int32_t open_value = OpenValue();
  return static_cast<EndpointHead*>(page_)->lock.exchange(open_value) != open_value;
}

}  // namespace weft
