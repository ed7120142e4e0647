// Memory of this process that can be the near end of transfers. It comes out of a pool, whose
// memory is registered already (Channel::AllocateBuffer(), Server::AllocateBuffer()), or is made
// for memory that the application has: an arena, a buffer cache, a mapped file. Such memory is
// registered with each path when it is first used there; so give all of it once, and use slices
// of it.
//
//   auto buffer = channel->AllocateBuffer(8192);                  // StatusOr: the pool has a bound
//   pages->Read(page * 8192, (*buffer)->slice());
//
//   auto arena = weft::Buffer::Of(channel->engine(), bytes);
//   pages->Read(page * 8192, arena->slice(frame * 8192, 8192));
//
// Threads: made, sliced and destroyed on any; use slices as the functions that take them say.
// Lifetime: no operation on it is outstanding when it is destroyed. Only what a call has lent may
//   be pinned still (rpc/client/bulk_call.h), or what an operation has that has ended by its
//   deadline (rpc/memory/remote_memory.h), and only of a pool's buffer.
//   A pool's: it, or what is pinned of it, may outlive its pool, that is its Channel or Server.
//   bytes() stay good then; slices must not be used any more.
//   The application's: the bytes, and the engine, outlive it. The destructor closes the
//   registrations on the engine; as any blocking call, it waits for that (kExternal: on the owner's
//   thread, or while that one polls).
#pragma once

#include <cstddef>
#include <memory>

#include "core/bytes.h"
#include "core/function.h"
#include "transport/slice.h"

namespace weft {

class Engine;

class Buffer {
 public:
  // Of memory that the application has already. It registers nothing yet.
  static std::unique_ptr<Buffer> Of(Engine& engine, MutableByteSpan bytes);

  // For those who hand buffers out. The destructor calls `give_back`.
  // REQUIRES: all.valid().
  Buffer(const Slice& all, Function<void()> give_back);
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  // As many as were asked for.
  MutableByteSpan bytes() const { return bytes_; }

  // All of it, or `length` bytes from `offset` on. A slice that would leave the buffer is not
  // valid(): operations refuse it.
  Slice slice() const { return all_; }
  Slice slice(size_t offset, size_t length) const {
    const bool inside = offset <= all_.length && length <= all_.length - offset;
    if (!inside) return {nullptr, offset, length};
    return {all_.memory, all_.offset + offset, length};
  }

 private:
  const Slice all_;
  const MutableByteSpan bytes_;  // of all_
  Function<void()> give_back_;
};

}  // namespace weft
