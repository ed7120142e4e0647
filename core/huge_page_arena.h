// Memory for objects that live as long as a connection, side by side.
//
// A process may have thousands of connections that are used in turn. Each has some objects, of
// which a call touches a few lines. From malloc() these lie on as many pages as there are objects,
// between whatever else was allocated meanwhile; then a call misses not only the caches but, for
// each object, the processor's translations too, and the tables behind them. Here they lie in
// chunks of 2 MiB, on huge pages where the kernel has some: one translation for the objects of
// hundreds of connections. See docs/performance.md, "Many connections".
//
//   class Thing : public InHugePageArena { ... };   // new and delete go here
//
// The first chunk of a process stays on ordinary pages until half of it was needed: a process with
// few connections pays for what it uses.
//
// Threads: any. A mutex: for setting up and tearing down, not for the way of a call.
// Lifetime: a chunk whose objects are all gone is given back to the system.
// Errors: none; like operator new without exceptions, it aborts when there is no memory. With a
//   host's hooks (core/memory_hooks.h) chunks are the host's, and so is what pages they lie on.
// Bound: what lives here is bounded by who makes it: connections by ListenOptions::max_connections
//   and the like. Free memory in between is at most what there was at the worst moment.
// Invariants: memory is aligned to, and takes, whole cache lines: no two objects share one.
#pragma once

#include <cstddef>

namespace weft {

class HugePageArena {
 public:
  static constexpr std::size_t kChunkBytes = std::size_t{2} << 20;  // a huge page
  // Larger ones are blocks of their own.
  static constexpr std::size_t kMaxObjectBytes = std::size_t{32} << 10;

  static void* Take(std::size_t bytes);
  // REQUIRES: `memory` is what Take(bytes) gave.
  static void Give(void* memory, std::size_t bytes);

  // Chunks that there are now. For tests.
  static std::size_t chunks();
};

class InHugePageArena {
 public:
  static void* operator new(std::size_t bytes) { return HugePageArena::Take(bytes); }
  static void operator delete(void* memory, std::size_t bytes) {
    HugePageArena::Give(memory, bytes);
  }

 protected:
  ~InHugePageArena() = default;
};

}  // namespace weft
