// A client whose calls run exactly once, and a server that does with each what the test says, on a
// simulated network.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>

#include "rpc/testing/retry_test.h"

namespace weft::test {

inline constexpr CallOptions kPatient = {.wait_for_server = true};

class OnceTest : public RetryTest {
 protected:
  static ChannelOptions Once() {
    ChannelOptions options = Retrying();
    options.retry.exactly_once = true;
    return options;
  }
  // Of a channel whose calls stay where they are after an attempt that has failed.
  static ChannelOptions OnceWithLongPauses() {
    ChannelOptions options = Once();
    options.retry.initial_backoff_us = options.retry.max_backoff_us = 600'000'000;
    return options;
  }
  static ServerOptions ShortLease() {
    ServerOptions options;
    options.session_lease_us = 5'000'000;
    return options;
  }
  static constexpr uint64_t kLeaseNs = 5 * kNsPerSec;  // of ShortLease()

  ServerStats Stats() { return server_->stats(); }

  void WaitForHeld(size_t count) {
    ASSERT_TRUE(RunUntil([&] { return service_.held.size() == count; }));
  }
  // A call that its handler has, and does not answer.
  void AddHeld(RetriedOutcome& outcome, const CallOptions& options = kPatient) {
    const size_t held = service_.held.size();
    service_.Next(service_.Hold());
    Add(outcome, options);
    WaitForHeld(held + 1);
  }

  // The way is gone for so long that both sides give the connection up.
  void Interrupt() {
    network_.Partition("client", server_node_);
    network_.RunFor(3 * kNsPerSec / 2);
  }
  // The connection is lost, and neither side dies.
  void LoseConnection() {
    const uint64_t before = channel_->stats().connects;
    Interrupt();
    network_.Heal("client", server_node_);
    ASSERT_TRUE(RunUntil([&] { return channel_->stats().connects > before; }));
  }
};

}  // namespace weft::test
