// One end of a link as its user sees it, and an operation over it, for tests: both remember what
// they were told.
//
// Threads: the test's.
#pragma once

#include <chrono>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "transport/link.h"
#include "transport/operation.h"

namespace weft {

// Bounds a hang, decides nothing: no test waits for time to pass.
inline constexpr std::chrono::seconds kTestPatience{30};

struct CountedOperation final : Operation {
  void OnComplete(const absl::Status& result) override {
    ++completions;
    status = result;
    if (on_complete) on_complete();
  }
  int completions = 0;
  absl::Status status = absl::UnknownError("not complete");
  std::function<void()> on_complete;
};

struct LinkEnd final : LinkHandler {
  void OnLinkUp() override { ++ups; }
  void OnLinkDown(const absl::Status& why) override {
    ++downs;
    down_status = why;
    if (on_down) on_down();
  }
  void OnSlotsFree() override { ++slots_free; }

  std::unique_ptr<Link> link;
  int ups = 0;
  int downs = 0;
  int slots_free = 0;
  absl::Status down_status;
  std::function<void()> on_down;
};

}  // namespace weft
