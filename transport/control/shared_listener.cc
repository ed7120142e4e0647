#include "transport/control/shared_listener.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "core/check.h"
#include "core/process_wide.h"
#include "core/random.h"
#include "core/secret.h"
#include "core/status.h"
#include "core/strings.h"
#include "transport/connection_quota.h"
#include "transport/hmac.h"

namespace weft {
namespace {

// 127.0.0.0/8, and ::1, of whose first 64 bits nothing is left (PeerHost()): a process of this host
// calls from any of these addresses.
bool IsThisHost(uint64_t host) {
  uint8_t first = 0;
  std::memcpy(&first, &host, sizeof(first));
  return host == 0 || (host <= ~uint32_t{0} && first == 127);
}

std::string TextOf(const PeerIdentity& client, uint64_t host) {
  switch (client.authentication) {
    case Authentication::kCertificate:
      return StrCat("certificate ", ProvedNames(client));
    case Authentication::kPreSharedKey:
      return StrCat("secret ", ProvedNames(client));
    case Authentication::kKernelCredentials:
      return StrCat("user ", client.user_id);
    case Authentication::kNone:
      break;
  }
  return StrCat("host ", IsThisHost(host) ? 0 : host);
}

// Of this process: at all its listeners a client has the same number.
ByteSpan ClientSecret() {
  static constinit ProcessWide<SecretBytes<32>> secret;
  return secret.Get([] {
    auto made = std::make_unique<SecretBytes<32>>();
    SecureRandomBytes(*made);
    return made;
  });
}

}  // namespace

SharedListener::SharedListener(const Counter* load) {
  takers_.push_back(std::make_unique<Taker>());
  takers_[0]->load = load;
}

absl::StatusOr<uint32_t> SharedListener::Join(const Counter* load) {
  Descriptor bell(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!bell.valid()) return StatusFromErrno(errno, "create an eventfd for a listener");
  const std::lock_guard<std::mutex> lock(mutex_);
  if (takers_.size() == kMaxEngines) {
    return absl::ResourceExhaustedError(
        StrCat("a listener is shared by ", kMaxEngines, " engines at most"));
  }
  takers_.push_back(std::make_unique<Taker>());
  takers_.back()->load = load;
  takers_.back()->bell = std::move(bell);
  is_shared_.store(true, std::memory_order_release);
  return static_cast<uint32_t>(takers_.size() - 1);
}

int SharedListener::bell(uint32_t number) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return takers_[number]->bell.get();
}

// The bell is silenced while it is certain that nothing waits: whoever posts next rings again.
Descriptor SharedListener::Take(uint32_t number) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Taker& taker = *takers_[number];
  if (taker.waiting.empty()) {
    uint64_t rings = 0;
    // It may not have rung at all.
    [[maybe_unused]] const ssize_t count = read(taker.bell.get(), &rings, sizeof(rings));
    return {};
  }
  Descriptor socket = std::move(taker.waiting.front());
  taker.waiting.pop_front();
  return socket;
}

bool SharedListener::HasWaiting(uint32_t number) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return !takers_[number]->waiting.empty();
}

void SharedListener::Leave(uint32_t number) {
  std::deque<Descriptor> closed;  // after the lock is free
  const std::lock_guard<std::mutex> lock(mutex_);
  takers_[number]->load = nullptr;
  closed.swap(takers_[number]->waiting);
}

uint32_t SharedListener::LeastLoaded() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  uint32_t least = 0;
  uint64_t least_load = ~uint64_t{0};
  for (uint32_t number = 0; number < takers_.size(); ++number) {
    const Taker& taker = *takers_[number];
    if (taker.load == nullptr || taker.waiting.size() >= kMaxWaitingClients) continue;
    const uint64_t load = taker.load->value() + taker.waiting.size();
    if (load >= least_load) continue;
    least = number;
    least_load = load;
  }
  return least;
}

uint32_t SharedListener::engines() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return static_cast<uint32_t>(takers_.size());
}

uint32_t SharedListener::NumberIn(const Nonce128& token) const {
  const auto number = static_cast<uint32_t>(token.high >> (64 - kNumberBits));
  const std::lock_guard<std::mutex> lock(mutex_);
  return number < takers_.size() ? number : 0;
}

bool SharedListener::Post(uint32_t number, Descriptor* socket, size_t most) {
  const std::lock_guard<std::mutex> lock(mutex_);
  WEFT_CHECK(number > 0 && number < takers_.size());  // Ours: NumberIn() and LeastLoaded() say so
  Taker& taker = *takers_[number];
  if (taker.load == nullptr || taker.waiting.size() >= most) return false;
  taker.waiting.push_back(std::move(*socket));
  if (taker.waiting.size() > 1) return true;  // it has rung, and the other end has not been there
  const uint64_t one = 1;
  // It cannot be full: it is silenced whenever nothing waits.
  [[maybe_unused]] const ssize_t count = write(taker.bell.get(), &one, sizeof(one));
  return true;
}

// --- connections ---------------------------------------------------------------------------------

uint64_t SharedListener::KeyOf(const PeerIdentity& client, uint64_t host) {
  return HmacNonce(ClientSecret(), TextOf(client, host)).low;
}

absl::Status SharedListener::CheckRoom(const ListenOptions& options, uint64_t client_key) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return CheckRoomForClient(options, connections_, client_key);
}

absl::Status SharedListener::TakeConnection(const ListenOptions& options, uint64_t client_key) {
  const std::lock_guard<std::mutex> lock(mutex_);
  WEFT_RETURN_IF_ERROR(CheckRoomForClient(options, connections_, client_key));
  connections_.Take(client_key, 1);
  return absl::OkStatus();
}

void SharedListener::EndConnection(uint64_t client_key) {
  const std::lock_guard<std::mutex> lock(mutex_);
  connections_.Give(client_key, 1);
}

uint32_t SharedListener::connections() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return static_cast<uint32_t>(connections_.all());
}

}  // namespace weft
