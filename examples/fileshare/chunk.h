// Files travel in chunks: the unit of a call, of a transfer, and of the buffers on both sides.
//
// 1 MiB: far beyond the size where a call's own cost matters (a few us beside some 100 us), and
// eight of them under way are 8 MiB of memory on each side.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace fileshare {

inline constexpr size_t kChunkBytes = size_t{1} << 20;
// Bounds what an upload makes a server remember: a bit for each chunk, 128 KiB.
inline constexpr uint64_t kMaxFileBytes = uint64_t{1} << 40;

// Chunks of a file; an empty one has none.
constexpr uint64_t ChunksOf(uint64_t file_bytes) {
  return (file_bytes + kChunkBytes - 1) / kChunkBytes;
}

// REQUIRES: chunk < ChunksOf(file_bytes).
constexpr size_t BytesOfChunk(uint64_t file_bytes, uint64_t chunk) {
  return static_cast<size_t>(std::min<uint64_t>(kChunkBytes, file_bytes - chunk * kChunkBytes));
}

}  // namespace fileshare
