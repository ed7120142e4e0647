#include "embed/session_client.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "core/clock.h"
#include "core/random.h"
#include "core/status.h"
#include "core/strings.h"
#include "weft/status.h"

namespace weft::embed {
namespace {

// Between two attempts, when the last one failed at once: a server that is started again needs some
// 10 ms until it listens. Doubled with each, up to kMaxPauseUs: a server that is away for long is
// asked a dozen times a second by each thread that waits.
constexpr uint64_t kPauseUs = 5'000;
constexpr uint64_t kMaxPauseUs = 80'000;

uint64_t NowNs() { return Clock::Real().NowNs(); }

// What to do about an attempt's end.
enum class Next : uint8_t {
  kGiveUp = 1,       // it is the answer
  kAgain = 2,        // after a moment
  kAttachAgain = 3,  // the session is over, or what was sent may come late
};

Next NextAfter(const absl::Status& status) {
  const bool is_answer = DeliveryOf(status) == Delivery::kUnknown;
  switch (status.code()) {
    case absl::StatusCode::kResourceExhausted:
      return Next::kAgain;
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kInternal:
      return Next::kAttachAgain;
    case absl::StatusCode::kDataLoss:
      return is_answer ? Next::kGiveUp : Next::kAttachAgain;
    default:
      return Next::kGiveUp;
  }
}

}  // namespace

absl::Status SessionClient::Attach() { return AttachBy(NowNs() + 1000 * patience_us_).status(); }

absl::StatusOr<SessionClient::Session> SessionClient::AttachBy(uint64_t deadline_ns) {
  std::unique_lock<std::mutex> lock(mutex_);
  uint64_t now_ns = NowNs();
  while (state_ == State::kAttaching) {
    if (now_ns >= deadline_ns) {
      return absl::UnavailableError(StrCat("not attached again in time; ", last_failure_));
    }
    changed_.wait_for(lock, std::chrono::nanoseconds(deadline_ns - now_ns));
    now_ns = NowNs();
  }
  if (state_ == State::kAttached) return session_;
  state_ = State::kAttaching;
  lock.unlock();
  const absl::StatusOr<Session> told =
      ask_(deadline_ns > now_ns ? (deadline_ns - now_ns) / 1000 : 0);
  lock.lock();
  state_ = told.ok() ? State::kAttached : State::kDetached;
  if (told.ok()) {
    session_ = *told;
  } else {
    last_failure_ = std::string(told.status().message());
  }
  changed_.notify_all();
  return told;
}

void SessionClient::Detach(const Session& session) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (state_ == State::kAttached && session_.number == session.number) state_ = State::kDetached;
}

bool SessionClient::IsCurrent(const Session& session) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return state_ == State::kAttached && session_.number == session.number;
}

absl::Status SessionClient::Operate(std::string_view what, uint64_t patience_us, TryOnce attempt) {
  const uint64_t began_ns = NowNs();
  const uint64_t deadline_ns = began_ns + 1000 * patience_us;
  bool may_have_run = false;
  uint64_t pause_us = kPauseUs;
  for (uint32_t attempts = 1;; ++attempts) {
    const absl::StatusOr<Session> session = AttachBy(deadline_ns);
    absl::Status status = session.status();
    uint64_t now_ns = NowNs();
    if (session.ok()) {
      const uint64_t timeout_us = deadline_ns > now_ns ? (deadline_ns - now_ns) / 1000 + 1 : 1;
      status = attempt({*session, timeout_us, may_have_run});
      may_have_run |= DeliveryOf(status) == Delivery::kMayHaveRun;
    }
    if (status.ok()) return status;
    const Next next = NextAfter(status);
    if (next == Next::kAttachAgain && session.ok()) Detach(*session);
    if (next == Next::kGiveUp) return Annotate(std::move(status), what);
    now_ns = NowNs();
    if (now_ns + 1000 * pause_us >= deadline_ns) {
      return Annotate(std::move(status),
                      StrCat(what, ": given up after ", (now_ns - began_ns) / kNsPerMs, " ms and ",
                             attempts, " attempts"));
    }
    // The first time at once: a session is over, and the connection may be as good as ever.
    if (attempts > 1 || next == Next::kAgain) {
      std::this_thread::sleep_for(std::chrono::microseconds(pause_us));
      pause_us = std::min(2 * pause_us, kMaxPauseUs);
    }
  }
}

std::string NewClientId(size_t bytes) {
  std::string id(bytes, '\0');
  SecureRandomBytes({reinterpret_cast<std::byte*>(id.data()), id.size()});
  return id;
}

absl::Status WrongReply(std::string_view what) {
  return absl::DataLossError(StrCat("the server's answer makes no sense: ", what));
}

absl::Status NotInTime() { return absl::UnavailableError("the server has not answered in time"); }

}  // namespace weft::embed
