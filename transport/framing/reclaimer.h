// Regions that are closed, but whose memory something that had begun may still touch: waits until
// nothing can.
//
// The fence is two probes, one after the other. When the peer answers the first, all that it sent
// before has arrived, its writes among it, and what it then asked to read has been looked up, or
// refused, here; when it answers the second, the answers to those reads have arrived there. Regions
// that come while a pair is under way wait for the next pair, and share it.
//
// Where the peer answers no probes, or not any more, the end of the connection is the fence.
//
//   phase         from                                   to
//   kIdle         Start(), or the second answer          kAskFirst: something waits
//   kAskFirst     there was no room for the probe yet    kFirst
//   kFirst        asked                                  kAskSecond: answered
//   kAskSecond    there was no room for the probe yet    kSecond
//   kSecond       asked                                  kIdle: answered; the users are told
//
// Threads: one engine's. Lifetime: a member of its connection.
// Invariants: nothing is under way in kIdle. The lists grow with the regions that their users had,
//   which are bounded (NetworkOptions::max_region_bytes), and keep their room.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "transport/operation.h"

namespace weft {

class Reclaimer final : private Operation {
 public:
  class Host {
   public:
    // Sends a probe. An error: not now, or not any more; Advance() tries again.
    virtual absl::Status AskForReclaimer(Operation* probe) = 0;

   protected:
    ~Host() = default;
  };

  explicit Reclaimer(Host* host) : host_(host) {}
  Reclaimer(const Reclaimer&) = delete;
  Reclaimer& operator=(const Reclaimer&) = delete;

  // A region was closed; `op` is told when its memory is untouched for good.
  void Add(Operation* op);

  // There may be room for a probe that could not be sent.
  bool wants_probe() const { return phase_ == Phase::kAskFirst || phase_ == Phase::kAskSecond; }
  void Advance();

  // Tells all. REQUIRES: the link is gone, and every probe has completed.
  void End();

  size_t pinned() const { return waiting_.size() + fenced_.size(); }

 private:
  enum class Phase : uint8_t { kIdle = 1, kAskFirst = 2, kFirst = 3, kAskSecond = 4, kSecond = 5 };

  void OnComplete(const absl::Status& status) override;
  static void Tell(std::vector<Operation*>& ops);

  Host* const host_;
  Phase phase_ = Phase::kIdle;
  std::vector<Operation*> waiting_;  // for the next pair
  std::vector<Operation*> fenced_;   // by the pair that is under way
};

}  // namespace weft
