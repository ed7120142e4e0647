// Mappings of peers' files that are not used any more, which are unmapped by turns of the engine:
// to unmap 1 MiB that was touched takes 0.03 ms, and a peer that leaves may have had gigabytes. Or
// terabytes of nothing: a sparse file costs its peer three system calls. So a piece that takes next
// to no time doubles the next one.
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
#include "core/clock.h"

namespace weft {

class OldMappings {
 public:
  // Unmapped at one time: 0.2 ms where all of it was touched, 2 us where nothing was.
  static constexpr size_t kPieceBytes = 8 << 20;
  // Behind a piece that took less than kFastNs twice as much, up to this: 2 ms where all of it was
  // touched after all, and 16,384 turns for 1 TiB of nothing.
  static constexpr size_t kMostPieceBytes = 64 << 20;
  static constexpr uint64_t kFastNs = 10 * kNsPerUs;
  // In line: the mappings of two peers that had as many as one may have (PeerFiles::kMaxFiles) and
  // leave together; and addresses, of which a process has 128 TiB. Beyond either the largest goes
  // at once: what is larger than a host's memory is empty for the most part.
  static constexpr size_t kMost = 64;
  static constexpr uint64_t kMostBytes = uint64_t{1} << 40;

  struct Options {
    bool may_start_threads = true;  // as ShmOptions
    const Clock* clock = &Clock::Real();
  };
  // `has_some`: set when there is something to unmap.
  OldMappings(bool* has_some, const Options& options) : has_some_(has_some), options_(options) {}
  ~OldMappings();
  OldMappings(const OldMappings&) = delete;
  OldMappings& operator=(const OldMappings&) = delete;

  void Add(MutableByteSpan mapping);
  bool empty() const { return line_.empty(); }
  // The next piece of the first one. REQUIRES: !empty().
  void UnmapPiece();

 private:
  void UnmapLast(MutableByteSpan mapping);

  bool* const has_some_;
  const Options options_;
  std::deque<MutableByteSpan> line_;
  uint64_t line_bytes_ = 0;
  size_t piece_bytes_ = kPieceBytes;
};

}  // namespace weft
