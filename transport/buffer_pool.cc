#include "transport/buffer_pool.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <mutex>
#include <utility>
#include <vector>

#include "core/check.h"
#include "core/client_shares.h"
#include "core/intrusive_list.h"
#include "core/poison.h"
#include "core/status.h"
#include "core/strings.h"
#include "transport/close_on_engine.h"
#include "transport/engine.h"
#include "transport/local_memory.h"

namespace weft {

class BufferSlab;

// What a Buffer and its pins hold. It goes back when the last of them is gone.
struct BufferCell {
  BufferSlab* slab = nullptr;
  size_t offset = 0;
  std::atomic<uint32_t> references{0};
  BufferCell* next_idle = nullptr;
  std::shared_ptr<BufferPoolCore> core;  // while in use
};

namespace {

constexpr size_t kSmallClasses = 10;           // 4 KiB, 8 KiB, ... 2 MiB: several in a slab
constexpr size_t kSlabClasses = 15;            // ... 64 MiB: a slab each
constexpr size_t kClasses = kSlabClasses + 1;  // the last one: any size above
static_assert(BufferPool::kMinBufferBytes << (kSmallClasses - 1) == BufferPool::kSlabBytes);
static_assert(BufferPool::kMinBufferBytes << (kSlabClasses - 1) == BufferPool::kMaxClassBytes);

// What a buffer of `bytes` takes. REQUIRES: bytes <= 2^63.
size_t CellBytes(size_t bytes) {
  if (bytes <= BufferPool::kMinBufferBytes) return BufferPool::kMinBufferBytes;
  if (bytes <= BufferPool::kMaxClassBytes) return std::bit_ceil(bytes);
  return (bytes + BufferPool::kSlabBytes - 1) / BufferPool::kSlabBytes * BufferPool::kSlabBytes;
}

size_t ClassOf(size_t cell_bytes) {
  if (cell_bytes > BufferPool::kMaxClassBytes) return kClasses - 1;
  return static_cast<size_t>(std::countr_zero(cell_bytes / BufferPool::kMinBufferBytes));
}

bool SharesSlab(size_t cell_bytes) { return cell_bytes <= BufferPool::kSlabBytes; }

size_t SlabBytes(size_t cell_bytes) { return std::max(cell_bytes, BufferPool::kSlabBytes); }

}  // namespace

// One mapping, cut into cells of one size. All but Pin() and Unpin() under the core's mutex; these
// and Close() on the engine's thread.
class BufferSlab final : public ListNode<>, private LocalMemory::Keeper {
 public:
  BufferSlab(MappedMemory mapping, uint32_t engines, uint32_t first_number)
      : mapping_(std::move(mapping)), memory_(mapping_.bytes(), this, engines, first_number) {}
  ~BufferSlab() { Unpoison(mapping_.bytes()); }

  // For buffers of this client; cuts it anew. REQUIRES: idle().
  void Format(size_t cell_bytes, uint64_t client) {
    client_ = client;
    if (cell_bytes == cell_bytes_) return;
    cell_bytes_ = cell_bytes;
    count_ = SlabBytes(cell_bytes) / cell_bytes;
    cells_ = std::make_unique<BufferCell[]>(count_);
    first_idle_ = nullptr;
    for (size_t i = count_; i-- > 0;) {
      cells_[i].slab = this;
      cells_[i].offset = i * cell_bytes;
      PutBack(&cells_[i]);
    }
    in_use_ = 0;
    Poison(mapping_.bytes());
  }

  // REQUIRES: !full().
  BufferCell* Take() {
    BufferCell* const cell = std::exchange(first_idle_, first_idle_->next_idle);
    ++in_use_;
    return cell;
  }
  void GiveBack(BufferCell* cell) {
    Poison(memory_.bytes().subspan(cell->offset, cell_bytes_));
    PutBack(cell);
    --in_use_;
  }

  // Closes its registrations, for good. Operations that are late have pinned their memory, and the
  // provider has its registration: then they are closed with the last pin.
  void Close() {
    closed_ = true;
    if (pins_ == 0) memory_.DropRegions();
  }
  // Those of another engine than the first.
  void CloseOf(uint32_t engine) { memory_.DropRegionsOf(engine); }

  bool full() const { return in_use_ == count_; }
  bool idle() const { return in_use_ == 0; }
  size_t cell_bytes() const { return cell_bytes_; }
  uint64_t client() const { return client_; }  // of what is in use
  size_t bytes() const { return mapping_.bytes().size(); }
  MappedMemory::Pages pages() const { return mapping_.pages(); }
  LocalMemory& memory() { return memory_; }

 private:
  void PutBack(BufferCell* cell) { cell->next_idle = std::exchange(first_idle_, cell); }

  // While a cell is in use its slab is not cut anew.
  BufferCell* At(size_t offset) { return &cells_[count_ == 1 ? 0 : offset / cell_bytes_]; }
  void Pin(size_t offset) override;
  void Unpin(size_t offset) override;

  const MappedMemory mapping_;
  LocalMemory memory_;
  size_t cell_bytes_ = 0;
  uint64_t client_ = 0;
  size_t count_ = 0;
  size_t in_use_ = 0;
  BufferCell* first_idle_ = nullptr;
  std::unique_ptr<BufferCell[]> cells_;
  // Engine thread only.
  uint32_t pins_ = 0;
  bool closed_ = false;
};

class BufferPoolCore : public std::enable_shared_from_this<BufferPoolCore> {
 public:
  BufferPoolCore(const BufferPoolOptions& options, uint32_t engines, uint32_t first_number)
      : options_(options),
        engines_(engines),
        first_number_(first_number),
        arena_(options.memory, options.max_bytes) {}
  ~BufferPoolCore();

  absl::StatusOr<std::unique_ptr<Buffer>> Allocate(size_t bytes, uint64_t client);
  static void Release(BufferCell* cell);
  static BufferCell* Reference(BufferCell* cell);

  // --- engine thread ---
  // Unmaps idle slabs until a slab for `bytes` more would fit.
  void Trim(size_t bytes);
  // Closes all registrations of this engine, for good.
  void Close(uint32_t engine);

  // Whether that may make room for the client.
  bool MayTrim(size_t bytes, uint64_t client);
  uint64_t max_bytes() const { return options_.max_bytes; }
  uint64_t mapped_bytes() const { return Locked(mapped_bytes_); }
  uint64_t buffers() const { return Locked(buffers_); }
  MappedMemory::Pages pages() const { return Locked(pages_); }

 private:
  using SlabList = IntrusiveList<BufferSlab>;

  template <class T>
  T Locked(const T& value) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return value;
  }
  // All with mutex_ held.
  absl::StatusOr<BufferSlab*> SlabFor(size_t cell_bytes, uint64_t client);
  BufferSlab* FindOpen(size_t cell_bytes, uint64_t client);
  BufferSlab* FindIdle(size_t first_class, size_t end_class);
  BufferSlab* FindCut(size_t cell_bytes);
  bool MayHave(size_t slab_bytes, uint64_t client) const;
  absl::StatusOr<BufferSlab*> MapSlab(size_t bytes);
  void Destroy(BufferSlab* slab);
  void GiveBack(BufferCell* cell);

  const BufferPoolOptions options_;
  const uint32_t engines_;
  const uint32_t first_number_;
  const uint32_t forks_ = ForkCount();
  mutable std::mutex mutex_;
  // Guarded by mutex_.
  MemoryArena arena_;
  std::array<SlabList, kClasses> open_;  // slabs with cells in use, and idle ones
  std::array<SlabList, kClasses> idle_;  // with idle ones only
  SlabList full_;
  ClientShares shares_;  // bytes of slabs in use
  uint64_t mapped_bytes_ = 0;
  uint64_t buffers_ = 0;
  MappedMemory::Pages pages_ = MappedMemory::Pages::kSmall;
};

// --- cells --------------------------------------------------------------------------------------

BufferCell* BufferPoolCore::Reference(BufferCell* cell) {
  cell->references.fetch_add(1, std::memory_order_relaxed);
  return cell;
}

void BufferPoolCore::Release(BufferCell* cell) {
  if (cell->core->forks_ != ForkCount()) return;  // the parent's: whoever had the lock may have it
  if (cell->references.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  const std::shared_ptr<BufferPoolCore> core = std::move(cell->core);
  const std::lock_guard<std::mutex> lock(core->mutex_);
  core->GiveBack(cell);
}

void BufferSlab::Pin(size_t offset) {
  ++pins_;
  BufferPoolCore::Reference(At(offset));
}

void BufferSlab::Unpin(size_t offset) {
  if (--pins_ == 0 && closed_) memory_.DropRegions();
  BufferPoolCore::Release(At(offset));  // this may be gone now
}

// --- slabs --------------------------------------------------------------------------------------

BufferPoolCore::~BufferPoolCore() {
  WEFT_CHECK(full_.empty() && buffers_ == 0);  // Ours: each buffer holds the pool
  for (SlabList& list : idle_) {
    while (BufferSlab* slab = list.PopFront()) delete slab;
  }
}

absl::StatusOr<std::unique_ptr<Buffer>> BufferPoolCore::Allocate(size_t bytes, uint64_t client) {
  const size_t cell_bytes = CellBytes(bytes);
  const std::lock_guard<std::mutex> lock(mutex_);
  WEFT_ASSIGN_OR_RETURN(BufferSlab* const slab, SlabFor(cell_bytes, client));
  BufferCell* const cell = Reference(slab->Take());
  if (slab->full()) {
    SlabList::Remove(slab);
    full_.PushBack(slab);
  }
  cell->core = shared_from_this();
  ++buffers_;
  const Slice all = {&slab->memory(), cell->offset, bytes};
  Unpoison(all.bytes());
  return std::make_unique<Buffer>(all, [cell] { Release(cell); });
}

void BufferPoolCore::GiveBack(BufferCell* cell) {
  BufferSlab* const slab = cell->slab;
  slab->GiveBack(cell);
  --buffers_;
  // Those that were used last are in the processor's cache.
  SlabList::Remove(slab);
  const size_t cell_bytes = slab->cell_bytes();
  (slab->idle() ? idle_ : open_)[ClassOf(cell_bytes)].PushFront(slab);
  if (slab->idle() && slab->client() != 0) shares_.Give(slab->client(), SlabBytes(cell_bytes));
}

absl::StatusOr<BufferSlab*> BufferPoolCore::SlabFor(size_t cell_bytes, uint64_t client) {
  BufferSlab* slab = FindOpen(cell_bytes, client);
  if (slab != nullptr) return slab;
  const size_t slab_bytes = SlabBytes(cell_bytes);
  if (!MayHave(slab_bytes, client)) {
    return absl::ResourceExhaustedError(
        StrCat("clients have ", shares_.all(), " of ", options_.max_bytes,
               " bytes of a buffer pool (BufferPoolOptions::max_bytes), ", shares_.Of(client),
               " of them this one, which can have no ", slab_bytes,
               " more: ask for less at a time, or try again later"));
  }
  slab = FindCut(cell_bytes);
  if (slab == nullptr && SharesSlab(cell_bytes)) slab = FindIdle(0, kSmallClasses);
  if (slab == nullptr) {
    WEFT_ASSIGN_OR_RETURN(slab, MapSlab(slab_bytes));
  }
  SlabList::Remove(slab);
  slab->Format(cell_bytes, client);
  open_[ClassOf(cell_bytes)].PushFront(slab);
  if (client != 0) shares_.Take(client, slab_bytes);
  return slab;
}

// Each of its class is cut alike; those above the classes have one cell, and are never here.
BufferSlab* BufferPoolCore::FindOpen(size_t cell_bytes, uint64_t client) {
  for (BufferSlab& slab : open_[ClassOf(cell_bytes)]) {
    if (slab.client() == client) return &slab;
  }
  return nullptr;
}

BufferSlab* BufferPoolCore::FindCut(size_t cell_bytes) {
  for (BufferSlab& slab : idle_[ClassOf(cell_bytes)]) {
    if (slab.cell_bytes() == cell_bytes) return &slab;
  }
  return nullptr;
}

BufferSlab* BufferPoolCore::FindIdle(size_t first_class, size_t end_class) {
  for (size_t i = first_class; i < end_class; ++i) {
    if (!idle_[i].empty()) return idle_[i].Front();
  }
  return nullptr;
}

bool BufferPoolCore::MayHave(size_t slab_bytes, uint64_t client) const {
  return client == 0 || shares_.HasRoom(client, slab_bytes, options_.max_bytes);
}

absl::StatusOr<BufferSlab*> BufferPoolCore::MapSlab(size_t bytes) {
  if (bytes > options_.max_bytes || mapped_bytes_ > options_.max_bytes - bytes) {
    return absl::ResourceExhaustedError(
        StrCat("a buffer pool of ", mapped_bytes_, " bytes, asked for ", bytes,
               " more, would exceed BufferPoolOptions::max_bytes, ", options_.max_bytes));
  }
  WEFT_ASSIGN_OR_RETURN(MappedMemory mapping, arena_.Map(bytes));
  mapped_bytes_ += mapping.bytes().size();
  pages_ = mapping.pages();
  return new BufferSlab(std::move(mapping), engines_, first_number_);
}

void BufferPoolCore::Destroy(BufferSlab* slab) {
  mapped_bytes_ -= slab->bytes();
  SlabList::Remove(slab);
  delete slab;
}

bool BufferPoolCore::MayTrim(size_t bytes, uint64_t client) {
  if (engines_ > 1) return false;
  const size_t cell_bytes = CellBytes(bytes);
  const std::lock_guard<std::mutex> lock(mutex_);
  return cell_bytes <= options_.max_bytes && FindIdle(0, kClasses) != nullptr &&
         MayHave(SlabBytes(cell_bytes), client);
}

void BufferPoolCore::Trim(size_t bytes) {
  const size_t wanted = SlabBytes(CellBytes(bytes));
  const std::lock_guard<std::mutex> lock(mutex_);
  while (mapped_bytes_ + wanted > options_.max_bytes) {
    BufferSlab* const slab = FindIdle(0, kClasses);
    if (slab == nullptr) return;
    Destroy(slab);
  }
}

void BufferPoolCore::Close(uint32_t engine) {
  const auto close = [engine](BufferSlab& slab) {
    if (engine == 0) {
      slab.Close();
    } else {
      slab.CloseOf(engine);
    }
  };
  const std::lock_guard<std::mutex> lock(mutex_);
  for (std::array<SlabList, kClasses>* const lists : {&open_, &idle_}) {
    for (SlabList& list : *lists) {
      for (BufferSlab& slab : list) close(slab);
    }
  }
  for (BufferSlab& slab : full_) close(slab);
}

namespace {

// In memory of the engines' node, if they have one and the same, and `options` name none.
BufferPoolOptions OnNodeOf(const std::vector<EngineCore*>& engines, BufferPoolOptions options) {
  const int node = engines.front()->numa_node();
  const bool is_all = std::all_of(engines.begin(), engines.end(), [node](const EngineCore* engine) {
    return engine->numa_node() == node;
  });
  if (options.memory.numa_node < 0 && is_all) options.memory.numa_node = node;
  return options;
}

}  // namespace

// --- BufferPool ---------------------------------------------------------------------------------

BufferPool::BufferPool(Engine* engine, const BufferPoolOptions& options)
    : BufferPool(std::vector<EngineCore*>{&CoreOf(*engine)}, options) {}

BufferPool::BufferPool(std::vector<EngineCore*> engines, const BufferPoolOptions& options)
    : engines_(std::move(engines)),
      core_(std::make_shared<BufferPoolCore>(OnNodeOf(engines_, options),
                                             static_cast<uint32_t>(engines_.size()),
                                             engines_.front()->transport().first_path_number())) {}

BufferPool::~BufferPool() {
  if (engines_.front()->forked()) {
    LeaveBehind(std::shared_ptr<BufferPoolCore>(core_));
    return;
  }
  for (uint32_t number = 0; number < engines_.size(); ++number) {
    CloseOnEngine(*engines_[number], [this, number] { core_->Close(number); });
  }
}

absl::StatusOr<std::unique_ptr<Buffer>> BufferPool::Allocate(size_t bytes, uint64_t client) {
  if (bytes == 0) return absl::InvalidArgumentError("a buffer of 0 bytes");
  if (engines_.front()->forked()) return EngineCore::ForkedError();
  if (bytes > ~size_t{0} / 2) {
    return absl::ResourceExhaustedError(StrCat("a buffer of ", bytes, " bytes"));
  }
  absl::StatusOr<std::unique_ptr<Buffer>> buffer = core_->Allocate(bytes, client);
  if (!absl::IsResourceExhausted(buffer.status()) || !core_->MayTrim(bytes, client)) return buffer;
  EngineCore* const engine = engines_.front();
  if (engine->Enter()) {
    core_->Trim(bytes);
    engine->Leave();
  } else {
    // May run after this thread has lost its patience.
    const auto trimmed = std::make_shared<Waiter>();
    const bool posted = engine->Post([engine, core = core_, trimmed, bytes] {
      core->Trim(bytes);
      engine->Finish(*trimmed);
    });
    if (!posted) return buffer;
    engine->Wait(*trimmed, engine->clock().NowNs() + kTrimPatienceNs);
  }
  return core_->Allocate(bytes, client);
}

uint64_t BufferPool::max_bytes() const { return core_->max_bytes(); }
uint64_t BufferPool::mapped_bytes() const { return core_->mapped_bytes(); }
uint64_t BufferPool::buffers() const { return core_->buffers(); }
MappedMemory::Pages BufferPool::pages() const { return core_->pages(); }

}  // namespace weft
