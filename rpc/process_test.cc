// Clients of a server in another process, which is killed under them.
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "rpc/client/channel.h"
#include "rpc/testing/probe_service.h"

extern char** environ;

namespace weft::test {
namespace {

// probe_server in a process of its own.
class ServerProcess {
 public:
  ServerProcess() {
    int output[2];
    int input[2];
    EXPECT_EQ(pipe(output), 0);
    EXPECT_EQ(pipe(input), 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, output[1], STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, input[0], STDIN_FILENO);
    posix_spawn_file_actions_addclose(&actions, output[0]);
    posix_spawn_file_actions_addclose(&actions, input[1]);
    char name[] = "rpc/testing/probe_server";
    char* arguments[] = {name, nullptr};
    EXPECT_EQ(posix_spawn(&process_, name, &actions, nullptr, arguments, environ), 0)
        << "run this test from the workspace's root of runfiles";
    posix_spawn_file_actions_destroy(&actions);
    close(output[1]);
    close(input[0]);
    lifeline_ = input[1];
    for (char c; read(output[0], &c, 1) == 1 && c != '\n';) address_ += c;
    close(output[0]);
  }
  ~ServerProcess() {
    Kill();
    close(lifeline_);
  }

  void Kill() {
    if (process_ == 0) return;
    kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
    process_ = 0;
  }
  const std::string& address() const { return address_; }

 private:
  pid_t process_ = 0;
  int lifeline_ = -1;  // its standard input: it ends with this process
  std::string address_;
};

class ProcessTest : public testing::TestWithParam<PathKind> {
 protected:
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

INSTANTIATE_TEST_SUITE_P(Paths, ProcessTest, testing::Values(PathKind::kShm, PathKind::kTcp),
                         [](const auto& info) { return std::string(PathKindName(info.param)); });

}  // namespace
}  // namespace weft::test
