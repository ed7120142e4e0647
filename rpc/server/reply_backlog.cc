#include "rpc/server/reply_backlog.h"

#include "core/clock.h"
#include "core/strings.h"

namespace weft {

void ReplyBacklog::Add(uint64_t bytes) {
  bytes_ += bytes;
  if (++replies_ == 1) return Watch();
  if (bytes_ <= options_.max_unsent_reply_bytes) return;
  on_slow_(StrCat("the client takes its replies too slowly: ", bytes_, " bytes wait for it; ",
                  options_.max_unsent_reply_bytes, " may (ServerOptions::max_unsent_reply_bytes)"));
}

void ReplyBacklog::Remove(uint64_t bytes) {
  bytes_ -= bytes;
  --replies_;
  Watch();
}

void ReplyBacklog::Watch() {
  if (replies_ == 0) return engine_.timers().Cancel(this);
  if (options_.reply_timeout_us == 0) return;
  const uint64_t most_ns = options_.reply_timeout_us * kNsPerUs;
  engine_.timers().Schedule(this, engine_.clock().NowNs() + most_ns);
}

void ReplyBacklog::OnTimer() {
  on_slow_(StrCat("the client has taken none of ", replies_, " replies for ",
                  options_.reply_timeout_us, " us (ServerOptions::reply_timeout_us)"));
}

}  // namespace weft
