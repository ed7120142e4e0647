#include "bench/peers/socket_ends.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "bench/perf/ends/pipe.h"
#include "bench/perf/ends/run_clock.h"
#include "core/clock.h"
#include "core/histogram.h"
#include "core/status.h"
#include "core/strings.h"

namespace weft::bench {
namespace {

// At most so much in one system call: the largest message of the matrix.
constexpr size_t kChunkBytes = size_t{1} << 20;
// A bulk call's request.
constexpr size_t kBulkRequestBytes = 64;
// A stream's confirmation.
constexpr size_t kConfirmationBytes = 8;
// How a request begins; all other bytes are kOrdinary, too.
constexpr std::byte kOrdinary{'x'};
constexpr std::byte kLast{'E'};

// Who sends what: a reply of that size for so many requests.
struct Exchange {
  size_t request_bytes;
  size_t reply_bytes;
  uint32_t requests_per_reply;
};

// A message has at least the byte that tells the last one.
Exchange ExchangeOf(const Cell& cell) {
  const size_t bytes = std::max<size_t>(cell.bytes, 1);
  switch (cell.pattern) {
    case Pattern::kMessages:
      return {bytes, kConfirmationBytes, ConfirmEvery(cell)};
    case Pattern::kBulk:
      return {kBulkRequestBytes, bytes, 1};
    default:
      return {bytes, bytes, 1};
  }
}

// A connected stream socket.
class Wire {
 public:
  Wire(int fd, SocketStyle style) : fd_(fd), style_(style) {}
  ~Wire() {
    if (fd_ >= 0) close(fd_);
  }
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;

  // How much came in or went out; 0: nothing at the moment (not if blocking).
  absl::StatusOr<size_t> Receive(std::byte* data, size_t bytes) {
    const ssize_t result = recv(fd_, data, bytes, flags());
    if (result == 0) return absl::UnavailableError("the other end has closed its socket");
    return Moved(result, "recv");
  }
  absl::StatusOr<size_t> Send(const std::byte* data, size_t bytes) {
    return Moved(send(fd_, data, bytes, flags() | MSG_NOSIGNAL), "send");
  }
  SocketStyle style() const { return style_; }

 private:
  int flags() const { return style_ == SocketStyle::kBlocking ? 0 : MSG_DONTWAIT; }
  static absl::StatusOr<size_t> Moved(ssize_t result, const char* call) {
    if (result >= 0) return static_cast<size_t>(result);
    if (errno == EAGAIN || errno == EINTR) return size_t{0};
    return StatusFromErrno(errno, call);
  }

  const int fd_;
  const SocketStyle style_;
};

// Messages that are on their way out. What is in them does not matter, but for the first byte.
class Outbox {
 public:
  explicit Outbox(Wire* wire) : wire_(wire), ordinary_(kChunkBytes, kOrdinary) {}

  void Begin(size_t message_bytes) {
    message_bytes_ = message_bytes;
    owed_ = 0;
  }
  void Add(uint64_t messages) { owed_ += messages * message_bytes_; }
  bool empty() const { return owed_ == 0; }

  // As much as the socket takes now: all that is owed, or one message for each system call.
  absl::Status Flush() {
    while (owed_ > 0) {
      size_t most = std::min<size_t>(owed_, kChunkBytes);
      if (wire_->style() == SocketStyle::kSingle) {
        const size_t rest = owed_ % message_bytes_;
        most = std::min(most, rest == 0 ? message_bytes_ : rest);
      }
      WEFT_ASSIGN_OR_RETURN(const size_t sent, wire_->Send(ordinary_.data(), most));
      if (sent == 0) return absl::OkStatus();
      owed_ -= sent;
    }
    return absl::OkStatus();
  }

 private:
  Wire* const wire_;
  const std::vector<std::byte> ordinary_;
  size_t message_bytes_ = 1;
  uint64_t owed_ = 0;
};

// --- setting up ---------------------------------------------------------------------------------

// The port of 127.0.0.1, or the abstract name, that the kernel chose.
struct Address {
  sockaddr_storage storage = {};
  socklen_t bytes = sizeof(storage);
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
};

bool IsUnix(const PerfPath& path) { return path.kind() == PathKind::kShm; }

int MakeSocket(const PerfPath& path) {
  return socket(IsUnix(path) ? AF_UNIX : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
}

absl::StatusOr<int> ListenSomewhere(const PerfPath& path, Address* address) {
  const int fd = MakeSocket(path);
  if (fd < 0) return StatusFromErrno(errno, "socket");
  Address any;
  if (IsUnix(path)) {
    any.get()->sa_family = AF_UNIX;
    any.bytes = sizeof(sa_family_t);  // the kernel chooses an abstract name
  } else {
    auto* inet = reinterpret_cast<sockaddr_in*>(&any.storage);
    inet->sin_family = AF_INET;
    inet->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    any.bytes = sizeof(*inet);
  }
  if (bind(fd, any.get(), any.bytes) == 0 && listen(fd, 1) == 0 &&
      getsockname(fd, address->get(), &address->bytes) == 0) {
    return fd;
  }
  const int error = errno;
  close(fd);
  return StatusFromErrno(error, "listening for sockets");
}

void DisableDelay(int fd, const PerfPath& path) {
  const int on = 1;
  if (!IsUnix(path)) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

absl::StatusOr<int> AcceptOne(const WorkloadOptions& options) {
  Address address;
  WEFT_ASSIGN_OR_RETURN(const int listener, ListenSomewhere(options.path, &address));
  absl::Status told = WriteAll(options.peer_fd, &address, sizeof(address));
  const int fd = told.ok() ? accept4(listener, nullptr, nullptr, SOCK_CLOEXEC) : -1;
  const int error = errno;
  close(listener);
  WEFT_RETURN_IF_ERROR(told);
  if (fd < 0) return StatusFromErrno(error, "accept");
  DisableDelay(fd, options.path);
  return fd;
}

absl::StatusOr<int> ConnectToIt(const WorkloadOptions& options) {
  Address address;
  WEFT_RETURN_IF_ERROR(ReadAll(options.peer_fd, &address, sizeof(address)));
  const int fd = MakeSocket(options.path);
  if (fd < 0) return StatusFromErrno(errno, "socket");
  if (connect(fd, address.get(), address.bytes) != 0) {
    const int error = errno;
    close(fd);
    return StatusFromErrno(error, "connect");
  }
  DisableDelay(fd, options.path);
  return fd;
}

// --- server -------------------------------------------------------------------------------------

class SocketServer final : public ServerEnd {
 public:
  SocketServer(int fd, SocketStyle style)
      : wire_(fd, style), outbox_(&wire_), received_(kChunkBytes) {}

  absl::Status Serve(const Cell& cell) override {
    exchange_ = ExchangeOf(cell);
    outbox_.Begin(exchange_.reply_bytes);
    position_ = unanswered_ = 0;
    over_ = false;
    while (!over_ || !outbox_.empty()) {
      if (!over_) {
        WEFT_ASSIGN_OR_RETURN(const size_t bytes, wire_.Receive(received_.data(), kChunkBytes));
        Take(bytes);
      }
      WEFT_RETURN_IF_ERROR(outbox_.Flush());
    }
    return absl::OkStatus();
  }

 private:
  void Take(size_t bytes) {
    for (size_t offset = 0; offset < bytes;) {
      if (position_ == 0) last_ = received_[offset] == kLast;
      const size_t part = std::min(bytes - offset, exchange_.request_bytes - position_);
      offset += part;
      position_ += part;
      if (position_ == exchange_.request_bytes) TakeRequest();
    }
  }
  void TakeRequest() {
    position_ = 0;
    if (last_) {
      over_ = true;
      outbox_.Add(1);
    } else if (++unanswered_ == exchange_.requests_per_reply) {
      unanswered_ = 0;
      outbox_.Add(1);
    }
  }

  Wire wire_;
  Outbox outbox_;
  std::vector<std::byte> received_;
  Exchange exchange_ = {1, 1, 1};
  size_t position_ = 0;  // in the present request
  uint32_t unanswered_ = 0;
  bool last_ = false;  // the present request is
  bool over_ = false;
};

// --- client -------------------------------------------------------------------------------------

class SocketClient final : public ClientEnd {
 public:
  SocketClient(int fd, SocketStyle style)
      : wire_(fd, style), outbox_(&wire_), received_(kChunkBytes) {}

  absl::StatusOr<Figures> Run(const Cell& cell, double seconds) override {
    exchange_ = ExchangeOf(cell);
    outbox_.Begin(exchange_.request_bytes);
    position_ = 0;
    sent_ = replies_ = 0;
    WEFT_ASSIGN_OR_RETURN(const Figures figures,
                          cell.outstanding == 1 ? Timed(seconds) : Rate(cell, seconds));
    WEFT_RETURN_IF_ERROR(EndRun());
    return figures;
  }

 private:
  absl::StatusOr<Figures> Timed(double seconds) {
    LatencyHistogram latency;
    const RunClock run(seconds);
    uint64_t now_ns = 0;
    while (!run.IsOver(now_ns) || latency.count() == 0) {
      const uint64_t start_ns = Clock::Real().NowNs();
      Post(1);
      while (confirmed() < sent_) WEFT_RETURN_IF_ERROR(Turn());
      now_ns = Clock::Real().NowNs();
      if (run.IsCounted(start_ns)) latency.Record(now_ns - start_ns);
    }
    return FiguresOf(latency);
  }

  absl::StatusOr<Figures> Rate(const Cell& cell, double seconds) {
    RateCounter rate(seconds, cell.outstanding);
    do {
      Post(cell.outstanding - (sent_ - confirmed()));
      const uint64_t before = confirmed();
      WEFT_RETURN_IF_ERROR(Turn());
      rate.Add(confirmed() - before);
    } while (rate.Continue());
    Figures figures;
    figures.per_s = rate.PerSecond();
    return figures;
  }

  // After all others, one that is answered by itself.
  absl::Status EndRun() {
    while (!outbox_.empty() || replies_ < sent_ / exchange_.requests_per_reply) {
      WEFT_RETURN_IF_ERROR(Turn());
    }
    std::vector<std::byte> last(exchange_.request_bytes, kOrdinary);
    last[0] = kLast;
    for (size_t offset = 0; offset < last.size();) {
      WEFT_ASSIGN_OR_RETURN(const size_t sent,
                            wire_.Send(last.data() + offset, last.size() - offset));
      offset += sent;
    }
    const uint64_t before = replies_;
    while (replies_ == before) WEFT_RETURN_IF_ERROR(Turn());
    return absl::OkStatus();
  }

  void Post(uint64_t requests) {
    sent_ += requests;
    outbox_.Add(requests);
  }
  uint64_t confirmed() const { return replies_ * exchange_.requests_per_reply; }

  absl::Status Turn() {
    WEFT_RETURN_IF_ERROR(outbox_.Flush());
    WEFT_ASSIGN_OR_RETURN(const size_t bytes, wire_.Receive(received_.data(), kChunkBytes));
    position_ += bytes;
    replies_ += position_ / exchange_.reply_bytes;
    position_ %= exchange_.reply_bytes;
    return absl::OkStatus();
  }

  Wire wire_;
  Outbox outbox_;
  std::vector<std::byte> received_;
  Exchange exchange_ = {1, 1, 1};
  size_t position_ = 0;  // in the present reply
  uint64_t sent_ = 0;    // requests
  uint64_t replies_ = 0;
};

}  // namespace

std::string WhyNotSockets(SocketStyle style, const Cell& cell, const PerfPath& path) {
  if (path.kind() == PathKind::kVerbs) return "sockets do not go over RDMA";
  if (cell.pattern == Pattern::kBulkChecked) return "sockets have no checksum of their own";
  if (cell.pattern == Pattern::kRead || cell.pattern == Pattern::kWrite) {
    return "sockets have nothing one-sided";
  }
  if (cell.pattern == Pattern::kStream || cell.pattern == Pattern::kCoroutine) {
    return "sockets have no calls: unary and messages are what they have of this";
  }
  if (style == SocketStyle::kBlocking && cell.outstanding > 1) {
    return "blocking sockets have one request outstanding";
  }
  return "";
}

absl::StatusOr<std::unique_ptr<ClientEnd>> OpenSocketClient(SocketStyle style,
                                                            const WorkloadOptions& options) {
  WEFT_ASSIGN_OR_RETURN(const int fd, ConnectToIt(options));
  return std::unique_ptr<ClientEnd>(std::make_unique<SocketClient>(fd, style));
}

absl::StatusOr<std::unique_ptr<ServerEnd>> OpenSocketServer(SocketStyle style,
                                                            const WorkloadOptions& options) {
  WEFT_ASSIGN_OR_RETURN(const int fd, AcceptOne(options));
  return std::unique_ptr<ServerEnd>(std::make_unique<SocketServer>(fd, style));
}

}  // namespace weft::bench
