#include "examples/kv/record.h"

namespace kv {
namespace {

size_t EncodedBytes(const FieldView& field) {
  return Record::kFieldOverheadBytes + field.name.size() + field.value.size();
}

size_t EncodedBytes(Fields fields) {
  size_t bytes = 0;
  for (const FieldView& field : fields) bytes += EncodedBytes(field);
  return bytes;
}

// memcpy that takes an empty view, whose pointer may be null.
char* Copy(char* to, std::string_view from) {
  if (!from.empty()) std::memcpy(to, from.data(), from.size());
  return to + from.size();
}

}  // namespace

Record::Record(Fields fields) : block_(EncodedBytes(fields), '\0'), size_(fields.size()) {
  char* at = block_.data();
  for (const FieldView& field : fields) {
    WriteField(at, field);
    at += EncodedBytes(field);
  }
}

void Record::WriteField(char* at, const FieldView& field) {
  const Header header = {static_cast<uint32_t>(field.name.size()),
                         static_cast<uint32_t>(field.value.size())};
  std::memcpy(at, &header, sizeof(header));
  Copy(Copy(at + sizeof(header), field.name), field.value);
}

size_t Record::Find(std::string_view name) const {
  size_t offset = 0;
  for (const FieldView& field : *this) {
    if (field.name == name) return offset;
    offset += EncodedBytes(field);
  }
  return kAbsent;
}

void Record::Update(Fields fields) {
  for (const FieldView& field : fields) {
    const size_t offset = Find(field.name);
    if (offset == kAbsent) {
      Append(field);
    } else {
      Overwrite(offset, field);
    }
  }
}

void Record::Append(const FieldView& field) {
  const size_t offset = block_.size();
  block_.resize(offset + EncodedBytes(field));
  WriteField(block_.data() + offset, field);
  ++size_;
}

void Record::Overwrite(size_t offset, const FieldView& field) {
  const Header old = HeaderAt(block_.data() + offset);
  if (old.value_bytes != field.value.size()) {
    const size_t value_offset = offset + sizeof(old) + old.name_bytes;
    block_.replace(value_offset, old.value_bytes, field.value.size(), '\0');
  }
  WriteField(block_.data() + offset, field);
}

bool BlockReader::Next(FieldView* field) {
  Record::Header header;
  if (left_.size() < sizeof(header)) return false;
  std::memcpy(&header, left_.data(), sizeof(header));
  const std::string_view rest = left_.substr(sizeof(header));
  if (uint64_t{header.name_bytes} + header.value_bytes > rest.size()) return false;
  field->name = rest.substr(0, header.name_bytes);
  field->value = rest.substr(header.name_bytes, header.value_bytes);
  left_ = rest.substr(size_t{header.name_bytes} + header.value_bytes);
  return true;
}

Record::Size Record::SizeAfter(Fields fields) const {
  Size size = {bytes(), this->size()};
  for (const FieldView& field : fields) {
    const size_t offset = Find(field.name);
    size.bytes += EncodedBytes(field);
    if (offset == kAbsent) {
      ++size.fields;
    } else {
      size.bytes -= EncodedBytes(*Iterator(block_.data() + offset));
    }
  }
  return size;
}

}  // namespace kv
