// A channel over many servers of one service: stubs use it as any other channel, and each call goes
// to one of the servers. docs/balancing.md says how servers are chosen, and what happens when they
// fail, come and go.
//
//   auto engine = weft::OpenNetworkEngine({});  // with a thread: see OpenBalanced()
//   auto channel = weft::OpenBalanced(**engine, "dns:db.example.com:4711");
//   Kv::Stub kv(**channel);
//
// A target says where the servers stand:
//   list:a:4711,b:4711@zone-2,unix:/run/c  these, for ever, or until SetServers(). Behind an @ is
//                                          the zone in which the server stands
//   file:/etc/db.servers                   one address a line, "# ..." is a comment; read again
//                                          when the file changes
//   dns:HOST:PORT                          the A and AAAA records of HOST; asked for again
//   dns:_SERVICE._PROTOCOL.NAME            the SRV records, with their ports and priorities
//                                          (weights are not used). Behind dns: may stand
//                                          //SERVER/, a name server to ask
//   etcd:HOST:PORT,HOST:PORT/PREFIX        the keys of etcd that begin with /PREFIX/: the value of
//                                          each is one address, with its zone. They are watched.
//                                          Servers put them there (Server::Register())
//
// Threads, lifetime: those of Channel (weft/channel.h). Its servers' connections belong to its
//   engine. ON SEVERAL ENGINES (ChannelOptions::engines, or given) each has the whole of it: the
//   source, a connection to each server, and what it knows of them; calls go by their thread's
//   engine, or by another one while that has no server that is ready.
// Errors: INVALID_ARGUMENT names what is wrong with the target or the option. Of calls, those of
//   Channel: UNAVAILABLE, no server could be reached; the text says what the last attempt met.
// Invariants: those of Channel. A call is sent to one server, and to another one only as
//   RetryOptions say; a call that could not be sent yet belongs to no server. Nothing orders two
//   calls, or two one-way messages.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "rpc/client/channel_watch.h"
#include "rpc/operation/etcd_options.h"
#include "weft/channel.h"

namespace weft {

class Engine;

// How a call's server is chosen among those that are ready.
enum class BalancingPolicy : uint8_t {
  kRoundRobin = 1,      // one after the other
  kLeastLoaded = 2,     // of two at random, the one with fewer of this channel's unanswered calls
  kConsistentHash = 3,  // by CallOptions::server_key: equal keys prefer the same server, and few
                        // move when servers come and go; docs/balancing.md says when another one
                        // gets them. 0: as kRoundRobin
};

// A server that keeps failing is ejected: it gets no calls for a while. What counts as a failure:
// an answer of UNAVAILABLE, INTERNAL, UNKNOWN or DATA_LOSS; a deadline that passes over a call that
// was sent; the loss of a connection, once. Other answers are the service's, and a call that this
// side cancels says nothing.
struct EjectionOptions {
  uint32_t consecutive_failures = 5;  // 0: never for that; at most 1000
  // How often success rates are compared, and how long a server is not ejected before its next
  // ejection is one ejection_us shorter again; to an hour. 0: neither happens.
  uint64_t interval_us = 10'000'000;
  uint64_t ejection_us = 5'000'000;        // the first time; the n-th time n times as long, up to
  uint64_t max_ejection_us = 300'000'000;  // this; an hour at most
  // How many at a time, of the servers of the tiers in use, 0..100: rounded down, but one at least.
  // 0: never. A sole server is never ejected.
  uint32_t max_percent = 30;
};

struct BalancingOptions {
  // Behaviour.
  BalancingPolicy policy = BalancingPolicy::kLeastLoaded;
  // Locality first: servers of this zone stand before others of their priority. Empty: zones do not
  // matter.
  std::string zone = {};
  // The first servers, by priority and zone, have all calls while so many per cent of them are
  // usable, 1..100; with fewer, the next ones get calls beside them.
  uint32_t min_local_percent = 50;
  EjectionOptions ejection = {};
  // A server that the list drops is drained: it gets no new calls, and what is under way there has
  // this long, up to an hour, before it ends with UNAVAILABLE.
  uint64_t drain_us = 30'000'000;
  uint64_t refresh_us = 30'000'000;  // how often a file is looked at and a name asked for, and how
                                     // often etcd has to show that it is there, 1 ms to an hour; of
                                     // a name, also at once when a server is lost, but once in a
                                     // second only
  EtcdOptions etcd = {};             // of targets "etcd:"
  // Performance.
  // The channel connects to so many servers at most (of each zone or priority), 1..kMaxServers. Of
  // more it takes a part of its own, by its number.
  uint32_t max_servers = 64;
  // Clients of one service are numbered 0, 1, 2, ...: then every server has nearly as many clients
  // as any other. None: the client draws a number, and some servers have more clients than others.
  std::optional<uint32_t> client_number = {};
};

// As many connections as a channel may have, of each zone or priority; 8 of those.
inline constexpr uint32_t kMaxServers = 1024;
// As many addresses as a source may name. More are refused, and the list stays as it was; of those
// from DNS the first so many are taken.
inline constexpr uint32_t kMaxServersListed = 16'384;

struct ListedServer {
  std::string address;  // as of Channel::Open()
  std::string zone = {};
  uint32_t priority = 0;  // lower ones first: others get calls as those of other zones do

  bool operator==(const ListedServer&) const = default;
};

// "host:port@zone" or "host:port".
absl::StatusOr<ListedServer> ParseListedServer(std::string_view text);

// With caller-driven engines and networks of its own, as many as ChannelOptions::engines, or on
// those that are given (1 to 64, as of Channel::Open(); `engines` is 1 then). Give it engines with
// a thread: on a caller-driven one no list is read again, no lost server noticed and none ejected
// while nobody waits or polls, and the first call after a pause is sent by what was known before.
// With ChannelOptions::connect_at_once they wait until one server is ready, and return the error if
// the source has failed or one attempt with each server; a "list:" without addresses fails so.
// ChannelOptions::retry works across servers: an attempt goes to one that the call has not met, if
// there is one. INVALID_ARGUMENT: retry.exactly_once, which needs one server that remembers.
absl::StatusOr<std::unique_ptr<Channel>> OpenBalanced(const std::string& target,
                                                      const ChannelOptions& options = {},
                                                      const BalancingOptions& balancing = {});
absl::StatusOr<std::unique_ptr<Channel>> OpenBalanced(Engine& engine, const std::string& target,
                                                      const ChannelOptions& options = {},
                                                      const BalancingOptions& balancing = {});
absl::StatusOr<std::unique_ptr<Channel>> OpenBalanced(const std::vector<Engine*>& engines,
                                                      const std::string& target,
                                                      const ChannelOptions& options = {},
                                                      const BalancingOptions& balancing = {});

// The servers of a channel whose target is "list:...", from now on: for programs with a registry of
// their own. None: all are drained. INVALID_ARGUMENT: an address is empty, or there are too many;
// FAILED_PRECONDITION: it is no such channel; or it has several engines, and this is inside a
// callback of one. Any thread.
absl::Status SetServers(Channel& channel, std::vector<ListedServer> servers);

// What a channel knows of one of its servers now.
struct ServerFacts {
  ListedServer server;
  ChannelState state = ChannelState::kIdle;
  bool ejected = false;
  bool draining = false;    // gets no new calls: the list has dropped it (it is draining), or it is
                            // about to shut down (it is leaving)
  uint32_t ejections = 0;   // ever
  uint32_t under_way = 0;   // calls and streams that it has not answered
  uint64_t answers_ok = 0;  // calls
  uint64_t failures = 0;    // of the kinds that count for EjectionOptions
};
// Those of its part, of all priorities and zones, connected or not; then those that drain.
// Empty: it is a channel to one address, or no server is known. Of several engines: what this
// thread's knows (Channel::here()).
std::vector<ServerFacts> ServersOf(Channel& channel);

// For CallOptions::server_key: a hash that is the same in every process and version; never 0.
uint64_t ServerKeyOf(std::string_view key);

}  // namespace weft
