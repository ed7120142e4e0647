// libraft's log in memory, read as raft.h of 0.15 lays it out: its own functions for it are hidden.
//
// Threads: libraft's. Lifetime, errors: functions of what they are given.
#pragma once

#include <algorithm>
#include <cstddef>

#include "embed/raft/libraft.h"

namespace weft::embed {

inline raft_index LastIndex(const raft_log& log) {
  const size_t entries =
      log.front <= log.back ? log.back - log.front : log.size - log.front + log.back;
  return entries == 0 ? std::max(log.offset, log.snapshot.last_index) : log.offset + entries;
}

// Null: it is not in memory.
inline const raft_entry* EntryAt(const raft_log& log, raft_index index) {
  if (log.size == 0 || index <= log.offset || index > LastIndex(log)) return nullptr;
  return &log.entries[(log.front + (index - log.offset - 1)) % log.size];
}

// 0: unknown.
inline raft_term TermAt(const raft_log& log, raft_index index) {
  if (index == log.snapshot.last_index) return log.snapshot.last_term;
  const raft_entry* const entry = EntryAt(log, index);
  return entry == nullptr ? 0 : entry->term;
}

}  // namespace weft::embed
