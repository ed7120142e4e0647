// What the links of one tcp domain share: regions, slots, operations, the memory that sockets are
// read into, who was used lately, and who has something to do.
//
// Threads: the engine's. Lifetime: a member of the domain; outlives its links and regions.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "core/intrusive_list.h"
#include "core/status.h"
#include "transport/link.h"
#include "transport/link_lists.h"
#include "transport/tcp/tcp.h"
#include "transport/tcp/tcp_input.h"
#include "transport/tcp/tcp_link.h"
#include "transport/tcp/tcp_operations.h"
#include "transport/tcp/tcp_output.h"
#include "transport/tcp/tcp_regions.h"
#include "transport/tcp/tcp_slots.h"
#include "transport/tcp/tcp_turn.h"
#include "transport/tcp/tcp_work.h"
#include "transport/tls/tls_credentials.h"
#include "transport/tls/tls_stream.h"

namespace weft {

// The links that brought something last. The memory of all others may have left the near caches,
// and is prefetched when something comes or is to be sent (prefetch_list.h).
class TcpRecentLinks {
 public:
  // The list of a link, until it is given back. Lists stay where they are.
  PrefetchList* TakeList();
  void GiveList(PrefetchList* list);

  // `link` has brought something.
  void Note(TcpLink* link) {
    if (links_.Back() != link) [[unlikely]]
      NoteAnother(link);
  }
  void Forget(TcpLink* link);

 private:
  // A message touches some 40 lines of its connection: those of 16 fill a first-level cache.
  static constexpr size_t kMostRecent = 16;

  void NoteAnother(TcpLink* link);

  IntrusiveList<TcpLink, TcpRecentTag> links_;  // the last one last
  size_t count_ = 0;                            // of links_
  std::deque<PrefetchList> lists_;
  std::vector<PrefetchList*> free_;
};

// What the links that have a secret share; made for the first of them.
class TcpSecurity {
 public:
  absl::StatusOr<TlsCredentials*> Credentials(TlsRole role) {
    std::unique_ptr<TlsCredentials>& made = role == TlsRole::kClient ? client_ : server_;
    if (made == nullptr) {
      WEFT_ASSIGN_OR_RETURN(made, TlsCredentials::CreateForKeys(role));
    }
    return made.get();
  }
  TlsScratch* scratch() {
    if (scratch_ == nullptr) scratch_ = std::make_unique<TlsScratch>();
    return scratch_.get();
  }

 private:
  std::unique_ptr<TlsCredentials> client_;
  std::unique_ptr<TlsCredentials> server_;
  std::unique_ptr<TlsScratch> scratch_;
};

// The link that most likely brings something next, so that it is read before all are asked for:
//
//   near    what came last came by it twice running, and nothing much by others
//   asked   something has left by it since anything came, and the last few times it was this link
//           that brought something next: a client that awaits an answer, by one link or by turns.
//           A server, whose clients ask by turns, finds that it is not.
//
// Lifetime: a link that closes is forgotten (Forget()).
// Invariants: near_ and asked_ have a socket; hits_ > 0 or misses_ > 0 implies near_ != nullptr. A
//   link that epoll(7) does not watch is near_, and hits_ == kHitsToUnwatch: before either changes
//   it is watched again, or closes. So Watch() leaves none unwatched.
class TcpLikelyLink {
 public:
  // Null: none is likely.
  TcpLink* get() const {
    if (hits_ > 0) return near_;
    return right_guesses_ == kGuessesToTrust ? asked_ : nullptr;
  }
  // `link` is near, and has brought so much that epoll is not to tell of it (tcp_domain.h).
  bool is_settled(const TcpLink* link) const { return hits_ == kHitsToUnwatch && near_ == link; }

  void OnSent(TcpLink* link) { asked_ = link; }
  void OnReceived(TcpLink* link);
  // Events tell of the near link, too; if that fails, the link closes.
  void Watch();
  // `link` closes.
  void Forget(const TcpLink* link) {
    if (asked_ == link) asked_ = nullptr;
    if (near_ != link) return;
    near_ = nullptr;
    hits_ = misses_ = 0;
  }

 private:
  // Another link takes the near one's place when it has brought nothing while others brought
  // something more often than this, in receptions. One or two are what a connection's neighbours
  // bring in passing; with more, a client that changes its link would look in vain for as long.
  static constexpr int kMostMisses = 2;
  // To stop watching, and to watch again, are two system calls: a sixteenth of one for each
  // message.
  static constexpr int kHitsToUnwatch = 32;
  // In receptions. One wrong guess costs a system call for each turn until the next, and ends it.
  static constexpr int kGuessesToTrust = 4;

  TcpLink* near_ = nullptr;
  TcpLink* asked_ = nullptr;
  // Of the near link: it brought something so often since others did, and others so often since it
  // did. Without hits it is not near yet.
  int hits_ = 0;
  int misses_ = 0;
  int right_guesses_ = 0;  // so often running the asked link was the next to bring something
};

struct TcpParts {
  explicit TcpParts(const TcpOptions& options);

  BatchSink* const sink;
  LinkDomainStats stats;
  TcpRegions regions;
  TcpSlots slots;
  TcpAnswers answers;
  TcpOperations operations;
  TcpReceiveMemory receive_memory;
  TcpRecentLinks recent;
  TcpLikelyLink likely;
  TcpSecurity security;
  TcpTurn turn;
  LinkLists<TcpLink> links;                      // retries: of those that have something to send
  IntrusiveList<TcpLink, TcpReadyTag> ready;     // the socket has something to be read
  IntrusiveList<TcpLink, TcpAwaitTag> awaiting;  // TakeSocket()
  int epoll = -1;
};

}  // namespace weft
