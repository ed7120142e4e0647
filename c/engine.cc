#include "c/engine.h"

#include <climits>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "c/host.h"
#include "c/status.h"
#include "core/clock.h"
#include "core/log.h"
#include "core/strings.h"
#include "transport/engine.h"

namespace weft::c {

absl::Status CheckNotInCallback(std::string_view function, const weft_engine& engine) {
  const EngineCore& core = CoreOf(*engine.engine);
  if (core.forked() || !core.InTurn()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      StrCat(function, "() in a callback of its own engine, for which it would wait"));
}

bool MayWait(std::string_view function, const weft_engine& engine) {
  const absl::Status may = CheckNotInCallback(function, engine);
  if (may.ok()) return true;
  WEFT_LOG(kError, ToStd(may.message()), ": nothing has happened, the program is wrong");
  return false;
}

absl::Status CheckUnused(const std::atomic<uint32_t>& uses, std::string_view whose) {
  const uint32_t left = uses.load(std::memory_order_acquire);
  if (left == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(
      StrCat(whose, ": ", left, " of them ", left == 1 ? "is" : "are", " not freed yet"));
}

}  // namespace weft::c

using weft::Engine;
using weft::EngineOptions;

weft_status* weft_engine_new(const weft_engine_options* options, weft_engine** engine) {
  WEFT_C_REQUIRE(engine);
  *engine = nullptr;
  weft_engine_options from;
  WEFT_C_RETURN_IF_ERROR(weft::c::ReadOptions("weft_engine_options", options, &from));
  WEFT_C_RETURN_IF_ERROR(weft::c::CheckReserved("weft_engine_options", from.reserved));
  if (from.drive < 0 || from.drive > WEFT_EXTERNAL) {
    return weft::c::ToC(absl::InvalidArgumentError(
        weft::StrCat("weft_engine_options: drive is ", from.drive, "; it is one of 1 to 3")));
  }
  EngineOptions to;
  if (from.drive != 0) to.drive = static_cast<EngineOptions::Drive>(from.drive);
  if (from.inbox_slots != 0) to.inbox_slots = static_cast<uint32_t>(from.inbox_slots);
  if (from.name != nullptr) to.name = from.name;
  if (from.spin_ns != 0 || from.no_spin != 0) to.spin_ns = from.spin_ns;
  auto given = std::make_unique<weft_engine>();
  if (from.now_ns != nullptr) to.clock = &given->clock.emplace(from.now_ns, from.now_arg);
  WEFT_C_RETURN_IF_ERROR(weft::c::ReadLog(from.log, &given->log, &to.log));
  absl::StatusOr<std::unique_ptr<Engine>> made = weft::OpenNetworkEngine(to);
  WEFT_C_RETURN_IF_ERROR(made.status());
  given->engine = made->get();
  given->owned = *std::move(made);
  given->drive = to.drive;
  *engine = given.release();
  return nullptr;
}

weft_status* weft_engine_free(weft_engine* engine) {
  if (engine == nullptr) return nullptr;
  if (engine->owned == nullptr) {
    return weft::c::ToC(weft::c::Invalid(
        __func__, "this engine is a channel's or a server's own, and goes with that"));
  }
  WEFT_C_RETURN_IF_ERROR(
      weft::c::CheckUnused(engine->uses, "the engine has channels, servers or exports"));
  WEFT_C_RETURN_IF_ERROR(weft::c::CheckNotInCallback(__func__, *engine));
  delete engine;
  return nullptr;
}

int weft_engine_poll(weft_engine* engine, int budget) {
  if (engine == nullptr) return 0;
  return engine->engine->Poll(budget > 0 ? budget : Engine::kDefaultBudget);
}

int weft_engine_fd(const weft_engine* engine) {
  if (engine == nullptr || engine->drive != EngineOptions::Drive::kExternal) return -1;
  return engine->engine->fd();
}

int weft_engine_arm(weft_engine* engine) {
  if (engine == nullptr || engine->drive != EngineOptions::Drive::kExternal) return 0;
  return engine->engine->Arm() ? 1 : 0;
}

int64_t weft_engine_timeout_ns(const weft_engine* engine) {
  if (engine == nullptr) return -1;
  const uint64_t timer_ns = engine->engine->NextTimerNs();
  if (timer_ns == weft::kNever) return -1;
  const uint64_t now_ns = engine->engine->clock().NowNs();
  return timer_ns <= now_ns ? 0 : static_cast<int64_t>(timer_ns - now_ns);
}

int weft_engine_timeout_ms(const weft_engine* engine) {
  const int64_t ns = weft_engine_timeout_ns(engine);
  if (ns < 0) return -1;
  const uint64_t ms = (static_cast<uint64_t>(ns) + weft::kNsPerMs - 1) / weft::kNsPerMs;
  return ms > INT_MAX ? INT_MAX : static_cast<int>(ms);
}

void weft_engine_adopt(weft_engine* engine) {
  if (engine == nullptr || engine->drive != EngineOptions::Drive::kExternal) return;
  engine->engine->Adopt();
}

weft_status* weft_engine_post(weft_engine* engine, weft_task task, void* arg) {
  WEFT_C_REQUIRE(engine);
  WEFT_C_REQUIRE(task);
  if (engine->engine->Post([task, arg] { task(arg); })) return nullptr;
  if (weft::CoreOf(*engine->engine).forked()) {
    return weft::c::ToC(weft::EngineCore::ForkedError());
  }
  return weft::c::ToC(absl::ResourceExhaustedError(
      "the engine's inbox is full (weft_engine_options: inbox_slots); try again later"));
}

int weft_engine_run_until(weft_engine* engine, int (*done)(void* arg), void* arg,
                          uint64_t timeout_us) {
  if (engine == nullptr || done == nullptr || weft::CoreOf(*engine->engine).InTurn()) return 0;
  uint64_t deadline_ns = weft::kNever;
  const uint64_t now_ns = engine->engine->clock().NowNs();
  if (timeout_us < (weft::kNever - now_ns) / weft::kNsPerUs) {
    deadline_ns = now_ns + timeout_us * weft::kNsPerUs;
  }
  int said = 0;
  engine->engine->RunUntil([&] { return (said = done(arg)) != 0; }, deadline_ns);
  return said;
}
