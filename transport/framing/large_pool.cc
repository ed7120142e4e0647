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
  if (!ClaimsOf(bytes).empty() || HasApart(client)) return nullptr;
  return Take(ClassOf(bytes), client);
}

LargeBuffer* LargePool::AcquireOrWait(size_t bytes, uint64_t client, LargeClaim* claim) {
  LargeBuffer* const buffer = Acquire(bytes, client);
  if (buffer == nullptr) {
    claim->bytes_ = bytes;
    claim->client_ = client;
    const bool in_line = MayHave(client, bytes) && !HasApart(client);
    (in_line ? ClaimsOf(bytes) : ApartOf(client).claims).PushBack(claim);
  }
  return buffer;
}

void LargePool::Withdraw(LargeClaim* claim) {
  if (!Claims::IsLinked(claim)) return;
  Claims::Remove(claim);
  ServeClaims();
}

void LargePool::Watch(LargeWatcher* watcher, uint64_t client) {
  if (watcher->linked()) return;
  ApartOf(client).watchers.PushBack(watcher);
}

void LargePool::Release(LargeBuffer* buffer) {
  GiveShare(*buffer);
  Keep(buffer);
}

// Its client has it no more, whose turn comes first: it may have nothing else to release.
void LargePool::GiveShare(const LargeBuffer& buffer) {
  shares_.Give(buffer.client, Counted(buffer.memory.size()));
  const auto own = apart_.find(buffer.client);
  if (own == apart_.end()) return;
  turns_.Remove(&own->second);
  turns_.PushFront(&own->second);
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
  ServeClaims();
}

// --- lending ------------------------------------------------------------------------------------

std::shared_ptr<const void> LargePool::Lend(LargeBuffer* buffer) {
  const size_t most = std::min(limit_bytes_ / 2, limit_bytes_ - kLargestBytes - reserve_bytes_);
  if (lent_bytes_ + buffer->memory.size() > most) return nullptr;
  lent_bytes_ += buffer->memory.size();
  GiveShare(*buffer);
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
  WEFT_CHECK(shares_.all() + lent_bytes_ <= limit_bytes_);
  const LargeClaim* const first = large_claims_.Front();
  // Ours: nobody waits whom a release has passed over
  WEFT_CHECK(first == nullptr || !MayTake(kSmallestBytes << ClassOf(first->bytes_)) ||
             !MayHave(first->client_, first->bytes_));
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

bool LargePool::MayHave(uint64_t client, size_t bytes, uint64_t coming) const {
  const uint64_t more = coming + Counted(bytes);
  if (shares_.all() + more + left_bytes_ + lent_bytes_ <= limit_bytes_) return true;
  const uint64_t of_client = shares_.Of(client);
  if (of_client + coming == 0) return true;
  return of_client + more <= reserve_bytes_ / (shares_.clients() + 1);
}

bool LargePool::MayTake(size_t bytes) const {
  if (shares_.all() + Counted(bytes) + lent_bytes_ > limit_bytes_) return false;
  if (bytes > kSmallBytes) return large_bytes_ + bytes <= limit_bytes_ - reserve_bytes_;
  return large_claims_.empty() || in_use_bytes_ - large_bytes_ + bytes <= reserve_bytes_;
}

LargeBuffer* LargePool::Take(size_t size_class, uint64_t client) {
  const size_t bytes = kSmallestBytes << size_class;
  if (!MayTake(bytes) || !MayHave(client, bytes)) return nullptr;
  LargeBuffer* buffer = kept_[size_class];
  if (buffer != nullptr) {
    kept_[size_class] = buffer->next;
    kept_bytes_ -= buffer->memory.size();
  } else {
    buffer = Make(bytes);
    if (buffer == nullptr && kept_bytes_ > 0) {
      // The system has no more: what is kept, of other sizes, goes back first.
      MakeRoom(limit_bytes_ - in_use_bytes_);
      buffer = Make(bytes);
    }
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

// --- those that wait ----------------------------------------------------------------------------

bool LargePool::HasApart(uint64_t client) const {
  if (apart_.empty()) return false;
  const auto found = apart_.find(client);
  return found != apart_.end() && !found->second.claims.empty();
}

LargePool::Apart& LargePool::ApartOf(uint64_t client) {
  const auto [found, is_new] = apart_.try_emplace(client, client);
  if (is_new) turns_.PushBack(&found->second);
  return found->second;
}

void LargePool::ServeClaims() {
  ReleaseThoseBack();
  Serve(large_claims_);
  Serve(small_claims_);
  LookAtThoseApart();
  // Nothing more is released where nothing is in use.
  while (in_use_bytes_ == lent_bytes_ && !turns_.empty()) LookAtThoseApart();
}

// Each client once, a few of them.
void LargePool::LookAtThoseApart() {
  const Apart* const last = turns_.Back();
  for (int looks = 0; looks < kMostLooks; ++looks) {
    Apart* const next = turns_.PopFront();
    if (next == nullptr) return;
    uint64_t coming = 0;
    for (int i = 0; i < kMostLooks; ++i) {
      LargeClaim* const claim = next->claims.Front();
      if (claim == nullptr || !MayHave(next->client, claim->bytes_, coming)) break;
      coming += Counted(claim->bytes_);
      ClaimsOf(claim->bytes_).PushBack(next->claims.PopFront());
    }
    for (int i = 0; i < kMostLooks && MayHave(next->client, kSmallestBytes, coming); ++i) {
      LargeWatcher* const watcher = next->watchers.PopFront();
      if (watcher == nullptr) break;
      watcher->OnReleased();
    }
    const bool is_last = next == last;
    if (next->claims.empty() && next->watchers.empty()) {
      apart_.erase(next->client);
    } else {
      turns_.PushBack(next);
    }
    // These may call the pool, which finds all of apart_ in turns_.
    if (coming > 0) {
      Serve(large_claims_);
      Serve(small_claims_);
    }
    if (is_last) return;
  }
}

void LargePool::Serve(Claims& claims) {
  while (LargeClaim* const claim = claims.Front()) {
    if (!MayHave(claim->client_, claim->bytes_)) {
      claims.Remove(claim);
      ApartOf(claim->client_).claims.PushFront(claim);
      continue;
    }
    LargeBuffer* const buffer = Take(ClassOf(claim->bytes_), claim->client_);
    if (buffer == nullptr && in_use_bytes_ > lent_bytes_) return;
    claims.Remove(claim);
    claim->OnBuffer(buffer);
  }
}

}  // namespace weft
