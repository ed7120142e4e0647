// A host's own allocator for the memory that Weft takes in blocks, and how much of it there is.
//
//   static void* Take(size_t bytes, size_t alignment, weft::MemoryKind kind, void* pool) {
//     void* const memory = static_cast<HostPool*>(pool)->Allocate(bytes, alignment);
//     const bool peers_see_it =
//         kind == weft::MemoryKind::kSlots || kind == weft::MemoryKind::kBuffers;
//     if (memory != nullptr && peers_see_it) std::memset(memory, 0, bytes);
//     return memory;
//   }
//   static void Give(void* memory, size_t bytes, size_t alignment, weft::MemoryKind kind,
//                    void* pool) {
//     static_cast<HostPool*>(pool)->Free(memory, bytes, alignment);
//   }
//
//   weft::SetMemoryHooks({.take = Take, .give = Give, .context = &pool});   // before all else
//   ...
//   const weft::MemoryReport memory = weft::MemoryUsage();
//   Log(memory.total.bytes, memory.total.peak_bytes, memory.of(weft::MemoryKind::kBuffers).bytes);
//
// Blocks are what grows with connections, and with what travels. They are taken when an engine, a
// connection or a buffer is made, or when more is under way than ever before, and never on the way
// of a usual call. Without hooks they come from the system (mmap(2), or operator new).
//
// WHAT DOES NOT PASS HERE, and is not counted: messages and what waits as such (requests, replies
// and streams' messages in memory beyond the first 1 KiB of each call at a server, records of
// calls, frames that a slow peer has not taken: each bounded by an option of its own), coroutines'
// frames but for the one of up to 16 KiB that each call at a server keeps, objects that are no
// connections, strings; and all that Weft is built from: the standard library, Abseil, protobuf,
// OpenSSL, libfabric, c-ares, libcurl. They use operator new and malloc(), and a host that wants to
// see them puts its own in the place of those. What peers share is counted, as kShared, and comes
// from the kernel in any case (memfd_create(2)): another process maps it. What is mapped of a
// peer's is the peer's, and not counted. A simulated network's memory is not either.
//
// Threads: all functions from any. The hooks are called on any thread, on several at once, without
//   a lock of Weft's that a fork waits for: they may wait for locks that the host holds over its
//   forks (pthread_atfork(3)). They call nothing of Weft.
// Lifetime: hooks and context stay until the process ends.
// Errors: what a null of take() does. A host with a limit keeps a reserve for all but kBuffers.
//   kind      taken when                                          null
//   kBuffers  a buffer, an export, a large message                RESOURCE_EXHAUSTED
//   kSlots    a connection over RDMA is made                      RESOURCE_EXHAUSTED
//             more is sent over tcp than ever before              sends wait for a slot
//             a large frame comes over tcp; a ring in shared      that connection ends
//             memory is full for the first time
//             an engine begins with shared memory, or with tcp    the process ends
//   kObjects  an engine, a server, a channel or a connection is   the process ends, as where
//   kTables   made, or more calls of one run than ever before     operator new has none
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"

namespace weft {

enum class MemoryKind : uint8_t {
  kObjects = 0,  // connections, and what else there is one of for each: chunks of 2 MiB for many
  kTables = 1,  // slabs, and engines' inboxes: made for the most that may be, and filled as needed;
                // what each call at a server keeps for the next one
  kSlots = 2,   // of small messages, to be sent or received: of tcp and RDMA; beside the rings
  kBuffers = 3,  // of large messages, attachments and bulk payloads; exports that are not shared
  kShared = 4,   // the same of kMemfd; rings and doorbells. Not from hooks
};
inline constexpr size_t kMemoryKinds = 5;

struct MemoryHooks {
  // `bytes` at a multiple of `alignment`, a power of two of up to 2 MiB; null: there is no memory.
  // Of kSlots and kBuffers it is zeros: peers may see what their last user left. Options for huge
  // pages and NUMA nodes (MappedMemoryOptions) say nothing of this memory: its host decides.
  // RDMA registers it, which pins its pages.
  void* (*take)(size_t bytes, size_t alignment, MemoryKind kind, void* context) = nullptr;
  // What take() gave for so many bytes, and this alignment: as for a sized operator delete.
  void (*give)(void* memory, size_t bytes, size_t alignment, MemoryKind kind,
               void* context) = nullptr;
  void* context = nullptr;
};

// For the whole process, and once. INVALID_ARGUMENT: one of the two is null. FAILED_PRECONDITION:
// there are hooks, or Weft has taken memory already: an engine, a channel or a server is, or was.
absl::Status SetMemoryHooks(const MemoryHooks& hooks);

struct MemoryAmount {
  uint64_t bytes = 0;       // now. Of addresses: what was never touched costs no memory
  uint64_t peak_bytes = 0;  // since the process began
};

struct MemoryReport {
  MemoryAmount total;  // its peak: of the sum
  std::array<MemoryAmount, kMemoryKinds> by_kind;

  const MemoryAmount& of(MemoryKind kind) const { return by_kind[static_cast<size_t>(kind)]; }
};

// Of all engines in this process; the amounts are read one after the other.
MemoryReport MemoryUsage();

}  // namespace weft
