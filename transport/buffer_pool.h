// Buffers for an application's bulk data, out of memory that is registered once and used for ever.
//
// A slab is one mapping with one LocalMemory: the first transfer from or into any of its buffers
// registers all of it with that path; all later ones, of all its buffers, find the registration
// there. Buffers come in powers of two. Those of up to 2 MiB share slabs of 2 MiB (one huge page);
// a larger one is a slab of its own; above 64 MiB the sizes are multiples of 2 MiB instead. A
// buffer that came back is used again as it is: its bytes are what its last user left there. (So
// lend peers only what was written. Fresh slabs are zeros.)
//
//   absl::StatusOr<std::unique_ptr<Buffer>> buffer = pool->Allocate(size_t{1} << 20);
//   ... fill (*buffer)->bytes(), then on the engine's thread:
//   const Slice slice = (*buffer)->slice();
//   absl::StatusOr<const Region*> region = slice.memory->For(connection);
//   const Transfer transfer = {*region, slice.offset, remote};
//   connection.memory().Post(TransferKind::kWrite, {&transfer, 1}, op);
//
// What becomes of a buffer:
//   in use   Allocate(). -> idle: its Buffer is destroyed and the last pin is gone
//   idle     its cell waits for the next Allocate() of its size; a slab whose cells are all idle
//            serves any size of up to 2 MiB, or is unmapped when the bound is reached.
//
// Of a server whose clients share a pool, what one client has is counted by slabs, of which it
// leaves some to others (core/client_shares.h): a slab that has a buffer of a client in use has
// none of anybody else's. Otherwise a client that had filled all slabs, and then kept one small
// buffer in each, would have little by the bytes of its buffers, and others could have none of
// another size. The price: a client that uses little of a size has 2 MiB for it nevertheless.
//
// Several engines may use one pool (Server::AllocateBuffer()): each registers a slab for itself.
// Such a pool keeps what it has mapped, for no engine can unmap what the others have registered;
// and its buffers are not for operations that may be late (LocalMemory::CheckPinnable()), so not
// for channels.
//
// Of an engine that has a NUMA node (EngineOptions::numa_node) the memory lies there, unless
// BufferPoolOptions::memory names another.
//
// Threads: any; slow paths lock.
// Lifetime: the pool is destroyed before its Engine, when no operation on its memory is
//   outstanding, but for those that are late and have pinned it (LocalMemory::Pin()); from any
//   thread, and it closes the registrations on the engine, that of pinned memory with the last pin:
//   as any blocking call, it waits for that (kExternal: on the owner's thread, or while that one
//   polls). Buffers may outlive it: their bytes() stay good, their slices must not be used any
//   more.
// Errors: RESOURCE_EXHAUSTED: max_bytes, by name, a client's share of it, or the system has no
//   memory.
// Invariants: mapped_bytes() <= max_bytes. Buffers in use of one slab are of one client.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "transport/buffer.h"
#include "transport/mapped_memory.h"
#include "transport/options.h"

namespace weft {

class BufferPoolCore;
class Engine;
class EngineCore;

class BufferPool {
 public:
  static constexpr size_t kMinBufferBytes = size_t{4} << 10;  // a page: nothing smaller is worth
                                                              // a transfer of its own
  static constexpr size_t kMaxClassBytes = size_t{64} << 20;
  static constexpr size_t kSlabBytes = kHugePageBytes;
  // An engine that is driven closes registrations in far less; one that nobody drives never does.
  static constexpr uint64_t kTrimPatienceNs = 1'000'000'000;

  // `engine` outlives the pool; its connections are those that the memory is used with.
  explicit BufferPool(Engine* engine, const BufferPoolOptions& options = {});
  // Of engines that were opened with consecutive numbers (transport/network.h).
  BufferPool(std::vector<EngineCore*> engines, const BufferPoolOptions& options);
  ~BufferPool();
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  // 1 byte or more, at a multiple of 4 KiB. A few hundred nanoseconds when there is an idle buffer
  // of the size, and some more for each slab of that size that other clients have in use and not
  // full: it looks through these, with the pool's lock held, for the client's own. (There are
  // max_bytes / 2 MiB at most: 128 with 256 MiB.) Where the bound is reached and idle slabs have to
  // go first, it runs on the engine or waits for it, for kTrimPatienceNs at most.
  // `client`: whom the buffer is for (PathInfo::client); 0: nobody in particular, without a limit
  // but max_bytes.
  absl::StatusOr<std::unique_ptr<Buffer>> Allocate(size_t bytes, uint64_t client = 0);

  uint64_t max_bytes() const;
  uint64_t mapped_bytes() const;
  uint64_t buffers() const;  // in use, or pinned
  // The kind of pages of the newest slab; kSmall before there is one.
  MappedMemory::Pages pages() const;

 private:
  const std::vector<EngineCore*> engines_;      // at least one
  const std::shared_ptr<BufferPoolCore> core_;  // outlives the pool while buffers are out
};

}  // namespace weft
