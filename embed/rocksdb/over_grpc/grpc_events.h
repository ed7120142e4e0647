// How both ends of the comparison wait for gRPC's events: as Weft's engines wait for theirs.
//
// Threads: each thread has a queue of its own.
#pragma once

#include <grpcpp/completion_queue.h>

#include <chrono>
#include <cstdint>

#include "core/clock.h"

namespace weft::embed {

// HTTP/2 frames, and windows, of a call's payload: a megabyte is not cut into pieces of 16 KiB.
inline constexpr int kGrpcFrameBytes = 4 << 20;

// Looks for the next event for `spin_ns`, and sleeps then. False: there was none until `deadline`,
// or the queue has been shut down and is empty.
inline bool NextEvent(grpc::CompletionQueue& queue, uint64_t spin_ns,
                      std::chrono::system_clock::time_point deadline, void** tag, bool* ok) {
  const uint64_t began_ns = Clock::Real().NowNs();
  do {
    const auto next = queue.AsyncNext(tag, ok, gpr_time_0(GPR_CLOCK_REALTIME));
    if (next != grpc::CompletionQueue::TIMEOUT) return next == grpc::CompletionQueue::GOT_EVENT;
  } while (Clock::Real().NowNs() - began_ns < spin_ns);
  return queue.AsyncNext(tag, ok, deadline) == grpc::CompletionQueue::GOT_EVENT;
}

}  // namespace weft::embed
