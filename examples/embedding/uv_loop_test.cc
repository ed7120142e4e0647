// Weft in a libuv loop: the contract of loops.
#include "examples/embedding/uv_loop.h"

#include <utility>

#include "examples/embedding/loop_contract.h"

namespace {

// Made before what watches it, and closed behind it.
struct OwnLoop {
  OwnLoop() { EXPECT_EQ(uv_loop_init(&loop), 0); }
  ~OwnLoop() { EXPECT_EQ(uv_loop_close(&loop), 0); }
  uv_loop_t loop;
};

class UvProgram {
 public:
  explicit UvProgram(weft::Engine& engine) : weft_(&own_.loop, engine) {
    timer_.data = this;
    uv_timer_init(&own_.loop, &timer_);
  }

  // The loop ends when it has no handle any more.
  void Run() { uv_run(&own_.loop, UV_RUN_DEFAULT); }
  void Stop() {
    weft_.Close();
    uv_close(reinterpret_cast<uv_handle_t*>(&timer_), nullptr);
  }
  void Later(std::function<void()> what) {
    later_ = std::move(what);
    const auto fire = [](uv_timer_t* timer) {
      std::exchange(static_cast<UvProgram*>(timer->data)->later_, nullptr)();
    };
    uv_timer_start(&timer_, fire, /*timeout=*/1, /*repeat=*/0);
  }

 private:
  OwnLoop own_;
  UvLoop weft_;
  uv_timer_t timer_ = {};
  std::function<void()> later_;
};

INSTANTIATE_TYPED_TEST_SUITE_P(Uv, LoopTest, UvProgram);

}  // namespace
