// Regions that are closed, but whose memory something that had begun may still touch: waits until
// nothing can.
//
// Where the link has a fence (Link::SendFence), that is one batch, of whatever there is to send. Up
// to kFences are under way; regions that come meanwhile wait for the next one, and share it.
//
// Elsewhere it is two probes, one after the other. When the peer answers the first, all that it
// sent before has arrived, its writes among it, and what it then asked to read has been looked up,
// or refused, here; when it answers the second, the answers to those reads have arrived there.
// Regions that come while a pair is under way wait for the next pair, and share it. (That takes the
// peer's word: one that answers before it is asked, by another of its connections say, is
// believed.)
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

#include <array>
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
    // Whether the link has a fence.
    virtual bool HasFence() const = 0;
    // Sends a batch as a fence; an error: not now, or not any more.
    virtual absl::Status SendFenceForReclaimer(Operation* passed) = 0;
    // Sends a probe. An error: as above.
    virtual absl::Status AskForReclaimer(Operation* probe) = 0;
    // Calls Advance() before the turn ends.
    virtual void AdvanceSoon() = 0;

   protected:
    ~Host() = default;
  };

  explicit Reclaimer(Host* host);
  Reclaimer(const Reclaimer&) = delete;
  Reclaimer& operator=(const Reclaimer&) = delete;

  // A region was closed; `op` is told when its memory is untouched for good.
  void Add(Operation* op);

  // There is something to ask or send, for which there may be room now.
  bool wants_advance() const {
    return phase_ == Phase::kAskFirst || phase_ == Phase::kAskSecond ||
           (!waiting_.empty() && phase_ == Phase::kIdle);
  }
  void Advance();

  // Tells all. REQUIRES: the link is gone, and every probe has completed.
  void End();

  size_t pinned() const;

 private:
  enum class Phase : uint8_t { kIdle = 1, kAskFirst = 2, kFirst = 3, kAskSecond = 4, kSecond = 5 };

  // So many calls with lent memory can end one after the other within a fence's round trip without
  // waiting for one another's.
  static constexpr size_t kFences = 4;

  struct Fence final : public Operation {
    void OnComplete(const absl::Status& status) override;

    Reclaimer* owner = nullptr;
    std::vector<Operation*> fenced;  // empty: not under way
  };

  void OnComplete(const absl::Status& status) override;
  void AdvanceProbes();
  void SendFence();
  static void Tell(std::vector<Operation*>& ops);

  Host* const host_;
  Phase phase_ = Phase::kIdle;       // of the probes
  std::vector<Operation*> waiting_;  // for the next fence, or pair
  std::vector<Operation*> fenced_;   // by the pair that is under way
  std::array<Fence, kFences> fences_;
};

}  // namespace weft
