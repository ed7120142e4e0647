// What one client may call, on a server with an authorizer (authorizer.h): the answers that it has
// given are remembered for as long as the connection lasts and the authorizer's generation stays.
//
// Threads: the engine's.
// Lifetime: a member of its ServerConnection, whose path it looks at when it first has to ask;
//   services are added before the first is made.
// Invariants: a method whose number leads nowhere is permitted, for the call is refused anyhow.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "core/inline.h"
#include "rpc/server/authorizer.h"
#include "transport/engine.h"
#include "transport/path.h"

namespace weft {

class ServerCore;

class ClientAccess {
 public:
  // REQUIRES: the server has an authorizer.
  ClientAccess(ServerCore& core, const PathInfo& path);

  // Whether the client may call the method of this number.
  WEFT_INLINE bool MayCall(uint16_t number) {
    const uint64_t generation = authorizer_.Generation(engine_.turn_ns());
    if (generation == generation_ && number < methods_ && IsAllowed(answers_[number])) [[likely]]
      return true;
    return Look(number, generation);
  }
  // What a call that it may not make is answered: counts it, and logs it. REQUIRES: MayCall() has
  // just said so.
  absl::Status Refuse(uint16_t number);

 private:
  // An answer: {rule << 2 | allowed << 1 | known}. 0: none yet.
  using Answer = uint32_t;
  static constexpr Answer kKnown = 1;
  static constexpr Answer kAllowed = 2;
  static bool IsAllowed(Answer answer) { return (answer & kAllowed) != 0; }

  bool Look(uint16_t number, uint64_t generation);
  bool MayCallAny() const;

  ServerCore& core_;
  const EngineCore& engine_;
  Authorizer& authorizer_;
  const PathInfo& path_;
  const size_t methods_;  // with their forms
  const std::unique_ptr<Answer[]> answers_;
  Answer any_ = 0;  // whether it may call at least one method
  uint64_t generation_ = 0;
};

}  // namespace weft
