// Calls that go on while their server is killed and started again, over every path of this machine.
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rpc/client/balancer.h"
#include "rpc/client/balancing.h"
#include "rpc/client/channel.h"
#include "rpc/client/client_connection.h"
#include "rpc/testing/fabric_paths.h"
#include "rpc/testing/probe_service.h"
#include "rpc/testing/retry_service.weft.h"
#include "rpc/testing/server_process.h"

namespace weft::test {
namespace {

class RetryProcessTest : public testing::TestWithParam<PathKind> {
 protected:
  // The servers have it from this process. ofi_tcp is used only where both sides name it.
  void SetUp() override {
    if (const std::string why = WhyNot(GetParam()); !why.empty()) GTEST_SKIP() << why;
    if (const char* const paths = getenv("WEFT_PATHS")) before_ = paths;
    setenv("WEFT_PATHS", std::string(PathKindName(GetParam())).c_str(), /*overwrite=*/1);
  }
  void TearDown() override {
    if (before_.has_value()) {
      setenv("WEFT_PATHS", before_->c_str(), /*overwrite=*/1);
    } else {
      unsetenv("WEFT_PATHS");
    }
  }

 private:
  std::optional<std::string> before_;
};

// Eight calls are under way at any time; two servers are killed under them, and started again.
TEST_P(RetryProcessTest, NoneFailsWhileItsServerIsKilledAndComesBack) {
  auto server = std::make_unique<ServerProcess>();
  const std::string address = server->address();
  ChannelOptions options;
  options.link.paths = {GetParam()};
  options.retry.max_attempts = 4;
  options.retry.hedge_after_us = 50'000;
  auto channel = Channel::Open(address, options);
  ASSERT_TRUE(channel.ok()) << channel.status();
  EXPECT_EQ((*channel)->path()->kind, GetParam());
  const Store::Stub stub(**channel);

  struct Loop {
    Data reply;
    uint64_t number = 0;
  };
  std::vector<Loop> loops(8);
  uint64_t started = 0;
  uint64_t ended = 0;
  bool stop = false;
  int under_way = 0;
  std::function<void(Loop&)> next = [&](Loop& loop) {
    loop.number = ++started;
    ++under_way;
    // Long enough for a busy machine to start a process.
    const CallOptions call = {.timeout_us = 60'000'000, .wait_for_server = true};
    stub.Look(MakeData(loop.number, 100), &loop.reply, call, [&](const absl::Status& status) {
      EXPECT_TRUE(status.ok()) << status;
      EXPECT_EQ(loop.reply.number(), loop.number);
      ++ended;
      --under_way;
      if (!stop) next(loop);
    });
  };
  Engine& engine = (*channel)->engine();
  for (Loop& loop : loops) next(loop);
  for (int kills = 0; kills < 2; ++kills) {
    const uint64_t until = ended + 100;
    ASSERT_TRUE(engine.RunUntil([&] { return ended >= until; }));
    server->Kill();
    const uint64_t connects = (*channel)->stats().connects;
    server = std::make_unique<ServerProcess>(address);
    ASSERT_EQ(server->address(), address);
    const uint64_t after = ended;
    ASSERT_TRUE(engine.RunUntil([&] { return ended >= after + 100; }));
    EXPECT_GT((*channel)->stats().connects, connects);
  }
  stop = true;
  ASSERT_TRUE(engine.RunUntil([&] { return under_way == 0; }));
  const ChannelStats stats = (*channel)->stats();
  EXPECT_GE(stats.retries, 1u);
  EXPECT_EQ(stats.calls_failed, 0u);
  EXPECT_EQ(stats.calls_ok, started);
  EXPECT_EQ(ended, started);
}

// The same over three servers at once, in turn killed and started again: two are always there.
TEST_P(RetryProcessTest, NoneFailsWhileOneOfManyServersIsKilled) {
  std::vector<std::unique_ptr<ServerProcess>> servers;
  std::vector<std::string> addresses;
  std::string target = "list:";
  for (int i = 0; i < 3; ++i) {
    servers.push_back(std::make_unique<ServerProcess>());
    addresses.push_back(servers.back()->address());
    target += (i == 0 ? "" : ",") + addresses.back();
  }
  ChannelOptions options;
  options.link.paths = {GetParam()};
  options.retry.max_attempts = 4;
  options.retry.hedge_after_us = 50'000;
  auto channel = OpenBalanced(target, options);
  ASSERT_TRUE(channel.ok()) << channel.status();
  EXPECT_EQ((*channel)->path()->kind, GetParam());
  const Store::Stub stub(**channel);

  std::vector<Data> replies(16);
  uint64_t ended = 0;
  bool stop = false;
  int under_way = 0;
  std::function<void(Data&)> next = [&](Data& reply) {
    ++under_way;
    stub.Look(MakeData(5, 100), &reply, {.timeout_us = 60'000'000}, [&](const absl::Status& end) {
      EXPECT_TRUE(end.ok()) << end;
      ++ended;
      --under_way;
      if (!stop) next(reply);
    });
  };
  Engine& engine = (*channel)->engine();
  const auto ready = [&](int count) {
    return engine.RunUntil([&] {
      int found = 0;
      for (const ServerFacts& facts : internal::ConnectionOf(**channel).balancer()->Facts()) {
        found += facts.state == ChannelState::kReady;
      }
      return found == count;
    });
  };
  ASSERT_TRUE(ready(3));
  for (Data& reply : replies) next(reply);
  for (int victim = 0; victim < 3; ++victim) {
    const uint64_t until = ended + 300;
    ASSERT_TRUE(engine.RunUntil([&] { return ended >= until; }));
    servers[victim]->Kill();
    ASSERT_TRUE(ready(2));
    const uint64_t after = ended + 300;
    ASSERT_TRUE(engine.RunUntil([&] { return ended >= after; }));
    servers[victim] = std::make_unique<ServerProcess>(addresses[victim]);
    ASSERT_EQ(servers[victim]->address(), addresses[victim]);
    ASSERT_TRUE(ready(3));
  }
  stop = true;
  ASSERT_TRUE(engine.RunUntil([&] { return under_way == 0; }));
  const ChannelStats stats = (*channel)->stats();
  EXPECT_EQ(stats.calls_failed, 0u);
  EXPECT_EQ(stats.calls_ok, ended);
  EXPECT_GE(stats.connects, 6u);
  for (const ServerFacts& facts : ServersOf(**channel)) EXPECT_GT(facts.answers_ok, 0u);
}

INSTANTIATE_TEST_SUITE_P(Paths, RetryProcessTest, testing::ValuesIn(AllPaths()),
                         [](const auto& info) { return std::string(PathKindName(info.param)); });

}  // namespace
}  // namespace weft::test
