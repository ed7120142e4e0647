// A doubly linked list whose links live in the elements: no allocation, and an element leaves its
// list in O(1) without knowing which list that is.
//
// To be on several lists at once, derive from several ListNode<Tag> with distinct tags:
//
//   struct ReadyTag;
//   class Connection : public ListNode<ReadyTag> { ... };
//   IntrusiveList<Connection, ReadyTag> ready_connections;
//
// Threads:     one thread at a time, for a list and all its elements.
// Lifetime:    the list owns nothing. An element that is destroyed leaves its list; a list that is
//              destroyed lets its elements go.
// Invariants:  node->next->prev == node for every node, along one ring through the list's head.
#pragma once

#include <cstddef>
#include <iterator>

#include "core/check.h"

namespace weft {

template <class T, class Tag>
class IntrusiveList;

// The links of one element for one kind of list.
template <class Tag = void>
class ListNode {
 public:
  ListNode() = default;
  ~ListNode() { Unlink(); }

  // An element keeps its place only at its address.
  ListNode(const ListNode&) = delete;
  ListNode& operator=(const ListNode&) = delete;

  bool linked() const { return next_ != nullptr; }

  // Leaves the list, if on one.
  void Unlink() {
    if (!linked()) return;
    prev_->next_ = next_;
    next_->prev_ = prev_;
    prev_ = next_ = nullptr;
  }

 private:
  template <class T, class ListTag>
  friend class IntrusiveList;

  void LinkBefore(ListNode* position) {
    WEFT_DCHECK(!linked());  // Ours: who puts it on a list has taken it off the other
    prev_ = position->prev_;
    next_ = position;
    prev_->next_ = this;
    next_->prev_ = this;
  }

  ListNode* prev_ = nullptr;
  ListNode* next_ = nullptr;
};

template <class T, class Tag = void>
class IntrusiveList {
 public:
  using Node = ListNode<Tag>;

  // Remembers the element after the current one: the current one may leave the list, or be
  // destroyed, before the increment. Another element may not.
  class iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = T;
    using difference_type = std::ptrdiff_t;
    using pointer = T*;
    using reference = T&;

    T& operator*() const { return *AsElement(node_); }
    T* operator->() const { return AsElement(node_); }
    iterator& operator++() {
      node_ = after_;
      after_ = node_->next_;
      return *this;
    }
    friend bool operator==(const iterator& a, const iterator& b) { return a.node_ == b.node_; }

   private:
    friend class IntrusiveList;
    explicit iterator(Node* node) : node_(node), after_(node->next_) {}

    Node* node_;
    Node* after_;
  };

  IntrusiveList() { head_.prev_ = head_.next_ = &head_; }
  ~IntrusiveList() {
    Clear();
    head_.prev_ = head_.next_ = nullptr;
  }

  IntrusiveList(const IntrusiveList&) = delete;
  IntrusiveList& operator=(const IntrusiveList&) = delete;

  bool empty() const { return head_.next_ == &head_; }

  // REQUIRES: the element is on no list of this Tag.
  void PushBack(T* element) { AsNode(element)->LinkBefore(&head_); }
  void PushFront(T* element) { AsNode(element)->LinkBefore(head_.next_); }

  // The first or last element, nullptr when empty.
  T* Front() const { return empty() ? nullptr : AsElement(head_.next_); }
  T* Back() const { return empty() ? nullptr : AsElement(head_.prev_); }

  // Takes the first or last element off; nullptr when empty.
  T* PopFront() { return Take(Front()); }
  T* PopBack() { return Take(Back()); }

  // Takes an element off whatever list of this Tag it is on; nothing to do if on none.
  static void Remove(T* element) { AsNode(element)->Unlink(); }
  static bool IsLinked(const T* element) { return static_cast<const Node*>(element)->linked(); }

  // Moves all elements of `other` to the end of this list, in order. O(1).
  void SpliceBack(IntrusiveList& other) {
    if (other.empty() || &other == this) return;
    Node* first = other.head_.next_;
    Node* last = other.head_.prev_;
    other.head_.prev_ = other.head_.next_ = &other.head_;
    first->prev_ = head_.prev_;
    first->prev_->next_ = first;
    last->next_ = &head_;
    head_.prev_ = last;
  }

  // Lets all elements go. O(n).
  void Clear() {
    while (PopFront() != nullptr) {
    }
  }

  iterator begin() { return iterator(head_.next_); }
  iterator end() { return iterator(&head_); }

  // Counts the elements. O(n): elements leave without telling the list.
  std::size_t CountSlowly() const {
    std::size_t count = 0;
    for (const Node* node = head_.next_; node != &head_; node = node->next_) ++count;
    return count;
  }

  // Aborts unless every link has its counterpart. O(n).
  void CheckInvariants() const {
    const Node* node = &head_;
    do {
      // Ours: invariants, which tests ask for
      WEFT_CHECK(node->next_ != nullptr && node->next_->prev_ == node);
      node = node->next_;
    } while (node != &head_);
  }

 private:
  static Node* AsNode(T* element) { return static_cast<Node*>(element); }
  static T* AsElement(Node* node) { return static_cast<T*>(node); }
  static T* Take(T* element) {
    if (element != nullptr) Remove(element);
    return element;
  }

  Node head_;  // Before the first and after the last element.
};

// Calls take(element) for one after the other, first in line first, until it returns false or each
// has been called once. take() may put elements in line again: they come in the next call, behind
// those that were not called in this one.
template <class T, class Tag, class Take>
void TakeTurns(IntrusiveList<T, Tag>* line, Take&& take) {
  IntrusiveList<T, Tag> now;
  now.SpliceBack(*line);
  while (!now.empty() && take(now.PopFront())) {
  }
  now.SpliceBack(*line);
  line->SpliceBack(now);
}

}  // namespace weft
