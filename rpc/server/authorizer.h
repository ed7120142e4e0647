// Who may call what: the hook. policy_file.h is a ready-made one.
//
// A server with an authorizer (ServerOptions::authorizer) asks it about every unary call, one-way
// message and stream, whichever side has dialed (Server::OpenPeer()), and about every attempt of a
// call that runs exactly once, also one that would be answered from a record. It asks before
// anything of the request is decoded, its attachment kept, or a payload beside it (weft.Bulk)
// fetched; a large request has come as one message by then, and is dropped. (Metadata, 8 KiB at the
// most, is read with its frame.)
//
// A refusal is PERMISSION_DENIED, and no handler and no interceptor has seen the call: DeliveryOf()
// is kNotSent. It is counted (ServerStats::denied), and stands in the audit log. Its words
// name the method and who the server takes the caller for, and nothing of the rules.
//
// What is not asked about:
//   - The server's own method, which opens and renews the sessions of calls that run exactly once.
//     Who may call at least one method of the server may use it; others are refused: they have no
//     use for a session, and its memory is not theirs to take. A session is known by 128 random
//     bits.
//   - Reads and writes of exported memory, and payloads: there a handle is the right
//     (transport/region_handle.h). Who may not call the method that hands it out does not get it
//     there.
//   - Calls that run when the answer changes: they go on.
// The names of services and methods are in the server's hello, which every client gets that may
// connect at all (ServerOptions::security).
//
// Cost: without an authorizer, a compare. With one, Generation() and a look at what is remembered,
// 4 bytes for each method and connection; nothing is allocated or locked.
//
// Threads: called on the engines of the servers that use it, so by several at once where they have
//   engines of their own. Lifetime: it outlives those servers.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "transport/path.h"

namespace weft {

class Authorizer {
 public:
  struct Decision {
    bool allowed = false;
    // Which rule has decided, as the authorizer numbers them; 0: none. Below 2^30.
    uint32_t rule = 0;
  };

  virtual ~Authorizer() = default;

  // Whether the client at the other end of `path` may call `method` ("Get") of `service` ("kv.Kv").
  // Nothing is to be read into a call of this but the question: a client that opens a session is
  // asked about before it calls. The server remembers the answer for this connection and method,
  // until Generation() is another one. Must not block: the engine waits.
  virtual Decision Decide(const PathInfo& path, std::string_view service,
                          std::string_view method) = 0;

  // Another one when answers may have changed. Asked before every call: a load, if possible.
  // `now_ns`: of the engine's clock, for what is to be looked at from time to time.
  virtual uint64_t Generation(uint64_t now_ns) {
    (void)now_ns;
    return 0;
  }

  // What a decision's rule is to those who read the log: "line 7 of /etc/kv.policy".
  virtual std::string RuleText(uint32_t rule) const {
    return rule == 0 ? "no rule" : "rule " + std::to_string(rule);
  }
};

}  // namespace weft
