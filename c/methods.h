// What generated code has as constants, made at run time: descriptions of services whose messages
// are bytes.
//
// Threads: any. Lifetime: a method of clients is for ever, as generated ones are; so there are at
//   most kMostInterned of them, the same names again being the same one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "weft/c.h"
#include "weft/service.h"

namespace weft::c {

// Names come from programs, not from peers: enough for any, and too few for one that makes a name
// for each call.
inline constexpr size_t kMostInterned = 16384;

// "kv.Kv", "Get": letters, digits and '_', and for services parts of that with '.' between, 1 to
// 255 bytes, as protobuf has them.
absl::Status CheckServiceName(std::string_view name);
absl::Status CheckMethodName(std::string_view name);

// `kind`, `idempotency`: of weft/c.h.
absl::Status CheckMethodKind(int kind, int idempotency);

inline bool HasOneRequest(MethodKind kind) {
  return kind == MethodKind::kUnary || kind == MethodKind::kServerStreaming ||
         kind == MethodKind::kOneWay;
}
inline bool HasOneReply(MethodKind kind) {
  return kind == MethodKind::kUnary || kind == MethodKind::kClientStreaming;
}
inline bool IsStream(MethodKind kind) {
  return kind != MethodKind::kUnary && kind != MethodKind::kOneWay;
}

// For Channel::Bind(): a service of this one method. RESOURCE_EXHAUSTED: kMostInterned.
absl::StatusOr<const ServiceDescriptor*> InternMethod(std::string_view service,
                                                      std::string_view method, int kind,
                                                      int idempotency);

// A weft_method is a channel's number and its kind, so a call of the wrong kind is found without a
// look at a table. A kind is never 0.
inline weft_method ToMethod(uint32_t number, int kind) {
  return static_cast<uint32_t>(kind) << 16 | number;
}
inline uint32_t NumberOf(weft_method method) { return method & 0xFFFF; }
inline MethodKind KindOf(weft_method method) { return static_cast<MethodKind>(method >> 16); }

}  // namespace weft::c
