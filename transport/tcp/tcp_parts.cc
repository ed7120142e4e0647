#include "transport/tcp/tcp_parts.h"

#include <utility>

namespace weft {

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
    right_guesses_ = asked == link ? std::min(right_guesses_ + 1, kGuessesToTrust) : 0;
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
      receive_memory(slots.widest_bytes()),
      links(&stats) {}

}  // namespace weft
