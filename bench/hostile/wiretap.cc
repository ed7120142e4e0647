#include "bench/hostile/wiretap.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include "bench/hostile/sockets.h"

namespace weft::bench {
namespace {

// A handshake, and some calls.
constexpr size_t kMaxRecorded = 64 << 10;
// How soon the thread sees that it is to end.
constexpr int kLookMs = 20;
// Who does not take what is handed on for so long has lost the connection.
constexpr int kPatienceMs = 1'000;

bool SendAll(int to, const char* bytes, size_t count) {
  while (count > 0) {
    const ssize_t sent = ::send(to, bytes, count, MSG_NOSIGNAL);
    if (sent > 0) {
      bytes += sent;
      count -= static_cast<size_t>(sent);
      continue;
    }
    pollfd watch{to, POLLOUT, 0};
    if (errno != EAGAIN || ::poll(&watch, 1, kPatienceMs) != 1) return false;
  }
  return true;
}

}  // namespace

Wiretap::Wiretap(const std::string& server, uint32_t tamper_every, uint32_t spared_bytes,
                 uint64_t seed)
    : server_(server), tamper_every_(tamper_every), spared_bytes_(spared_bytes), random_(seed) {
  listening_ = Descriptor(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  sockaddr_in any = ParseAddress("127.0.0.1:0");
  socklen_t length = sizeof(any);
  ::bind(listening_.get(), reinterpret_cast<sockaddr*>(&any), length);
  ::listen(listening_.get(), SOMAXCONN);
  ::getsockname(listening_.get(), reinterpret_cast<sockaddr*>(&any), &length);
  address_ = AddressText(any);
  thread_ = std::thread([this] { Run(); });
}

Wiretap::~Wiretap() {
  stop_ = true;
  thread_.join();
}

Recording Wiretap::TakeRecording() {
  const std::lock_guard<std::mutex> lock(mutex_);
  Recording recording;
  if (!ways_.empty()) {
    recording.control = ways_[0].said;
    recording.hello = ways_[0].said.substr(0, ways_[0].hello);
  }
  if (ways_.size() > 1) recording.join = ways_[1].said;
  return recording;
}

void Wiretap::Run() {
  std::vector<pollfd> watched;
  while (!stop_) {
    watched.assign(1, {listening_.get(), POLLIN, 0});
    for (const Way& way : ways_) {  // this thread alone changes them
      watched.push_back({way.over ? -1 : way.client.get(), POLLIN, 0});
      watched.push_back({way.over ? -1 : way.server.get(), POLLIN, 0});
    }
    if (::poll(watched.data(), watched.size(), kLookMs) <= 0) continue;
    const std::lock_guard<std::mutex> lock(mutex_);
    for (size_t i = 0; i < ways_.size(); ++i) {
      if (watched[2 * i + 1].revents != 0) Pass(ways_[i], /*from_client=*/true);
      if (watched[2 * i + 2].revents != 0) Pass(ways_[i], /*from_client=*/false);
    }
    if (watched[0].revents != 0) Accept();
  }
}

void Wiretap::Accept() {
  Way way;
  way.client =
      Descriptor(::accept4(listening_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!way.client.valid()) return;
  way.server = StartConnect(ParseAddress(server_));
  pollfd watch{way.server.get(), POLLOUT, 0};
  if (!way.server.valid() || ::poll(&watch, 1, kPatienceMs) != 1) return;
  ways_.push_back(std::move(way));
}

void Wiretap::Pass(Way& way, bool from_client) {
  if (way.over) return;
  const Descriptor& from = from_client ? way.client : way.server;
  const Descriptor& to = from_client ? way.server : way.client;
  char bytes[64 << 10];
  const ssize_t count = ::recv(from.get(), bytes, sizeof(bytes), 0);
  if (count < 0 && errno == EAGAIN) return;
  if (count > 0 && from_client) {
    const auto said = static_cast<size_t>(count);
    if (way.said.size() < kMaxRecorded) way.said.append(bytes, said);
    if (!way.answered) way.hello = way.said.size();
    Tamper(way, bytes, said);
  }
  if (!from_client) way.answered = true;
  if (count > 0 && SendAll(to.get(), bytes, static_cast<size_t>(count))) return;
  way.over = true;
  way.client.Reset();
  way.server.Reset();
}

void Wiretap::Tamper(Way& way, char* bytes, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    if (tamper_every_ == 0 || way.passed++ < spared_bytes_) continue;
    if (random_.Uniform(tamper_every_) != 0) continue;
    bytes[i] = static_cast<char>(random_.Next64());
    ++tampered_;
  }
}

}  // namespace weft::bench
