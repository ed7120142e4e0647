// Files in memory that clients read without this process: copies that are made when a client asks,
// each an export of its own (weft/memory.h), for reading only.
//
//   auto loan = files.Lend(identity, descriptor, bytes, client);   // reads the file, if need be
//   loan->region();                                                // for the client
//
// What a client reads is what the file had when it was lent; so only files that nobody writes are:
// a file that is opened for writing is forgotten, and those who have its region get ABORTED from
// then on (never other bytes), and read by calls.
//
//   an entry is  set by                                 left for
//   loading      Lend(), whose thread reads the file,   ready; gone, if that fails; leaving
//                others wait for it
//   ready        the copy is complete                   leaving
//   leaving      Forget(); Lend(), of idle ones, when   gone, when nobody can read it any more;
//                room is needed                         whoever has a loan of it keeps the entry
//
// Limits: `max_bytes` of memory for all, in whole pages as the copies take them; kMaxEntries files,
// below the 4096 exports that an engine has. What is leaving counts until it is gone. Of both one
// client (PathInfo::client) leaves an eighth to others (core/client_shares.h). A copy counts for
// the client that had it loaded, as long as it is here; to others who have a loan of it, it costs
// nothing. Copies without loans make room, whoever had them loaded, if with them there is enough.
// Whoever comes when all of it is in use is refused, and asks again later.
//
// Threads: any but the engine's, several at once: Lend() waits for the medium, and Forget() and
//   Lend() for clients, as their leases are revoked. A Loan may end on any thread, the engine's
//   too: it frees an entry at most, and no copy.
// Lifetime: the engine outlives it, and it outlives its loans.
// Errors: RESOURCE_EXHAUSTED: no room now, or the copy is leaving. INVALID_ARGUMENT: an empty file,
//   or one that takes more than seven eighths of max_bytes. DATA_LOSS: the file changed while it
//   was read.
// Invariants: the bytes of an export do not change while somebody has its region.
//   bytes() <= max_bytes, with what is leaving.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/client_shares.h"
#include "embed/client_limit.h"
#include "transport/descriptor.h"
#include "weft/engine.h"
#include "weft/memory.h"
#include "weft/memory.pb.h"

namespace weft::embed {

class LentFiles {
 public:
  static constexpr size_t kMaxEntries = 2048;

  class Entry {
   public:
    Entry(uint64_t identity, uint64_t bytes, uint64_t client, uint64_t taken)
        : identity_(identity), bytes_(bytes), client_(client), taken_(taken) {}
    const RemoteRegion& region() const { return region_; }

   private:
    friend class LentFiles;
    const uint64_t identity_;
    const uint64_t bytes_;  // of the file
    const uint64_t client_;
    const uint64_t taken_;  // of memory
    // Guarded by LentFiles::mutex_.
    bool is_ready_ = false;
    bool is_leaving_ = false;
    absl::Status failure_;
    uint64_t last_use_ = 0;  // in the order of uses
    // Constant once it is ready, until it is leaving.
    std::unique_ptr<ExportedMemory> memory_;
    RemoteRegion region_;
  };
  using Loan = std::shared_ptr<const Entry>;

  LentFiles(Engine& engine, uint64_t max_bytes)
      : engine_(engine), max_bytes_(max_bytes), max_bytes_of_one_(AllButReserve(max_bytes)) {}
  LentFiles(const LentFiles&) = delete;
  LentFiles& operator=(const LentFiles&) = delete;

  uint64_t max_bytes() const { return max_bytes_; }
  absl::StatusOr<Loan> Lend(uint64_t identity, const Descriptor& file, uint64_t bytes,
                            uint64_t client);
  // The file is about to change, or its identity may become another one's. Returns when nobody can
  // read the copy any more.
  void Forget(uint64_t identity);

  // Of memory, by all copies.
  uint64_t bytes();

 private:
  using Entries = std::vector<std::shared_ptr<Entry>>;

  // REQUIRES, all but Load(): mutex_ is held.
  absl::StatusOr<Entries> ToEvict(uint64_t taken, uint64_t client);
  Entries WithoutLoans();
  void Count(const Entry& entry);
  void Uncount(const Entry& entry);
  void WaitUntilLoaded(std::unique_lock<std::mutex>& lock, const Entry& entry);
  void Revoke(std::unique_lock<std::mutex>& lock, const Entries& leaving);
  absl::Status Load(Entry& entry, const Descriptor& file);

  Engine& engine_;
  const uint64_t max_bytes_;
  const uint64_t max_bytes_of_one_;  // client
  // An eighth of the descriptors, where they are few: each copy has one.
  const uint64_t max_entries_ = std::min<uint64_t>(kMaxEntries, EighthsOfDescriptors(1));

  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  std::map<uint64_t, std::shared_ptr<Entry>> entries_;  // by identity; a loan is a further owner
  ClientShares memory_;                                 // bytes of these
  ClientShares files_;                                  // how many these are
  uint64_t uses_ = 0;
};

}  // namespace weft::embed
