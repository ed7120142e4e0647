#include "examples/kv/client/ycsb_records.h"

#include "core/strings.h"
#include "examples/kv/ycsb/workload.h"

namespace kv::client {
namespace {

// A piece of prepared letters costs nothing to make; with so many, neighbours rarely share theirs.
constexpr size_t kPieces = 65'536;

}  // namespace

YcsbRecords::YcsbRecords(const YcsbOptions& options, uint64_t seed)
    : value_bytes_(options.value_bytes), random_(seed) {
  for (uint32_t field = 0; field < options.fields; ++field) {
    names_.push_back(weft::StrCat("field", field));
  }
  letters_.resize(kPieces + value_bytes_);
  for (char& letter : letters_) letter = static_cast<char>('a' + random_.Uniform(26));
}

std::string_view YcsbRecords::NextValue() {
  return std::string_view(letters_).substr(random_.Uniform(kPieces), value_bytes_);
}

void YcsbRecords::SetField(uint32_t field, Field* to) {
  const std::string_view value = NextValue();
  to->set_name(names_[field]);
  to->set_value(value.data(), value.size());
}

void YcsbRecords::FillInsert(uint64_t record, PutRequest* request) {
  request->Clear();
  request->set_key(ycsb::RecordKey(record));
  for (uint32_t field = 0; field < names_.size(); ++field) SetField(field, request->add_fields());
}

void YcsbRecords::FillUpdate(uint64_t record, uint32_t field, PutRequest* request) {
  request->Clear();
  request->set_key(ycsb::RecordKey(record));
  request->set_mode(PutRequest::UPDATE);
  SetField(field, request->add_fields());
}

bool YcsbRecords::Fits(const google::protobuf::RepeatedPtrField<Field>& fields) const {
  if (static_cast<size_t>(fields.size()) != names_.size()) return false;
  for (int i = 0; i < fields.size(); ++i) {
    if (fields[i].name() != names_[static_cast<size_t>(i)]) return false;
    if (fields[i].value().size() != value_bytes_) return false;
  }
  return true;
}

}  // namespace kv::client
