// BytesMessage is bytes in the place of a protobuf message: what the C interface gives to channels
// and servers, which take google::protobuf::MessageLite. On the wire it is its bytes, and nothing
// else, as an encoded message is; so either side may be generated code.
//
// It refers to bytes of somebody else (requests and messages to send: no copy before the one into
// the send slot), or has its own (what was parsed, what is to be sent later). Own memory stays from
// use to use.
//
// protobuf wants no classes derived from its own but generated ones, and says so since 3.21; there
// is no other way to hand bytes through its interface, without a copy, in the releases that Weft
// supports: 3.12.4 to 3.21. What is overridden here are all pure functions of both, and the two
// that every parser and serializer of them goes through.
//
// Threads: a value; one at a time. Lifetime: bytes that are referred to outlive the use.
#pragma once

#include <google/protobuf/arena.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/message_lite.h>
#include <google/protobuf/parse_context.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "core/bytes.h"

#if GOOGLE_PROTOBUF_VERSION >= 4022000
#error "c/bytes_message.h knows protobuf 3.12 to 3.21; look at what MessageLite's classes are here"
#endif

namespace weft::c {

class BytesMessage : public google::protobuf::MessageLite {
 public:
  BytesMessage() = default;
  explicit BytesMessage(ByteSpan bytes) : bytes_(bytes) {}

  ByteSpan bytes() const { return bytes_; }

  void Refer(ByteSpan bytes) { bytes_ = bytes; }
  void Copy(ByteSpan bytes);
  // Own memory of so many bytes, of undefined contents. bytes() is as it was until the next change.
  std::byte* Reserve(size_t size);
  // What Reserve() has given begins there.
  bool IsReserved(const void* data, size_t size) const {
    return data == own_.data() && size <= own_.size();
  }

  // --- google::protobuf::MessageLite ------------------------------------------------------------
  std::string GetTypeName() const final { return "bytes"; }
  BytesMessage* New(google::protobuf::Arena* arena) const final;
#if GOOGLE_PROTOBUF_VERSION < 3021000
  // Virtual in some of these releases, and not in others: it cannot say `override`.
  BytesMessage* New() const { return New(nullptr); }
#endif
  void Clear() override { bytes_ = {}; }
  bool IsInitialized() const final { return true; }
  // Of parts of one message in turn, the last is kept: bytes know no fields.
  void CheckTypeAndMergeFrom(const MessageLite& other) final;
  size_t ByteSizeLong() const final { return bytes_.size(); }
  int GetCachedSize() const final { return static_cast<int>(bytes_.size()); }
  const char* _InternalParse(const char* from, google::protobuf::internal::ParseContext*) final;
  uint8_t* _InternalSerialize(uint8_t* to, google::protobuf::io::EpsCopyOutputStream*) const final;

 private:
  ByteSpan bytes_;   // of own_, or of somebody else
  std::string own_;  // bytes_ are all of it, or less
};

}  // namespace weft::c
