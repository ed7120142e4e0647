// What a generated service is to the rest of the library: a name, a table of methods, and an
// object that runs them. Applications derive from the generated `Kv::Service`, not from this.
//
// Threads: descriptors are constants. Lifetime: descriptors live for ever; a Service outlives every
//   Server it was added to.
#pragma once

#include <google/protobuf/arena.h>
#include <google/protobuf/message_lite.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace weft {

class Service;
struct MethodLayouts;

// Of one channel or server (weft/interceptor.h): each call keeps a pointer for each.
inline constexpr size_t kMaxInterceptors = 8;

namespace internal {
class HandledCall;
}  // namespace internal

// A request or a reply in memory, whichever its method says.
union CallBody {
  google::protobuf::MessageLite* message = nullptr;
  void* record;  // a struct of fixed layout (method_layouts.h)
};

// Who sends how many messages: one, or a stream of them.
enum class MethodKind : uint8_t {
  kUnary = 1,
  kClientStreaming = 2,  // a stream of requests, one reply
  kServerStreaming = 3,  // one request, a stream of replies
  kBidiStreaming = 4,
  kOneWay = 5,  // one request, and no reply
};

// Whether a method may run twice for one call, as its `idempotency_level` in the .proto file says.
enum class Idempotency : uint8_t {
  kUnknown = 0,        // nothing is said: once at most
  kNoSideEffects = 1,  // it changes nothing
  kIdempotent = 2,     // twice has the effect of once
};

// How urgent a call is: what waits is passed by what is more urgent, the first of these first. The
// values are on the wire (frame.h): they do not change.
enum class Priority : uint8_t {
  kControl = 0,     // what others depend on: heartbeats, votes, renewals. Few and small
  kNormal = 1,      // what somebody waits for
  kBackground = 2,  // what can wait: repair, rebalancing, backups
};
inline constexpr size_t kPriorities = 3;

// One method, as the generator wrote it down.
struct MethodDescriptor {
  std::string_view name;          // "Get"
  std::string_view request_type;  // "weft.examples.kv.GetRequest"
  std::string_view reply_type;

  // Makes an empty request and an empty reply on `arena`.
  void (*make_messages)(google::protobuf::Arena* arena, CallBody* request, CallBody* reply);

  // Runs the method on `service`, which is of the generated class; ends with Finish() of the
  // call, now or later.
  void (*start)(Service& service, internal::HandledCall& call);

  // Null: request and reply are protobuf messages, in memory and on the wire.
  const MethodLayouts* layouts = nullptr;

  MethodKind kind = MethodKind::kUnary;
  Idempotency idempotency = Idempotency::kUnknown;
};

struct ServiceDescriptor {
  std::string_view full_name;                 // "weft.examples.kv.Kv"
  std::span<const MethodDescriptor> methods;  // in the order of the .proto file
  // Methods of these names again, with other `layouts`.
  std::span<const MethodDescriptor> forms = {};
};

// Base of all generated services.
class Service {
 public:
  virtual ~Service() = default;
  virtual const ServiceDescriptor& weft_descriptor() const = 0;
};

}  // namespace weft
