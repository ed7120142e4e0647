// What the kernel takes for 64 bytes there and back over many tcp sockets of loopback, without any
// library: the measure of many connections over tcp.
//
// Both ends spin and never block. The answering thread finds the socket by epoll; the asking one
// looks at the socket that it waits for.
//
// Threads: Ask() on one; the answering thread is the object's own.
// Errors: UNAVAILABLE or RESOURCE_EXHAUSTED, without sockets or descriptors.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/histogram.h"
#include "transport/descriptor.h"

namespace weft::bench {

class SocketPing {
 public:
  // The answering thread runs on `cpu`.
  static absl::StatusOr<std::unique_ptr<SocketPing>> Start(int cpu, uint32_t connections);
  ~SocketPing();
  SocketPing(const SocketPing&) = delete;
  SocketPing& operator=(const SocketPing&) = delete;

  // For about `seconds`, over each socket in turn.
  absl::StatusOr<LatencyHistogram> Ask(double seconds);

  // The answering thread spins, and takes a processor: only while there is somebody to answer.
  void Serve() { serving_.store(true, std::memory_order_release); }
  void Rest() { serving_.store(false, std::memory_order_release); }

 private:
  SocketPing() = default;
  absl::Status Connect(uint32_t connections);
  void Answer();

  Descriptor ready_;  // an epoll over answering_
  std::vector<Descriptor> asking_;
  std::vector<Descriptor> answering_;
  std::atomic<bool> serving_{false};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace weft::bench
