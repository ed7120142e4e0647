// Calls work however client and server engines are driven, and no wake-up is lost on a real path.
//
// With spin_ns = 0 every engine sleeps whenever it finds nothing to do: each request meets a server
// that sleeps or is about to, and each reply such a client. One lost wake-up ends the test by its
// calls' deadline.
#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "rpc/client/channel.h"
#include "rpc/server/server.h"
#include "rpc/testing/probe_service.h"
#include "transport/network.h"
#include "weft/status.h"

namespace weft::test {
namespace {

using Drive = EngineOptions::Drive;

constexpr int kCalls = 2000;
constexpr CallOptions kPatient = {.timeout_us = 60'000'000};

std::unique_ptr<Engine> SleepyEngine(Drive drive) {
  EngineOptions options;
  options.drive = drive;
  options.spin_ns = 0;
  auto engine = OpenNetworkEngine(options);
  EXPECT_TRUE(engine.ok()) << engine.status();
  return *std::move(engine);
}

// As an application with a loop of its own drives an engine: poll(2) on its descriptor.
void RunLoop(Engine& engine, const Waiter& until) {
  while (!until.done()) {
    if (engine.Poll() > 0 || until.done() || !engine.Arm()) continue;
    pollfd sleep = {engine.fd(), POLLIN, 0};
    const uint64_t now_ns = engine.clock().NowNs();
    const uint64_t timer_ns = engine.NextTimerNs();
    const uint64_t wait_ms = timer_ns <= now_ns ? 0 : (timer_ns - now_ns) / 1'000'000 + 1;
    poll(&sleep, 1, wait_ms > 10 ? 10 : static_cast<int>(wait_ms));
  }
}

class DriveTest : public testing::TestWithParam<std::tuple<PathKind, Drive>> {
 protected:
  PathKind path() const { return std::get<0>(GetParam()); }
  Drive drive() const { return std::get<1>(GetParam()); }

  void Serve(Drive server_drive) {
    server_engine_ = SleepyEngine(server_drive);
    server_ = *Server::Create(*server_engine_);
    ASSERT_TRUE(server_->AddService(&service_).ok());
    const absl::Status listening = server_->Listen("127.0.0.1:0");
    ASSERT_TRUE(listening.ok()) << listening;
  }

  std::unique_ptr<Channel> Open(Engine& engine) {
    ChannelOptions options;
    options.link.paths = {path()};
    auto channel = Channel::Open(engine, server_->address(), options);
    EXPECT_TRUE(channel.ok()) << channel.status();
    return *std::move(channel);
  }

  ProbeService service_;
  std::unique_ptr<Engine> server_engine_;
  std::unique_ptr<Server> server_;
};

class EveryClient : public DriveTest {};
class ExternalClient : public DriveTest {};
// A caller-driven engine serves while Server::Wait() drives it, which is the own thread's loop.
class EveryServer : public DriveTest {};

TEST_P(EveryClient, NoCallMeetsASleeperThatDoesNotWake) {
  ASSERT_NO_FATAL_FAILURE(Serve(Drive::kOwnThread));
  const auto engine = SleepyEngine(drive());
  const auto channel = Open(*engine);
  Probe::Stub stub(*channel);
  for (int i = 0; i < kCalls; ++i) {
    Data reply;
    const absl::Status status = stub.Echo(MakeData(i, 64), &reply, kPatient);
    ASSERT_TRUE(status.ok()) << "call " << i << ": " << status;
    ASSERT_EQ(reply.number(), static_cast<uint64_t>(i));
  }
}

// Each thread that does not drive sleeps until its own reply has come; and who drives is another
// thread after nearly every call, where callers do.
TEST_P(EveryClient, ManyThreadsBlockInCallsOfOneChannel) {
  constexpr int kThreads = 8;
  constexpr int kCallsOfEach = 200;
  ASSERT_NO_FATAL_FAILURE(Serve(Drive::kOwnThread));
  const auto engine = SleepyEngine(drive());
  const auto channel = Open(*engine);
  Waiter all;
  std::atomic<int> running{kThreads};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      Probe::Stub stub(*channel);
      for (int i = 0; i < kCallsOfEach; ++i) {
        const int number = t * kCallsOfEach + i;
        Data reply;
        const absl::Status status = stub.Echo(MakeData(number, 64), &reply, kPatient);
        EXPECT_TRUE(status.ok()) << "call " << i << " of thread " << t << ": " << status;
        EXPECT_EQ(reply.number(), static_cast<uint64_t>(number));
      }
      if (--running > 0) return;
      ASSERT_TRUE(engine->Post([&] { CoreOf(*engine).Finish(all); }));
    });
  }
  if (drive() == Drive::kExternal) {
    RunLoop(*engine, all);
  } else {
    EXPECT_TRUE(CoreOf(*engine).Wait(all));
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_P(ExternalClient, CallbacksComeToTheApplicationsLoop) {
  ASSERT_NO_FATAL_FAILURE(Serve(Drive::kOwnThread));
  const auto engine = SleepyEngine(drive());
  const auto channel = Open(*engine);
  Probe::Stub stub(*channel);
  const std::thread::id loop = std::this_thread::get_id();
  Waiter all;
  int left = kCalls;
  Data reply;
  Function<void()> next = [&] {
    stub.Echo(MakeData(left, 64), &reply, kPatient, [&](absl::Status status) {
      EXPECT_TRUE(status.ok()) << status;
      EXPECT_EQ(std::this_thread::get_id(), loop);
      if (--left == 0) {
        CoreOf(*engine).Finish(all);
      } else {
        next();
      }
    });
  };
  next();
  RunLoop(*engine, all);
  EXPECT_EQ(left, 0);
}

TEST_P(EveryServer, AServerRunsOnAnyEngine) {
  Waiter stop;
  ASSERT_NO_FATAL_FAILURE(Serve(drive()));
  std::thread client([&] {
    const auto engine = SleepyEngine(Drive::kCaller);
    const auto channel = Open(*engine);
    Probe::Stub stub(*channel);
    for (int i = 0; i < kCalls; ++i) {
      Data reply;
      const absl::Status status = stub.Echo(MakeData(i, 64), &reply, kPatient);
      ASSERT_TRUE(status.ok()) << "call " << i << ": " << status;
    }
    ASSERT_TRUE(server_engine_->Post([&] { CoreOf(*server_engine_).Finish(stop); }));
  });
  if (drive() == Drive::kExternal) {
    RunLoop(*server_engine_, stop);
  } else {
    EXPECT_TRUE(CoreOf(*server_engine_).Wait(stop));
  }
  client.join();
}

// A second thread's calls had deadlines that only the engine looked at: where nobody drove it, they
// waited for ever.
class UndrivenClient : public DriveTest {
 protected:
  UndrivenClient() {
    service_.look = [this](ServerContext&) { ++arrived_; };
  }
  // A blocking call of another thread, while this one keeps the engine and does not drive it.
  absl::Status CallMeanwhile(Probe::Stub& stub, Data* reply) {
    absl::Status status;
    EXPECT_TRUE(CoreOf(*engine_).Enter());
    std::thread second([&] { status = stub.Hold(MakeData(1, 64), reply, {.timeout_us = 50'000}); });
    second.join();
    CoreOf(*engine_).Leave();
    return status;
  }

  std::atomic<int> arrived_{0};
  std::unique_ptr<Engine> engine_;
};

TEST_P(UndrivenClient, ABlockingCallEndsAtItsDeadlineAndIsNotSentLater) {
  ASSERT_NO_FATAL_FAILURE(Serve(Drive::kOwnThread));
  engine_ = SleepyEngine(drive());
  const auto channel = Open(*engine_);
  Probe::Stub stub(*channel);
  Data reply;
  const absl::Status status = CallMeanwhile(stub, &reply);
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_EQ(DeliveryOf(status), Delivery::kNotSent) << status;
  Data echoed;
  EXPECT_TRUE(stub.Echo(MakeData(2, 64), &echoed, kPatient).ok()) << "the channel works on";
  EXPECT_EQ(arrived_, 1) << "of the second call alone";
  EXPECT_EQ(channel->stats().calls_failed, 1u);
}

TEST_P(UndrivenClient, ALateReplyOfSuchACallIsHarmless) {
  ASSERT_NO_FATAL_FAILURE(Serve(Drive::kOwnThread));
  engine_ = SleepyEngine(drive());
  const auto channel = Open(*engine_);
  Probe::Stub stub(*channel);
  Data reply;
  absl::Status status;
  EXPECT_TRUE(CoreOf(*engine_).Enter());
  std::thread second(
      [&] { status = stub.Hold(MakeData(1, 64), &reply, {.timeout_us = 1'000'000}); });
  while (arrived_ == 0) engine_->Poll();  // and from here on nobody does
  second.join();
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_EQ(DeliveryOf(status), Delivery::kMayHaveRun) << status;
  Waiter released;
  ASSERT_TRUE(server_engine_->Post([&] {
    service_.Release();
    CoreOf(*server_engine_).Finish(released);
  }));
  EXPECT_TRUE(CoreOf(*server_engine_).Wait(released));
  CoreOf(*engine_).Leave();
  Data echoed;
  EXPECT_TRUE(stub.Echo(MakeData(2, 64), &echoed, kPatient).ok());
  EXPECT_TRUE(reply.payload().empty()) << "it is its caller's again";
}

std::string DriveName(Drive drive) {
  if (drive == Drive::kOwnThread) return "OwnThread";
  return drive == Drive::kCaller ? "Caller" : "External";
}

std::string ParameterName(const testing::TestParamInfo<std::tuple<PathKind, Drive>>& named) {
  return std::string(PathKindName(std::get<0>(named.param))) + "_" +
         DriveName(std::get<1>(named.param));
}

const auto kPaths = testing::Values(PathKind::kShm, PathKind::kTcp);

INSTANTIATE_TEST_SUITE_P(Paths, EveryClient,
                         testing::Combine(kPaths, testing::Values(Drive::kOwnThread, Drive::kCaller,
                                                                  Drive::kExternal)),
                         ParameterName);
INSTANTIATE_TEST_SUITE_P(Paths, UndrivenClient,
                         testing::Combine(kPaths,
                                          testing::Values(Drive::kCaller, Drive::kExternal)),
                         ParameterName);
INSTANTIATE_TEST_SUITE_P(Paths, ExternalClient,
                         testing::Combine(kPaths, testing::Values(Drive::kExternal)),
                         ParameterName);
INSTANTIATE_TEST_SUITE_P(Paths, EveryServer,
                         testing::Combine(kPaths,
                                          testing::Values(Drive::kOwnThread, Drive::kExternal)),
                         ParameterName);

}  // namespace
}  // namespace weft::test
