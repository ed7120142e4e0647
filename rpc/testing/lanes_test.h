// A channel on three engines of the simulated network, each a machine of its own: a wire of its own
// leads from each to the server, as from each card of a host.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "core/strings.h"
#include "rpc/client/channel_lanes.h"
#include "rpc/testing/rpc_test.h"

namespace weft::test {

class LanesTest : public RpcTest {
 protected:
  static constexpr uint32_t kLanes = 3;

  explicit LanesTest(const SimOptions& options = {}) : RpcTest(/*seed=*/1, options) {}

  void Open(const ChannelOptions& options = {}) {
    StartServer();
    std::vector<Engine*> engines;
    for (uint32_t lane = 0; lane < kLanes; ++lane) engines.push_back(&network_.Node(Name(lane)));
    // The engine that a thread has made last is its home. So this one is the home of no lane, as
    // threads of a program are that have no engine.
    network_.Node("onlooker");
    auto channel = Channel::Open(engines, "sim:server", options);
    ASSERT_TRUE(channel.ok()) << channel.status();
    channel_ = *std::move(channel);
    stub_.emplace(*channel_);
    home_ = lanes().NumberOfThisThread();
    next_ = (home_ + 1) % kLanes;
  }

  static std::string Name(uint32_t lane) { return StrCat("lane ", lane); }
  ChannelLanes& lanes() { return *internal::LanesOf(*channel_); }
  Channel& Lane(uint32_t lane) { return *lanes().all()[lane]; }
  uint64_t CallsOf(uint32_t lane) { return Lane(lane).stats().calls_ok; }

  absl::Status Echo(const CallOptions& options = {}) {
    Data reply;
    return stub_->Echo(MakeData(1, 10), &reply, options);
  }

  // The wire of this thread's lane is cut, and a call finds that out.
  void CutHome() {
    network_.Partition(Name(home_), "server");
    const absl::Status lost = Echo();
    ASSERT_TRUE(absl::IsUnavailable(lost)) << lost;
    ASSERT_TRUE(lanes().states().IsAway(home_));
  }

  uint32_t home_ = 0;  // this thread's
  uint32_t next_ = 0;  // behind it
};

}  // namespace weft::test
