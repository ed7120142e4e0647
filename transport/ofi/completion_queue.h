// The completion queue of one domain: how much is under way, and the reading itself.
//
// Entries are read in batches. Each carries a WorkId, which is looked up before anything is done
// with it: an entry for a work that was taken back meanwhile is dropped.
//
// Threads: the engine's.
// Lifetime: the queue outlives this. What is called for entries may post, open endpoints and close
//   them; it does not read.
// Errors: each error entry goes to whom it concerns; a queue that cannot be read is logged.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/inline.h"
#include "core/log.h"
#include "transport/ofi/fabric.h"

namespace weft {

class CompletionQueue {
 public:
  // `max_in_flight`: sends and parts of operations, over all links.
  CompletionQueue(fid_cq* queue, uint32_t max_in_flight)
      : queue_(queue), max_in_flight_(max_in_flight) {}

  // Whether there are entries. Has the provider go on, and takes none.
  bool HasEntries() { return fi_cq_read(queue_, nullptr, 0) != -FI_EAGAIN; }

  // What is under way: completions to come.
  void CountFlight(int change) { in_flight_ += static_cast<uint32_t>(change); }
  uint32_t in_flight() const { return in_flight_; }
  bool HasFlightRoom() const { return in_flight_ < max_in_flight_; }

  // Calls `on_entry(const fi_cq_msg_entry&)` for about `budget` entries at most, and
  // `on_error(fid_cq*, const fi_cq_err_entry&)` for those that are errors, after one call of
  // `on_errors()`. Returns how many there were.
  template <class OnEntry, class OnErrors, class OnError>
  int Read(int budget, OnEntry on_entry, OnErrors on_errors, OnError on_error);

  // How often there were completions, which is how busy the links are.
  uint64_t finds() const { return finds_; }

 private:
  // Entries read at once: a batch of 32 is half a kilobyte and amortizes the provider's locks.
  static constexpr int kBatchEntries = 32;
  // Error entries handled in one read: they come in bursts when an endpoint closes.
  static constexpr int kMaxErrorsAtOnce = 256;

  template <class OnErrors, class OnError>
  int ReadErrors(OnErrors& on_errors, OnError& on_error);

  // Constant after construction.
  fid_cq* const queue_;
  const uint32_t max_in_flight_;

  uint32_t in_flight_ = 0;
  uint64_t finds_ = 0;
};

template <class OnErrors, class OnError>
int CompletionQueue::ReadErrors(OnErrors& on_errors, OnError& on_error) {
  on_errors();
  int count = 0;
  for (; count < kMaxErrorsAtOnce; ++count) {
    char details[256];  // some providers write there without looking whether it is given
    fi_cq_err_entry entry = {};
    entry.err_data = details;
    entry.err_data_size = sizeof(details);
    if (fi_cq_readerr(queue_, &entry, 0) <= 0) break;
    on_error(queue_, entry);
  }
  return count;
}

template <class OnEntry, class OnErrors, class OnError>
WEFT_INLINE int CompletionQueue::Read(int budget, OnEntry on_entry, OnErrors on_errors,
                                      OnError on_error) {
  fi_cq_msg_entry entries[kBatchEntries];
  int done = 0;
  while (done < budget) {
    const int limit = std::min(budget - done, kBatchEntries);
    const auto count = static_cast<int>(fi_cq_read(queue_, entries, static_cast<size_t>(limit)));
    if (count > 0) {
      for (int i = 0; i < count; ++i) on_entry(entries[i]);
      done += count;
      if (count < limit) break;
    } else if (count == -FI_EAVAIL) {
      const int errors = ReadErrors(on_errors, on_error);
      if (errors == 0) break;
      done += errors;
    } else {
      if (count != -FI_EAGAIN) {
        WEFT_LOG_EVERY_N_SEC(kError, 1, "fi_cq_read: ", LoadedFabricLibrary().strerror(-count));
      }
      break;
    }
  }
  finds_ += done > 0;
  return done;
}

}  // namespace weft
