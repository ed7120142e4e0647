#include "examples/kv/client/closed_loop.h"

#include <utility>

#include "core/check.h"
#include "core/clock.h"

namespace kv::client {
namespace {

// Soon enough after Ctrl-C for a person, too rarely to cost anything.
constexpr uint64_t kLookIntervalNs = 50 * weft::kNsPerMs;

}  // namespace

ClosedLoop::ClosedLoop(weft::Engine& engine, uint32_t lanes, StartTask start)
    : engine_(weft::CoreOf(engine)), lanes_(lanes), start_(std::move(start)) {}

void ClosedLoop::Start() {
  WEFT_CHECK(engine_.Enter());
  for (uint32_t lane = 0; lane < lanes_ && !stopped_ && start_(lane); ++lane) ++active_;
  engine_.Leave();
}

void ClosedLoop::Run(absl::FunctionRef<bool()> go_on) {
  Start();
  if (active_ == 0) return;
  while (!engine_.Wait(all_ended_, engine_.clock().NowNs() + kLookIntervalNs)) {
    if (!go_on()) Stop();
  }
}

void ClosedLoop::Done(uint32_t lane) {
  if (!stopped_ && start_(lane)) return;
  if (--active_ == 0) engine_.Finish(all_ended_);
}

}  // namespace kv::client
