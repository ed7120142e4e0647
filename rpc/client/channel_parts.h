// What a channel is made of: an engine, and what it connects to. That is an address; or a peer, by
// a session of servers that call each other; or many servers, whose addresses a source names.
//
// Threads, lifetime: a value. `engine` is `own_engine`'s, or outlives the channel; `session` does.
// Errors: MakeChannel() has those of Channel::Open(), and checks `balancing`.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "rpc/client/address_source.h"
#include "rpc/client/balancing.h"
#include "rpc/client/channel.h"
#include "transport/engine.h"

namespace weft {

class LaneStates;
class PeerSession;

namespace internal {

struct ChannelParts {
  std::unique_ptr<Engine> own_engine = {};  // null: the application's
  EngineCore& engine;
  std::string address;  // what it dials, or for texts: a peer, or the target
  ChannelOptions options;
  PeerSession* session = nullptr;              // of a channel to a peer
  std::unique_ptr<AddressSource> source = {};  // of a channel over many servers
  BalancingOptions balancing = {};
  std::shared_ptr<LaneStates> lanes = {};  // of one of several lanes, whose number is `lane`
  uint32_t lane = 0;
  Channel* first_lane = nullptr;  // of the same channel, whose services it shares; null: this is it
};

// ChannelOptions::engines is 1 to `most`: before one of them is opened.
absl::Status CheckEngines(uint32_t engines, uint32_t most);
// Those that are given to `function`, by name: 1 to kMaxEngines, each another one.
absl::Status CheckEngines(std::string_view function, const std::vector<Engine*>& engines);

}  // namespace internal
}  // namespace weft
