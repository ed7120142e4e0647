#include "examples/kv/index/exported_index.h"

#include <algorithm>

#include "core/status.h"
#include "weft/remote_array.h"

namespace kv::index {
namespace {

// Tables begin at 4 KiB, a page: less would not be mapped anyway.
constexpr uint64_t kPageBytes = 4096;

}  // namespace

absl::StatusOr<std::unique_ptr<ExportedIndex>> ExportedIndex::Create(weft::Server& server,
                                                                     uint64_t bytes) {
  const uint64_t table_bytes = std::max(bytes, kMinIndexBytes) / 8 / kPageBytes * kPageBytes;
  const uint64_t heap_bytes = std::max(bytes, kMinIndexBytes) - table_bytes;
  WEFT_ASSIGN_OR_RETURN(
      auto table, server.AllocateExport(table_bytes, weft::ExportAs<BucketLayout>(weft::kMayRead)));
  WEFT_ASSIGN_OR_RETURN(auto heap, server.AllocateExport(heap_bytes, {.rights = weft::kMayRead}));
  return std::unique_ptr<ExportedIndex>(new ExportedIndex(std::move(table), std::move(heap)));
}

void ExportedIndex::Describe(OpenIndexReply* reply) const {
  table_->handle(reply->mutable_table());
  heap_->handle(reply->mutable_heap());
  reply->set_hash_seed(index_.hash_seed());
}

}  // namespace kv::index
