#include "rpc/memory/application_memory.h"

#include "rpc/operation/on_engine.h"
#include "transport/engine.h"

namespace weft {

ApplicationMemory::ApplicationMemory(Engine& engine, MutableByteSpan bytes)
    : engine_(CoreOf(engine)), memory_(bytes) {}

ApplicationMemory::~ApplicationMemory() {
  RunOnEngine(engine_, [this] { memory_.reset(); });
}

}  // namespace weft
