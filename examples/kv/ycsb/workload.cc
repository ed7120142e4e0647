#include "examples/kv/ycsb/workload.h"

#include "absl/strings/str_cat.h"
#include "core/check.h"
#include "core/strings.h"

namespace kv::ycsb {
namespace {

using Popularity = Workload::Popularity;

//                               read  update insert scan  rmw
constexpr Workload kWorkloads[] = {
    {'A', {0.50, 0.50, 0.00, 0.00, 0.00}, Popularity::kScrambledZipfian},
    {'B', {0.95, 0.05, 0.00, 0.00, 0.00}, Popularity::kScrambledZipfian},
    {'C', {1.00, 0.00, 0.00, 0.00, 0.00}, Popularity::kScrambledZipfian},
    {'D', {0.95, 0.00, 0.05, 0.00, 0.00}, Popularity::kLatest},
    {'E', {0.00, 0.00, 0.05, 0.95, 0.00}, Popularity::kScrambledZipfian},
    {'F', {0.50, 0.00, 0.00, 0.00, 0.50}, Popularity::kScrambledZipfian},
};

// Among how many items the reference implementation draws a rank before hashing it.
constexpr uint64_t kScrambledItems = 10'000'000'000;

constexpr uint32_t kMaxScanRecords = 100;

double ShareOf(const Workload& workload, OperationKind kind) {
  return workload.share[static_cast<int>(kind)];
}

}  // namespace

std::string_view OperationName(OperationKind kind) {
  switch (kind) {
    case OperationKind::kRead:
      return "read";
    case OperationKind::kUpdate:
      return "update";
    case OperationKind::kInsert:
      return "insert";
    case OperationKind::kScan:
      return "scan";
    case OperationKind::kReadModifyWrite:
      return "rmw";
  }
  return "?";
}

absl::StatusOr<Workload> FindWorkload(char name) {
  for (const Workload& workload : kWorkloads) {
    if ((name & ~0x20) == workload.name) return workload;
  }
  return absl::InvalidArgumentError(
      weft::StrCat("there is no YCSB workload '", std::string(1, name), "': give A to F"));
}

std::string RecordKey(uint64_t number) {
  std::string key;
  SetRecordKey(number, &key);
  return key;
}

void SetRecordKey(uint64_t number, std::string* key) {
  key->assign("user");
  absl::StrAppend(key, FnvHash(number));
}

void InsertOrder::Done(uint64_t number) {
  WEFT_CHECK(number >= stored_ && number < next_);
  if (number != stored_) {
    early_.insert(number);
    return;
  }
  ++stored_;
  while (early_.erase(stored_) != 0) ++stored_;
}

OperationStream::OperationStream(const Workload& workload, uint64_t records, uint32_t fields,
                                 uint64_t seed)
    : workload_(workload),
      fields_(fields),
      scrambled_records_(ShareOf(workload, OperationKind::kInsert) > 0 ? 2 * records : records),
      random_(seed),
      inserts_(records),
      scrambled_(kScrambledItems),
      latest_(records) {
  WEFT_CHECK(fields >= 1);
}

OperationKind OperationStream::NextKind() {
  double left = random_.UniformDouble();
  OperationKind last = OperationKind::kRead;
  for (int i = 0; i < kOperationKinds; ++i) {
    if (workload_.share[i] == 0) continue;
    last = static_cast<OperationKind>(i);
    if (left < workload_.share[i]) break;
    left -= workload_.share[i];
  }
  return last;
}

uint64_t OperationStream::NextScrambled() {
  // On average two draws at most: half of the numbers or more are stored.
  while (true) {
    const uint64_t record = FnvHash(scrambled_.Next(random_)) % scrambled_records_;
    if (record < inserts_.stored()) return record;
  }
}

uint64_t OperationStream::NextLatest() {
  latest_.GrowTo(inserts_.stored());
  return inserts_.stored() - 1 - latest_.Next(random_);
}

uint64_t OperationStream::NextRecord() {
  return workload_.popularity == Popularity::kLatest ? NextLatest() : NextScrambled();
}

Operation OperationStream::Next() {
  Operation operation = {};
  operation.kind = NextKind();
  operation.record = operation.kind == OperationKind::kInsert ? inserts_.Next() : NextRecord();
  operation.field = static_cast<uint32_t>(random_.Uniform(fields_));
  if (operation.kind == OperationKind::kScan) {
    operation.scan_records = 1 + static_cast<uint32_t>(random_.Uniform(kMaxScanRecords));
  }
  return operation;
}

}  // namespace kv::ycsb
