#include "embed/session_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "weft/status.h"

namespace weft::embed {
namespace {

using testing::HasSubstr;

// A server that gives sessions 1, 2, 3 ..., unless it is told what to say instead.
class SessionClientTest : public testing::Test {
 protected:
  using Attempt = SessionClient::Attempt;
  static constexpr uint64_t kPatient = 60'000'000;

  absl::StatusOr<SessionClient::Session> Ask() {
    const uint64_t number = ++asked_;
    if (!refusal_.ok()) return refusal_;
    return SessionClient::Session{number, /*epoch=*/100 + number};
  }

  std::atomic<uint64_t> asked_{0};
  absl::Status refusal_;
  SessionClient sessions_{kPatient, [this](uint64_t) { return Ask(); }};
  std::vector<uint64_t> numbers_;  // that attempts had
};

TEST_F(SessionClientTest, OperationsShareASession) {
  EXPECT_TRUE(sessions_.Attach().ok());
  for (int i = 0; i < 3; ++i) {
    const absl::Status status = sessions_.Operate("read", [this](const Attempt& attempt) {
      EXPECT_EQ(attempt.session.epoch, 101u);
      EXPECT_FALSE(attempt.may_have_run);
      EXPECT_GT(attempt.timeout_us, 0u);
      EXPECT_LE(attempt.timeout_us, kPatient + 1);
      EXPECT_TRUE(sessions_.IsCurrent(attempt.session));
      return absl::OkStatus();
    });
    EXPECT_TRUE(status.ok()) << status;
  }
  EXPECT_EQ(asked_.load(), 1u);
}

TEST_F(SessionClientTest, WhatHasNotEndedIsTriedAgainInANewSession) {
  SessionClient::Session first;
  const absl::Status status = sessions_.Operate("read", [&](const Attempt& attempt) {
    numbers_.push_back(attempt.session.number);
    if (numbers_.size() == 1) {
      first = attempt.session;
      return absl::AbortedError("no such session");
    }
    EXPECT_FALSE(sessions_.IsCurrent(first));
    return numbers_.size() == 2 ? absl::UnavailableError("lost") : absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_THAT(numbers_, testing::ElementsAre(1, 2, 3));
}

TEST_F(SessionClientTest, AServerWithoutRoomIsAskedAgainInTheSameSession) {
  const absl::Status status = sessions_.Operate("write", [&](const Attempt& attempt) {
    numbers_.push_back(attempt.session.number);
    return numbers_.size() < 3 ? absl::ResourceExhaustedError("no room") : absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_THAT(numbers_, testing::ElementsAre(1, 1, 1));
}

TEST_F(SessionClientTest, AnAnswerIsTold) {
  for (const auto& answer : {absl::NotFoundError("x"), absl::DataLossError("x"),
                             absl::OutOfRangeError("x"), absl::UnimplementedError("x")}) {
    const absl::Status status = sessions_.Operate("open a", [&](const Attempt& attempt) {
      numbers_.push_back(attempt.session.number);
      return answer;
    });
    EXPECT_EQ(status.code(), answer.code());
    EXPECT_EQ(status.message(), "open a: x");
  }
  EXPECT_THAT(numbers_, testing::ElementsAre(1, 1, 1, 1));
}

// What the way there has broken is no answer.
TEST_F(SessionClientTest, ALaterAttemptIsToldThatAnEarlierOneMayHaveRun) {
  const absl::Status status = sessions_.Operate("rename", [&](const Attempt& attempt) {
    numbers_.push_back(attempt.session.number);
    EXPECT_EQ(attempt.may_have_run, numbers_.size() > 1);
    if (numbers_.size() > 2) return absl::OkStatus();
    return WithDelivery(absl::DataLossError("broken"),
                        numbers_.size() == 1 ? Delivery::kMayHaveRun : Delivery::kNotSent);
  });
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_THAT(numbers_, testing::ElementsAre(1, 2, 3));
}

TEST_F(SessionClientTest, WhatHasNoSessionWithinItsPatienceSaysWhy) {
  refusal_ = absl::UnavailableError("nobody is there");
  const absl::Status status = sessions_.Operate("read", /*patience_us=*/30'000, [](const Attempt&) {
    ADD_FAILURE() << "there is no session";
    return absl::OkStatus();
  });
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("read: given up after "));
  EXPECT_THAT(std::string(status.message()), HasSubstr("nobody is there"));
  EXPECT_TRUE(absl::IsUnavailable(sessions_.Attach()));
}

// A session is asked for by one thread, and the others wait for it; one that is impatient says so.
TEST_F(SessionClientTest, OneThreadAsksForAll) {
  std::promise<void> is_asking, may_answer;
  std::atomic<int> asked{0};
  SessionClient sessions(kPatient, [&](uint64_t) {
    if (++asked == 1) is_asking.set_value();
    may_answer.get_future().wait();
    return SessionClient::Session{1, 1};
  });
  std::atomic<int> done{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      done += sessions.Operate("read", [](const Attempt&) { return absl::OkStatus(); }).ok();
    });
  }
  is_asking.get_future().wait();
  const absl::Status late = sessions.Operate("write", /*patience_us=*/1'000,
                                             [](const Attempt&) { return absl::OkStatus(); });
  EXPECT_TRUE(absl::IsUnavailable(late)) << late;
  EXPECT_THAT(std::string(late.message()), HasSubstr("not attached again in time"));
  may_answer.set_value();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(done.load(), 4);
  EXPECT_EQ(asked.load(), 1);
}

}  // namespace
}  // namespace weft::embed
