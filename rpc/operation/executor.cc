#include "rpc/operation/executor.h"

#include <utility>

#include "weft/engine.h"

namespace weft {

bool EngineExecutor::Run(Function<void()> task) { return engine_->Post(std::move(task)); }

bool EngineExecutor::IsHere() const { return engine_->OnEngine(); }

}  // namespace weft
