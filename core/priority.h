// How urgent something is that waits, and the lists in which it does: what is more urgent leaves
// first, and the rest in order.
//
// Threads: as IntrusiveList. Lifetime: a list owns nothing. Errors: none.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "core/intrusive_list.h"

namespace weft {

// The most urgent first.
enum class Priority : uint8_t {
  kControl = 0,     // what others depend on: heartbeats, votes, renewals. Few and small
  kNormal = 1,      // what somebody waits for
  kBackground = 2,  // what can wait: repair, rebalancing, backups
};

inline constexpr size_t kPriorities = 3;

template <class T, class Tag = void>
class PriorityLists {
 public:
  bool empty() const { return lists_[0].empty() && lists_[1].empty() && lists_[2].empty(); }
  // Nobody waits whom one of `priority` must not pass.
  bool may_pass(Priority priority) const {
    for (size_t i = 0; i <= static_cast<size_t>(priority); ++i) {
      if (!lists_[i].empty()) return false;
    }
    return true;
  }

  // REQUIRES: the element is on no list of this Tag.
  void PushBack(T* element, Priority priority) { Of(priority).PushBack(element); }
  void PushFront(T* element, Priority priority) { Of(priority).PushFront(element); }
  static void Remove(T* element) { IntrusiveList<T, Tag>::Remove(element); }
  static bool IsLinked(const T* element) { return IntrusiveList<T, Tag>::IsLinked(element); }

  // The most urgent one that has waited longest, if it is at least as urgent as `least`; else null.
  T* Front(Priority least = Priority::kBackground) const {
    for (size_t i = 0; i <= static_cast<size_t>(least); ++i) {
      if (T* const element = lists_[i].Front()) return element;
    }
    return nullptr;
  }
  T* PopFront(Priority least = Priority::kBackground) {
    T* const element = Front(least);
    if (element != nullptr) Remove(element);
    return element;
  }
  void Clear() {
    for (IntrusiveList<T, Tag>& list : lists_) list.Clear();
  }

  // Calls visit(element) for each, the most urgent first; it may take the element out.
  template <class Visit>
  void ForEach(Visit&& visit) {
    for (IntrusiveList<T, Tag>& list : lists_) {
      for (T& element : list) visit(element);
    }
  }
  size_t CountSlowly() const {
    return lists_[0].CountSlowly() + lists_[1].CountSlowly() + lists_[2].CountSlowly();
  }

 private:
  IntrusiveList<T, Tag>& Of(Priority priority) { return lists_[static_cast<size_t>(priority)]; }

  std::array<IntrusiveList<T, Tag>, kPriorities> lists_;
};

}  // namespace weft
