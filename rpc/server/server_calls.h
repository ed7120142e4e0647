// The free calls of one server, for all its connections: each with its arena and its messages.
//
// The one given back last is taken next. A server whose handlers finish before they return so runs
// all calls, of however many connections, on one that stays in the near caches; with one for each
// slot of each connection, a call that came after a thousand others met 10 lines on 3 pages that
// nobody had touched since.
//
// There are as many as ever ran at once, of calls, streams and one-way messages: what each
// connection may have of them, times the connections, of which there are twice max_connections with
// those that have closed. Where a connection goes, kMaxSpare of them stay.
//
// Threads: the engine's. Lifetime: REQUIRES: all have come back.
#pragma once

#include <cstdint>

#include "core/inline.h"
#include "rpc/server/server_call.h"

namespace weft {

class ServerCalls {
 public:
  ServerCalls() = default;
  ~ServerCalls() {
    while (first_ != nullptr) delete Take();
  }
  ServerCalls(const ServerCalls&) = delete;
  ServerCalls& operator=(const ServerCalls&) = delete;

  ServerCall* Take() {
    if (first_ == nullptr) [[unlikely]]
      return Make();
    ServerCall* const call = first_;
    first_ = call->next_spare_;
    return call;
  }
  void Give(ServerCall* call) {
    call->next_spare_ = first_;
    first_ = call;
  }

  // Leaves kMaxSpare beside the `running` ones, if there are more.
  void Trim(uint64_t running) {
    for (; made_ > running + kMaxSpare; --made_) delete Take();
  }
  // There are so many, free or not.
  uint64_t made() const { return made_; }

  // Enough for what a busy client has outstanding, in a server that answers later. 1.3 KiB each,
  // and what a call may keep (ServerCall::kKeepBytes).
  static constexpr uint32_t kMaxSpare = 1024;

 private:
  WEFT_COLD ServerCall* Make() {
    ++made_;
    return new ServerCall;
  }

  ServerCall* first_ = nullptr;
  uint64_t made_ = 0;
};

}  // namespace weft
