// Finds what stands before the functions of a raft_io: they are told of the raft_io alone, and it
// has no member left for another one (`impl` is the disk half's, `data` libraft's).
//
//   constinit RaftIoTable<RaftNetwork> networks;      // of the process
//
// Threads: any. Find() takes no lock, for libraft sends and stores by it: it looks at as many
//   entries as raft_ios have been in the table at once, which are a few.
// Lifetime: the process's. It gives no memory back, and owns nothing that it finds.
// Invariants: an entry's `of` is written while its `io` is null, whose release store publishes it;
//   who looks for a raft_io does so behind its Add(), and before its Remove() or all after it.
#pragma once

#include <atomic>
#include <mutex>

#include "embed/raft/libraft.h"

namespace weft::embed {

template <class T>
class RaftIoTable {
 public:
  constexpr RaftIoTable() = default;
  RaftIoTable(const RaftIoTable&) = delete;
  RaftIoTable& operator=(const RaftIoTable&) = delete;

  // REQUIRES: Find(io) is null; one thread attaches halves to a raft_io.
  void Add(const raft_io* io, T* of) {
    const std::lock_guard<std::mutex> lock(mutex_);
    Entry* entry = EntryOf(nullptr);
    const bool is_new = entry == nullptr;
    if (is_new) entry = new Entry{.next = first_.load(std::memory_order_relaxed)};
    entry->of = of;
    entry->io.store(io, std::memory_order_release);
    if (is_new) first_.store(entry, std::memory_order_release);
  }
  void Remove(const raft_io* io) {
    const std::lock_guard<std::mutex> lock(mutex_);
    Entry* const entry = EntryOf(io);
    if (entry != nullptr) entry->io.store(nullptr, std::memory_order_release);
  }
  // Null: it is not there.
  T* Find(const raft_io* io) const {
    const Entry* const entry = EntryOf(io);
    return entry == nullptr ? nullptr : entry->of;
  }

 private:
  struct Entry {
    std::atomic<const raft_io*> io{nullptr};  // null: the entry is free
    T* of = nullptr;
    Entry* const next = nullptr;
  };

  Entry* EntryOf(const raft_io* io) const {
    Entry* entry = first_.load(std::memory_order_acquire);
    while (entry != nullptr && entry->io.load(std::memory_order_acquire) != io) entry = entry->next;
    return entry;
  }

  std::mutex mutex_;  // of Add() and Remove()
  std::atomic<Entry*> first_{nullptr};
};

}  // namespace weft::embed
