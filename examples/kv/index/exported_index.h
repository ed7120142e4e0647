// An index in memory of its own that a server's clients may read, and map if they are on its host.
//
// Threads:   Create() and the destructor: those of Server::Export(). The rest: the server's engine.
// Lifetime:  destroyed before the server; after its last handler, which would still change it.
// Errors:    Create(): RESOURCE_EXHAUSTED, the system has no memory.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "core/random.h"
#include "examples/kv/index/index.h"
#include "examples/kv/kv.pb.h"
#include "weft/memory.h"
#include "weft/server.h"

namespace kv::index {

// The least that holds one bucket and two slabs.
inline constexpr uint64_t kMinIndexBytes = uint64_t{1} << 20;

class ExportedIndex {
 public:
  // Of `bytes` in all, kMinIndexBytes or more. One eighth is the table: room for 1,792 records of
  // on average 512 bytes in each MiB, its buckets half full.
  static absl::StatusOr<std::unique_ptr<ExportedIndex>> Create(weft::Server& server,
                                                               uint64_t bytes);

  Index& index() { return index_; }
  const Index& index() const { return index_; }

  // What a client needs to read it.
  void Describe(OpenIndexReply* reply) const;

 private:
  ExportedIndex(std::unique_ptr<weft::ExportedMemory> table,
                std::unique_ptr<weft::ExportedMemory> heap)
      : table_(std::move(table)),
        heap_(std::move(heap)),
        index_(table_->bytes(), heap_->bytes(), weft::SecureRandom64()) {}

  const std::unique_ptr<weft::ExportedMemory> table_;
  const std::unique_ptr<weft::ExportedMemory> heap_;
  Index index_;
};

}  // namespace kv::index
