#include "transport/shm/old_mappings.h"

#include <sys/mman.h>

#include "core/process_wide.h"
#include "core/side_thread.h"

namespace weft {
namespace {

constexpr size_t kPageBytes = 4096;
// Files whose end may wait on that thread: as many as mappings before it.
constexpr size_t kMostEnding = OldMappings::kMost;

// For this alone: a close that a stranger makes wait must not hold up others.
SideThread& Side() {
  static constinit ProcessWide<SideThread> side;
  return side.Get();
}

}  // namespace

OldMappings::~OldMappings() {
  for (const MutableByteSpan mapping : line_) UnmapLast(mapping);
}

void OldMappings::Add(MutableByteSpan mapping) {
  if (line_.size() >= kMost) return UnmapLast(mapping);
  line_.push_back(mapping);
  *has_some_ = true;
}

bool OldMappings::UnmapPiece() {
  MutableByteSpan& mapping = line_.front();
  // munmap(2) refuses a part of a huge page (of 1 GiB).
  if (mapping.size() > kPieceBytes && munmap(mapping.data(), kPieceBytes) == 0) {
    mapping = mapping.subspan(kPieceBytes);
    return true;
  }
  UnmapLast(mapping);
  line_.pop_front();
  return !line_.empty();
}

// What is left of a mapping. An old size of 0 maps the same pages once more (mremap(2)); it is
// refused for huge pages, of which there are few.
void OldMappings::UnmapLast(MutableByteSpan mapping) {
  void* const page = may_start_threads_ && Side().waiting() < kMostEnding
                         ? mremap(mapping.data(), /*old_size=*/0, kPageBytes, MREMAP_MAYMOVE)
                         : MAP_FAILED;
  munmap(mapping.data(), mapping.size());
  if (page != MAP_FAILED) Side().Bring([page] { munmap(page, kPageBytes); });
}

}  // namespace weft
