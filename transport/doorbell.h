// Wakes a sleeping engine from another thread or another process, and costs nothing while it is
// awake.
//
// A Doorbell is an eventfd and one page of shared memory with an "armed" word. Who produces work
// for an engine rings: one load of the word when the engine is awake, one write(2) when it sleeps.
//
// No wake-up is lost: the sleeper sets armed and then looks for work once more; the producer
// publishes work and then looks at armed. A full fence on either side between the two steps makes
// it impossible that both miss each other (Dekker's argument).
//
// Peers in other processes get descriptors of both over a Unix socket. The page is sealed: they
// can map it read-only. A hostile peer can wake this engine needlessly and nothing else.
//
// Threads: Arm, Disarm, Drain on the engine's thread; Ring on any.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"

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
  // Takes what rang.
  void Drain();

  int event_fd() const { return event_fd_; }
  int page_fd() const { return page_fd_; }

 private:
  Doorbell() = default;
  int event_fd_ = -1;
  int page_fd_ = -1;
  std::atomic<uint32_t>* armed_ = nullptr;
};

// A doorbell of another engine, in this or another process. The page is mapped once for all that
// lead to the same engine: with a thousand connections to one peer, its word is on one page here.
class PeerDoorbell {
 public:
  // Takes both descriptors. INVALID_ARGUMENT when they are not a doorbell's: they came from a peer
  // and are checked (kind, size, seals).
  static absl::StatusOr<std::unique_ptr<PeerDoorbell>> Open(int event_fd, int page_fd);
  ~PeerDoorbell();
  PeerDoorbell(const PeerDoorbell&) = delete;
  PeerDoorbell& operator=(const PeerDoorbell&) = delete;

  void Ring();
  // The same for who has put a full fence (core/full_fence.h) behind the work already.
  void RingAfterFence() {
    if (armed_->load(std::memory_order_relaxed) != 0) [[unlikely]]
      Wake();
  }

 private:
  friend class PeerDoorbellTestPeer;
  class Page;

  PeerDoorbell() = default;
  static absl::StatusOr<std::shared_ptr<const Page>> Map(int page_fd);
  void Wake();

  int event_fd_ = -1;
  std::shared_ptr<const Page> page_;
  const std::atomic<uint32_t>* armed_ = nullptr;  // on it
};

}  // namespace weft
