// A record: a set of named fields, kept in one block of bytes in the order first written.
//
// One block instead of a map of strings: a record of ten fields is one allocation and is read
// front to back, and an update that keeps a field's size happens in place.
//
// Threads:    none of its own; const functions may run together.
// Lifetime:   views stay good until the record changes.
// Invariant:  names are unique.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "absl/types/span.h"

namespace kv {

// A field as seen from outside; borrows its bytes.
struct FieldView {
  std::string_view name;
  std::string_view value;
};

inline bool operator==(const FieldView& a, const FieldView& b) {
  return a.name == b.name && a.value == b.value;
}

using Fields = absl::Span<const FieldView>;

class Record {
 public:
  struct Header {  // Before the name and the value of each field.
    uint32_t name_bytes;
    uint32_t value_bytes;
  };

  // What a field costs beyond its name and value.
  static constexpr size_t kFieldOverheadBytes = sizeof(Header);

  class Iterator {
   public:
    explicit Iterator(const char* at) : at_(at) {}
    FieldView operator*() const;
    Iterator& operator++();
    bool operator==(const Iterator& other) const { return at_ == other.at_; }
    bool operator!=(const Iterator& other) const { return at_ != other.at_; }

   private:
    const char* at_;
  };

  Record() = default;
  // REQUIRES: names are unique, names and values shorter than 4 GiB.
  explicit Record(Fields fields);

  // Writes the given fields; new ones are appended, the others stay. Requires the same.
  void Update(Fields fields);

  // The size that the record will have after Update(fields), and its number of fields.
  struct Size {
    size_t bytes;
    size_t fields;
  };
  Size SizeAfter(Fields fields) const;

  Iterator begin() const { return Iterator(block_.data()); }
  Iterator end() const { return Iterator(block_.data() + block_.size()); }

  // All of it, as it can be stored or sent: for each field the length of its name and of its value,
  // four bytes each in this machine's order, then both. BlockReader reads it again.
  std::string_view block() const { return block_; }

  size_t size() const { return size_; }           // fields
  size_t bytes() const { return block_.size(); }  // names, values and kFieldOverheadBytes for each

 private:
  static constexpr size_t kAbsent = ~size_t{0};

  static Header HeaderAt(const char* at);
  static void WriteField(char* at, const FieldView& field);
  size_t Find(std::string_view name) const;  // its offset in block_, or kAbsent
  void Append(const FieldView& field);
  void Overwrite(size_t offset, const FieldView& field);

  std::string block_;  // Header, name, value; Header, name, value; ...
  size_t size_ = 0;
};

// The fields of a block that came from elsewhere, each length checked:
//
//   BlockReader reader(block);
//   for (FieldView field; reader.Next(&field);) ...
//   if (!reader.at_end()) it is no record's block
class BlockReader {
 public:
  explicit BlockReader(std::string_view block) : left_(block) {}

  bool Next(FieldView* field);
  bool at_end() const { return left_.empty(); }

 private:
  std::string_view left_;
};

inline Record::Header Record::HeaderAt(const char* at) {
  Header header;
  std::memcpy(&header, at, sizeof(header));
  return header;
}

inline FieldView Record::Iterator::operator*() const {
  const Header header = HeaderAt(at_);
  const char* name = at_ + sizeof(header);
  return {{name, header.name_bytes}, {name + header.name_bytes, header.value_bytes}};
}

inline Record::Iterator& Record::Iterator::operator++() {
  const Header header = HeaderAt(at_);
  at_ += sizeof(header) + header.name_bytes + header.value_bytes;
  return *this;
}

}  // namespace kv
