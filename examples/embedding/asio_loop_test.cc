// Weft in an asio loop: the contract of loops.
#include "examples/embedding/asio_loop.h"

#include "examples/embedding/loop_contract.h"

namespace {

class AsioProgram {
 public:
  explicit AsioProgram(weft::Engine& engine) : weft_(context_, engine), timer_(context_) {}

  void Run() { weft_.Run(); }
  void Stop() { context_.stop(); }
  void Later(std::function<void()> what) {
    timer_.expires_after(std::chrono::milliseconds(1));
    timer_.async_wait([what](const asio::error_code& error) {
      if (!error) what();
    });
  }

 private:
  asio::io_context context_;
  AsioLoop weft_;
  asio::steady_timer timer_;
};

INSTANTIATE_TYPED_TEST_SUITE_P(Asio, LoopTest, AsioProgram);

}  // namespace
