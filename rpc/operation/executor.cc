#include "rpc/operation/executor.h"

#include <utility>

#include "transport/engine.h"

namespace weft {

// Half of the inbox is for replies to calls that have run elsewhere, which wait for room there.
bool EngineExecutor::Run(Function<void()> task) {
  return !CoreOf(*engine_).inbox_is_half_full() && engine_->Post(std::move(task));
}

bool EngineExecutor::IsHere() const { return engine_->OnEngine(); }

}  // namespace weft
