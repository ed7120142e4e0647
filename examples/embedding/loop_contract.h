// What each glue between a loop and Weft has to do, as tests. `Program` is a program with such a
// loop:
//
//   explicit Program(weft::Engine&)
//   void Run()                        until Stop(), on one thread
//   void Stop()                       from that thread
//   void Later(std::function<void()>) runs it as a handler of the program's own, once, when the
//                                     loop has been asleep for about a millisecond. Before Run(),
//                                     or from the loop's thread
#pragma once

#include <sys/resource.h>

#include <atomic>
#include <functional>
#include <latch>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "examples/echo/echo.weft.h"
#include "gtest/gtest.h"
#include "weft/channel.h"
#include "weft/engine.h"
#include "weft/server.h"

inline std::unique_ptr<weft::Engine> ExternalEngine() {
  weft::EngineOptions options;
  options.drive = weft::EngineOptions::Drive::kExternal;
  options.spin_ns = 0;
  return std::move(*weft::OpenNetworkEngine(options));
}

// Echoes, but for "mute", which it keeps until the test is over.
class Echoes final : public echo::Echo::Service {
 public:
  explicit Echoes(std::latch* over = nullptr) : over_(over) {}

 private:
  absl::Status Say(weft::ServerContext&, const echo::SayRequest& request,
                   echo::SayReply* reply) override {
    if (request.text() == "mute") over_->wait();
    reply->set_text(request.text());
    return absl::OkStatus();
  }

  std::latch* const over_;
};

inline void Serve(weft::Server& server, Echoes& service) {
  ASSERT_TRUE(server.AddService(&service).ok());
  ASSERT_TRUE(server.Listen("127.0.0.1:0").ok());
}

// For tests that hang otherwise.
constexpr weft::CallOptions kPatient = {.timeout_us = 60'000'000};

template <class Program>
class LoopTest : public testing::Test {};

TYPED_TEST_SUITE_P(LoopTest);

TYPED_TEST_P(LoopTest, AServerInTheLoopAnswersWhileTheLoopHasWorkOfItsOwn) {
  const std::unique_ptr<weft::Engine> engine = ExternalEngine();
  Echoes service;
  auto server = *weft::Server::Create(*engine);
  ASSERT_NO_FATAL_FAILURE(Serve(*server, service));
  const std::string address = server->address();

  std::atomic<bool> called = false;
  std::thread client([&] {
    auto channel = *weft::Channel::Open(address);
    echo::Echo::Stub stub(*channel);
    for (int i = 0; i < 100; ++i) {
      echo::SayRequest request;
      echo::SayReply reply;
      request.set_text(std::to_string(i));
      ASSERT_EQ(stub.Say(request, &reply, kPatient), absl::OkStatus());
      ASSERT_EQ(reply.text(), request.text());
    }
    channel.reset();
    called = true;
  });
  TypeParam program(*engine);
  int ticks = 0;
  const std::function<void()> tick = [&] {
    ++ticks;
    called ? program.Stop() : program.Later(tick);
  };
  program.Later(tick);
  program.Run();
  client.join();
  EXPECT_GT(ticks, 0);
}

// A loop that looks after Weft only when Weft's descriptor asks for it leaves such a call where it
// is, until something else happens.
TYPED_TEST_P(LoopTest, ACallThatAHandlerOfTheLoopStartsLeavesAtOnce) {
  Echoes service;
  auto server = *weft::Server::Create();
  ASSERT_NO_FATAL_FAILURE(Serve(*server, service));

  const std::unique_ptr<weft::Engine> engine = ExternalEngine();
  auto channel = *weft::Channel::Open(*engine, server->address());
  echo::Echo::Stub stub(*channel);
  TypeParam program(*engine);
  echo::SayRequest request;
  echo::SayReply reply;
  request.set_text("from a handler of the loop");
  absl::Status end = absl::UnknownError("it has not ended");
  program.Later([&] {
    stub.Say(request, &reply, kPatient, [&](absl::Status status) {
      end = status;
      program.Stop();
    });
  });
  program.Run();
  EXPECT_EQ(end, absl::OkStatus());
  EXPECT_EQ(reply.text(), request.text());
}

TYPED_TEST_P(LoopTest, ADeadlineOfWeftEndsTheLoopsSleep) {
  std::latch over(1);
  Echoes service(&over);
  auto server = *weft::Server::Create();
  ASSERT_NO_FATAL_FAILURE(Serve(*server, service));

  const std::unique_ptr<weft::Engine> engine = ExternalEngine();
  auto channel = *weft::Channel::Open(*engine, server->address());
  echo::Echo::Stub stub(*channel);
  TypeParam program(*engine);
  echo::SayRequest request;
  echo::SayReply reply;
  request.set_text("mute");
  absl::Status end;
  stub.Say(request, &reply, {.timeout_us = 20'000}, [&](absl::Status status) {
    end = status;
    program.Stop();
  });
  program.Run();
  EXPECT_EQ(end.code(), absl::StatusCode::kDeadlineExceeded) << end;
  over.count_down();
}

// An asio loop that set its timer for Weft again before each sleep ended that sleep at once, by the
// wait that it had cancelled so, and took a whole processor as long as a client was connected.
TYPED_TEST_P(LoopTest, TheLoopSleepsWhileAConnectionIsIdle) {
  const std::unique_ptr<weft::Engine> engine = ExternalEngine();
  Echoes service;
  auto server = *weft::Server::Create(*engine);
  ASSERT_NO_FATAL_FAILURE(Serve(*server, service));
  const std::string address = server->address();

  std::atomic<bool> called = false;
  std::latch over(1);
  std::thread client([&] {
    auto channel = *weft::Channel::Open(address);
    echo::Echo::Stub stub(*channel);
    echo::SayRequest request;
    echo::SayReply reply;
    ASSERT_EQ(stub.Say(request, &reply, kPatient), absl::OkStatus());
    called = true;
    over.wait();
  });
  TypeParam program(*engine);
  constexpr int kTicks = 20;
  int ticks = 0;
  long sleeps = 0;
  const std::function<void()> tick = [&] {
    rusage usage;
    getrusage(RUSAGE_THREAD, &usage);
    if (called && ticks++ == 0) sleeps = -usage.ru_nvcsw;
    if (ticks <= kTicks) return program.Later(tick);
    sleeps += usage.ru_nvcsw;
    program.Stop();
  };
  program.Later(tick);
  program.Run();
  over.count_down();
  client.join();
  // One for each tick; of a thread that has to wait for its processor a tick may come at once.
  EXPECT_GE(sleeps, kTicks / 2);
}

REGISTER_TYPED_TEST_SUITE_P(LoopTest, AServerInTheLoopAnswersWhileTheLoopHasWorkOfItsOwn,
                            ACallThatAHandlerOfTheLoopStartsLeavesAtOnce,
                            ADeadlineOfWeftEndsTheLoopsSleep, TheLoopSleepsWhileAConnectionIsIdle);
