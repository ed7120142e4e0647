// The service of cache.proto: lends memory of this process to clients, each piece to one.
//
//   a loan is  set by                                     left for
//   mapping    StartBorrow(); a thread maps the memory    lent; gone
//   lent       the client has been told where it is       gone, when its stream ends: a thread
//                                                         revokes the memory, and gives it back
//                                                         when nobody can touch it any more
//
// Limits: `max_bytes` for all, in whole pages, of which a loan takes what it asked for, or what is
// left to its client; kMaxLoans. Of both one client (PathInfo::client) leaves some to others
// (core/client_shares.h); what has ended counts until nobody can touch it any more.
//
// Threads: the handler on the engine's thread. The rest from one thread; lent_bytes() from any.
// Lifetime: the engine outlives it; it outlives the server. REQUIRES: the engine has a thread of
//   its own.
// Errors: as cache.proto says.
// Invariants: lent_bytes() <= max_bytes, and memory is lent again only when it is reclaimed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/client_shares.h"
#include "embed/client_limit.h"
#include "embed/nbdkit/disk_pool.h"
#include "embed/rocksdb/cache.weft.h"
#include "weft/engine.h"
#include "weft/memory.h"
#include "weft/server.h"
#include "weft/service.h"
#include "weft/stream.h"

namespace weft::embed {

class CacheService final : public wire::Cache::Service {
 public:
  // Less is no cache: some hundred blocks.
  static constexpr uint64_t kMinLentBytes = uint64_t{1} << 20;
  // Each is an export, of which an engine has 4096.
  static constexpr size_t kMaxLoans = 1024;

  CacheService(Engine& engine, uint64_t max_bytes);
  ~CacheService() override;

  // Ends all streams, so that a server's Shutdown() need not wait for them. Any thread.
  void EndLoans();
  uint64_t lent_bytes() const;  // with the pages that they take

  void StartBorrow(const wire::BorrowRequest& request,
                   ServerWriter<wire::BorrowReply> stream) override;

 private:
  struct Loan {
    uint64_t client = 0;
    uint64_t bytes = 0;
    std::optional<ServerWriter<wire::BorrowReply>> stream;  // none: it has ended
    std::unique_ptr<ExportedMemory> memory;                 // null: it is being mapped
  };

  // How many bytes the client gets of those it asks for; they are its from then on, until Give().
  absl::StatusOr<uint64_t> Take(uint64_t client, uint64_t wanted);
  void Give(uint64_t client, uint64_t bytes);
  void PostOnEngine(Function<void()> task);
  void RunOnEngine(Function<void()> task);  // and waits
  void OnMapped(uint64_t number, absl::StatusOr<std::unique_ptr<ExportedMemory>> memory);
  void End(uint64_t number, absl::Status why);

  Engine& engine_;
  const uint64_t max_bytes_;
  // An eighth of the descriptors, where they are few: each loan has one.
  const uint64_t max_loans_ = std::min<uint64_t>(kMaxLoans, EighthsOfDescriptors(1));

  mutable std::mutex mutex_;
  // Guarded by mutex_.
  ClientShares lent_;      // bytes
  ClientShares loans_of_;  // how many

  // Engine thread only.
  std::unordered_map<uint64_t, Loan> loans_;
  uint64_t last_number_ = 0;
  bool stopping_ = false;  // the thread takes no more

  std::unique_ptr<DiskPool> mappers_;  // goes first: its tasks use the rest
};

}  // namespace weft::embed
