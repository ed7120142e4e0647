// Who may call what.
//
// A server with an authorizer (ServerOptions::authorizer) asks it before a request is decoded, and
// refuses with PERMISSION_DENIED: nothing of the call has run.
//
// Threads: called on the engines of the servers that use it, so by several at once where they have
//   engines of their own. Lifetime: it outlives those servers.
#pragma once

#include <cstdint>

#include "transport/path.h"

namespace weft {

struct MethodDescriptor;

class Authorizer {
 public:
  virtual ~Authorizer() = default;

  // Whether the client at the other end of `path` may call `method`. Must not block: the engine
  // waits. The server remembers the answer for this connection and method, until generation() is
  // another one.
  virtual bool MayCall(const PathInfo& path, const MethodDescriptor& method) = 0;

  // Changes when answers may have changed.
  virtual uint64_t generation() const { return 0; }
};

}  // namespace weft
