#include "examples/process/stop_signal.h"

#include <pthread.h>

#include "core/check.h"

namespace examples {

StopSignal::StopSignal() {
  sigemptyset(&signals_);
  sigaddset(&signals_, SIGINT);
  sigaddset(&signals_, SIGTERM);
  WEFT_CHECK(pthread_sigmask(SIG_BLOCK, &signals_, nullptr) == 0);
}

int StopSignal::Wait() {
  while (received_ == 0) {
    int signal = 0;
    if (sigwait(&signals_, &signal) == 0) received_ = signal;
  }
  return received_;
}

bool StopSignal::Requested() {
  constexpr timespec kNoWait = {};
  if (received_ == 0) {
    const int signal = sigtimedwait(&signals_, nullptr, &kNoWait);
    if (signal > 0) received_ = signal;  // else: EAGAIN, none has come
  }
  return received_ != 0;
}

}  // namespace examples
