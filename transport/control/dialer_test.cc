// Connecting to the first address that answers, over real sockets, in a time that the test moves.

#include "transport/control/dialer.h"

#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/clock.h"
#include "gtest/gtest.h"
#include "transport/sockets/socket.h"

namespace weft {
namespace {

constexpr uint64_t kTimeoutNs = 8 * kNsPerSec;

KernelAddress At(const std::string& text) { return Resolve(*ParseServerAddress(text))->front(); }

class DialerTest : public testing::Test {
 protected:
  void SetUp() override {
    poller_ = *Poller::Create();
    listening_ = *ListenInternet(At("127.0.0.1:0"));
    open_ = *LocalAddress(listening_.get());
    // A port at which nobody listens any more.
    const Descriptor closed = *ListenInternet(At("127.0.0.1:0"));
    closed_ = *LocalAddress(closed.get());
  }
  void Start(std::vector<KernelAddress> addresses, const std::string& server = "example:1") {
    dialer_ = std::make_unique<Dialer>(*ParseServerAddress(server), std::move(addresses),
                                       poller_.get(), now_ns_, kTimeoutNs, [this] { ++woken_; });
  }
  // Advances until it is over, without letting its time pass.
  absl::StatusOr<Descriptor> Result() {
    const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (std::chrono::steady_clock::now() < give_up) {
      auto result = dialer_->Advance(now_ns_);
      if (result.has_value()) return *std::move(result);
      poller_->Poll();
    }
    return absl::UnknownError("not over");
  }

  uint64_t now_ns_ = 5 * kNsPerSec;
  int woken_ = 0;
  std::unique_ptr<Poller> poller_;
  Descriptor listening_;
  KernelAddress open_;
  KernelAddress closed_;
  std::unique_ptr<Dialer> dialer_;
};

TEST_F(DialerTest, AnAddressThatAnswersIsConnected) {
  Start({open_});
  const absl::StatusOr<Descriptor> socket = Result();
  ASSERT_TRUE(socket.ok()) << socket.status();
  EXPECT_EQ(PeerAddressText(socket->get()), open_.text());
}

TEST_F(DialerTest, TheNextAddressFollowsOneThatRefuses) {
  Start({closed_, closed_, open_});
  const absl::StatusOr<Descriptor> socket = Result();
  ASSERT_TRUE(socket.ok()) << socket.status();
  EXPECT_EQ(PeerAddressText(socket->get()), open_.text());
}

TEST_F(DialerTest, TheLastErrorIsTheResultWhenNoneAnswers) {
  Start({closed_, closed_});
  const absl::StatusOr<Descriptor> socket = Result();
  EXPECT_TRUE(absl::IsUnavailable(socket.status())) << socket.status();
  EXPECT_NE(std::string(socket.status().message()).find(closed_.text()), std::string::npos)
      << socket.status();
}

// An address has its share of the time; all of them together have no more than the timeout.
TEST_F(DialerTest, AnAddressThatDoesNotAnswerHasItsShareOfTheTime) {
  Start({open_, open_});
  EXPECT_FALSE(dialer_->Advance(now_ns_).has_value());
  EXPECT_EQ(dialer_->due_ns(), now_ns_ + kTimeoutNs / 2);
  // Nobody asks the poller: the first one seems not to answer.
  now_ns_ += kTimeoutNs / 2;
  EXPECT_FALSE(dialer_->Advance(now_ns_).has_value());
  EXPECT_EQ(dialer_->due_ns(), now_ns_ + kTimeoutNs / 2);
  EXPECT_TRUE(Result().ok());
}

TEST_F(DialerTest, TheTimeoutEndsItInWords) {
  Start({open_});
  EXPECT_FALSE(dialer_->Advance(now_ns_).has_value());
  now_ns_ += kTimeoutNs;
  const auto result = dialer_->Advance(now_ns_);
  ASSERT_TRUE(result.has_value());
  EXPECT_EQ(result->status(),
            absl::UnavailableError("connect to example:1: no success within 8000 ms, waiting for "
                                   "the connection to be accepted"));
}

// A Unix socket says at once that its queue is full, and not when it has room again.
TEST_F(DialerTest, ABusyUnixSocketIsAskedAgain) {
  const std::string name = "weft-dialer-test-" + std::to_string(getpid());
  const KernelAddress address = AbstractAddress(name);
  const Descriptor server(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(::bind(server.get(), address.get(), address.length), 0);
  ASSERT_EQ(::listen(server.get(), 0), 0);
  const Descriptor first = *StartDial(address);  // fills the queue
  Start({address}, "unix:/example");
  EXPECT_FALSE(dialer_->Advance(now_ns_).has_value());
  EXPECT_EQ(dialer_->due_ns(), now_ns_ + Dialer::kBusyRetryNs);
  const Descriptor taken(::accept(server.get(), nullptr, nullptr));
  ASSERT_TRUE(taken.valid());
  EXPECT_FALSE(dialer_->Advance(now_ns_ + 1).has_value()) << "not yet";
  now_ns_ += Dialer::kBusyRetryNs;
  EXPECT_TRUE(Result().ok());
}

}  // namespace
}  // namespace weft
