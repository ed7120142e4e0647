#include "transport/framing/large_pool.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "core/check.h"
#include "core/poison.h"

namespace weft {

namespace {

MappedMemoryOptions MemoryOptions(const LinkDomain* domain) {
  using Source = MappedMemoryOptions::Source;
  MappedMemoryOptions options;
  options.source = domain == nullptr ? Source::kMemfd : Source::kAnonymous;
  return options;
}

}  // namespace

LargePool::LargePool(LinkDomain* domain, size_t limit_bytes)
    : domain_(domain),
      limit_bytes_(limit_bytes),
      reserve_bytes_(std::min(limit_bytes / 8, limit_bytes - std::min(limit_bytes, kLargestBytes))),
      left_bytes_(std::min(kLargestBytes + reserve_bytes_,
                           limit_bytes - std::min(limit_bytes, kLargestBytes))),
      arena_(MemoryOptions(domain), limit_bytes) {
  WEFT_CHECK(limit_bytes >= kLargestBytes);  // Ours: options are checked (network.cc)
}

LargePool::~LargePool() {
  ReleaseThoseBack();
  WEFT_CHECK(in_use_bytes_ == lent_bytes_);  // Ours: connections have given theirs back
  {
    const std::lock_guard lock(lent_->mutex);
    lent_->pool_gone = true;
    // One may have come back meanwhile.
    while (LargeBuffer* const buffer = lent_->back.PopFront()) Destroy(buffer);
    for (LargeBuffer& buffer : lent_->out) buffer.local.reset();
  }
  for (LargeBuffer*& first : kept_) {
    while (first != nullptr) Destroy(std::exchange(first, first->next));
  }
}

LargeBuffer* LargePool::Acquire(size_t bytes, uint64_t client) {
  WEFT_DCHECK(bytes <= kLargestBytes);  // Ours: both sides bound a message before
  ReleaseThoseBack();
  if (!ClaimsOf(bytes).empty()) return nullptr;
  return Take(ClassOf(bytes), client);
}

LargeBuffer* LargePool::AcquireOrWait(size_t bytes, uint64_t client, LargeClaim* claim) {
  LargeBuffer* const buffer = Acquire(bytes, client);
  if (buffer == nullptr) {
    claim->bytes_ = bytes;
    claim->client_ = client;
    (HasRoom(client, bytes) ? ClaimsOf(bytes) : claims_apart_).PushBack(claim);
  }
  return buffer;
}

void LargePool::Withdraw(LargeClaim* claim) {
  if (!Claims::IsLinked(claim)) return;
  Claims::Remove(claim);
  ServeAll();
}

void LargePool::Watch(LargeWatcher* watcher) {
  if (!watchers_.IsLinked(watcher)) watchers_.PushBack(watcher);
}

void LargePool::Release(LargeBuffer* buffer) {
  shares_.Give(buffer->client, Counted(buffer->memory.size()));
  Keep(buffer);
}

// For the next one, if it is registered.
void LargePool::Keep(LargeBuffer* buffer) {
  const size_t size_class = ClassOf(buffer->memory.size());
  in_use_bytes_ -= buffer->memory.size();
  if (buffer->memory.size() > kSmallBytes) large_bytes_ -= buffer->memory.size();
  if (domain_ != nullptr && buffer->local == nullptr) {
    Destroy(buffer);
  } else {
    kept_bytes_ += buffer->memory.size();
    buffer->next = kept_[size_class];
    kept_[size_class] = buffer;
    Poison(buffer->memory);
  }
  ServeAll();
  while (LargeWatcher* watcher = watchers_.PopFront()) watcher->OnReleased();
}

// --- lending ------------------------------------------------------------------------------------

std::shared_ptr<const void> LargePool::Lend(LargeBuffer* buffer) {
  ReleaseThoseBack();
  const size_t most = std::min(limit_bytes_ / 2, limit_bytes_ - kLargestBytes - reserve_bytes_);
  if (lent_bytes_ + buffer->memory.size() > most) return nullptr;
  lent_bytes_ += buffer->memory.size();
  shares_.Give(buffer->client, Counted(buffer->memory.size()));
  {
    const std::lock_guard lock(lent_->mutex);
    lent_->out.PushBack(buffer);
  }
  return std::shared_ptr<const void>(
      buffer->memory.data(), [lent = lent_, buffer](const void*) { lent->TakeBack(buffer); });
}

void LargePool::Lent::TakeBack(LargeBuffer* buffer) {
  if (forks != ForkCount()) return;  // the parent's: whoever had the lock may have it
  const std::lock_guard lock(mutex);
  out.Remove(buffer);
  if (pool_gone) {
    delete buffer;
    return;
  }
  back.PushBack(buffer);
  some_back.store(true, std::memory_order_release);
}

void LargePool::ReleaseThoseBack() {
  if (!lent_->some_back.load(std::memory_order_acquire)) [[likely]]
    return;
  IntrusiveList<LargeBuffer, LentBufferTag> back;
  {
    const std::lock_guard lock(lent_->mutex);
    back.SpliceBack(lent_->back);
    lent_->some_back.store(false, std::memory_order_relaxed);
  }
  while (LargeBuffer* const buffer = back.PopFront()) {
    lent_bytes_ -= buffer->memory.size();
    Keep(buffer);
  }
}

void LargePool::CheckInvariants() const {
  size_t kept = 0;
  for (const LargeBuffer* buffer : kept_) {
    for (; buffer != nullptr; buffer = buffer->next) kept += buffer->memory.size();
  }
  // Ours: invariants, which tests ask for
  WEFT_CHECK(kept == kept_bytes_ && in_use_bytes_ + kept_bytes_ <= limit_bytes_);
  WEFT_CHECK(large_bytes_ <= in_use_bytes_ && large_bytes_ <= limit_bytes_ - reserve_bytes_);
  const std::lock_guard lock(lent_->mutex);
  size_t lent = 0;
  for (const LargeBuffer& buffer : lent_->out) lent += buffer.memory.size();
  for (const LargeBuffer& buffer : lent_->back) lent += buffer.memory.size();
  // Ours: invariants, which tests ask for
  WEFT_CHECK(lent == lent_bytes_ && lent_bytes_ <= in_use_bytes_);
}

size_t LargePool::ClassOf(size_t bytes) {
  return static_cast<size_t>(std::countr_zero(std::bit_ceil(std::max(bytes, kSmallestBytes))) -
                             std::countr_zero(kSmallestBytes));
}

uint64_t LargePool::Counted(size_t bytes) const {
  return std::max(kSmallestBytes << ClassOf(bytes), limit_bytes_ / kMaxBuffers);
}

bool LargePool::HasRoom(uint64_t client, size_t bytes) const {
  return shares_.HasRoom(client, Counted(bytes), limit_bytes_ - lent_bytes_, left_bytes_);
}

bool LargePool::MayTake(size_t bytes) const {
  if (bytes > kSmallBytes) return large_bytes_ + bytes <= limit_bytes_ - reserve_bytes_;
  return large_claims_.empty() || in_use_bytes_ - large_bytes_ + bytes <= reserve_bytes_;
}

LargeBuffer* LargePool::Take(size_t size_class, uint64_t client) {
  const size_t bytes = kSmallestBytes << size_class;
  if (!MayTake(bytes) || !HasRoom(client, bytes)) return nullptr;
  LargeBuffer* buffer = kept_[size_class];
  if (buffer != nullptr) {
    kept_[size_class] = buffer->next;
    kept_bytes_ -= buffer->memory.size();
  } else {
    buffer = Make(bytes);
    if (buffer == nullptr) return nullptr;
  }
  buffer->client = client;
  shares_.Take(client, Counted(bytes));
  in_use_bytes_ += buffer->memory.size();
  if (buffer->memory.size() > kSmallBytes) large_bytes_ += buffer->memory.size();
  Unpoison(buffer->memory);
  return buffer;
}

LargeBuffer* LargePool::Make(size_t bytes) {
  if (!MakeRoom(bytes)) return nullptr;
  absl::StatusOr<MappedMemory> mapping = arena_.Map(bytes);
  if (!mapping.ok()) return nullptr;
  auto* const buffer = new LargeBuffer(*std::move(mapping));
  buffer->memory = buffer->mapping.bytes().first(bytes);
  if (domain_ == nullptr) return buffer;
  auto region = domain_->Register(buffer->memory, Access::kLocalOnly);
  if (!region.ok()) {
    Destroy(buffer);
    return nullptr;
  }
  buffer->local = *std::move(region);
  return buffer;
}

// Gives kept buffers back to the system, the largest first, until `bytes` more are allowed.
bool LargePool::MakeRoom(size_t bytes) {
  for (size_t size_class = kClasses; size_class-- > 0;) {
    while (in_use_bytes_ + kept_bytes_ + bytes > limit_bytes_ && kept_[size_class] != nullptr) {
      LargeBuffer* const buffer = std::exchange(kept_[size_class], kept_[size_class]->next);
      kept_bytes_ -= buffer->memory.size();
      Destroy(buffer);
    }
  }
  return in_use_bytes_ + kept_bytes_ + bytes <= limit_bytes_;
}

void LargePool::Destroy(LargeBuffer* buffer) {
  buffer->local.reset();
  Unpoison(buffer->memory);
  delete buffer;
}

void LargePool::ServeAll() {
  LookAtThoseApart();
  Serve(large_claims_);
  Serve(small_claims_);
}

// All of them where nothing is in use: nothing more would be released.
void LargePool::LookAtThoseApart() {
  for (int looks = 0; looks < kMostLooks || in_use_bytes_ == lent_bytes_; ++looks) {
    LargeClaim* const claim = claims_apart_.PopFront();
    if (claim == nullptr) return;
    const bool has_room = HasRoom(claim->client_, claim->bytes_);
    (has_room ? ClaimsOf(claim->bytes_) : claims_apart_).PushBack(claim);
  }
}

void LargePool::Serve(Claims& claims) {
  while (LargeClaim* const claim = claims.Front()) {
    if (!HasRoom(claim->client_, claim->bytes_)) {
      claims.Remove(claim);
      claims_apart_.PushBack(claim);
      continue;
    }
    LargeBuffer* const buffer = Take(ClassOf(claim->bytes_), claim->client_);
    if (buffer == nullptr && in_use_bytes_ > lent_bytes_) return;
    claims.Remove(claim);
    claim->OnBuffer(buffer);
  }
}

}  // namespace weft
