// Of something that there is only so much of, what each client has taken: the connections of a
// listener, the leases of an engine, a server's buffers. A part of it is kept for others:
//
//   how much is taken with it       who gets it
//   no more than AllButReserve()    whoever comes
//   no more than all                who has no more than its share with it, which is all of it over
//                                   the number of clients that have any, and one more client; and
//                                   who has nothing, for what it wants may be more than a share
//   more                            nobody
//
// The second line lets those in who have nothing yet, or less than others, while one client, or a
// few together, have taken all that they can get. So who takes without an end gets what others
// give up down to their share, and no further.
//
// A client is a number, by whoever counts: PathInfo::client, for example.
//
// Threads: none of its own; who shares it locks. Errors: none.
// Invariants: all() is the sum of what the clients have; none is kept that has nothing.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/container/flat_hash_map.h"

namespace weft {

// An eighth is for those who have less: of 1,024 connections it is 128, as of handshakes
// (Newcomers). None where there are fewer than 8: of few each is wanted.
constexpr uint64_t AllButReserve(uint64_t most) { return most - most / 8; }

// Of bytes that are held for as long as others like, and by many clients in the best case: whether
// so many more leave others as much as their client has of them. Alone it gets half; two that take
// turns get a third each, and who comes when others have all that they can get has half of what is
// left. Each may have `least` where that fits, which the largest message needs; and nothing needs
// no room. Source: A. K. Choudhury and E. L. Hahne, Dynamic queue length thresholds for
// shared-memory packet switches, IEEE/ACM Transactions on Networking, 1998.
constexpr bool LeavesAsMuch(uint64_t of_client, uint64_t more, uint64_t all, uint64_t most,
                            uint64_t least) {
  if (more == 0) return true;
  if (all > most || more > most - all) return false;
  return of_client + more <= least || of_client + more <= most - all - more;
}

class ClientShares {
 public:
  // REQUIRES: amount > 0, or the client has some.
  void Take(uint64_t client, uint64_t amount);
  // REQUIRES: it has taken as much.
  void Give(uint64_t client, uint64_t amount);

  uint64_t all() const { return all_; }
  uint64_t Of(uint64_t client) const;
  size_t clients() const { return of_.size(); }
  // What is left to one more client of `most` where others have taken the rest; at least 1.
  uint64_t ShareOf(uint64_t most) const;
  // Whether this client gets so much more of `most`: the table above.
  bool HasRoom(uint64_t client, uint64_t more, uint64_t most) const;

 private:
  uint64_t all_ = 0;
  absl::flat_hash_map<uint64_t, uint64_t> of_;
};

}  // namespace weft
