#include "transport/tcp/tcp_parts.h"

#include "core/status.h"

namespace weft {

// --- operations ---------------------------------------------------------------------------------

TcpOperation* TcpOperations::Take() {
  SlabHandle handle;
  TcpOperation* const operation = records_.Allocate(&handle);
  operation->number = handle.slot | handle.generation << kPlaceBits;
  operation->sent_at = TcpOperation::kNotSent;
  operation->moved = operation->bytes_left = 0;
  if (handle.slot >= by_place_.size()) by_place_.resize(handle.slot + size_t{1});
  by_place_[handle.slot] = operation;
  return operation;
}

void TcpOperations::Give(TcpOperation* operation) {
  by_place_[operation->number & kPlaceMask] = nullptr;
  IntrusiveList<TcpLineItem, TcpLineTag>::Remove(operation);
  while (operation != nullptr) {
    TcpOperation* const record = operation;
    operation = std::exchange(record->next, nullptr);
    records_.Free(records_.HandleOf(record));
  }
}

// --- frames that arrive in parts ----------------------------------------------------------------

std::unique_ptr<std::byte[]> TcpFrameCells::Take() {
  if (free_.empty()) return std::unique_ptr<std::byte[]>(new std::byte[bytes_]);
  std::unique_ptr<std::byte[]> cell = std::move(free_.back());
  free_.pop_back();
  return cell;
}

void TcpFrameCells::Give(std::unique_ptr<std::byte[]> cell) {
  if (free_.size() < kKept) free_.push_back(std::move(cell));
}

// --- recent links -------------------------------------------------------------------------------

PrefetchList* TcpRecentLinks::TakeList() {
  if (free_.empty()) return &lists_.emplace_back();
  PrefetchList* const list = free_.back();
  free_.pop_back();
  return list;
}

void TcpRecentLinks::GiveList(PrefetchList* list) {
  list->Clear();
  free_.push_back(list);
}

void TcpRecentLinks::NoteAnother(TcpLink* link) {
  Forget(link);
  links_.PushBack(link);
  if (++count_ <= kMostRecent) return;
  links_.PopFront()->GoCold();
  --count_;
}

void TcpRecentLinks::Forget(TcpLink* link) {
  if (!decltype(links_)::IsLinked(link)) return;
  decltype(links_)::Remove(link);
  --count_;
}

// --- the likely link ----------------------------------------------------------------------------

void TcpLikelyLink::OnReceived(TcpLink* link) {
  if (const TcpLink* const asked = std::exchange(asked_, nullptr)) {
    answers_ = asked == link ? std::min(answers_ + 1, kAnswersToTrust) : 0;
  }
  if (near_ == link) {
    hits_ = std::min(hits_ + 1, kHitsToUnwatch);
    misses_ = 0;
  } else if (near_ == nullptr || hits_ == 0 || ++misses_ > kMostMisses) {
    Watch();
    near_ = link;
    hits_ = misses_ = 0;
  }
}

void TcpLikelyLink::Watch() {
  hits_ = std::min(hits_, 1);
  if (near_ != nullptr) near_->Watch();
}

// --- all of it ----------------------------------------------------------------------------------

TcpParts::TcpParts(const TcpOptions& options)
    : sink(options.sink),
      regions(&stats),
      slots(options.slot_bytes, options.wide_slot_bytes, options.max_pool_bytes, &stats),
      operations(options.max_outstanding_operations),
      cells(std::max(slots.widest_bytes(), kMostReadBytes)),
      links(&stats),
      buffer_memory(new std::byte[kBufferBytes + 64]),
      buffer(buffer_memory.get() +
             (-reinterpret_cast<uintptr_t>(buffer_memory.get()) & uintptr_t{63})) {}

}  // namespace weft
