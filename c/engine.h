// weft_engine: an engine of the program's, or that of a channel or a server.
//
// Threads: as Engine; counts from any.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "weft/c.h"
#include "weft/engine.h"

struct weft_engine {
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

// FAILED_PRECONDITION: `uses` of these are left.
absl::Status CheckUnused(const std::atomic<uint32_t>& uses, std::string_view whose);

}  // namespace weft::c
