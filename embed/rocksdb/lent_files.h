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
//   loading      Lend(), whose thread reads the file,   ready; gone, if that fails
//                others wait for it
//   ready        the copy is complete                   gone, when room is needed and nobody has a
//                                                       loan; forgotten
//   forgotten    Forget(); nobody can read it, and its  gone, with a call after its last loan's end
//                memory is given back
//
// Limits: `max_bytes` of memory for all, in whole pages as the copies take them; kMaxEntries files,
// below the 4096 exports that an engine has. Of both one client (PathInfo::client) leaves an eighth
// to others (core/client_shares.h). A copy counts for the client that had it loaded, as long as it
// is here; to others who have a loan of it, it costs nothing. Copies without loans make room,
// whoever had them loaded. Whoever comes when all of it is in use is refused, and asks again later.
//
// Threads: any but the engine's, several at once: Lend() waits for the medium, and Forget() for
//   clients, as their leases are revoked. A Loan may end on any thread, the engine's too: it only
//   counts.
// Lifetime: the engine outlives it, and it outlives its loans.
// Errors: RESOURCE_EXHAUSTED: no room now. INVALID_ARGUMENT: an empty file, or one that takes more
//   than seven eighths of max_bytes. DATA_LOSS: the file changed while it was read.
// Invariants: the bytes of an export do not change while somebody has its region.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/client_shares.h"
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
    const RemoteRegion& region() const { return region_; }

   private:
    friend class LentFiles;
    std::atomic<uint32_t> loans_{0};
    const uint64_t bytes_;  // of the file
    const uint64_t client_;
    // Guarded by LentFiles::mutex_.
    uint64_t taken_;  // of memory; 0: it is given back
    bool is_ready_ = false;
    absl::Status failure_;
    uint64_t last_use_ = 0;  // in the order of uses
    // Constant once it is ready, until it is forgotten.
    std::unique_ptr<ExportedMemory> memory_;
    RemoteRegion region_;

   public:
    Entry(uint64_t bytes, uint64_t client, uint64_t taken)
        : bytes_(bytes), client_(client), taken_(taken) {}
  };
  struct EndLoan {
    void operator()(Entry* entry) const { entry->loans_.fetch_sub(1, std::memory_order_release); }
  };
  using Loan = std::unique_ptr<Entry, EndLoan>;

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
  using Entries = std::vector<std::unique_ptr<Entry>>;

  // REQUIRES, all four: mutex_ is held.
  std::map<uint64_t, std::unique_ptr<Entry>>::iterator OldestWithoutLoans(
      std::optional<uint64_t> of_client);
  absl::Status MakeRoom(uint64_t taken, uint64_t client, Entries* gone);
  void TakeForgotten(Entries* gone);
  void GiveBack(Entry& entry);
  absl::Status Load(Entry& entry, const Descriptor& file);

  Engine& engine_;
  const uint64_t max_bytes_;
  const uint64_t max_bytes_of_one_;  // client

  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  std::map<uint64_t, std::unique_ptr<Entry>> entries_;  // by identity
  Entries forgotten_;                                   // on loan; they go with a later call
  ClientShares memory_;                                 // bytes of those whose memory is here
  ClientShares files_;                                  // how many these are
  uint64_t uses_ = 0;
};

}  // namespace weft::embed
