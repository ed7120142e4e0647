// What waits, in the order in which it leaves: the more urgent first, and of equals the one that
// has waited longest. `Priority` is an enum whose values count from 0, the most urgent, to `kCount`
// less one.
//
// Threads: as IntrusiveList. Lifetime: a list owns nothing. Errors: none.
#pragma once

#include <array>
#include <cstddef>

#include "core/intrusive_list.h"

namespace weft {

template <class T, class Priority, size_t kCount, class Tag = void>
class PriorityLists {
 public:
  bool empty() const { return may_pass(kLast); }
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
  T* Front(Priority least = kLast) const {
    for (size_t i = 0; i <= static_cast<size_t>(least); ++i) {
      if (T* const element = lists_[i].Front()) return element;
    }
    return nullptr;
  }
  T* PopFront(Priority least = kLast) {
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
    size_t count = 0;
    for (const IntrusiveList<T, Tag>& list : lists_) count += list.CountSlowly();
    return count;
  }

 private:
  static constexpr Priority kLast = static_cast<Priority>(kCount - 1);

  IntrusiveList<T, Tag>& Of(Priority priority) { return lists_[static_cast<size_t>(priority)]; }

  std::array<IntrusiveList<T, Tag>, kCount> lists_;
};

}  // namespace weft
