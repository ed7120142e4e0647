// The completion queues of one domain: which queue an endpoint completes to, when each is looked
// at, how much is under way, and the reading itself.
//
// verbs has one queue. tcp has a near queue for its first endpoints, where the library is one that
// gains by it, and queue groups (queue_groups.h) or one more queue for all others.
//
// Entries are read in batches. Each carries a WorkId, which is looked up before anything is done
// with it: an entry for a work that was taken back meanwhile is dropped.
//
// Threads: the engine's.
// Lifetime: the objects outlive this. What is called for entries may post, open endpoints and close
//   them; it does not read.
// Errors: each error entry goes to whom it concerns; a queue that cannot be read is logged.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "core/inline.h"
#include "transport/ofi/fabric.h"
#include "transport/ofi/fabric_objects.h"
#include "transport/ofi/queue_groups.h"
#include "transport/ofi/queue_look.h"

namespace weft {

// What an endpoint completes to.
struct EndpointQueues {
  fid_cq* receives = nullptr;
  fid_cq* sends = nullptr;
  QueueSeat* seat = nullptr;  // in the group whose queues they are, if they are a group's
};

class CompletionQueues {
 public:
  struct Limits {
    uint32_t near_links;     // endpoints of the near queue, if there is one
    uint32_t max_in_flight;  // sends and parts of operations, over all links
    bool looks_cost;         // a look is a system call, also when nothing has come
  };

  CompletionQueues(FabricObjects* objects, const Limits& limits)
      : objects_(objects), limits_(limits) {}

  // The queues for one more endpoint, until Leave().
  absl::StatusOr<EndpointQueues> Join();
  void Leave(const EndpointQueues& queues);

  // Whether there are entries. Has the provider go on, and takes none.
  bool HasEntries();
  // Something may come soon.
  void Expect() {
    look_.Expect();
    near_look_.Expect();
  }
  // The near queue is to be looked at, should it rest.
  void WakeNear() {
    if (objects_->groups != nullptr) objects_->groups->WakeNear();
  }
  // Something was posted to an endpoint of `group`, or of none.
  void OnPosted(QueueGroup* group) {
    if (objects_->groups == nullptr) return;
    group == nullptr ? objects_->groups->WakeNear() : objects_->groups->Posted(group);
  }

  // What is under way: completions to come, of an endpoint in `group` or in none. `awaited`:
  // somebody waits for them.
  void CountFlight(QueueGroup* group, bool awaited, int change) {
    in_flight_ += static_cast<uint32_t>(change);
    if (group == nullptr) return;
    SendQueue& sends = *group->sends;
    sends.in_flight += static_cast<uint32_t>(change);
    if (awaited) sends.awaited += static_cast<uint32_t>(change);
  }
  uint32_t in_flight() const { return in_flight_; }
  bool HasFlightRoom() const { return in_flight_ < limits_.max_in_flight; }

  // Calls `on_entry(const fi_cq_msg_entry&)` for about `budget` entries at most, and
  // `on_error(fid_cq*, const fi_cq_err_entry&)` for those that are errors, after one call of
  // `on_errors()`. Returns how many there were. `awaited`: this side, or a peer, may have work
  // under way that only looking moves on. `hurry`: somebody waits for completions of sends.
  template <class OnEntry, class OnErrors, class OnError>
  int Read(int budget, bool awaited, bool hurry, OnEntry on_entry, OnErrors on_errors,
           OnError on_error);

  bool looks_cost() const { return limits_.looks_cost; }
  // How often there were completions, which is how busy the links are.
  uint64_t finds() const { return finds_; }

 private:
  // Entries read at once: a batch of 32 is half a kilobyte and amortizes the provider's locks.
  static constexpr int kBatchEntries = 32;
  // Error entries handled in one read: they come in bursts when an endpoint closes.
  static constexpr int kMaxErrorsAtOnce = 256;

  // Only beside groups, whose epoll is looked at in each turn. `awaited`: completions, which no
  // socket tells of, among other things.
  bool NearRests(bool awaited) const {
    return look_.endpoints() > 0 && !awaited && objects_->groups->near_rests();
  }
  static void LogFailure(int64_t result);

  template <class OnEntry, class OnErrors, class OnError>
  int ReadQueue(fid_cq* queue, int budget, OnEntry& on_entry, OnErrors& on_errors,
                OnError& on_error);
  template <class OnErrors, class OnError>
  int ReadErrors(fid_cq* queue, OnErrors& on_errors, OnError& on_error);

  // Constant after construction.
  FabricObjects* const objects_;
  const Limits limits_;

  uint32_t in_flight_ = 0;
  uint64_t finds_ = 0;
  QueueLook look_;             // at the queue, or at the groups
  QueueLook near_look_;        // at the near queue
  bool near_backlog_ = false;  // there may be more in the near queue than was read
};

template <class OnErrors, class OnError>
int CompletionQueues::ReadErrors(fid_cq* queue, OnErrors& on_errors, OnError& on_error) {
  on_errors();
  int count = 0;
  for (; count < kMaxErrorsAtOnce; ++count) {
    char details[256];  // some providers write there without looking whether it is given
    fi_cq_err_entry entry = {};
    entry.err_data = details;
    entry.err_data_size = sizeof(details);
    if (fi_cq_readerr(queue, &entry, 0) <= 0) break;
    on_error(queue, entry);
  }
  return count;
}

template <class OnEntry, class OnErrors, class OnError>
int CompletionQueues::ReadQueue(fid_cq* queue, int budget, OnEntry& on_entry, OnErrors& on_errors,
                                OnError& on_error) {
  fi_cq_msg_entry entries[kBatchEntries];
  int done = 0;
  while (done < budget) {
    const int limit = std::min(budget - done, kBatchEntries);
    const auto count = static_cast<int>(fi_cq_read(queue, entries, static_cast<size_t>(limit)));
    if (count > 0) {
      for (int i = 0; i < count; ++i) on_entry(entries[i]);
      done += count;
      if (count < limit) break;
    } else if (count == -FI_EAVAIL) {
      const int errors = ReadErrors(queue, on_errors, on_error);
      if (errors == 0) break;
      done += errors;
    } else {
      if (count != -FI_EAGAIN) LogFailure(count);
      break;
    }
  }
  return done;
}

template <class OnEntry, class OnErrors, class OnError>
WEFT_INLINE int CompletionQueues::Read(int budget, bool awaited, bool hurry, OnEntry on_entry,
                                       OnErrors on_errors, OnError on_error) {
  const auto read = [&](fid_cq* queue, int limit) {
    return ReadQueue(queue, limit, on_entry, on_errors, on_error);
  };
  int done = 0;
  if (!limits_.looks_cost || look_.IsDue(awaited)) {
    if (objects_->groups == nullptr) {
      done = read(objects_->queue.get(), budget);
    } else if (look_.endpoints() > 0) {
      objects_->groups->FindReady();
      done = objects_->groups->ReadDue(budget, hurry || !HasFlightRoom(), near_backlog_, read);
    }
    look_.Looked(done > 0);
  }
  if (objects_->near_queue.get() != nullptr && !NearRests(awaited) && near_look_.IsDue(awaited)) {
    const int near = read(objects_->near_queue.get(), budget);
    near_look_.Looked(near > 0);
    near_backlog_ = near >= budget;
    if (look_.endpoints() > 0 && objects_->groups->NearLooked(near > 0)) Expect();
    done += near;
  }
  finds_ += done > 0;
  return done;
}

}  // namespace weft
