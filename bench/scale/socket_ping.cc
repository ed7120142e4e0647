#include "bench/scale/socket_ping.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <utility>

#include "bench/machine/cpu.h"
#include "bench/perf/ends/run_clock.h"
#include "core/clock.h"
#include "core/status.h"

namespace weft::bench {
namespace {

constexpr size_t kBytes = 64;
constexpr int kReadyAtOnce = 64;
constexpr std::chrono::milliseconds kRestLook{1};

absl::Status Prepare(int fd) {
  const int on = 1;
  if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) == 0 &&
      fcntl(fd, F_SETFL, O_NONBLOCK) == 0) {
    return absl::OkStatus();
  }
  return StatusFromErrno(errno, "preparing a socket");
}

// 64 bytes fit, and come, in one piece.
bool Send(int fd, const char* bytes) {
  return send(fd, bytes, kBytes, MSG_NOSIGNAL) == static_cast<ssize_t>(kBytes);
}

}  // namespace

absl::StatusOr<std::unique_ptr<SocketPing>> SocketPing::Start(int cpu, uint32_t connections) {
  std::unique_ptr<SocketPing> ping(new SocketPing);
  WEFT_RETURN_IF_ERROR(ping->Connect(connections));
  ping->thread_ = std::thread([self = ping.get(), cpu] {
    PinThisThread(cpu).IgnoreError();
    self->Answer();
  });
  return ping;
}

SocketPing::~SocketPing() {
  stop_.store(true, std::memory_order_release);
  if (thread_.joinable()) thread_.join();
}

absl::Status SocketPing::Connect(uint32_t connections) {
  const Descriptor listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof(address);
  auto* const where = reinterpret_cast<sockaddr*>(&address);
  if (!listener.valid() || bind(listener.get(), where, bytes) != 0 ||
      listen(listener.get(), /*backlog=*/16) != 0 ||
      getsockname(listener.get(), where, &bytes) != 0) {
    return StatusFromErrno(errno, "listening on loopback");
  }
  ready_.Reset(epoll_create1(EPOLL_CLOEXEC));
  for (uint32_t i = 0; i < connections; ++i) {
    Descriptor active(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!active.valid() || connect(active.get(), where, sizeof(address)) != 0) {
      return StatusFromErrno(errno, "connecting over loopback");
    }
    Descriptor passive(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!passive.valid()) return StatusFromErrno(errno, "accepting over loopback");
    WEFT_RETURN_IF_ERROR(Prepare(active.get()));
    WEFT_RETURN_IF_ERROR(Prepare(passive.get()));
    epoll_event event = {};
    event.events = EPOLLIN;
    event.data.fd = passive.get();
    if (epoll_ctl(ready_.get(), EPOLL_CTL_ADD, passive.get(), &event) != 0) {
      return StatusFromErrno(errno, "watching a socket");
    }
    asking_.push_back(std::move(active));
    answering_.push_back(std::move(passive));
  }
  return absl::OkStatus();
}

void SocketPing::Answer() {
  char bytes[kBytes];
  epoll_event ready[kReadyAtOnce];
  while (!stop_.load(std::memory_order_relaxed)) {
    if (!serving_.load(std::memory_order_relaxed)) {
      std::this_thread::sleep_for(kRestLook);
      continue;
    }
    const int count = epoll_wait(ready_.get(), ready, kReadyAtOnce, /*timeout=*/0);
    for (int i = 0; i < count; ++i) {
      const int fd = ready[i].data.fd;
      if (recv(fd, bytes, kBytes, 0) > 0 && !Send(fd, bytes)) return;
    }
  }
}

absl::StatusOr<LatencyHistogram> SocketPing::Ask(double seconds) {
  char bytes[kBytes] = {};
  LatencyHistogram latency;
  const RunClock run(seconds);
  uint64_t now_ns = 0;
  for (size_t i = 0; !run.IsOver(now_ns) || latency.count() == 0; ++i) {
    const int fd = asking_[i % asking_.size()].get();
    const uint64_t start_ns = Clock::Real().NowNs();
    if (!Send(fd, bytes)) return absl::UnavailableError("a socket takes no 64 bytes");
    ssize_t got = -1;
    while (got < 0) {
      got = recv(fd, bytes, kBytes, 0);
      if (got < 0 && errno != EAGAIN) return StatusFromErrno(errno, "receiving over loopback");
    }
    if (got == 0) return absl::UnavailableError("the answering thread has gone");
    now_ns = Clock::Real().NowNs();
    if (run.IsCounted(start_ns)) latency.Record(now_ns - start_ns);
  }
  return latency;
}

}  // namespace weft::bench
