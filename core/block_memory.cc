#include "core/block_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <bit>
#include <cerrno>
#include <limits>
#include <new>

#include "core/check.h"

namespace weft {
namespace {

// Stands for the system.
constexpr MemoryHooks kSystem;

// What was decided; null: nothing yet.
constinit std::atomic<const MemoryHooks*> decided{nullptr};

const MemoryHooks* Decide() {
  const MemoryHooks* hooks = decided.load(std::memory_order_acquire);
  if (hooks != nullptr) return hooks;
  decided.compare_exchange_strong(hooks, &kSystem, std::memory_order_acq_rel,
                                  std::memory_order_acquire);
  return hooks != nullptr ? hooks : &kSystem;
}

struct Count {
  std::atomic<uint64_t> bytes{0};
  std::atomic<uint64_t> peak{0};

  void Add(uint64_t more) {
    const uint64_t now = bytes.fetch_add(more, std::memory_order_relaxed) + more;
    uint64_t before = peak.load(std::memory_order_relaxed);
    while (before < now && !peak.compare_exchange_weak(before, now, std::memory_order_relaxed)) {
    }
  }
  void Subtract(uint64_t fewer) { bytes.fetch_sub(fewer, std::memory_order_relaxed); }
  MemoryAmount Read() const {
    return {bytes.load(std::memory_order_relaxed), peak.load(std::memory_order_relaxed)};
  }
};

constinit Count total;
constinit Count counts[kMemoryKinds];

constexpr bool IsOverAligned(size_t alignment) {
  return alignment > __STDCPP_DEFAULT_NEW_ALIGNMENT__;
}

size_t PageBytes() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }

}  // namespace

absl::Status SetMemoryHooks(const MemoryHooks& hooks) {
  if (hooks.take == nullptr || hooks.give == nullptr) {
    return absl::InvalidArgumentError("MemoryHooks need take and give: one of them is null");
  }
  auto* const kept = new MemoryHooks(hooks);  // for ever, as blocks may be
  const MemoryHooks* nobody = nullptr;
  if (decided.compare_exchange_strong(nobody, kept, std::memory_order_acq_rel)) {
    return absl::OkStatus();
  }
  delete kept;
  return absl::FailedPreconditionError(
      "SetMemoryHooks() comes too late: Weft has taken memory already, or there are hooks; call it "
      "once, before the first engine, channel or server is made");
}

MemoryReport MemoryUsage() {
  MemoryReport report;
  report.total = total.Read();
  for (size_t kind = 0; kind < kMemoryKinds; ++kind) report.by_kind[kind] = counts[kind].Read();
  return report;
}

bool HasMemoryHooks() { return Decide() != &kSystem; }

void CountTaken(MemoryKind kind, size_t bytes) {
  counts[static_cast<size_t>(kind)].Add(bytes);
  total.Add(bytes);
}

void CountGiven(MemoryKind kind, size_t bytes) {
  counts[static_cast<size_t>(kind)].Subtract(bytes);
  total.Subtract(bytes);
}

void* TakeBlock(size_t bytes, size_t alignment, MemoryKind kind) {
  const MemoryHooks* const hooks = Decide();
  void* memory = nullptr;
  if (hooks != &kSystem) {
    memory = hooks->take(bytes, alignment, kind, hooks->context);
  } else if (IsOverAligned(alignment)) {
    memory = ::operator new (bytes, std::align_val_t{alignment}, std::nothrow);
  } else {
    memory = ::operator new(bytes, std::nothrow);
  }
  if (memory != nullptr) CountTaken(kind, bytes);
  return memory;
}

void GiveBlock(void* memory, size_t bytes, size_t alignment, MemoryKind kind) {
  CountGiven(kind, bytes);
  const MemoryHooks* const hooks = Decide();
  if (hooks != &kSystem) {
    hooks->give(memory, bytes, alignment, kind, hooks->context);
  } else if (IsOverAligned(alignment)) {
    ::operator delete (memory, std::align_val_t{alignment});
  } else {
    ::operator delete(memory);
  }
}

void* TakePages(size_t bytes, MemoryKind kind) {
  if (HasMemoryHooks()) {
    void* const memory = TakeBlock(bytes, PageBytes(), kind);
    if (memory == nullptr) errno = ENOMEM;
    return memory;
  }
  void* const memory =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  CountTaken(kind, bytes);
  return memory;
}

void GivePages(void* memory, size_t bytes, MemoryKind kind) {
  if (HasMemoryHooks()) return GiveBlock(memory, bytes, PageBytes(), kind);
  munmap(memory, bytes);
  CountGiven(kind, bytes);
}

void* internal::TakeTableBytes(size_t count, size_t element_bytes, size_t alignment) {
  // Ours: tables are made for what options and constants bound
  WEFT_CHECK(count <= std::numeric_limits<size_t>::max() / element_bytes);
  void* const memory = TakeBlock(count * element_bytes, alignment, MemoryKind::kTables);
  WEFT_CHECK(memory != nullptr);  // System: or its host: out of memory, as for operator new
  return memory;
}

// --- Block --------------------------------------------------------------------------------------

Block Block::Take(size_t bytes, size_t alignment, MemoryKind kind) {
  // Ours: slots, rings' places and buffers for sockets are of a MiB at most
  WEFT_CHECK(bytes <= std::numeric_limits<uint32_t>::max());
  Block block;
  block.data_ = static_cast<std::byte*>(TakeBlock(bytes, alignment, kind));
  block.bytes_ = block.data_ != nullptr ? static_cast<uint32_t>(bytes) : 0;
  block.alignment_bits_ = static_cast<uint8_t>(std::countr_zero(alignment));
  block.kind_ = kind;
  return block;
}

Block Block::MustTake(size_t bytes, size_t alignment, MemoryKind kind) {
  Block block = Take(bytes, alignment, kind);
  WEFT_CHECK(!block.empty());  // System: or its host: out of memory, as for operator new
  return block;
}

Block& Block::operator=(Block&& other) noexcept {
  if (this == &other) return *this;
  Reset();
  data_ = std::exchange(other.data_, nullptr);
  bytes_ = std::exchange(other.bytes_, 0);
  alignment_bits_ = other.alignment_bits_;
  kind_ = other.kind_;
  return *this;
}

void Block::Reset() {
  if (data_ == nullptr) return;
  GiveBlock(std::exchange(data_, nullptr), std::exchange(bytes_, 0), size_t{1} << alignment_bits_,
            kind_);
}

}  // namespace weft
