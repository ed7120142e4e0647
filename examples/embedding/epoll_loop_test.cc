// Weft in an epoll loop: the contract of loops.
#include "examples/embedding/epoll_loop.h"

#include <sys/timerfd.h>
#include <unistd.h>

#include <utility>

#include "examples/embedding/loop_contract.h"

namespace {

struct Descriptor {
  ~Descriptor() { close(fd); }
  const int fd;
};

class EpollProgram {
 public:
  explicit EpollProgram(weft::Engine& engine) : weft_(epoll_.fd, engine) {
    epoll_event event = {.events = EPOLLIN, .data = {.fd = timer_.fd}};
    epoll_ctl(epoll_.fd, EPOLL_CTL_ADD, timer_.fd, &event);
  }

  void Run() {
    while (!stopped_) {
      epoll_event events[8];
      const int ready = weft_.Wait(events, 8);
      for (int i = 0; i < ready; ++i) OnTimer(events[i].data.fd);
    }
  }
  void Stop() { stopped_ = true; }
  void Later(std::function<void()> what) {
    later_ = std::move(what);
    const itimerspec once = {.it_interval = {}, .it_value = {.tv_sec = 0, .tv_nsec = 1'000'000}};
    timerfd_settime(timer_.fd, 0, &once, nullptr);
  }

 private:
  void OnTimer(int fd) {
    ASSERT_EQ(fd, timer_.fd);  // and never the engine's
    uint64_t times = 0;
    if (read(timer_.fd, &times, sizeof(times)) == sizeof(times)) std::exchange(later_, nullptr)();
  }

  Descriptor epoll_ = {epoll_create1(EPOLL_CLOEXEC)};
  Descriptor timer_ = {timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)};
  EpollLoop weft_;
  std::function<void()> later_;
  bool stopped_ = false;
};

INSTANTIATE_TYPED_TEST_SUITE_P(Epoll, LoopTest, EpollProgram);

}  // namespace
