// Memory that a provider may touch, and what a peer may know of it.
//
// A Region is application or pool memory registered with the provider under one connection's
// path. A RemoteSpan is the plain exchange of key and offset that a peer needs to read or write
// part of it. (It is an address, not a capability: it carries no rights check beyond the
// provider's own. Exchange it with peers that you trust with that memory.)
//
// Threads: engine thread only.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/bytes.h"
#include "core/intrusive_list.h"

namespace weft {

// What peers may do with a region. Local use is always allowed.
enum class Access : uint8_t {
  kLocalOnly = 1,
  kRemoteRead = 2,
  kRemoteWrite = 3,
  kRemoteReadWrite = 4,
};

// A range of a peer's region. `offset` is what the provider counts from: 0-based on shm, tcp and
// sim, so that no address leaves the process.
struct RemoteSpan {
  uint64_t key = 0;
  uint64_t offset = 0;  // bytes
  uint64_t length = 0;  // bytes

  // The part [from, from + bytes). REQUIRES: from + bytes <= length, without overflow.
  RemoteSpan Slice(uint64_t from, uint64_t bytes) const { return {key, offset + from, bytes}; }
};

// 16 GiB: above what programs lend and receive into, below the memory of hosts that register much;
// raise it for a database that registers all of its page cache.
inline constexpr uint64_t kDefaultRegionBytes = uint64_t{16} << 30;

struct AtomicRegionTag;
class Region;

// Told when a region is gone. Outlives it.
class RegionWatcher {
 protected:
  ~RegionWatcher() = default;
  void Watch(Region* region);

 private:
  friend class Region;
  virtual void OnRegionGone(size_t bytes) = 0;
};

// Registered memory. Destroying it deregisters: no peer can reach the memory afterwards.
// REQUIRES: the memory outlives the Region; no local operation on it is outstanding when it is
// destroyed; it is destroyed before the Transport that made it.
class Region : private ListNode<AtomicRegionTag> {
 public:
  virtual ~Region() {
    if (watcher_ != nullptr) watcher_->OnRegionGone(memory_.size());
  }
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  MutableByteSpan memory() const { return memory_; }
  RemoteSpan remote() const { return remote_; }

 protected:
  Region(MutableByteSpan memory, RemoteSpan remote) : memory_(memory), remote_(remote) {}

 private:
  friend class IntrusiveList<Region, AtomicRegionTag>;
  friend class RegionWatcher;
  friend class AtomicRegions;  // has those that peers may change by atomics

  const MutableByteSpan memory_;
  const RemoteSpan remote_;
  RegionWatcher* watcher_ = nullptr;
};

inline void RegionWatcher::Watch(Region* region) { region->watcher_ = this; }

}  // namespace weft
