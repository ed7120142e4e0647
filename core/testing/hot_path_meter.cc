#include "core/testing/hot_path_meter.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <string_view>

// glibc's own, behind the names that are replaced here.
extern "C" {
void* __libc_malloc(size_t bytes);
void* __libc_calloc(size_t count, size_t bytes);
void* __libc_realloc(void* memory, size_t bytes);
void* __libc_memalign(size_t alignment, size_t bytes);
}

namespace weft::test {
namespace {

struct Range {
  uintptr_t begin;
  uintptr_t end;
};

// Of providers' libraries: far fewer are ever loaded.
constexpr size_t kMaxRanges = 32;
// Of the thread that counts: libraries are loaded at any time, so each meter looks for them.
constinit thread_local std::array<Range, kMaxRanges> provider_ranges = {};
constinit thread_local size_t provider_range_count = 0;

constinit thread_local bool counting = false;
constinit thread_local HotPathCounts counted;

bool IsProvider(std::string_view library) {
  for (const char* name : {"libfabric", "libpsm", "libinfinipath", "librdmacm", "libibverbs",
                           "libefa", "libmlx5", "libnl-"}) {
    if (library.find(name) != std::string_view::npos) return true;
  }
  return false;
}

int AddRanges(dl_phdr_info* library, size_t, void*) {
  if (!IsProvider(library->dlpi_name)) return 0;
  for (int i = 0; i < library->dlpi_phnum && provider_range_count < kMaxRanges; ++i) {
    const ElfW(Phdr)& segment = library->dlpi_phdr[i];
    if (segment.p_type != PT_LOAD || (segment.p_flags & PF_X) == 0) continue;
    const uintptr_t begin = library->dlpi_addr + segment.p_vaddr;
    provider_ranges[provider_range_count++] = {begin, begin + segment.p_memsz};
  }
  return 0;
}

bool CountsFor(const void* caller) {
  if (!counting) return false;
  const auto address = reinterpret_cast<uintptr_t>(caller);
  for (size_t i = 0; i < provider_range_count; ++i) {
    if (address >= provider_ranges[i].begin && address < provider_ranges[i].end) return false;
  }
  return true;
}

void CountAllocation(const void* caller) { counted.allocations += CountsFor(caller); }
void CountLock(const void* caller) { counted.locks += CountsFor(caller); }

template <class Function>
Function Next(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

}  // namespace

HotPathMeter::HotPathMeter() {
  provider_range_count = 0;
  dl_iterate_phdr(&AddRanges, nullptr);
  counted = {};
  counting = true;
}

HotPathMeter::~HotPathMeter() { counting = false; }

HotPathCounts HotPathMeter::counts() const { return counted; }

}  // namespace weft::test

using weft::test::CountAllocation;
using weft::test::CountLock;
using weft::test::Next;

extern "C" {

void* malloc(size_t bytes) {
  CountAllocation(__builtin_return_address(0));
  return __libc_malloc(bytes);
}
void* calloc(size_t count, size_t bytes) {
  CountAllocation(__builtin_return_address(0));
  return __libc_calloc(count, bytes);
}
void* realloc(void* memory, size_t bytes) {
  CountAllocation(__builtin_return_address(0));
  return __libc_realloc(memory, bytes);
}
void* aligned_alloc(size_t alignment, size_t bytes) {
  CountAllocation(__builtin_return_address(0));
  return __libc_memalign(alignment, bytes);
}
int posix_memalign(void** memory, size_t alignment, size_t bytes) {
  CountAllocation(__builtin_return_address(0));
  *memory = __libc_memalign(alignment, bytes);
  return *memory == nullptr ? ENOMEM : 0;
}

int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept {
  CountLock(__builtin_return_address(0));
  static const auto next = Next<int (*)(pthread_mutex_t*)>("pthread_mutex_lock");
  return next(mutex);
}
int pthread_mutex_trylock(pthread_mutex_t* mutex) noexcept {
  CountLock(__builtin_return_address(0));
  static const auto next = Next<int (*)(pthread_mutex_t*)>("pthread_mutex_trylock");
  return next(mutex);
}
int pthread_rwlock_rdlock(pthread_rwlock_t* lock) noexcept {
  CountLock(__builtin_return_address(0));
  static const auto next = Next<int (*)(pthread_rwlock_t*)>("pthread_rwlock_rdlock");
  return next(lock);
}
int pthread_rwlock_wrlock(pthread_rwlock_t* lock) noexcept {
  CountLock(__builtin_return_address(0));
  static const auto next = Next<int (*)(pthread_rwlock_t*)>("pthread_rwlock_wrlock");
  return next(lock);
}
int pthread_spin_lock(pthread_spinlock_t* lock) noexcept {
  CountLock(__builtin_return_address(0));
  static const auto next = Next<int (*)(pthread_spinlock_t*)>("pthread_spin_lock");
  return next(lock);
}

}  // extern "C"
