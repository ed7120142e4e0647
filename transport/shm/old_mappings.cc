#include "transport/shm/old_mappings.h"

#include <sys/mman.h>

#include <algorithm>

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
  line_.push_back(mapping);
  line_bytes_ += mapping.size();
  *has_some_ = true;
  while (line_.size() > kMost || line_bytes_ > kMostBytes) {
    const auto largest = std::max_element(
        line_.begin(), line_.end(),
        [](const MutableByteSpan& a, const MutableByteSpan& b) { return a.size() < b.size(); });
    line_bytes_ -= largest->size();
    UnmapLast(*largest);
    line_.erase(largest);
  }
}

void OldMappings::UnmapPiece() {
  MutableByteSpan& mapping = line_.front();
  const size_t bytes = std::min(piece_bytes_, mapping.size());
  line_bytes_ -= bytes;
  const uint64_t begin_ns = options_.clock->NowNs();
  // munmap(2) refuses a part of a huge page (of 1 GiB).
  if (bytes < mapping.size() && munmap(mapping.data(), bytes) == 0) {
    const bool is_fast = options_.clock->NowNs() - begin_ns < kFastNs;
    piece_bytes_ = is_fast ? std::min(2 * bytes, kMostPieceBytes) : kPieceBytes;
    mapping = mapping.subspan(bytes);
    return;
  }
  line_bytes_ -= mapping.size() - bytes;
  piece_bytes_ = kPieceBytes;
  UnmapLast(mapping);
  line_.pop_front();
}

// What is left of a mapping. An old size of 0 maps the same pages once more (mremap(2)); it is
// refused for huge pages, of which there are few.
void OldMappings::UnmapLast(MutableByteSpan mapping) {
  void* const page = options_.may_start_threads && Side().waiting() < kMostEnding
                         ? mremap(mapping.data(), /*old_size=*/0, kPageBytes, MREMAP_MAYMOVE)
                         : MAP_FAILED;
  munmap(mapping.data(), mapping.size());
  if (page != MAP_FAILED) Side().Bring([page] { munmap(page, kPageBytes); });
}

}  // namespace weft
