#include "rpc/operation/executor.h"

#include <utility>

#include "weft/engine.h"

namespace weft {

bool EngineExecutor::Run(Function<void()> task) { return engine_->Post(std::move(task)); }

Executor* EngineExecutor::For(const IncomingCall&) { return engine_->OnEngine() ? nullptr : this; }

}  // namespace weft
