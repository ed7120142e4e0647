// Calls that a handler makes to answer its own: what joins the two ends.
#include <memory>
#include <string_view>

#include "core/clock.h"
#include "rpc/client/call_context.h"
#include "rpc/client/client_context.h"
#include "rpc/server/server_context.h"
#include "rpc/wire/metadata.h"

namespace weft {

std::unique_ptr<ClientContext> ClientContext::FromServerContext(ServerContext& context) {
  auto made = std::make_unique<ClientContext>();
  CallContext& call = ContextOf(*made);
  for (std::string_view key : {"traceparent", "tracestate"}) {
    const std::string* const value = context.metadata().Find(key);
    // It has been checked when it came, and there is room for it.
    if (value != nullptr) static_cast<void>(made->AddMetadata(key, *value));
  }
  const uint64_t deadline_ns = internal::DeadlineNs(context);
  if (deadline_ns != ServerContext::kNoDeadline) {
    call.LimitTime(deadline_ns, context.remaining_us());
  }
  internal::CancelWith(context, call.weak_from_this());
  return made;
}

}  // namespace weft
