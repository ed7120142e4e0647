// Mappings of peers' files that are not used any more, which are unmapped by turns of the engine:
// to unmap 1 MiB that was touched takes 0.03 ms, and a peer that leaves may have had gigabytes.
//
// Where the peer is dead the end of its file's last mapping is the end of the file, whose pages the
// kernel frees then: 0.2 ms for 1 MiB, at once. That is left to another thread, where there may be
// one (core/side_thread.h): a page of the file is mapped once more for it. (Not so the whole
// mapping: who maps something waits for a munmap(2) of another thread, and for that thread to have
// a processor. 12 to 40 ms were seen.)
//
// Threads: the engine's. Lifetime: outlives the PeerFiles that use it; unmaps at last what it has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

#include "core/bytes.h"

namespace weft {

class OldMappings {
 public:
  // Unmapped at one time: 0.2 ms where all of it was touched, 2 us where nothing was.
  static constexpr size_t kPieceBytes = 8 << 20;
  // Mappings in line: those of two peers that had as many as one may have (PeerFiles::kMaxFiles)
  // and leave together. One more is unmapped at once.
  static constexpr size_t kMost = 64;

  // `has_some`: set when there is something to unmap. `may_start_threads`: as ShmOptions.
  explicit OldMappings(bool* has_some, bool may_start_threads = true)
      : has_some_(has_some), may_start_threads_(may_start_threads) {}
  ~OldMappings();
  OldMappings(const OldMappings&) = delete;
  OldMappings& operator=(const OldMappings&) = delete;

  void Add(MutableByteSpan mapping);
  bool empty() const { return line_.empty(); }
  // The next piece of the first one. False: nothing is left. REQUIRES: !empty().
  bool UnmapPiece();

 private:
  void UnmapLast(MutableByteSpan mapping);

  bool* const has_some_;
  const bool may_start_threads_;
  std::deque<MutableByteSpan> line_;
};

}  // namespace weft
