// The regions of one tcp domain, and those of them that peers may reach, found by key.
//
// Nothing is registered with the kernel: a region is a place in a table, in which each piece of
// what a peer asks for is looked up. A key is 48 random bits and the place in the table: it is
// found without a search, and a peer that guesses needs some 2^47 tries for each region. A place
// that is used again has a new key. A region that no peer may reach has no place, and the key 0.
//
// When a region goes, those who are in the midst of moving its bytes (TcpRegionUser) are told, and
// let go of it: behind its destructor nothing touches the memory any more.
//
// Threads: the engine's. Lifetime: outlives its regions and their users. Errors:
//   RESOURCE_EXHAUSTED for more than kMaxRegions that peers may reach.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "core/bytes.h"
#include "core/intrusive_list.h"
#include "transport/link.h"
#include "transport/region.h"

namespace weft {

struct TcpRegionUserTag;

// Somebody who moves bytes of regions that peers reach, in several steps. It is listed
// (TcpRegions::Note()) while it may be in the midst of that.
class TcpRegionUser : public ListNode<TcpRegionUserTag> {
 public:
  // The region of this key goes: its memory is not touched from here on. Nobody is listed when it
  // is told, and notes itself again if it is in the midst of another.
  virtual void OnRegionGone(uint64_t key) = 0;

 protected:
  ~TcpRegionUser() = default;
};

class TcpRegions {
 public:
  static constexpr size_t kMaxRegions = size_t{1} << 16;  // the places that a key can name

  explicit TcpRegions(LinkDomainStats* stats) : stats_(stats) {}

  // REQUIRES: memory is not empty.
  absl::StatusOr<std::unique_ptr<Region>> Register(MutableByteSpan memory, Access access);
  // Whether `region` is of this domain.
  bool Has(const Region& region) const;

  // The memory that a peer means; empty: it is not granted.
  MutableByteSpan Find(const RemoteSpan& remote, bool write) const {
    const size_t place = remote.key % kMaxRegions;
    if (place >= entries_.size()) return {};
    const Entry& entry = entries_[place];
    const size_t bytes = entry.memory.size();
    if (entry.key != remote.key || !(write ? entry.writable : entry.readable) ||
        remote.length == 0 || remote.offset > bytes || remote.length > bytes - remote.offset) {
      return {};
    }
    return entry.memory.subspan(remote.offset, remote.length);
  }
  // `user` is to be told when a region goes.
  void Note(TcpRegionUser* user) {
    if (!user->linked()) users_.PushBack(user);
  }

 private:
  class TcpRegion;
  struct Entry {
    uint64_t key = 0;
    MutableByteSpan memory;  // empty: the place is free
    bool readable = false;
    bool writable = false;
  };

  absl::StatusOr<uint64_t> Add(MutableByteSpan memory, Access access);
  void Remove(uint64_t key);

  LinkDomainStats* const stats_;
  std::vector<Entry> entries_;
  std::vector<uint32_t> free_;  // places, last in, first out
  IntrusiveList<TcpRegionUser, TcpRegionUserTag> users_;
};

}  // namespace weft
