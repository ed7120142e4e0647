// The folders in a database's that compactions elsewhere write their tables to:
// "compaction-SESSION-JOB".
//
// Threads: pure.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/strings.h"

namespace weft::embed {

struct CompactionJob {
  std::string session;
  uint64_t number = 0;
};

// RocksDB's have 20 letters and digits.
inline bool IsCompactionSession(std::string_view name) {
  const auto is_plain = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
  };
  return !name.empty() && name.size() <= 64 && std::all_of(name.begin(), name.end(), is_plain);
}

inline std::string CompactionFolder(std::string_view session, uint64_t job) {
  return StrCat("compaction-", session, "-", job);
}

// None: it is no such folder's name.
inline std::optional<CompactionJob> ParseCompactionFolder(std::string_view name) {
  constexpr std::string_view kBegin = "compaction-";
  if (!name.starts_with(kBegin)) return std::nullopt;
  name.remove_prefix(kBegin.size());
  const size_t dash = name.find('-');
  if (dash == std::string_view::npos || !IsCompactionSession(name.substr(0, dash))) {
    return std::nullopt;
  }
  CompactionJob job{std::string(name.substr(0, dash))};
  const char* const end = name.data() + name.size();
  const auto [parsed, error] = std::from_chars(name.data() + dash + 1, end, job.number);
  if (error != std::errc() || parsed != end) return std::nullopt;
  return job;
}

}  // namespace weft::embed
