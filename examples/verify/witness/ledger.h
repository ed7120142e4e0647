// What became of every call: started, ended how often, when, and how.
//
// The rules that it is there to check, whatever happens to the network or the server:
//   each call ends exactly once, not long after its deadline, with OK, or with an UNAVAILABLE or
//   DEADLINE_EXCEEDED that says whether the request may have run; and what it says is true.
//
// Threads: any; a mutex guards everything.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace kv::witness {

enum class Ending : uint8_t {
  kNone = 1,        // still under way
  kOk = 2,          // it ran, and the reply was right
  kNotSent = 3,     // UNAVAILABLE or DEADLINE_EXCEEDED: it did not run
  kMayHaveRun = 4,  // the same: it ran or it did not
  kWrong = 5,       // a status that no fault excuses, or a reply with the wrong contents
};

// What a status says about its call. `reply_right` counts where it is OK.
Ending EndingOf(const absl::Status& status, bool reply_right);

// How many calls ended in which way.
struct Tally {
  uint64_t ok = 0;
  uint64_t not_sent = 0;
  uint64_t may_have_run = 0;
  uint64_t deadlines = 0;  // DEADLINE_EXCEEDED, among not_sent and may_have_run
  uint64_t wrong = 0;
  std::string first_error;  // the text of the first that was not OK
};

class Ledger {
 public:
  // A call begins; returns its number: 0, 1, 2, ...
  uint64_t Start(uint64_t deadline_ns);
  void End(uint64_t number, const absl::Status& status, bool reply_right, uint64_t now_ns);

  Ending EndingOf(uint64_t number) const;
  uint64_t started() const;
  uint64_t under_way() const;
  uint64_t ended_twice() const;     // ends beyond the first, of all calls
  uint64_t latest_ns() const;       // the longest that a call ended after its deadline
  std::string first_wrong() const;  // the text of the first kWrong

  // The endings since this was last asked.
  Tally TakeTally();

 private:
  struct Call {
    uint64_t deadline_ns;
    Ending ending;
  };

  mutable std::mutex mutex_;
  // Guarded by mutex_:
  std::vector<Call> calls_;
  uint64_t ended_ = 0;
  uint64_t ended_twice_ = 0;
  uint64_t latest_ns_ = 0;
  std::string first_wrong_;
  Tally tally_;
};

}  // namespace kv::witness
