// Completion queues for many tcp endpoints, few to a queue, found by their sockets.
//
// Up to libfabric 1.17 whoever reads a completion queue goes over all endpoints of that queue, with
// a lock for each: 20 us and more for a thousand. So endpoints are spread over *groups*, each with
// a queue of its own for what is received, and one epoll watches the sockets of all groups. Only
// groups are read in which something is ready, where something was just sent (an answer may be on
// its way), and now and then each other.
//
// What is sent completes to other queues, each for a number of groups, as the provider allocates
// half a megabyte for each queue that is sent by. Nobody waits for a plain send's completion, so
// these are read when several have come together. Reading one moves its endpoints on, whatever
// their groups, and may leave what they receive in the groups' queues, with nothing at their
// sockets any more: so its groups are read in the turns behind it.
//
// The queues are muted (muted_queue.h): they cost no system calls for those who sleep in the
// provider.
//
//   a group is on due_   by MarkDue(): it is ready, was sent to, or is its turn
//   and leaves it        when a read has found nothing, not even a socket that was ready, for news
//                        that the read before has seen. What the provider holds back for want of
//                        room is known then (muted_queue.h), and the epoll waits for the room.
//
// So the epoll has to tell of news only (EPOLLET): what its news were about is read until nothing
// is left, whoever finds it. It names the endpoint's seat in its group, and the link's lines are
// called for (warm_up.h) before the provider reads the group, which takes longer than they do.
//
// The near queue is none of the groups, and is read in each turn as long as it is the only one.
// Beside groups that is 0.5 us of each turn, and of each message's way on average half of that, so
// that its sockets are in the same epoll:
//
//   it rests             when kAwaitedLooks looks behind each other have found nothing, the last of
//                        them not even a socket that was ready, and no read has left anything
//   and is looked at     by WakeNear(): its sockets have news, it was sent to, one of its endpoints
//                        comes or goes, before a sleep, or it is its turn
//
// Threads: the engine's.
// Lifetime: groups and their queues stay until the end; endpoints are closed before.
// Errors: those of libfabric, and of the descriptors that a process may have.
// Invariants: a group that is not on due_ has no completions, but for those that a read of its
//   SendQueue has left there, which owes it a look.
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
#include "transport/warm_up.h"

namespace weft {

struct QueueGroup;

// What an endpoint has in a group. It stays there, for the next one.
struct QueueSeat {
  QueueGroup* group = nullptr;  // null: all of the near queue's have this one
  WarmUp* lines = nullptr;      // of the link, since it has its socket
  int fd = -1;                  // its socket
  bool taken = false;
};

// Descriptors of a queue, as the epoll knows them.
struct WatchedDescriptors {
  uint64_t version = 0;  // in the provider's counting
  std::vector<pollfd> fds;
};

// What several groups send by.
struct SendQueue {
  MutedQueue queue;
  std::vector<QueueGroup*> groups;
  uint32_t in_flight = 0;    // completions to come
  uint32_t awaited = 0;      // of these, such as somebody waits for: no plain sends
  uint32_t turns = 0;        // since it was last read
  uint32_t looks_owed = 0;   // to its groups, one after the other
  size_t next_look = 0;      // of groups
  bool moved = false;        // a group of it was read, and may have completed something here
  bool has_entries = false;  // for sure
};

struct QueueGroup : ListNode<> {
  static constexpr uint32_t kMostSeats = 8;

  MutedQueue receives;
  SendQueue* sends = nullptr;
  uint32_t endpoints = 0;
  bool settled = false;  // nothing was done here since it was found empty before a sleep
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
  // The endpoint has its socket now. `lines`: are called for when the socket has news; they stay
  // until Leave().
  absl::Status Connected(QueueSeat* seat, WarmUp* lines);

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

  // In each turn: what is ready is due.
  void FindReady();
  // Reads what is due: `read(fid_cq*, int limit)` returns how many completions it found; it may
  // post, and endpoints may come and go meanwhile. `hurry`: completions of sends are wanted now.
  // `receives_held`: another queue may hold the receives that messages here need. Returns how many
  // there were in all.
  template <class Read>
  int ReadDue(int budget, bool hurry, bool receives_held, Read read);

  // Before a sleep. False: there is something to be read.
  bool Settle();
  // Readable when something is ready, after Settle().
  int descriptor() const { return ready_.get(); }

 private:
  // Looks without a find until nobody expects an answer any more: longer than a round trip.
  static constexpr uint32_t kAwaitedLooks = 32;
  // Turns until one more group is read that nothing is known of. It is cold then: with 16 turns,
  // a call round 1,000 connections took 30 us instead of 21.
  static constexpr uint32_t kTurnsPerVisit = 1024;
  // Ready descriptors taken at once; more stay ready.
  static constexpr int kReadyAtOnce = 64;
  // Sends whose completions are taken together. Their slots wait meanwhile: few against a
  // connection's window.
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
  const QueueGroup* awaited_ = nullptr;  // sent to last
  uint32_t awaited_looks_ = 0;
  uint32_t turns_ = 0;
  size_t next_visit_ = 0;
  bool near_rests_ = false;
  uint32_t near_looks_ = 0;  // in a row that have found nothing, while it does not rest
  QueueSeat near_seat_;
  WatchedDescriptors near_watched_;
  bool backlog_ = false;  // a read has found all that it was to find: there may be more
};

template <class Read>
int QueueGroups::ReadDue(int budget, bool hurry, bool receives_held, Read read) {
  PayLooks();
  // What is unread holds receives. Who has found none of them has messages that no socket tells of.
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
