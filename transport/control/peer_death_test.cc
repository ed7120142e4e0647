// Processes that are killed, and what the survivors notice.

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "transport/control/testing/network_world.h"

namespace weft {
namespace {

// Beside this test, in the test's runfiles.
constexpr char kPeerProgram[] = "transport/control/testing/network_peer";

// A process that echoes messages.
class Peer {
 public:
  explicit Peer(const std::string& address) {
    int input[2];
    int output[2];
    EXPECT_EQ(::pipe2(input, O_CLOEXEC), 0);
    EXPECT_EQ(::pipe2(output, O_CLOEXEC), 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, input[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, output[1], STDOUT_FILENO);
    std::string program = kPeerProgram;
    std::string argument = address;
    char* const arguments[] = {program.data(), argument.data(), nullptr};
    EXPECT_EQ(::posix_spawn(&pid_, kPeerProgram, &actions, nullptr, arguments, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    ::close(input[0]);
    ::close(output[1]);
    input_ = input[1];
    FILE* const said = ::fdopen(output[0], "r");
    char line[256] = "";
    EXPECT_NE(std::fgets(line, sizeof(line), said), nullptr) << "the peer did not start";
    address_ = line;
    if (!address_.empty()) address_.pop_back();
    std::fclose(said);
  }
  ~Peer() {
    ::close(input_);
    if (pid_ > 0) ::waitpid(pid_, nullptr, 0);
  }
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  const std::string& address() const { return address_; }
  void Signal(int signal) { ::kill(pid_, signal); }
  void Kill() {
    Signal(SIGKILL);
    ::waitpid(std::exchange(pid_, -1), nullptr, 0);
  }

 private:
  pid_t pid_ = -1;
  int input_ = -1;
  std::string address_;
};

class PeerDeathTest : public NetworkTest, public testing::WithParamInterface<PathKind> {
 protected:
  void SetUp() override {
    client_ = NewNetworkEngine();
    ASSERT_NE(client_, nullptr);
  }
  template <class Done>
  bool RunClient(Done done) {
    return RunEngines({client_.get()}, done);
  }
  NetworkEnd* Open(const Peer& peer) {
    NetworkEnd* const end = DialAt(peer.address(), Over({GetParam()}));
    EXPECT_TRUE(RunClient([&] { return end->opened() || end->closed(); }));
    EXPECT_TRUE(end->opened()) << end->why();
    return end;
  }
  void ExpectEcho(NetworkEnd* end) {
    const size_t before = end->received.size();
    ASSERT_TRUE(end->Send("are you there?"));
    ASSERT_TRUE(RunClient([&] { return end->received.size() > before || end->closed(); }));
    EXPECT_FALSE(end->closed()) << end->why();
  }
};

TEST_P(PeerDeathTest, TheSurvivorLearnsItAndItsOtherConnectionGoesOn) {
  Peer victim("127.0.0.1:0");
  Peer other("127.0.0.1:0");
  NetworkEnd* const dying = Open(victim);
  NetworkEnd* const living = Open(other);
  ExpectEcho(dying);
  ExpectEcho(living);
  victim.Kill();
  ASSERT_TRUE(RunClient([&] { return dying->closed(); }));
  EXPECT_EQ(dying->why().code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(std::string(dying->why().message()).find("peer process ended"), std::string::npos)
      << dying->why();
  EXPECT_FALSE(living->closed());
  ExpectEcho(living);
}

TEST_P(PeerDeathTest, ManyDeathsInARowLeaveTheSurvivorWell) {
  Peer other("127.0.0.1:0");
  NetworkEnd* const living = Open(other);
  for (int round = 0; round < 10; ++round) {
    Peer victim("127.0.0.1:0");
    NetworkEnd* const dying = Open(victim);
    ExpectEcho(dying);
    victim.Kill();
    ASSERT_TRUE(RunClient([&] { return dying->closed(); })) << "round " << round;
    ExpectEcho(living);
  }
}

TEST_P(PeerDeathTest, AnOrderlyEndIsToldApart) {
  auto peer = std::make_unique<Peer>("127.0.0.1:0");
  NetworkEnd* const end = Open(*peer);
  ExpectEcho(end);
  peer.reset();
  ASSERT_TRUE(RunClient([&] { return end->closed(); }));
  EXPECT_EQ(end->why(), absl::UnavailableError("peer closed: its engine ends"));
}

TEST_P(PeerDeathTest, AServerThatDiedWhileConnectingIsUnavailable) {
  Peer victim("127.0.0.1:0");
  // Stopped: the kernel takes the connection in, and nobody answers.
  victim.Signal(SIGSTOP);
  NetworkEnd* const end = DialAt(victim.address(), Over({GetParam()}));
  for (int turn = 0; turn < 1'000; ++turn) client_->Poll();
  EXPECT_FALSE(end->opened());
  victim.Kill();
  ASSERT_TRUE(RunClient([&] { return end->closed(); }));
  EXPECT_EQ(end->why().code(), absl::StatusCode::kUnavailable) << end->why();
}

INSTANTIATE_TEST_SUITE_P(Network, PeerDeathTest, testing::Values(PathKind::kShm, PathKind::kTcp),
                         [](const auto& info) { return std::string(PathKindName(info.param)); });

}  // namespace
}  // namespace weft
