// What a channel is made of: engines, and what it connects to. That is an address; or a peer, by a
// session of servers that call each other; or many servers, whose addresses a source names.
//
// Of several engines each has a lane (channel_lanes.h), a channel in all but its front; one engine
// has the channel itself.
//
// Threads, lifetime: values. The application's engines outlive the channel; so does `session`.
// Errors: MakeChannel() has those of Channel::Open(), of the functions that it is given, and checks
//   `balancing`.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/function.h"
#include "rpc/client/address_source.h"
#include "rpc/client/balancing.h"
#include "rpc/client/channel.h"
#include "transport/engine.h"

namespace weft {

class LaneStates;
class PeerSession;

namespace internal {

struct ChannelParts {
  // 1 to kMaxEngines, each another one: the application's; or, of its own, as many as
  // ChannelOptions::engines says, by `make_engine`.
  std::vector<Engine*> engines = {};
  Function<absl::StatusOr<std::unique_ptr<Engine>>()> make_engine = {};
  std::string address;  // what it dials, or for texts: a peer, or the target
  ChannelOptions options;
  PeerSession* session = nullptr;  // of a channel to a peer
  // Of a channel over many servers: called for each engine.
  Function<absl::StatusOr<std::unique_ptr<AddressSource>>()> make_source = {};
  BalancingOptions balancing = {};
};

// Of these, what one of its engines has.
struct LaneParts {
  std::unique_ptr<Engine> own_engine = {};  // null: the application's
  EngineCore& engine;
  const std::string& address;
  ChannelOptions options;
  PeerSession* session = nullptr;
  std::unique_ptr<AddressSource> source = {};
  const BalancingOptions& balancing;
  std::shared_ptr<LaneStates> lanes = {};  // of several; this one's number is `number`
  uint32_t number = 0;
  Channel* first_lane = nullptr;  // of the same channel, whose services it shares; null: this is it
};

}  // namespace internal
}  // namespace weft
