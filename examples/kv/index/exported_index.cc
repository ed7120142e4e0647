#include "examples/kv/index/exported_index.h"

#include <algorithm>

#include "core/status.h"
#include "rpc/remote_array.h"

namespace kv::index {
namespace {

// Tables begin at 4 KiB, a page: less would not be mapped anyway.
constexpr uint64_t kPageBytes = 4096;

weft::MappedMemoryOptions Pages(uint64_t bytes) {
  weft::MappedMemoryOptions options;
  // A mapping of huge pages is a multiple of them.
  if (bytes % weft::kHugePageBytes != 0) {
    options.huge_pages = weft::MappedMemoryOptions::HugePages::kNever;
  }
  return options;
}

absl::StatusOr<weft::MappedMemory> Map(uint64_t bytes) {
  return weft::MappedMemory::Map(bytes, Pages(bytes));
}

}  // namespace

absl::StatusOr<std::unique_ptr<ExportedIndex>> ExportedIndex::Create(weft::Server& server,
                                                                     uint64_t bytes) {
  const uint64_t table_bytes = std::max(bytes, kMinIndexBytes) / 8 / kPageBytes * kPageBytes;
  const uint64_t heap_bytes = std::max(bytes, kMinIndexBytes) - table_bytes;
  WEFT_ASSIGN_OR_RETURN(weft::MappedMemory table, Map(table_bytes));
  WEFT_ASSIGN_OR_RETURN(weft::MappedMemory heap, Map(heap_bytes));
  std::unique_ptr<ExportedIndex> index(new ExportedIndex(std::move(table), std::move(heap)));
  WEFT_ASSIGN_OR_RETURN(index->table_, server.Export(index->table_memory_.bytes(),
                                                     weft::ExportAs<BucketLayout>(weft::kMayRead)));
  WEFT_ASSIGN_OR_RETURN(index->heap_, server.Export(index->heap_memory_.bytes(), {}));
  return index;
}

void ExportedIndex::Describe(OpenIndexReply* reply) const {
  table_->handle(reply->mutable_table());
  heap_->handle(reply->mutable_heap());
  reply->set_hash_seed(index_.hash_seed());
}

}  // namespace kv::index
