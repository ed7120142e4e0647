// The servers of one channel: which there are, and which one gets the next call. docs/balancing.md
// is its description; the states of a server are BalancedServer's.
//
// What happens to servers is noted at once, and who may be chosen then is looked up before the next
// call is sent, or whoever asks hears of it: of a thousand servers whose states change in one turn,
// all are looked at once. All that follows from a change (connecting, ending calls that wait,
// destroying) is done by a timer, never inside what has happened.
//
// Threads: the engine's.
// Lifetime: the front's ClientConnection's. Start() once; Shutdown() ends all servers.
// Errors: of calls, as channel.h says.
// Invariants: unless a look is due, who may be chosen is ready and not draining; and not ejected,
//   unless all are. No call waits at a server.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/random.h"
#include "core/timer_wheel.h"
#include "rpc/client/address_source.h"
#include "rpc/client/balanced_server.h"
#include "rpc/client/balancing.h"
#include "rpc/client/channel.h"
#include "rpc/client/client_calls.h"
#include "rpc/client/server_choice.h"
#include "rpc/operation/member_timer.h"
#include "transport/engine.h"
#include "transport/path.h"

namespace weft {

class ClientConnection;
class ClientStreams;

// INVALID_ARGUMENT names the option.
absl::Status CheckBalancing(const BalancingOptions& balancing, const ChannelOptions& options);
// The same for a list of servers.
absl::Status CheckServers(const std::vector<ListedServer>& servers);

class Balancer final : private AddressSource::Host, private BalancedServer::Host, private Timer {
 public:
  // `front`, `target` and `options`, the channel's, outlive it.
  Balancer(EngineCore& engine, ClientConnection& front, const std::string& target,
           const ChannelOptions& options, const BalancingOptions& balancing,
           std::unique_ptr<AddressSource> source);
  ~Balancer() override;
  Balancer(const Balancer&) = delete;
  Balancer& operator=(const Balancer&) = delete;

  void Start();
  // All servers end, with them what is under way: the channel is being destroyed.
  void Shutdown();

  // --- every call -------------------------------------------------------------------------------

  // Sends a call that waits at the front, or completes it; kNotNow: no server has room.
  ClientCalls::Sent Send(ClientCall& call);
  // Of the server that a stream with that key goes to; null: none is ready and has a slot for it.
  ClientStreams* ChooseStreams(uint64_t key);
  // A small call would be sent.
  bool HasRoom();
  // Something waits at the front.
  void OnCallWaits();

  // --- the list, and facts ----------------------------------------------------------------------

  // FAILED_PRECONDITION: the source names the servers.
  absl::Status SetServers(std::vector<ListedServer> servers);
  std::vector<ServerFacts> Facts();
  ChannelState state();
  absl::StatusOr<PathInfo> path();
  std::string Explain();
  void AddTo(ChannelStats& stats);
  // By all looks who may be chosen.
  uint64_t servers_looked_at() const { return servers_looked_at_; }

 private:
  using Servers = std::vector<std::unique_ptr<BalancedServer>>;

  // Servers that are drawn in search of two that are not spared. Of many with half of them spared,
  // 96 calls of 100 find two. More: each call costs more where nearly all refuse. Fewer: more calls
  // go to the next one behind a spared one.
  static constexpr int kSpareDraws = 8;

  // AddressSource::Host.
  void OnServers(std::vector<ListedServer> servers) override;
  void OnSourceFailed(const absl::Status& why) override;
  // BalancedServer::Host.
  void OnServerState(BalancedServer& server) override;
  void OnServerFailing(BalancedServer& server) override;
  void OnServerRoom() override;
  // Timer: what is to be done.
  void OnTimer() override;

  void WorkSoon();
  void ApplyList();
  std::vector<ListedServer> PartOf(std::vector<ListedServer> list, std::vector<uint32_t>* tiers);
  void LookWhoIsReady();
  void LookIfDue() {
    if (look_due_) [[unlikely]]
      LookWhoIsReady();
  }
  uint32_t LastTierInUse() const;
  void DestroyDrained();
  void OnInterval();
  bool MayEject() const;
  void Eject(BalancedServer& server);
  uint32_t FirstPlace();
  uint32_t LessLoaded(uint32_t count);
  uint32_t NotSpared(uint32_t place);
  BalancedServer& OfKey(uint64_t key);
  ClientCalls::Sent TryAt(ClientCall& call, BalancedServer& server);
  ClientCalls::Sent TryFrom(ClientCall& call, uint32_t place, const MetServers* avoid);
  absl::Status NoServer() const;

  // Constant after construction.
  EngineCore& engine_;
  ClientConnection& front_;
  const std::string& target_;
  const BalancingOptions balancing_;
  const uint32_t client_number_;
  const ChannelOptions& options_;

  // What every call touches.
  std::vector<BalancedServer*> ready_;  // who may be chosen, in the order of the list
  bool look_due_ = false;               // a server's state has changed since ready_ was made
  Random random_;
  uint32_t next_;  // kRoundRobin: counts calls, from a number drawn at random; its place in ready_
                   // is the rest of a division
  HashRing ring_;  // of servers_

  // The rest.
  Servers servers_;
  Servers drained_;  // and those that drain
  uint32_t last_tier_ = 0;
  bool connect_due_ = false;  // there may be new servers in the tiers in use
  uint64_t servers_looked_at_ = 0;
  ChannelStats past_;  // of servers that are no more
  std::unique_ptr<AddressSource> source_;
  std::vector<ListedServer> list_;  // that was applied last
  std::optional<std::vector<ListedServer>> new_list_;
  bool list_known_ = false;  // or it is known that there is none
  bool failed_ = false;      // an attempt has, or the source: what waits may have to end
  bool lost_ = false;        // a server was: the source is to look again
  bool source_fails_ = false;
  bool set_by_program_ = false;  // SetServers() was called
  bool ended_ = false;
  absl::Status last_failure_;
  ChannelState told_ = ChannelState::kIdle;
  MemberTimer<&Balancer::OnInterval> sweep_{*this};  // of success rates
};

}  // namespace weft
