#include "examples/kv/store.h"

#include <algorithm>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/hash/hash.h"
#include "core/check.h"
#include "core/status.h"
#include "core/strings.h"

namespace kv {
namespace {

using ::weft::StrCat;

// Nearly every record has a handful of fields: compare all pairs, and sort only where many.
constexpr size_t kFewFields = 16;

bool NamesRepeatAmongFew(Fields fields) {
  for (size_t i = 1; i < fields.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (fields[i].name == fields[j].name) return true;
    }
  }
  return false;
}

bool NamesRepeat(Fields fields) {
  if (fields.size() <= kFewFields) return NamesRepeatAmongFew(fields);
  absl::InlinedVector<std::string_view, 64> names;
  for (const FieldView& field : fields) names.push_back(field.name);
  std::sort(names.begin(), names.end());
  return std::adjacent_find(names.begin(), names.end()) != names.end();
}

Record::Size SizeOf(Fields fields) { return Record().SizeAfter(fields); }

}  // namespace

size_t Store::HashOfKey::operator()(std::string_view key) const {
  return absl::Hash<absl::string_view>()(weft::ToAbsl(key));
}

uint64_t Store::Charge(std::string_view key, size_t record_bytes) {
  return kRecordOverheadBytes + key.size() + record_bytes;
}

absl::Status StoreLimits::CheckKey(std::string_view key) const {
  if (!key.empty() && key.size() <= max_key_bytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      StrCat("a key has 1 to ", max_key_bytes, " bytes; this one has ", key.size()));
}

absl::Status StoreLimits::CheckFields(Fields fields) const {
  for (const FieldView& field : fields) {
    if (field.name.size() > max_name_bytes) {
      return absl::InvalidArgumentError(StrCat("a field name has at most ", max_name_bytes,
                                               " bytes; this one has ", field.name.size()));
    }
  }
  if (fields.size() > max_record_fields) return CheckSize({0, fields.size()});
  if (NamesRepeat(fields)) return absl::InvalidArgumentError("a field name is given twice");
  return absl::OkStatus();
}

absl::Status StoreLimits::CheckSize(Record::Size size) const {
  if (size.fields > max_record_fields) {
    return absl::InvalidArgumentError(StrCat("a record has at most ", max_record_fields,
                                             " fields; this would make ", size.fields));
  }
  const size_t bytes = size.bytes - size.fields * Record::kFieldOverheadBytes;
  if (bytes > max_record_bytes) {
    return absl::InvalidArgumentError(
        StrCat("a record has at most ", max_record_bytes, " bytes; this would make ", bytes));
  }
  return absl::OkStatus();
}

absl::Status StoreLimits::CheckRoom(uint64_t bytes, uint64_t old_charge,
                                    uint64_t new_charge) const {
  if (bytes - old_charge + new_charge <= max_bytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(StrCat("the store is full: ", bytes, " of ", max_bytes,
                                             " bytes are in use, ", new_charge - old_charge,
                                             " more are needed"));
}

Store::Entry* Store::Find(std::string_view key) const {
  const auto found = by_key_.find(key);
  return found == by_key_.end() ? nullptr : found->get();
}

void Store::Insert(std::string_view key, Record record) {
  auto entry = std::make_unique<Entry>(Entry{std::string(key), std::move(record)});
  bytes_ += Charge(*entry);
  in_order_.insert(entry.get());
  by_key_.insert(std::move(entry));
}

absl::StatusOr<bool> Store::Replace(std::string_view key, Fields fields) {
  WEFT_RETURN_IF_ERROR(limits_.CheckKey(key));
  WEFT_RETURN_IF_ERROR(limits_.CheckFields(fields));
  const Record::Size size = SizeOf(fields);
  WEFT_RETURN_IF_ERROR(limits_.CheckSize(size));
  Entry* entry = Find(key);
  const uint64_t old_charge = entry == nullptr ? 0 : Charge(*entry);
  WEFT_RETURN_IF_ERROR(limits_.CheckRoom(bytes_, old_charge, Charge(key, size.bytes)));
  if (entry == nullptr) {
    Insert(key, Record(fields));
    return true;
  }
  entry->record = Record(fields);
  bytes_ += Charge(*entry) - old_charge;
  return false;
}

absl::Status Store::Update(std::string_view key, Fields fields) {
  WEFT_RETURN_IF_ERROR(limits_.CheckKey(key));
  WEFT_RETURN_IF_ERROR(limits_.CheckFields(fields));
  Entry* entry = Find(key);
  if (entry == nullptr) return absl::NotFoundError("no record has this key");
  const Record::Size size = entry->record.SizeAfter(fields);
  WEFT_RETURN_IF_ERROR(limits_.CheckSize(size));
  const uint64_t old_charge = Charge(*entry);
  WEFT_RETURN_IF_ERROR(limits_.CheckRoom(bytes_, old_charge, Charge(key, size.bytes)));
  entry->record.Update(fields);
  bytes_ += Charge(*entry) - old_charge;
  return absl::OkStatus();
}

const Record* Store::Get(std::string_view key) const {
  const Entry* entry = Find(key);
  return entry == nullptr ? nullptr : &entry->record;
}

bool Store::Delete(std::string_view key) {
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return false;
  bytes_ -= Charge(**found);
  in_order_.erase(found->get());
  by_key_.erase(found);
  return true;
}

void Store::Scan(std::string_view start,
                 absl::FunctionRef<bool(std::string_view key, const Record& record)> visit) const {
  for (auto at = in_order_.lower_bound(start); at != in_order_.end(); ++at) {
    if (!visit((*at)->key, (*at)->record)) return;
  }
}

void Store::CheckInvariants() const {
  WEFT_CHECK(in_order_.size() == by_key_.size());
  uint64_t bytes = 0;
  for (const Entry* entry : in_order_) {
    WEFT_CHECK(Find(entry->key) == entry);
    bytes += Charge(*entry);
  }
  WEFT_CHECK(bytes == bytes_);
  WEFT_CHECK(bytes_ <= limits_.max_bytes);
}

}  // namespace kv
