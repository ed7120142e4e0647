// A channel's state, as programs see it, and the right to be told of its changes.
//
//   auto watch = channel->WatchState([](weft::ChannelState state) { ... });
//
// Threads: the callback runs on the engine's thread. The watch is destroyed on any; elsewhere than
//   in a callback of the engine this waits for the engine to have its turn.
// Lifetime: the callback runs until the watch is destroyed, not afterwards, or until the channel
//   is: a watch may outlive its channel, but is not destroyed while another thread destroys that.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

namespace weft {

struct StateWatch;

enum class ChannelState : uint8_t {
  kIdle = 1,        // no connection, and none is wanted: the next call connects; or the server
                    // is about to shut down, and calls under way are all that is left
  kConnecting = 2,  // calls wait for the attempt to end
  kReady = 3,       // there is a connection
  kTransientFailure = 4,  // the pause after an attempt that failed, or after a second loss in a
                          // row; calls wait for the next attempt
  kShutdown = 5,          // the channel is being destroyed
};

// "idle", "connecting", "ready", "transient failure", "shut down".
std::string_view ChannelStateName(ChannelState state);

class [[nodiscard]] ChannelWatch {
 public:
  // None.
  ChannelWatch() = default;
  // For Channel.
  explicit ChannelWatch(std::shared_ptr<StateWatch> watch);
  ~ChannelWatch();
  ChannelWatch(ChannelWatch&& other) noexcept = default;
  ChannelWatch& operator=(ChannelWatch&& other) noexcept;

 private:
  void End();

  std::shared_ptr<StateWatch> watch_;
};

}  // namespace weft
