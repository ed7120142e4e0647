// Messages of fixed layout (fixed_layout.h) in calls: how a method whose request or reply is such a
// message exchanges it as the struct's own bytes, without protobuf.
//
//   service Ledger { rpc Move(Transfer) returns (Balance); }   // both of fixed layout
//
// The stub has a second form of each such method, that takes the structs; where only one of the two
// has a fixed layout, the other stays the message that it is:
//
//   absl::Status Move(const Transfer&, Balance*, ...)               protobuf, as every method has
//   absl::Status Move(const TransferLayout&, BalanceLayout*, ...)   the structs
//
// and beside Ledger::Service there is Ledger::LayoutService, whose handlers take the structs. A
// server has one of the two.
//
// Why two classes and not two functions to override: a handler is written once, so exactly one of
// the two forms would have to be overridden, and nothing could say so; and what a person reads in
// an override should be what is sent. Why protobuf stays, in the stub always and on the wire where
// it must: a service is never recompiled everywhere at once.
//
// What travels. Each direction by itself is agreed on when a connection opens (docs/wire_format.md,
// "Layouts"): the struct's bytes, if stub and handler both take the struct and mean the same layout
// by their hashes; else protobuf. Whoever has a struct and must speak protobuf converts, by
// CopyTo() and CopyFrom() of the struct. That costs what protobuf does and a little more: it is
// there so that nothing breaks while releases differ, and is logged once per connection and method.
//
//                      server: Service   LayoutService, same layout   LayoutService, another layout
//   stub: message      protobuf          protobuf                     protobuf
//   stub: struct       protobuf          the struct's bytes           protobuf
//
// A struct arrives as its sender's bytes: exactly as many, or the call fails as if protobuf could
// not be decoded. No byte can do harm: numbers are numbers, FixedBool and enums hold anything.
// Padding is sent as the struct has it, zeros unless somebody wrote there, and not looked at.
//
// Threads: pure functions and constants.
#pragma once

#include <google/protobuf/message_lite.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "rpc/layout/fixed_layout.h"
#include "rpc/wire/service.h"

namespace weft {

// A struct of fixed layout, for code that does not know its type.
struct LayoutType {
  std::string_view name;  // of the message
  uint64_t hash;
  size_t bytes;
  // For peers that want protobuf. `from` may stand at any address, `to` at one that suits its type.
  std::string (*to_protobuf)(const void* from);
  absl::Status (*from_protobuf)(std::string_view encoded, void* to);
};

// One direction of a method.
struct LayoutSide {
  const LayoutType* type = nullptr;  // null: a protobuf message, in memory and on the wire
  // On the wire: the struct's bytes, so many; 0: protobuf, converted.
  size_t fixed_bytes = 0;

  bool fixed() const { return fixed_bytes != 0; }
};

// MethodDescriptor::layouts.
struct MethodLayouts {
  LayoutSide request;
  LayoutSide reply;
};

// Reads `from`, which is protobuf, into `to`.
[[nodiscard]] bool DecodeProtobuf(const LayoutType* type, std::span<const std::byte> from,
                                  CallBody to);

// Reads `from` into `to`; false: it cannot be read, and WhyNotDecoded() says why.
[[nodiscard]] inline bool DecodeBody(const LayoutSide& side, std::span<const std::byte> from,
                                     CallBody to) {
  if (!side.fixed()) return DecodeProtobuf(side.type, from, to);
  if (from.size() != side.fixed_bytes) [[unlikely]]
    return false;
  std::memcpy(to.record, from.data(), from.size());
  return true;
}

// Makes a request or reply in memory empty again.
inline void ClearBody(const LayoutSide& side, CallBody body) {
  if (side.type == nullptr) return body.message->Clear();
  std::memset(body.record, 0, side.type->bytes);
}

// REQUIRES: side.type is not null; DecodeBody() has failed.
std::string WhyNotDecoded(const LayoutSide& side, std::span<const std::byte> from, CallBody to);

// A call with a struct in at least one direction, as stubs make it (LayoutCallOf in generated.h).
struct LayoutCall {
  const MethodLayouts* layouts;
  // One of the two.
  const google::protobuf::MessageLite* request = nullptr;
  const void* request_record = nullptr;
  CallBody reply;
};

}  // namespace weft
