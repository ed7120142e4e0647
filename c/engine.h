// weft_engine: an engine of the program's, or that of a channel or a server.
//
// Threads: as Engine; counts from any.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "core/clock.h"
#include "core/log.h"
#include "weft/c.h"
#include "weft/engine.h"

namespace weft::c {

// A program's.
class HostClock final : public Clock {
 public:
  HostClock(uint64_t (*now_ns)(void* arg), void* arg) : now_ns_(now_ns), arg_(arg) {}
  uint64_t NowNs() const override { return now_ns_(arg_); }

 private:
  uint64_t (*const now_ns_)(void* arg);
  void* const arg_;
};

}  // namespace weft::c

struct weft_engine {
  std::optional<weft::c::HostClock> clock;  // none: the real one
  std::optional<weft::Log> log;             // none: the process's
  weft::Engine* engine = nullptr;
  std::unique_ptr<weft::Engine> owned;  // null: the channel's or server's that this is part of
  weft::EngineOptions::Drive drive = weft::EngineOptions::Drive::kCaller;
  std::atomic<uint32_t> uses{0};  // what is on it, and not freed
};

namespace weft::c {

// One object that stands in the way of another one's free.
class Use {
 public:
  Use() = default;
  explicit Use(std::atomic<uint32_t>& uses) : uses_(&uses) {
    uses_->fetch_add(1, std::memory_order_relaxed);
  }
  Use(Use&& from) noexcept : uses_(from.uses_) { from.uses_ = nullptr; }
  Use& operator=(Use&& from) noexcept {
    std::swap(uses_, from.uses_);
    return *this;
  }
  ~Use() {
    if (uses_ != nullptr) uses_->fetch_sub(1, std::memory_order_release);
  }

 private:
  std::atomic<uint32_t>* uses_ = nullptr;
};

// FAILED_PRECONDITION: this is a callback of the engine, in which nobody can wait for it.
absl::Status CheckNotInCallback(std::string_view function, const weft_engine& engine);
// The same for a function that has no status: false, and a line of the log.
bool MayWait(std::string_view function, const weft_engine& engine);

// FAILED_PRECONDITION: `uses` of these are left.
absl::Status CheckUnused(const std::atomic<uint32_t>& uses, std::string_view whose);

}  // namespace weft::c
