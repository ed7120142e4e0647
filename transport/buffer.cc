#include "transport/buffer.h"

#include <utility>

#include "core/fork_guard.h"
#include "transport/close_on_engine.h"
#include "transport/engine.h"

namespace weft {

std::unique_ptr<Buffer> Buffer::Of(Engine& engine, MutableByteSpan bytes) {
  auto memory = std::make_unique<LocalMemory>(bytes, /*keeper=*/nullptr, /*engines=*/1,
                                              engine.transport().first_path_number());
  const Slice all = {memory.get(), 0, bytes.size()};
  return std::make_unique<Buffer>(all,
                                  [&core = CoreOf(engine), memory = std::move(memory)]() mutable {
                                    if (core.forked()) return LeaveBehind(std::move(memory));
                                    CloseOnEngine(core, [&] { memory->DropRegions(); });
                                  });
}

Buffer::Buffer(const Slice& all, Function<void()> give_back)
    : all_(all), bytes_(all.bytes()), give_back_(std::move(give_back)) {}

Buffer::~Buffer() { give_back_(); }

}  // namespace weft
