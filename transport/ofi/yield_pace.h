// When an engine that looks in vain gives its processor to others for a moment.
//
// An RDMA device in software (Soft-RoCE, Soft-iWARP) moves its bytes in threads of the kernel, on
// the processors that engines spin on. The kernel shares a processor fairly: a transfer then has
// half of it, and a message that one of those threads has to carry waits for the scheduler's next
// tick, 4 ms instead of 20 us. So an engine that has found nothing for a while yields, now and
// then: whoever waits for the processor gets it, and if nobody does, the engine goes on at once.
// Engines that sleep when they find nothing do so already; those that spin for ever do not.
//
// It is asked now and then, of some looks together.
//
// Threads: one.
#pragma once

#include <cstdint>

namespace weft {

class YieldPace {
 public:
  // Questions without a find, of 16 looks each, some 70 ns a look: a little less than a round trip
  // over such a device. From then on each question is followed by a yield, of 0.2 us where nobody
  // waits.
  static constexpr uint32_t kPatience = 8;

  // `finds`: how many there have been.
  bool IsDue(uint64_t finds) {
    if (finds != finds_) {
      finds_ = finds;
      left_ = kPatience;
      return false;
    }
    if (left_ > 1) --left_;
    return left_ == 1;
  }

 private:
  uint64_t finds_ = 0;
  uint32_t left_ = kPatience;  // questions in vain until the next yield; > 0
};

}  // namespace weft
