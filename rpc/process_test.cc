// Clients of a server in another process, which is killed under them.
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "rpc/client/channel.h"
#include "rpc/testing/probe_service.h"
#include "rpc/testing/server_process.h"

namespace weft::test {
namespace {

class ProcessTest : public testing::TestWithParam<PathKind> {
 protected:
  // The servers have it from this process.
  void SetUp() override { setenv("WEFT_PATHS", "shm,tcp,ofi_tcp", /*overwrite=*/1); }

  std::unique_ptr<Channel> Open(const std::string& address) {
    ChannelOptions options;
    options.link.paths = {GetParam()};
    auto channel = Channel::Open(address, options);
    EXPECT_TRUE(channel.ok()) << channel.status();
    return *std::move(channel);
  }
};

TEST_P(ProcessTest, KilledServerFailsEveryCallOnceAndOtherChannelsGoOn) {
  ServerProcess doomed;
  ServerProcess other;
  auto channel = Open(doomed.address());
  auto other_channel = Open(other.address());
  Probe::Stub stub(*channel);
  Probe::Stub other_stub(*other_channel);
  Data reply;
  ASSERT_TRUE(stub.Echo(MakeData(1, 64), &reply).ok());

  constexpr int kCalls = 50;
  std::vector<Data> replies(kCalls);
  std::vector<int> completions(kCalls);
  int ended = 0;
  Waiter all;
  for (int i = 0; i < kCalls; ++i) {
    stub.Hold(MakeData(i, 100), &replies[i], {}, [&, i](const absl::Status& status) {
      EXPECT_TRUE(absl::IsUnavailable(status)) << status;
      EXPECT_NE(status.message().find("may have run"), absl::string_view::npos) << status;
      ++completions[i];
      if (++ended == kCalls) CoreOf(channel->engine()).Finish(all);
    });
  }
  // All of them have left when a later call has returned.
  ASSERT_TRUE(stub.Echo(MakeData(1, 64), &reply).ok());
  doomed.Kill();
  ASSERT_TRUE(CoreOf(channel->engine()).Wait(all));
  EXPECT_EQ(completions, std::vector<int>(kCalls, 1));

  EXPECT_TRUE(other_stub.Echo(MakeData(2, 64), &reply).ok());
  EXPECT_EQ(reply.number(), 2u);
}

TEST_P(ProcessTest, ABlockedCallerLearnsOfTheKill) {
  ServerProcess server;
  auto channel = Open(server.address());
  Probe::Stub stub(*channel);
  // Killed by the reply to an earlier call, so that the second is under way for sure.
  Data first;
  stub.Echo(MakeData(1, 1), &first, {}, [&](const absl::Status&) { server.Kill(); });
  Data reply;
  const absl::Status status = stub.Hold(MakeData(1, 1), &reply);
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  const absl::Status again = stub.Echo(MakeData(1, 1), &reply);
  EXPECT_TRUE(absl::IsUnavailable(again)) << again;
  EXPECT_NE(again.message().find("no server at " + server.address()), absl::string_view::npos)
      << again;
}

INSTANTIATE_TEST_SUITE_P(Paths, ProcessTest,
                         testing::Values(PathKind::kShm, PathKind::kTcp, PathKind::kOfiTcp),
                         [](const auto& info) { return std::string(PathKindName(info.param)); });

}  // namespace
}  // namespace weft::test
