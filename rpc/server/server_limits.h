// How much a server takes on at a time (ServerOptions::limits): what is more is refused at once,
// instead of waiting until nobody wants it any more.
//
//   weft::ServerOptions options;
//   options.limits.adaptive = true;                        // what the server can do, found out
//   options.limits.per_client = 64;                        // and of that, for each client
//   options.limits.per_method = {{"kv.Kv/Scan", 8}};       // and for each method
//
// A call that is over a limit is not decoded and not run. It ends with RESOURCE_EXHAUSTED, which
// says which limit, its value, and "(not run, safe to retry elsewhere)"; DeliveryOf() is kNotSent.
// A one-way message is dropped, counted and logged. A call counts from its arrival until its
// handler has finished, with the transfers of its payloads, whatever becomes of its caller; not
// while its reply waits for its client. A further attempt of a call that runs exactly once counts
// as nothing: it waits for the first.
//
// Limits count calls that are under way at the same time: those of handlers that run on an executor
// or are asynchronous. Handlers that run on the engine and finish before they return are never more
// than one; to others of their kind a limit means nothing, and what waits for them waits unread.
//
// Calls that wait on purpose until something happens count as long as they do: with the adaptive
// limit, make them streams, for it takes them for busy workers.
//
// WITH SEVERAL ENGINES (ServerOptions::engines) these are the server's numbers, not an engine's:
// - per_client and per_method count on all engines together, and never more run than the limit. The
//   engines take places for several calls at a time where a limit has 32 for each engine or more,
//   so that most calls touch nothing that engines share: then a call may be refused when more than
//   seven eighths of the limit run, while other engines have the rest and do not need it. Smaller
//   limits are exact, for two atomic operations on common memory in each call that they are for.
//   (A client that has proved nothing is one connection, which is one engine's: exact, and free.)
// - adaptive: each engine finds out a limit of its own, for what it does, between its equal parts
//   of adaptive_least (1 at least) and adaptive_most.
//
// docs/tuning.md, "Overload", says how to choose.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace weft {

struct MethodLimit {
  std::string method = {};  // by its full name, "kv.Kv/Scan"
  uint32_t most = 0;        // 0: no limit
};

struct ServerLimits {
  // Calls, streams and one-way messages that run, of one client: of all connections of whoever has
  // proved by TLS to be the same (the certificate's names, or the name of the secret), or of one
  // process of this host as far as the kernel tells; else of one connection. Beside
  // max_outstanding_calls, which is each connection's. Lower: nobody takes much from the others;
  // clients that may have the whole server do not get it. 0: no limit.
  uint32_t per_client = 0;
  // The same of one method, of all clients. Each method once; other methods have no limit.
  // Server::Listen() and OpenPeer() say if no service has one of them.
  std::vector<MethodLimit> per_method = {};
  // Calls and one-way messages that run, of all clients: as many as keep the server's workers busy,
  // so that at any overload it does what it can, and what it admits takes about twice as long as
  // alone at most. Streams do not count: they last as long as their ends like.
  bool adaptive = false;
  // Its bounds: 1 <= adaptive_least <= adaptive_most <= kHighestAdaptiveLimit, and of several
  // engines adaptive_most is not less than these. Higher least: bursts of as many calls are taken,
  // and may wait. Lower most: a guard where handlers use what others need as well, such as memory.
  uint32_t adaptive_least = 1;
  uint32_t adaptive_most = 4096;
  // So long, in microseconds, or up to a quarter longer, a connection may be without any use: a
  // call, a stream, a one-way message, a large message or reply under way, or a lease on the
  // server's memory, now or before. Then its client is asked to leave, and connects again with its
  // next call, which fails where others have taken all of max_connections meanwhile. 1 s to 24 h;
  // 0: for ever, for each connects again at the price of a handshake, and what it keeps is bounded
  // by max_connections. Lower: places and memory of clients that have stopped calling are free
  // sooner. Not asked are peers, channels over many servers, those that can queue fewer calls than
  // they may have outstanding, and older clients.
  // A client that does not leave stays, as does one that makes a call now and then: this is no
  // bound on what somebody may hold (that is ServerOptions::max_connections_of_one). The server
  // does not close such a connection: its client may have calls that the server cannot see, which
  // wait for their next attempt, or a message on its way, and these would fail.
  uint64_t idle_timeout_us = 0;
};

// Less would have clients connect that call every second; a day is as good as never.
inline constexpr uint64_t kShortestIdleTimeoutUs = 1'000'000;
inline constexpr uint64_t kLongestIdleTimeoutUs = 86'400'000'000;

// More calls than this at once no process has workers for: each holds its request and its arena.
inline constexpr uint32_t kHighestAdaptiveLimit = 1 << 20;

}  // namespace weft
