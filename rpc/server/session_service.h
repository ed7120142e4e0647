// The method that every server has which keeps sessions (kSessionMethod, completion_records.h): it
// opens, renews and ends them, and hears which calls of them are given up. It is in no table of
// services.
//
// Threads: the engine's. Lifetime: a member of the ServerCore.
#pragma once

#include "rpc/server/dispatch.h"
#include "rpc/wire/service.h"

namespace weft {

class ServerCore;

class SessionService final : public Service {
 public:
  explicit SessionService(ServerCore& core);
  const ServiceDescriptor& weft_descriptor() const override;

  // It, if `method` is its number and the server keeps sessions; else null.
  const MethodEntry* Find(uint16_t method) const;

 private:
  static void Start(Service& service, internal::HandledCall& call);

  ServerCore& core_;
  const MethodEntry entry_;
};

}  // namespace weft
