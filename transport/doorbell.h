// Wakes a sleeping engine from another thread or another process, and costs nothing while it is
// awake.
//
// A Doorbell is an eventfd and one page of shared memory with an "armed" word. Who produces work
// for an engine rings: one load of the word when the engine is awake, one system call when it
// sleeps.
//
// No wake-up is lost: the sleeper sets armed and then looks for work once more; the producer
// publishes work and then looks at armed. A full fence on either side between the two steps makes
// it impossible that both miss each other (Dekker's argument).
//
// Engines in other processes get the page, which is sealed: they can map it for reading only. They
// never get the eventfd. Who has a descriptor of it can make the next write wait, by taking its
// O_NONBLOCK away, and can take rings that were meant for this engine. Instead each pair of engines
// has a connected pair of Unix sockets (the one over which they have met, control/local_proof.h),
// and a ring is a byte on it. A socket's flags, like its queue, are its owner's alone; besides,
// nothing here depends on them. A hostile peer can wake this engine needlessly and nothing else.
//
// A ring is an event of the eventfd, and nobody reads it: it is watched edge-triggered (epoll(7)),
// so that an engine that was woken has no system call more to make.
//
// Threads: Arm and Disarm on the engine's thread; Doorbell::Ring on any; a PeerDoorbell is used
// on its engine's.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "transport/descriptor.h"
#include "transport/poller.h"

namespace weft {

class Doorbell {
 public:
  // RESOURCE_EXHAUSTED when the process has no descriptors left.
  static absl::StatusOr<std::unique_ptr<Doorbell>> Create();
  ~Doorbell();
  Doorbell(const Doorbell&) = delete;
  Doorbell& operator=(const Doorbell&) = delete;

  // Announces that the engine is about to sleep. Look for work once more afterwards.
  void Arm();
  void Disarm();
  bool armed() const { return armed_->load(std::memory_order_relaxed) != 0; }

  // Publish the work first, then ring.
  void Ring();

  // Each ring is an event of it (EPOLLIN | EPOLLET).
  int event_fd() const { return event_fd_; }
  int page_fd() const { return page_fd_; }

 private:
  Doorbell() = default;
  int event_fd_ = -1;
  int page_fd_ = -1;
  std::atomic<uint32_t>* armed_ = nullptr;
};

// The doorbells of two engines, this side's end: wakes the other engine, and is woken by it. The
// page is mapped once for all that lead to the same engine: with a thousand connections to one
// peer, its word is on one page here.
class PeerDoorbell final : private PollHandler {
 public:
  // `socket` is connected to the peer's, and keeps messages apart (SOCK_SEQPACKET); it is taken if
  // this is OK. From then on the poller, which outlives this, watches it: what rings ends a sleep.
  // INVALID_ARGUMENT when the page is not a doorbell's: it came from a peer and is checked (kind,
  // seals, size).
  static absl::StatusOr<std::unique_ptr<PeerDoorbell>> Open(Poller* poller, Descriptor&& socket,
                                                            const Descriptor& page);
  ~PeerDoorbell() { HangUpSocket(); }
  PeerDoorbell(const PeerDoorbell&) = delete;
  PeerDoorbell& operator=(const PeerDoorbell&) = delete;

  // Never waits, and raises no signal, whatever the peer does with its end.
  void Ring();
  // The same for who has put a full fence (core/full_fence.h) behind the work already.
  void RingAfterFence() {
    if (armed_->load(std::memory_order_relaxed) != 0) [[unlikely]]
      Wake();
  }

  // False: the peer has closed its end, or sent what is no ring. Nobody is woken any more; how the
  // peer fares is its lifeline's to tell.
  bool connected() const { return socket_.valid(); }

 private:
  friend class PeerDoorbellTestPeer;
  class Page;

  explicit PeerDoorbell(Poller* poller) : poller_(poller) {}
  static absl::StatusOr<std::shared_ptr<const Page>> Map(int page_fd);
  // Takes one ring; more are left for the next look.
  void OnReady(uint32_t events) override;
  void Wake();
  void HangUpSocket();

  Poller* const poller_;
  Descriptor socket_;
  std::shared_ptr<const Page> page_;
  const std::atomic<uint32_t>* armed_ = nullptr;  // on it
};

}  // namespace weft
