// The lines in the log (weft/log.h) about who was refused which call, and, if wanted, who was
// permitted which.
//
//   audit: decision=denied method=kv.Kv/Get authentication=certificate
//   identity="uri:spiffe://example.org/web subject:CN=web" address="10.0.0.7:35100"
//   rule="line 7 of /etc/kv.policy" time=2026-11-25T09:00:00.123Z unlogged=2
//
// (one line each). Refusals have level warning, the others info. What a client says of itself
// cannot break out of its quotes: all but printable ASCII is escaped as in C, quotes too.
//
// `unlogged` counts the lines that were left out before: each client has a budget for its refusals,
// so that one cannot hide the others, and so has the server, so that clients cannot fill its disk.
// (Of what a log says on stderr because nobody has told it otherwise there is less: core/log.h.)
// ServerStats::denied counts all refusals. A client is an identity at a host (on this host: a
// user), however often it connects; two may share a budget, for there are kBudgets.
//
// Threads: one engine's. Lifetime: an AuditLog is a member of the ServerCore.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/rate_budget.h"
#include "rpc/server/authorizer.h"
#include "transport/identity.h"
#include "transport/path.h"

namespace weft {

// Who a client is, in the words of a policy's patterns, and bounded: "uid:1000 gid:1000
// process:77". Empty: it has not proved who it is.
std::string AuditIdentity(const PeerIdentity& identity);

class AuditLog {
 public:
  // Of clients: more than are refused at one time, in 6 KiB. Two clients share one by chance.
  static constexpr size_t kBudgets = 256;

  struct Entry {
    bool allowed;
    const PathInfo& client;
    std::string_view service;
    std::string_view method;
    const Authorizer& authorizer;
    uint32_t rule;
  };
  void Add(const Entry& entry, uint64_t now_ns);

 private:
  RateBudget& BudgetOf(const PathInfo& client);

  // A line has mostly 300 bytes, and up to 4 KiB where names have to be escaped: 20 in a second are
  // 0.5 GB in a day. The burst is for many clients that come back at once after a change of the
  // rules.
  RateBudget denied_{/*burst=*/100, /*interval_ns=*/50'000'000};
  RateBudget allowed_{/*burst=*/100, /*interval_ns=*/50'000'000};
  // Refusals of one client: the first ones of a client that calls methods which it may not call,
  // and then enough to see that it goes on.
  std::vector<RateBudget> clients_{kBudgets,
                                   RateBudget(/*burst=*/10, /*interval_ns=*/1'000'000'000)};
  uint64_t unlogged_ = 0;
};

}  // namespace weft
