// The six core workloads of YCSB: B. F. Cooper, A. Silberstein, E. Tam, R. Ramakrishnan and
// R. Sears, "Benchmarking Cloud Serving Systems with YCSB", SoCC 2010.
//
//   name  mix                          which records        like
//   A     50 % read, 50 % update       scrambled zipfian    a session store
//   B     95 % read, 5 % update        scrambled zipfian    photo tags
//   C     100 % read                   scrambled zipfian    a profile cache
//   D     95 % read, 5 % insert        latest               status updates
//   E     95 % scan, 5 % insert        scrambled zipfian    threads of conversations
//   F     50 % read, 50 % read-modify-write                 a user database
//
// Scrambled zipfian: as the reference implementation has it, a rank is drawn among 10^10 items and
// hashed to a record, so that the hottest record gets 3.8 % of all operations, whatever the number
// of records. Latest: zipfian over the records by age, the newest first. Scans start at a record so
// chosen and read 1 to 100 records, uniformly.
//
// Threads:  one thread at a time. Everything here is determined by the seed and by the order in
//           which inserts are reported done.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "core/random.h"
#include "examples/kv/ycsb/zipfian.h"

namespace kv::ycsb {

enum class OperationKind : uint8_t {
  kRead = 0,
  kUpdate = 1,  // writes one field
  kInsert = 2,
  kScan = 3,
  kReadModifyWrite = 4,  // reads, then writes one field: two calls
};
inline constexpr int kOperationKinds = 5;

// "read", "update", "insert", "scan", "rmw".
std::string_view OperationName(OperationKind kind);

struct Workload {
  enum class Popularity : uint8_t { kScrambledZipfian = 1, kLatest = 2 };
  char name;
  double share[kOperationKinds];  // by OperationKind; they add up to 1
  Popularity popularity;
};

// 'A' to 'F', in either case; INVALID_ARGUMENT for anything else.
absl::StatusOr<Workload> FindWorkload(char name);

struct Operation {
  OperationKind kind;
  uint64_t record;            // its number; RecordKey() makes the key
  uint32_t field;             // update and read-modify-write: which one is written
  uint32_t scan_records = 0;  // scan: how many
};

// "user" and a hash of the number: inserts fall anywhere in the order of keys, as in YCSB.
std::string RecordKey(uint64_t number);
// The same, in a string that has room from before.
void SetRecordKey(uint64_t number, std::string* key);

// Hands out the numbers of new records, and knows up to which all have been stored: several inserts
// may be under way, and they may end in any order.
class InsertOrder {
 public:
  explicit InsertOrder(uint64_t stored) : next_(stored), stored_(stored) {}

  uint64_t Next() { return next_++; }
  // REQUIRES: Next() returned `number`; once for each.
  void Done(uint64_t number);

  // All records below this number are there.
  uint64_t stored() const { return stored_; }

 private:
  uint64_t next_;
  uint64_t stored_;
  std::set<uint64_t> early_;  // done, but an insert before them is not
};

// What a client of the workload does, one operation after the other.
class OperationStream {
 public:
  // REQUIRES: records >= 1 (stored already, numbers from 0), fields >= 1.
  OperationStream(const Workload& workload, uint64_t records, uint32_t fields, uint64_t seed);

  Operation Next();

  // An insert has ended, well or not. From now on its record is among those that are chosen.
  void InsertDone(uint64_t record) { inserts_.Done(record); }

 private:
  OperationKind NextKind();
  uint64_t NextRecord();
  uint64_t NextScrambled();
  uint64_t NextLatest();

  const Workload workload_;
  const uint32_t fields_;
  // Ranks are hashed to so many record numbers. Where the workload inserts, twice what is there:
  // a record keeps its popularity while others come, and new ones become popular, too.
  const uint64_t scrambled_records_;
  weft::Random random_;
  InsertOrder inserts_;
  Zipfian scrambled_;
  Zipfian latest_;
};

}  // namespace kv::ycsb
