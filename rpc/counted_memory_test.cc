// What a host has counted that has set the hooks and replaced operator new, as the C++ standard
// lets it: all memory of Weft that grows with its use. This program replaces malloc() and mmap(2)
// as well, to see what comes by neither.
#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <deque>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "core/memory_hooks.h"
#include "core/testing/host_memory.h"
#include "rpc/client/channel.h"
#include "rpc/operation/executor.h"
#include "rpc/server/server.h"
#include "rpc/testing/probe_service.h"
#include "transport/network.h"

extern "C" {
void* __libc_malloc(size_t bytes);
void* __libc_calloc(size_t count, size_t bytes);
void* __libc_realloc(void* memory, size_t bytes);
void* __libc_memalign(size_t alignment, size_t bytes);
void __libc_free(void* memory);
}

namespace {

constinit std::atomic<int64_t> of_malloc{0};  // bytes that are out, operator new's among them
constinit std::atomic<int64_t> of_new{0};
constinit std::atomic<int64_t> mapped{0};  // bytes of no file, ever; malloc's own way is not here

int64_t SizeOf(void* memory) {
  return memory == nullptr ? 0 : static_cast<int64_t>(malloc_usable_size(memory));
}
void* Counted(std::atomic<int64_t>& bytes, void* memory) {
  bytes += SizeOf(memory);
  return memory;
}

}  // namespace

extern "C" {
void* malloc(size_t bytes) { return Counted(of_malloc, __libc_malloc(bytes)); }
void* calloc(size_t count, size_t bytes) { return Counted(of_malloc, __libc_calloc(count, bytes)); }
void* realloc(void* memory, size_t bytes) {
  const int64_t before = SizeOf(memory);
  void* const moved = __libc_realloc(memory, bytes);
  if (moved != nullptr || bytes == 0) of_malloc -= before;
  return Counted(of_malloc, moved);
}
void* memalign(size_t alignment, size_t bytes) {
  return Counted(of_malloc, __libc_memalign(alignment, bytes));
}
void* aligned_alloc(size_t alignment, size_t bytes) { return memalign(alignment, bytes); }
int posix_memalign(void** memory, size_t alignment, size_t bytes) {
  *memory = memalign(alignment, bytes);
  return *memory == nullptr ? ENOMEM : 0;
}
void free(void* memory) {
  of_malloc -= SizeOf(memory);
  __libc_free(memory);
}
void* mmap(void* at, size_t bytes, int protection, int flags, int file, off_t offset) {
  if ((flags & MAP_ANONYMOUS) != 0 && (protection & PROT_WRITE) != 0) {
    mapped += static_cast<int64_t>(bytes);
  }
  return reinterpret_cast<void*>(syscall(SYS_mmap, at, bytes, protection, flags, file, offset));
}
void* mmap64(void* at, size_t bytes, int protection, int flags, int file, off64_t offset) {
  return mmap(at, bytes, protection, flags, file, offset);
}
}  // extern "C"

void* operator new(size_t bytes) {
  void* const memory = Counted(of_new, malloc(bytes));
  if (memory == nullptr) std::abort();
  return memory;
}
void* operator new(size_t bytes, std::align_val_t alignment) {
  void* const memory = Counted(of_new, memalign(static_cast<size_t>(alignment), bytes));
  if (memory == nullptr) std::abort();
  return memory;
}
void operator delete(void* memory) noexcept {
  of_new -= SizeOf(memory);
  free(memory);
}
void operator delete(void* memory, size_t) noexcept { operator delete(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { operator delete(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { operator delete(memory); }

namespace weft::test {
namespace {

// Before anything of Weft takes memory.
const bool hooked = SetMemoryHooks(HostMemory::Get().hooks()).ok();

struct Amounts {
  int64_t hooks = static_cast<int64_t>(HostMemory::Get().bytes());
  int64_t with_new = of_new;
  int64_t all = of_malloc;
  int64_t beside = mapped;

  int64_t counted() const { return hooks + with_new; }
};

// Keeps what it is to run.
class Holding final : public Executor {
 public:
  bool Run(Function<void()> task) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    tasks_.push_back(std::move(task));
    return true;
  }
  size_t held() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return tasks_.size();
  }
  void RunAll() {
    std::deque<Function<void()>> tasks;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      tasks.swap(tasks_);
    }
    for (Function<void()>& task : tasks) task();
  }

 private:
  std::mutex mutex_;
  std::deque<Function<void()>> tasks_;  // guarded by mutex_
};

struct EchoService final : Probe::Service {
  absl::Status Echo(ServerContext&, const Data& request, Data* reply) override {
    *reply = request;
    return absl::OkStatus();
  }
};

class CountedMemoryTest : public testing::TestWithParam<PathKind> {
 protected:
  CountedMemoryTest() {
    EXPECT_TRUE(hooked);
    server_ = *Server::Create();
    EXPECT_TRUE(server_->AddService(&service_, &holding_).ok());
    EXPECT_TRUE(server_->Listen("127.0.0.1:0").ok());
    EngineOptions options;
    options.drive = EngineOptions::Drive::kCaller;
    engine_ = *OpenNetworkEngine(options);
  }
  ~CountedMemoryTest() override {
    channels_.clear();
    holding_.RunAll();
  }
  void Open(size_t channels) {
    ChannelOptions options;
    options.link.paths = {GetParam()};
    for (size_t i = 0; i < channels; ++i) {
      channels_.push_back(*Channel::Open(*engine_, server_->address(), options));
    }
  }
  // Each channel has that many calls under way, whose handlers have not begun.
  void Call(size_t calls, size_t bytes) {
    const Data request = MakeData(1, bytes);
    const size_t held = holding_.held() + channels_.size() * calls;
    for (const auto& channel : channels_) {
      const Probe::Stub stub(*channel);
      for (size_t i = 0; i < calls; ++i) {
        stub.Echo(request, &replies_.emplace_back(), {},
                  [this](const absl::Status& status) { ended_ += status.ok(); });
      }
    }
    while (holding_.held() < held) engine_->Poll();
  }

  EchoService service_;
  Holding holding_;
  std::unique_ptr<Server> server_;
  std::unique_ptr<Engine> engine_;
  std::vector<std::unique_ptr<Channel>> channels_;
  std::deque<Data> replies_;
  size_t ended_ = 0;
};

TEST_P(CountedMemoryTest, HooksAndOperatorNewHaveAllThatGrows) {
  constexpr size_t kChannels = 32;
  constexpr size_t kCalls = 32;
  constexpr size_t kBytes = 30'000;
  Open(1);  // what there is one of: libraries begin
  Call(1, kBytes);
  const Amounts before;
  Open(kChannels);
  Call(kCalls, kBytes);
  const Amounts after;
  const int64_t counted = after.counted() - before.counted();
  EXPECT_GT(counted, int64_t{kChannels * kCalls * kBytes}) << "the requests, at least";
  // The C library's rounding of what the hooks give is in it.
  const int64_t uncounted = after.all - before.all - counted;
  EXPECT_LT(uncounted, counted / 50)
      << "of " << counted << ", hooks " << after.hooks - before.hooks;
  EXPECT_GT(uncounted, -counted / 50);
  EXPECT_EQ(after.beside, before.beside);

  holding_.RunAll();
  while (ended_ < replies_.size()) engine_->Poll();
}

INSTANTIATE_TEST_SUITE_P(Paths, CountedMemoryTest, testing::Values(PathKind::kShm, PathKind::kTcp),
                         [](const auto& info) { return std::string(PathKindName(info.param)); });

}  // namespace
}  // namespace weft::test
