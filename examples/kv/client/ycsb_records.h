// What a YCSB record looks like: fields "field0", "field1", ..., each of the same size, filled with
// random letters.
//
// Threads:  one thread at a time.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/random.h"
#include "examples/kv/client/command_line.h"
#include "examples/kv/kv.pb.h"

namespace kv::client {

class YcsbRecords {
 public:
  YcsbRecords(const YcsbOptions& options, uint64_t seed);

  // The Put that stores the whole record.
  void FillInsert(uint64_t record, PutRequest* request);
  // The Put that writes one field of it.
  void FillUpdate(uint64_t record, uint32_t field, PutRequest* request);

  // Whether these fields can be such a record's: their number, names and sizes.
  bool Fits(const google::protobuf::RepeatedPtrField<Field>& fields) const;

 private:
  std::string_view NextValue();
  void SetField(uint32_t field, Field* to);

  const uint32_t value_bytes_;
  std::vector<std::string> names_;
  weft::Random random_;
  std::string letters_;  // values are pieces of it
};

}  // namespace kv::client
