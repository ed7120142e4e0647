// What channels, servers and engines let a program choose of memory and of waiting.
//
// Threads: plain values.
#pragma once

#include <cstdint>

namespace weft {

// --- waiting (engine.h) --------------------------------------------------------------------------

inline constexpr uint64_t kSpinForever = ~uint64_t{0};

// Twice what waking a thread costs in a virtual machine (about 25 us), and above a round trip over
// tcp on one host: who spins for the price of a sleep never pays more than twice the best choice.
inline constexpr uint64_t kDefaultSpinNs = 50'000;

// --- memory (mapped_memory.h, buffer.h) ----------------------------------------------------------

struct MappedMemoryOptions {
  enum class HugePages : uint8_t {
    kTry = 1,      // where there are some
    kNever = 2,    // small pages
    kRequire = 3,  // reserved ones, or RESOURCE_EXHAUSTED
  };
  enum class Source : uint8_t {
    kAnonymous = 1,  // of this process alone
    kMemfd = 2,      // a file without a name (memory_file.h): descriptor() can be passed on
  };
  HugePages huge_pages = HugePages::kTry;
  Source source = Source::kAnonymous;
  // Of a kMemfd that is not of an arena; false: the kernel lets peers map it for reading only
  // (Linux 5.1).
  bool peers_may_write = true;
  int numa_node = -1;  // preferred; -1: the engine's, in a buffer pool of one that has a node; else
                       // that of the thread that first touches a page, or that maps huge pages of
                       // a file. Best effort
};

struct BufferPoolOptions {
  // Behaviour.
  // Huge pages, NUMA node, and where the memory comes from. In a file in memory, peers on this host
  // copy to and from it without a system call; kAnonymous is for programs that fork and go on using
  // it on both sides (mapped_memory.h).
  MappedMemoryOptions memory = {.source = MappedMemoryOptions::Source::kMemfd};
  // Performance.
  // All slabs together, in use or idle; at least 2 MiB; mapped as needed. The default is sixteen of
  // the largest messages; lower, Allocate() refuses sooner.
  uint64_t max_bytes = uint64_t{1} << 30;
};

// Engines of one server, or of one channel: a token of a connection over tcp names its engine in
// six bits.
inline constexpr uint32_t kMaxEngines = 64;

// Bytes of all exports of one engine together (exports.h), unless
// NetworkOptions::max_exported_bytes says otherwise. Exports take no memory of their own: the bound
// is there so that a mistaken length does not offer the address space to peers. 1 TiB is more than
// one process serves.
inline constexpr uint64_t kDefaultExportedBytes = uint64_t{1} << 40;

}  // namespace weft
