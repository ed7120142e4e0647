// A cache of values in another machine's memory: this process has the index, and reads and writes
// the memory with one-sided operations. No code of the server runs for a look-up or an insertion.
//
//   auto cache = RemoteCache::Open({.address = "10.0.0.8:7100", .bytes = 256 << 20});
//   cache->Put(key, value.size(), [&](MutableByteSpan into) { copy; return true; });
//   if (auto place = cache->Find(key)) {
//     RemoteCache::Lookup lookup = {*place, key};
//     cache->Fetch({&lookup, 1});                   // all of a batch by one round trip
//     use(lookup.value());                          // empty: it is not there any more
//   }
//
// The memory is a ring. An entry is put behind the one before it, and what lies in its way, the
// oldest entries, leaves the index first.
//
//   an entry    bytes
//        0   8  sequence: another one for each entry that was ever put
//        8   4  bytes of the key
//       12   4  bytes of the value
//       16   4  CRC32C over all the rest: these words, key and value
//       20   4  0
//       24      key, value, up to a multiple of 8
//
// What a look-up reads counts only if sequence, lengths, key and checksum are those that the index
// has told of: whatever else stands there, because it was overwritten meanwhile, half or whole, is
// a miss.
//
// An insertion is queued; one thread writes what has come, together, and puts it into the index
// when the server's memory has it (WriteAcknowledged). What does not fit into the queue is dropped.
//
//   the memory  set by                                    left for
//   is none     at first; whoever meets an error of an    is there: the thread asks for some at
//               operation on it: the index is empty       once, and then every kAskAgainUs
//   is there    the server's answer                       is none
//
// Threads: any, several at once. Find() and Put() do not wait for the network; Fetch() does, for
//   kTimeoutUs at most.
// Lifetime: it has an engine of its own, which is driven by the threads that wait. Nobody is in an
//   operation when it is destroyed.
// Errors: none but Open()'s, for options that make no sense. Without its server it has nothing.
// Invariants: a value that Fetch() brings is the one that was put last under its key before Find().
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "embed/rocksdb/cache.weft.h"
#include "weft/bytes.h"
#include "weft/channel.h"
#include "weft/memory.h"
#include "weft/remote_memory.h"
#include "weft/stream.h"

namespace weft::embed {

struct RemoteCacheOptions {
  std::string address;
  ChannelOptions channel = {};          // paths, security
  uint64_t bytes = uint64_t{64} << 20;  // of memory that it asks for
};

class RemoteCache {
 public:
  // Of an operation: a cache that answers later is of no use.
  static constexpr uint64_t kTimeoutUs = 200'000;
  static constexpr uint64_t kAskAgainUs = 1'000'000;
  // Insertions that wait to be written: some milliseconds of a network's time.
  static constexpr size_t kMaxQueuedBytes = size_t{16} << 20;
  // Of one value; RocksDB's blocks are 4 KiB, and filters and indexes of a table up to this.
  static constexpr size_t kMaxValueBytes = size_t{1} << 20;

  struct Place {
    uint64_t memory = 0;  // which of the memories that it has had
    uint64_t offset = 0;
    uint32_t key_bytes = 0;
    uint32_t value_bytes = 0;
    uint64_t sequence = 0;
  };
  struct Stats {
    uint64_t hits = 0;
    uint64_t misses = 0;    // that the index had, and Fetch() did not find
    uint64_t batches = 0;   // that Fetch() has read, of one look-up or many
    uint64_t inserted = 0;  // written, and in the index
    uint64_t dropped = 0;   // insertions that had no room in the queue, or no memory
    uint64_t entries = 0;   // now
    uint64_t memories = 0;  // that it was lent
  };
  class Lookup {
   public:
    Lookup(const Place& place, std::string_view key) : place_(place), key_(key) {}
    // After Fetch(). Empty: a miss.
    ByteSpan value() const { return value_; }

   private:
    friend class RemoteCache;
    const Place place_;
    const std::string key_;
    std::shared_ptr<Buffer> buffer_;  // of its batch
    ByteSpan value_;
  };

  // INVALID_ARGUMENT: options out of bounds. A server that is not there is no error.
  static absl::StatusOr<std::unique_ptr<RemoteCache>> Open(const RemoteCacheOptions& options);
  ~RemoteCache();
  RemoteCache(const RemoteCache&) = delete;
  RemoteCache& operator=(const RemoteCache&) = delete;

  std::optional<Place> Find(std::string_view key);
  // All look-ups by one batch, or one for 64 of them.
  void Fetch(absl::Span<Lookup*> lookups);
  // `fill` writes the value, here and now; false: it cannot. An earlier value of the key is gone at
  // once. Returns whether it was queued.
  bool Put(std::string_view key, size_t bytes, absl::FunctionRef<bool(MutableByteSpan)> fill);
  void Erase(std::string_view key);

  Stats stats();
  // Returns when all that was put before is written or dropped, and there is memory or was asked
  // for. For tests.
  void WaitIdle();

 private:
  // What was lent, once.
  struct Memory {
    uint64_t number = 0;
    std::unique_ptr<RemoteMemory> remote;
  };
  struct Entry {  // in the ring
    uint64_t begin = 0;
    uint64_t end = 0;
    uint64_t sequence = 0;
    std::string key;
  };
  struct Queued {
    std::unique_ptr<Buffer> buffer;  // the whole entry
    size_t bytes = 0;
    Place place;  // but for memory and offset
    std::string key;
  };

  RemoteCache(const RemoteCacheOptions& options, std::unique_ptr<Channel> channel);

  void FetchBatch(const std::shared_ptr<Memory>& memory, absl::Span<Lookup*> lookups);
  void Work();
  void Ask();
  void Write(std::vector<Queued> batch);
  std::shared_ptr<Memory> memory();
  // An operation on it has failed.
  void Lose(const std::shared_ptr<Memory>& memory);
  // REQUIRES, all four: mutex_ is held.
  size_t LongestBatch() const;  // bytes
  uint64_t MakePlace(size_t bytes);
  void EraseIndexOf(const Entry& entry);
  void Forget();

  const RemoteCacheOptions options_;
  const std::unique_ptr<Channel> channel_;
  const wire::Cache::Stub stub_;
  std::atomic<uint64_t> hits_{0};
  std::atomic<uint64_t> misses_{0};
  std::atomic<uint64_t> batches_{0};
  std::atomic<uint64_t> last_sequence_{0};

  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  std::shared_ptr<Memory> memory_;  // null: there is none
  std::unordered_map<std::string, Place> index_;
  std::deque<Entry> ring_;  // from the oldest on
  uint64_t head_ = 0;       // where the next entry goes
  // Of keys that are queued or being written: the sequence of the last one that was put, which
  // alone gets into the index.
  std::unordered_map<std::string, uint64_t> pending_;
  std::deque<Queued> queue_;
  size_t queued_bytes_ = 0;
  bool is_working_ = false;
  bool has_asked_ = false;
  bool stopping_ = false;
  uint64_t inserted_ = 0;
  uint64_t dropped_ = 0;
  uint64_t memories_ = 0;

  // Of the thread.
  std::optional<ClientReader<wire::BorrowReply>> stream_;
  std::thread thread_;
};

}  // namespace weft::embed
