// Gets without the server: by one or two remote reads of its index (index/layout.h).
//
//   the key's slot is remembered: read the extent -> the record: done, after one read
//   else, or if that extent was changed:
//   read the bucket  -> no such record: done, after one read
//                    -> a slot: read the extent -> the record: done, after two reads
//                                               -> changed meanwhile: from the start, kTries times
//   anything else    -> a call, as if there were no index: the bucket says "ask", it changes too
//                       often, a read failed (the server is another one: its handles are stale)
//
// What comes out is what Kv.Get would have said at one moment between start and end.
//
// Over shared memory, where the index is mapped into this process, reads are copies that end inside
// the call that starts them, and so does the whole Get.
//
// Threads:   the channel's engine; Open() blocks and is for main().
// Lifetime:  the session's channel outlives it; destroyed when no Get is under way.
// Errors:    those of Kv.Get. Reads have no deadline of their own: a server that is gone ends them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/function.h"
#include "examples/kv/index/layout.h"
#include "examples/kv/index/lookup.h"
#include "examples/kv/kv.weft.h"
#include "weft/channel.h"
#include "weft/memory.h"
#include "weft/remote_array.h"
#include "weft/remote_memory.h"

namespace kv::client {

struct OneSidedStats {
  uint64_t records = 0;      // found by reads alone
  uint64_t at_once = 0;      // among them: by one read
  uint64_t absent = 0;       // seen by a read alone that there is none
  uint64_t again = 0;        // times that a record changed between the two reads
  uint64_t calls = 0;        // gets that were made by a call in the end
  uint64_t read_errors = 0;  // among them: because a read failed
  absl::Status last_error;   // of a read
};

class OneSidedGets {
 public:
  // Changes between the two reads, until the server is asked: with so many writers on one record a
  // call is no slower.
  static constexpr uint32_t kTries = 8;

  // Slots that are remembered, each at the place that its hash gives it: 2.6 MB. More would be out
  // of the processor's second-level cache, and save fewer reads than they cost on shared memory.
  static constexpr size_t kRemembered = size_t{1} << 16;

  // How a record is got that can't be read: starts the call. As Get().
  using GetByCall = std::function<void(uint32_t lane, const GetRequest& request, GetReply* reply,
                                       weft::Function<void(absl::Status)> done)>;

  // Asks the server for its index. As many Gets at a time as `lanes`.
  static absl::StatusOr<std::unique_ptr<OneSidedGets>> Open(weft::Channel& channel,
                                                            const weft::CallOptions& call,
                                                            uint32_t lanes, GetByCall get_by_call);

  // As Kv::Stub::Get(), but `done` may run inside. REQUIRES: nothing is under way in `lane`;
  // `request` stays until `done`.
  void Get(uint32_t lane, const GetRequest& request, GetReply* reply,
           weft::Function<void(absl::Status)> done);

  const OneSidedStats& stats() const { return stats_; }
  // Buckets that were being changed when they were read, and were read again.
  uint64_t torn_buckets() { return torn_buckets_ + table_->stats().torn_reads; }

 private:
  struct Lane {
    const GetRequest* request = nullptr;
    GetReply* reply = nullptr;
    weft::Function<void(absl::Status)> done;
    uint64_t hash = 0;
    uint32_t tries = 0;   // buckets read
    uint32_t bucket = 0;  // the last one's number
    index::SlotLayout slot;
  };

  OneSidedGets(uint32_t lanes, GetByCall get_by_call)
      : get_by_call_(std::move(get_by_call)), lanes_(lanes), remembered_(kRemembered) {}

  void ReadBucket(uint32_t index);
  void OnBucketRead(uint32_t index, const absl::Status& status);
  void OnBucket(uint32_t index, const absl::Status& status);
  void ReadExtent(uint32_t index);
  void OnExtent(uint32_t index, const absl::Status& status);
  void OnReadError(uint32_t index, const absl::Status& status);
  void Again(uint32_t index);
  void Call(uint32_t index);
  void End(uint32_t index, const absl::Status& status);
  weft::Slice PlaceOf(uint32_t index, size_t bytes) const;
  index::BucketLayout* BucketOf(uint32_t index) const;
  index::SlotLayout& RememberedFor(uint64_t hash) { return remembered_[hash % kRemembered]; }

  // Constant after Open().
  const GetByCall get_by_call_;
  uint64_t hash_seed_ = 0;
  std::unique_ptr<weft::RemoteArray<index::BucketLayout>> table_;
  std::unique_ptr<weft::Buffer> places_;  // for each lane: its bucket, then its extent
  std::unique_ptr<weft::RemoteMemory> heap_;

  std::vector<Lane> lanes_;
  std::vector<index::SlotLayout> remembered_;  // version 0: none
  OneSidedStats stats_;
  uint64_t torn_buckets_ = 0;
};

}  // namespace kv::client
