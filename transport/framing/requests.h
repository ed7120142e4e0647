// Atomics and probes: questions that the peer's framing answers, without its program.
//
// Requests are numbered 0, 1, 2, ... in each direction, executed in that order as their batches
// arrive, and answered in that order. Replies leave with the turn's batch; they wait for credits
// like everything else, and kMaxRequests bounds how many can wait.
//
// Threads: one engine's. Lifetime: members of their connection.
// Errors: a peer that breaks the rules is false.
// Invariants: answered <= asked <= answered + kMaxRequests; replied <= executed <= replied +
//   kMaxRequests.
#pragma once

#include <array>
#include <cstdint>

#include "absl/status/status.h"
#include "transport/framing/atomic_regions.h"
#include "transport/framing/batch.h"
#include "transport/transport.h"

namespace weft {

// The asking side.
class RequestSender {
 public:
  RequestSender() = default;
  RequestSender(const RequestSender&) = delete;
  RequestSender& operator=(const RequestSender&) = delete;

  // REQUIRES: nothing outstanding.
  void Start();
  bool full() const { return asked_ - answered_ == kMaxRequests; }

  // Numbers a request that is about to be sent. One of both is told how it ends.
  // REQUIRES: !full().
  void Ask(Request* request, Operation* probe, AtomicOperation* atomic);

  // Tells whom it concerns. False: not the answer to the oldest request.
  [[nodiscard]] bool OnReply(const Reply& reply);

  // Everything outstanding completes with `why`.
  void End(const absl::Status& why);

 private:
  struct Asked {
    Operation* probe = nullptr;
    AtomicOperation* atomic = nullptr;

    void Complete(const absl::Status& status, uint64_t before) const;
  };

  Asked TakeOldest() { return ring_[answered_++ % kMaxRequests]; }

  uint64_t asked_ = 0;
  uint64_t answered_ = 0;
  std::array<Asked, kMaxRequests> ring_;  // [id % kMaxRequests]
};

// The answering side.
class RequestAnswerer {
 public:
  RequestAnswerer() = default;
  RequestAnswerer(const RequestAnswerer&) = delete;
  RequestAnswerer& operator=(const RequestAnswerer&) = delete;

  // `regions`: what all peers may change; `leased`: what this one may, or null. They outlive the
  // last request.
  void Start(AtomicRegions* regions, AtomicRegions* leased = nullptr);

  // Executes. False: out of order, more than may wait, or not a request at all.
  [[nodiscard]] bool OnRequest(const Request& request);

  // The next reply to send; false: none. Replied() counts it as sent.
  [[nodiscard]] bool NextReply(Reply* reply) const;
  void Replied() { ++replied_; }
  bool has_reply() const { return replied_ != executed_; }

 private:
  struct Result {
    uint64_t before = 0;
    ReplyStatus status = ReplyStatus::kDone;
  };

  Result Execute(const Request& request);
  uint64_t* Find(const Request& request) const;

  AtomicRegions* regions_ = nullptr;
  AtomicRegions* leased_ = nullptr;
  uint64_t executed_ = 0;
  uint64_t replied_ = 0;
  std::array<Result, kMaxRequests> ring_;  // [id % kMaxRequests]
};

}  // namespace weft
