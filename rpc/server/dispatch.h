// The methods of a server, by number: one array, no look-up by name. And what is to be known of
// their requests and replies, whichever way these are kept.
//
// Threads: filled before the server listens, constant afterwards.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "core/bytes.h"
#include "rpc/operation/executor.h"
#include "rpc/wire/hello.pb.h"
#include "rpc/wire/service.h"

namespace weft {

// What a request's method number leads to.
struct MethodEntry {
  const MethodDescriptor* method;
  Service* service;
  Executor* executor;  // null: on the engine
};

// Why `body` could not be decoded as a request for `method`. `request` has been made for it.
absl::Status WhyUndecoded(const MethodDescriptor& method, ByteSpan body, const CallBody& request);
// The method's reply is kept as a struct, and not as a message.
bool KeepsReplyInLayout(const MethodDescriptor& method);
// Encoded, with its attachment; null: it has none.
size_t EncodedReplyBytes(const MethodDescriptor& method, const CallBody& reply,
                         const absl::Cord* attachment);

// What a client takes in a reply.
struct ReplyBounds {
  bool attachments = false;
  size_t bytes = 0;  // encoded, with its attachment
};
// What is wrong with the reply for such a client. `attachment` as above.
absl::Status CheckReplyFor(const ReplyBounds& client, const MethodDescriptor& method,
                           const CallBody& reply, const absl::Cord* attachment);

class DispatchTable {
 public:
  // ALREADY_EXISTS: a service of that name is there. RESOURCE_EXHAUSTED: more methods and forms of
  // methods than 16 bits can number.
  absl::Status Add(Service* service, Executor* executor);

  // Null: no method has this number.
  const MethodEntry* Find(uint16_t number) const {
    return number < count_ ? first_ + number : nullptr;
  }
  // From now on there are none to be found. (One compare for every call less than a flag.)
  void Close() { count_ = 0; }
  // That can be found.
  size_t entries() const { return count_; }
  // Methods, each counted once.
  size_t size() const { return methods_; }

  // The services, methods and forms in their order, as clients will number them.
  void Describe(rpc::ServerHello* hello) const;

 private:
  size_t NumberOf(const MethodEntry& form) const;

  std::vector<MethodEntry> entries_;  // the methods of all services, then the forms of all
  // The same, as every request asks for it: a vector divides to know its size.
  const MethodEntry* first_ = nullptr;
  size_t count_ = 0;
  size_t methods_ = 0;
  std::vector<const ServiceDescriptor*> services_;
};

}  // namespace weft
