#include "transport/shm/old_mappings.h"

#include <sys/mman.h>

#include "core/process_wide.h"
#include "core/side_thread.h"

namespace weft {
namespace {

constexpr size_t kPageBytes = 4096;
// Files that wait for their end there: as many as mappings before it.
constexpr size_t kMostEnding = OldMappings::kMost;

SideThread& Side() {
  static constinit ProcessWide<SideThread> side;
  return side.Get();
}

// What is left of a mapping. An old size of 0 maps the same pages once more (mremap(2)); it is
// refused for huge pages, of which there are few.
void UnmapLast(MutableByteSpan mapping) {
  void* const page = Side().waiting() < kMostEnding
                         ? mremap(mapping.data(), /*old_size=*/0, kPageBytes, MREMAP_MAYMOVE)
                         : MAP_FAILED;
  munmap(mapping.data(), mapping.size());
  if (page != MAP_FAILED) Side().Bring([page] { munmap(page, kPageBytes); });
}

}  // namespace

OldMappings::~OldMappings() {
  for (const MutableByteSpan mapping : line_) UnmapLast(mapping);
}

void OldMappings::Add(MutableByteSpan mapping) {
  if (line_.size() >= kMost) return UnmapLast(mapping);
  line_.push_back(mapping);
  if (has_some_ != nullptr) *has_some_ = true;
}

void OldMappings::UnmapPiece() {
  MutableByteSpan& mapping = line_.front();
  // Pages may be as large as the system likes, and larger than a piece.
  if (mapping.size() > kPieceBytes && munmap(mapping.data(), kPieceBytes) == 0) {
    mapping = mapping.subspan(kPieceBytes);
    return;
  }
  UnmapLast(mapping);
  line_.pop_front();
}

}  // namespace weft
