// Something that a server has only so much of for all its clients, under a lock: its open files,
// locks, sessions. One client leaves some to others (core/client_shares.h), always: a server for
// one host or one proxy has an eighth of each that nobody uses.
//
// Threads: any. Lifetime: it outlives its places.
// Errors: RESOURCE_EXHAUSTED, with what there is, of how much, and what to do.
#pragma once

#include <sys/resource.h>

#include <cstdint>
#include <mutex>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/client_shares.h"
#include "core/strings.h"

namespace weft::embed {

// So many eighths of the descriptors that the system lets this process have now. What takes some
// for clients has a part of them: open files four, copies of files and loans of caches one each
// (both are files in memory). The rest is for locks (a twelfth of the open files) and connections.
inline uint64_t EighthsOfDescriptors(uint64_t eighths) {
  rlimit limit = {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) limit.rlim_cur = 1024;  // what is usual
  return limit.rlim_cur / 8 * eighths;
}

class ClientLimit {
 public:
  // What a client has of it, until it is destroyed.
  class Place {
   public:
    Place() = default;  // nothing
    Place(Place&& from) noexcept { *this = std::move(from); }
    Place& operator=(Place&& from) noexcept {
      std::swap(limit_, from.limit_);
      std::swap(client_, from.client_);
      std::swap(amount_, from.amount_);
      return *this;
    }
    ~Place() {
      if (limit_ != nullptr) limit_->Give(client_, amount_);
    }

   private:
    friend class ClientLimit;
    Place(ClientLimit* limit, uint64_t client, uint64_t amount)
        : limit_(limit), client_(client), amount_(amount) {}

    ClientLimit* limit_ = nullptr;
    uint64_t client_ = 0;
    uint64_t amount_ = 0;
  };

  // `what` they are, for errors: a literal.
  ClientLimit(std::string_view what, uint64_t most) : what_(what), most_(most) {}
  ClientLimit(const ClientLimit&) = delete;
  ClientLimit& operator=(const ClientLimit&) = delete;

  // `client`: PathInfo::client.
  absl::StatusOr<Place> Take(uint64_t client, uint64_t amount = 1) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!shares_.HasRoom(client, amount, most_)) {
      return absl::ResourceExhaustedError(StrCat("the server has ", shares_.all(), " of ", most_,
                                                 " ", what_, " in use, ", shares_.Of(client),
                                                 " by this client, which can have no ", amount,
                                                 " more: use fewer, or try again later"));
    }
    shares_.Take(client, amount);
    return Place(this, client, amount);
  }

 private:
  void Give(uint64_t client, uint64_t amount) {
    const std::lock_guard<std::mutex> lock(mutex_);
    shares_.Give(client, amount);
  }

  const std::string_view what_;
  const uint64_t most_;
  std::mutex mutex_;
  ClientShares shares_;  // guarded by mutex_
};

}  // namespace weft::embed
