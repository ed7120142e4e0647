// Memory that the application has already (an arena, a buffer cache, a mapped file), as the near
// end of one-sided transfers. It is registered with each path when it is first used there; so give
// all of it once, and use slices of it.
//
//   weft::ApplicationMemory arena(channel->engine(), bytes);
//   pages->Read(0, SliceOf(arena.memory(), frame * 8192, 8192));
//
// Threads: made and destroyed on any; use as the functions that take slices say.
// Lifetime: the bytes, and the engine, outlive it. No operation on it is outstanding when it is
//   destroyed. The destructor closes the registrations on the engine, and waits for that.
#pragma once

#include <optional>

#include "core/bytes.h"
#include "rpc/bulk/slice.h"
#include "transport/local_memory.h"

namespace weft {

class Engine;
class EngineCore;

class ApplicationMemory {
 public:
  ApplicationMemory(Engine& engine, MutableByteSpan bytes);
  ~ApplicationMemory();
  ApplicationMemory(const ApplicationMemory&) = delete;
  ApplicationMemory& operator=(const ApplicationMemory&) = delete;

  LocalMemory& memory() { return *memory_; }
  MutableByteSpan bytes() const { return memory_->bytes(); }

 private:
  EngineCore& engine_;
  std::optional<LocalMemory> memory_;
};

}  // namespace weft
