// The records of a server: in memory, ordered by key, bounded.
//
// Each record is found two ways. A hash table serves reads and writes of one key; a B-tree keeps
// the order for scans and is touched only when keys come and go. The second structure costs 16
// bytes a record and makes a read 3.5 times faster than the tree alone (store_benchmark.cc).
//
// Threads:     one thread at a time. A server calls it from its engine's thread and so needs no
//              lock.
// Lifetime:    a Record that Get() or Scan() shows is good until the store changes.
// Errors:      as kv.proto says; after an error nothing has changed.
// Invariants:  bytes() is the sum of the records' charges, and <= limits.max_bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_set.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "examples/kv/record.h"

namespace kv {

// The sizes that kv.proto promises; only the first is a matter of the machine.
struct StoreLimits {
  uint64_t max_bytes = uint64_t{4} << 30;
  size_t max_key_bytes = 1024;
  size_t max_name_bytes = 256;
  size_t max_record_fields = 256;
  size_t max_record_bytes = size_t{16} << 20;  // names and values

  // Whether a record may be so. INVALID_ARGUMENT names what is too large, or given twice.
  absl::Status CheckKey(std::string_view key) const;
  absl::Status CheckFields(Fields fields) const;
  absl::Status CheckSize(Record::Size size) const;
  // Whether there is room for `new_charge` bytes in the place of `old_charge` of `bytes`;
  // RESOURCE_EXHAUSTED.
  absl::Status CheckRoom(uint64_t bytes, uint64_t old_charge, uint64_t new_charge) const;
};

class Store {
 public:
  // What a record is charged beyond key, names and values: its nodes in both indexes, the headers
  // of two allocations and their rounding. An estimate; it keeps empty records from being free.
  static constexpr uint64_t kRecordOverheadBytes = 144;

  explicit Store(const StoreLimits& limits = {}) : limits_(limits) {}
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  // Makes the record exactly these fields. True: it is new.
  absl::StatusOr<bool> Replace(std::string_view key, Fields fields);

  // Writes these fields of an existing record.
  absl::Status Update(std::string_view key, Fields fields);

  // Null where there is none.
  const Record* Get(std::string_view key) const;

  // False where there was none.
  bool Delete(std::string_view key);

  // Shows the records from `start` on, ascending, until `visit` returns false.
  // REQUIRES: `visit` does not change the store.
  void Scan(std::string_view start,
            absl::FunctionRef<bool(std::string_view key, const Record& record)> visit) const;

  size_t size() const { return by_key_.size(); }
  uint64_t bytes() const { return bytes_; }
  const StoreLimits& limits() const { return limits_; }

  // Aborts unless the invariants hold and both indexes hold the same records. Linear.
  void CheckInvariants() const;

 private:
  struct Entry {
    std::string key;
    Record record;
  };
  using EntryPointer = std::unique_ptr<Entry>;

  static std::string_view KeyOf(std::string_view key) { return key; }
  static std::string_view KeyOf(const Entry* entry) { return entry->key; }
  static std::string_view KeyOf(const EntryPointer& entry) { return entry->key; }

  // Entries and keys can be looked up with one another.
  struct HashOfKey {
    using is_transparent = void;
    size_t operator()(std::string_view key) const;
    size_t operator()(const EntryPointer& entry) const { return (*this)(KeyOf(entry)); }
  };
  struct SameKey {
    using is_transparent = void;
    template <class A, class B>
    bool operator()(const A& a, const B& b) const {
      return KeyOf(a) == KeyOf(b);
    }
  };
  struct SmallerKey {
    using is_transparent = void;
    template <class A, class B>
    bool operator()(const A& a, const B& b) const {
      return KeyOf(a) < KeyOf(b);
    }
  };

  static uint64_t Charge(std::string_view key, size_t record_bytes);
  static uint64_t Charge(const Entry& entry) { return Charge(entry.key, entry.record.bytes()); }

  Entry* Find(std::string_view key) const;
  void Insert(std::string_view key, Record record);

  const StoreLimits limits_;
  absl::flat_hash_set<EntryPointer, HashOfKey, SameKey> by_key_;  // owns the entries
  absl::btree_set<Entry*, SmallerKey> in_order_;
  uint64_t bytes_ = 0;
};

}  // namespace kv
