// One-sided transfers over Weft's transport: reads of 64 bytes from, and writes of 1 MiB into,
// memory that the server lends to the client.
//
//   server -> client   the span of its region, once, when the connection opens
//   client -> server   any message is a fence; the server sends it back. Writes posted before it
//                      are in the server's memory by then.
//
// Threads: the engine's. Lifetime: the engine outlives both; the target and the source live until
//   their connection is closed, which the engine's end does at the latest: destroy engines first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bench/perf/run_clock.h"
#include "core/bytes.h"
#include "core/histogram.h"
#include "transport/engine.h"
#include "transport/transport.h"

namespace weft::bench {

// The server's end: one client.
class OneSidedTarget final : public Acceptor, public ConnectionHandler {
 public:
  OneSidedTarget();

  absl::StatusOr<ConnectionHandler*> OnIncoming(Connection& connection) override;
  void OnOpen(Connection& connection) override;
  void OnMessage(Connection& connection, ByteSpan message) override;
  void OnClosed(Connection& connection, const absl::Status& why) override;

 private:
  std::vector<std::byte> memory_;
  std::unique_ptr<Region> region_;
};

// The client's end.
class OneSidedSource final : public ConnectionHandler {
 public:
  OneSidedSource();

  // Connects; returns when transfers are possible.
  absl::Status Open(Engine& engine, const std::string& address, const LinkOptions& link);

  // Writes for `seconds`, then fences. Returns the number of writes, all of them delivered.
  absl::StatusOr<uint64_t> WriteFor(Engine& engine, double seconds);

  // Reads, one after the other. How long each took, in ns.
  absl::StatusOr<LatencyHistogram> ReadOneByOne(Engine& engine, double seconds);

  // Reads, kOutstanding at once. Returns how many end in a second.
  absl::StatusOr<double> ReadRate(Engine& engine, double seconds);

  void OnOpen(Connection& connection) override;
  void OnMessage(Connection& connection, ByteSpan message) override;
  void OnClosed(Connection& connection, const absl::Status& why) override;

 private:
  class Transfer final : public Operation {
   public:
    void OnComplete(const absl::Status& status) override;
    OneSidedSource* source = nullptr;
    bool is_read = false;
    bool busy = false;
  };

  absl::Status Fence(Engine& engine);
  // False: the transport has no room now, or it failed.
  bool Start(Transfer& transfer, bool is_read);
  bool AllDone() const;
  void AwaitAll(Engine& engine);

  std::vector<std::byte> memory_;
  Connection* connection_ = nullptr;
  std::unique_ptr<Region> region_;
  RemoteSpan remote_;  // length 0: not told yet
  uint64_t fences_answered_ = 0;
  uint64_t started_ = 0;            // transfers, of both kinds
  RateCounter* reading_ = nullptr;  // while ReadRate() goes on: reads that end start the next
  Transfer transfers_[kOutstanding];
  absl::Status status_;  // the first failure
};

}  // namespace weft::bench
