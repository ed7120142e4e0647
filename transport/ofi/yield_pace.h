// When an engine that looks in vain gives its processor to others for a moment.
//
// An RDMA device in software (Soft-RoCE, Soft-iWARP) moves its bytes in threads of the kernel, on
// the processors that engines spin on. The kernel shares a processor fairly: a transfer then has
// half of it, and a message that one of those threads has to carry waits for the scheduler's next
// tick, 4 ms instead of 20 us. So an engine that has found nothing for a while yields, now and
// then: whoever waits for the processor gets it, and if nobody does, the engine goes on at once.
// Engines that sleep when they find nothing do so already; those that spin for ever do not.
//
// Threads: one.
#pragma once

#include <cstdint>

namespace weft {

class YieldPace {
 public:
  // Looks without a find, some 70 ns each: a little less than a round trip over such a device.
  static constexpr uint32_t kPatientLooks = 128;
  // From then on, between two yields, of 0.2 us each where nobody waits.
  static constexpr uint32_t kLooksBetween = 16;

  // Once for each look.
  bool IsDue(bool found) {
    if (found) {
      left_ = kPatientLooks;
      return false;
    }
    if (--left_ > 0) return false;
    left_ = kLooksBetween;
    return true;
  }

 private:
  uint32_t left_ = kPatientLooks;  // looks in vain until the next yield; > 0
};

}  // namespace weft
