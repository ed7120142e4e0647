// Metadata: what travels beside a request or a reply, as keys and values.
//
// For what is not the business of the method: who is asking, a trace, a hint. The same key may
// stand there several times; the order stays. A key has 1 to 64 bytes of a-z, 0-9, '-', '_' and
// '.'. Those that begin with "weft-" are Weft's own. A value is printable ASCII, spaces included;
// where the key ends with "-bin" it is any bytes.
//
//   weft::ClientContext context;
//   if (auto s = context.AddMetadata("user", "anna"); !s.ok()) return s;
//   absl::Status status = kv.Get(request, &reply, {.context = &context});
//
// Threads: a value; one thread at a time.
// Errors: Add() says what is wrong, and changes nothing.
// Invariants: bytes() <= kMaxMetadataBytes.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace weft {

// All keys and values of one direction of one call, in bytes, and kMetadataEntryBytes for each
// entry: as much as gRPC's servers take, by the same count (RFC 9113, 6.5.2).
inline constexpr size_t kMaxMetadataBytes = 8 << 10;
inline constexpr size_t kMetadataEntryBytes = 32;
inline constexpr size_t kMaxMetadataKeyBytes = 64;

class Metadata {
 public:
  struct Entry {
    std::string key;
    std::string value;
  };

  // INVALID_ARGUMENT: no such key or value is allowed. RESOURCE_EXHAUSTED: it would be more than
  // kMaxMetadataBytes.
  absl::Status Add(std::string_view key, std::string_view value);

  // The first value of that key; null: there is none. Until the next change.
  const std::string* Find(std::string_view key) const;

  std::vector<Entry>::const_iterator begin() const { return entries_.begin(); }
  std::vector<Entry>::const_iterator end() const { return entries_.end(); }
  bool empty() const { return entries_.empty(); }
  size_t size() const { return entries_.size(); }  // entries
  size_t bytes() const { return bytes_; }
  void Clear();

 private:
  std::vector<Entry> entries_;
  size_t bytes_ = 0;
};

}  // namespace weft
