#include "c/bytes_message.h"

namespace weft::c {

void BytesMessage::Copy(ByteSpan bytes) {
  own_.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  bytes_ = AsBytes(own_);
}

std::byte* BytesMessage::Reserve(size_t size) {
  // Only what it grows by is filled with zeros.
  if (own_.size() < size) own_.resize(size);
  return reinterpret_cast<std::byte*>(own_.data());
}

BytesMessage* BytesMessage::New(google::protobuf::Arena* arena) const {
  return google::protobuf::Arena::Create<BytesMessage>(arena);
}

void BytesMessage::CheckTypeAndMergeFrom(const MessageLite& other) {
  Copy(static_cast<const BytesMessage&>(other).bytes_);
}

const char* BytesMessage::_InternalParse(const char* from,
                                         google::protobuf::internal::ParseContext* context) {
  // The length is in the context, where a message's end is that of its bytes.
  const int size = context->BytesUntilLimit(from);
  from = context->ReadString(from, size, &own_);
  if (from != nullptr) bytes_ = AsBytes(own_);
  return from;
}

uint8_t* BytesMessage::_InternalSerialize(uint8_t* to,
                                          google::protobuf::io::EpsCopyOutputStream* stream) const {
  return stream->WriteRaw(bytes_.data(), static_cast<int>(bytes_.size()), to);
}

}  // namespace weft::c
