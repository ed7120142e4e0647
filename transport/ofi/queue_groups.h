// Completion queues for many tcp endpoints, a few endpoints to each queue.
//
// Up to libfabric 1.17 a read of a completion queue goes over all endpoints of that queue and takes
// a lock for each: 20 us and more for a thousand endpoints. So endpoints are spread over *groups*.
// Each group has a completion queue of its own for what its endpoints receive, and one epoll
// watches the sockets of all groups. A turn reads only the groups with a socket that is ready,
// those to which something was just sent (an answer may be on its way), and now and then one more.
//
// What endpoints send completes to other queues, each of which serves several groups, because the
// provider allocates half a megabyte for each queue that is sent by. Nobody waits for the
// completion of a plain send, so a send queue is read when several have come together. A read of a
// send queue also receives for all of its endpoints: messages are then in the groups' queues, and
// the sockets are silent. So the groups of a send queue are read in the turns after it.
//
// The queues are muted (muted_queue.h): they make no system calls for sleepers in the provider.
//
//   A group is put on due_  by MarkDue(): a socket is ready, something was sent, or it is its turn.
//   It leaves due_          when a read has found no completions, and no socket that was ready.
//                           What the provider holds back for want of room in a socket is known by
//                           then (muted_queue.h), and the epoll waits for the room.
//
// The epoll is edge-triggered (EPOLLET): it tells of each change once, so whoever finds one reads
// until nothing is left. It names the endpoint's seat in its group. The link's cache lines are
// prefetched (prefetch_list.h) before the provider reads the group: the read takes longer than the
// lines.
//
// The near queue belongs to no group. As long as it is the only queue it is read in each turn.
// Beside groups that would cost 0.5 us of each turn, so its sockets are in the same epoll:
//
//   It rests            when kAwaitedLooks reads in a row have found nothing, the last one has
//                       found no ready socket either, and no read has left anything unread.
//   It is read again    after WakeNear(): a socket has news, something was sent, one of its
//                       endpoints comes or goes, a sleep is next, or it is its turn.
//
// Threads: the engine's.
// Lifetime: groups and their queues stay until the end; endpoints are closed before.
// Errors: those of libfabric, and of the limit on descriptors of a process.
// Invariants: a group that is not on due_ has no completions, except those that a read of its
//   SendQueue has put there; that SendQueue then owes it a look (looks_owed).
#pragma once

#include <poll.h>

#include <array>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/intrusive_list.h"
#include "transport/descriptor.h"
#include "transport/ofi/fabric.h"
#include "transport/ofi/muted_queue.h"
#include "transport/prefetch_list.h"

namespace weft {

struct QueueGroup;

// The place of an endpoint in a group. It stays when the endpoint goes, and the next one gets it.
struct QueueSeat {
  QueueGroup* group = nullptr;  // null: the one seat that all endpoints of the near queue share
  PrefetchList* prefetch = &PrefetchList::None();  // of the link, once it has its socket
  int fd = -1;                                     // its socket
  bool taken = false;
};

// The descriptors of a queue that are in the epoll.
struct WatchedDescriptors {
  uint64_t version = 0;  // as the provider counts changes of them
  std::vector<pollfd> fds;
};

// The completion queue for what several groups send.
struct SendQueue {
  MutedQueue queue;
  std::vector<QueueGroup*> groups;
  uint32_t in_flight = 0;    // completions to come
  uint32_t awaited = 0;      // of these, those that somebody waits for: not plain sends
  uint32_t turns = 0;        // since it was last read
  uint32_t looks_owed = 0;   // reads that its groups are still to get, one after the other
  size_t next_look = 0;      // of groups
  bool moved = false;        // a read of one of its groups may have completed sends here
  bool has_entries = false;  // for sure
};

struct QueueGroup : ListNode<> {
  static constexpr uint32_t kMostSeats = 8;

  MutedQueue receives;
  SendQueue* sends = nullptr;
  uint32_t endpoints = 0;
  bool settled = false;  // found empty before a sleep, and nothing was posted or read since
  WatchedDescriptors watched;
  std::array<QueueSeat, kMostSeats> seats;
};

class QueueGroups {
 public:
  // Balances the cost of a read (60 ns for each endpoint, much of it in poll(2)) against
  // descriptors (four for each queue) and memory (the provider keeps a table of all descriptors for
  // each queue: 24 B times the largest). 4, 8 and 16 are as fast, 32 is slower.
  static constexpr uint32_t kEndpoints = QueueGroup::kMostSeats;
  // Groups that send by one queue: 64 endpoints share the provider's half a megabyte.
  static constexpr uint32_t kGroupsPerSendQueue = 8;

  // `near`: the near queue, which outlives this and may be none.
  static absl::StatusOr<std::unique_ptr<QueueGroups>> Create(fid_domain* domain,
                                                             const MutedQueue* near);
  ~QueueGroups();

  // In a group with room for one more endpoint, until Leave(), when its socket is closed.
  absl::StatusOr<QueueSeat*> Join();
  static void Leave(QueueSeat* seat);
  // The endpoint has its socket now. `prefetch` is fetched when the socket has news; it stays
  // valid until Leave().
  absl::Status Connected(QueueSeat* seat, PrefetchList* prefetch);

  // Something was posted to an endpoint of the group.
  void Posted(QueueGroup* group) {
    group->settled = false;
    awaited_ = group;
    awaited_looks_ = 0;
    MarkDue(group);
  }

  // Whether the epoll tells of all that the near queue has.
  bool near_rests() const { return near_rests_; }
  void WakeNear() {
    near_rests_ = false;
    near_looks_ = 0;
  }
  // The near queue was read. Returns whether it rests from now on.
  bool NearLooked(bool found);

  // In each turn: puts the groups on due_ whose sockets are ready.
  void FindReady();
  // Reads the groups on due_, and send queues. `read(fid_cq*, int limit)` returns how many
  // completions it found; it may post, and endpoints may come and go meanwhile. `hurry`: somebody
  // waits for completions of sends. `receives_held`: completions that are unread in another queue
  // may hold the receives that messages here need. Returns how many completions there were.
  template <class Read>
  int ReadDue(int budget, bool hurry, bool receives_held, Read read);

  // Before a sleep. False: there is something to be read.
  bool Settle();
  // Readable when something is ready, after Settle().
  int descriptor() const { return ready_.get(); }

 private:
  // Reads that find nothing until no answer is expected any more: longer than a round trip.
  static constexpr uint32_t kAwaitedLooks = 32;
  // Turns until one more group is read without a reason. Its memory is not in the cache: with 16
  // turns, a call round 1,000 connections took 30 us instead of 21.
  static constexpr uint32_t kTurnsPerVisit = 1024;
  // Ready descriptors taken at once; more stay ready.
  static constexpr int kReadyAtOnce = 64;
  // Completions of sends that are read together. Their slots wait meanwhile; there are few of them
  // compared with a connection's window.
  static constexpr uint32_t kSendsAtOnce = 8;
  // Turns, 1 us each, that the completion of a send waits at most.
  static constexpr uint32_t kTurnsPerSendRead = 64;

  QueueGroups(fid_domain* domain, const MutedQueue* near) : domain_(domain), near_(near) {}

  absl::StatusOr<QueueGroup*> AddGroup();
  absl::StatusOr<SendQueue*> SendQueueForGroup();
  // `seat_of(fd)`: whose it is.
  template <class SeatOf>
  absl::Status Watch(const QueueDescriptors& wanted, WatchedDescriptors* watched, SeatOf seat_of);
  absl::Status Watch(QueueGroup* group, const QueueDescriptors& wanted);
  // After a read of it that has found no completions: whether the epoll tells of all else.
  bool CanRest(QueueGroup* group);
  int TakeReady();
  void MarkDue(QueueGroup* group) {
    if (!group->linked()) due_.PushBack(group);
  }
  // Whether to look once more at a group in which nothing was found.
  bool IsAwaited(const QueueGroup* group) {
    return group == awaited_ && ++awaited_looks_ < kAwaitedLooks;
  }
  void PayLooks();
  static bool MustRead(SendQueue* sends, bool hurry);
  static void OnSendsRead(SendQueue* sends);

  fid_domain* const domain_;
  const MutedQueue* const near_;
  Descriptor ready_;  // an epoll over the descriptors of all groups
  std::vector<std::unique_ptr<SendQueue>> send_queues_;
  std::vector<std::unique_ptr<QueueGroup>> groups_;
  IntrusiveList<QueueGroup> due_;
  const QueueGroup* awaited_ = nullptr;  // the group that was sent to last
  uint32_t awaited_looks_ = 0;
  uint32_t turns_ = 0;
  size_t next_visit_ = 0;
  bool near_rests_ = false;
  uint32_t near_looks_ = 0;  // reads in a row that have found nothing, while it does not rest
  QueueSeat near_seat_;
  WatchedDescriptors near_watched_;
  bool backlog_ = false;  // a read has used its budget: there may be more
};

template <class Read>
int QueueGroups::ReadDue(int budget, bool hurry, bool receives_held, Read read) {
  PayLooks();
  // Completions that are unread hold receives. A message that has found no receive meanwhile is off
  // its socket, so that no socket tells of it.
  receives_held = std::exchange(backlog_, false) || receives_held;
  int done = 0;
  IntrusiveList<QueueGroup> now;
  now.SpliceBack(due_);
  while (QueueGroup* group = now.PopFront()) {
    if (done >= budget) {  // the others come first in the next turn
      backlog_ = true;
      now.PushFront(group);
      now.SpliceBack(due_);
      due_.SpliceBack(now);
      break;
    }
    group->settled = false;
    group->sends->moved = true;
    const int found = read(group->receives.get(), budget - done);
    done += found;
    backlog_ = backlog_ || done >= budget;
    const bool stays =
        found > 0 || receives_held || backlog_ || IsAwaited(group) || group->linked();
    if (stays || !CanRest(group)) MarkDue(group);
  }
  for (const auto& sends : send_queues_) {
    if (sends->in_flight == 0 || !MustRead(sends.get(), hurry)) continue;
    done += read(sends->queue.get(), budget);
    OnSendsRead(sends.get());
  }
  return done;
}

}  // namespace weft
