// kv_server follows kv_server, as processes of their own, while clients put and get: no call fails,
// and what was put is there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "core/strings.h"
#include "examples/kv/kv.pb.h"
#include "examples/kv/kv.weft.h"
#include "examples/testing/server_process.h"
#include "transport/handover_socket.h"
#include "weft/channel.h"
#include "weft/path.h"

namespace kv {
namespace {

using examples::ServerProcess;
using ::testing::HasSubstr;

constexpr char kServer[] = "examples/kv/kv_server";
constexpr int kUpgrades = 3;
constexpr int kPatienceMs = 30'000;

// Puts and gets in turn, and knows what it has put.
class Client {
 public:
  Client(const std::string& address, weft::PathKind path, std::string name)
      : name_(std::move(name)) {
    weft::ChannelOptions options;
    options.link.paths = {path};
    options.link.peer_timeout_ns = 0;
    auto channel = weft::Channel::Open(address, options);
    EXPECT_TRUE(channel.ok()) << channel.status();
    channel_ = *std::move(channel);
    thread_ = std::thread([this] { Run(); });
  }
  ~Client() { Join(); }
  void Join() {
    stop = true;
    if (thread_.joinable()) thread_.join();
  }

  std::atomic<uint64_t> puts = 0;
  std::atomic<bool> failed = false;
  std::atomic<bool> stop = false;

 private:
  void Expect(const absl::Status& status) {
    EXPECT_TRUE(status.ok()) << name_ << ", after " << puts << " puts: " << status;
    if (!status.ok()) failed = true;
  }
  void Run() {
    Kv::Stub stub(*channel_);
    while (!stop && !failed) {
      PutRequest put;
      put.set_key(weft::StrCat(name_, "/", puts.load()));
      put.add_fields()->set_value(weft::StrCat("value ", puts.load()));
      PutReply put_reply;
      Expect(stub.Put(put, &put_reply));
      if (failed) return;
      Get(stub, puts * 7919 % (puts + 1));
      ++puts;
    }
    for (uint64_t number = 0; number < puts && !failed; ++number) Get(stub, number);
  }
  void Get(const Kv::Stub& stub, uint64_t number) {
    GetRequest get;
    get.set_key(weft::StrCat(name_, "/", number));
    GetReply reply;
    Expect(stub.Get(get, &reply));
    if (failed) return;
    ASSERT_EQ(reply.fields_size(), 1);
    EXPECT_EQ(reply.fields(0).value(), weft::StrCat("value ", number));
  }

  const std::string name_;
  std::unique_ptr<weft::Channel> channel_;
  std::thread thread_;
};

class UpgradeTest : public testing::Test {
 protected:
  UpgradeTest() {
    folder_ = "/tmp/kv-upgrade-XXXXXX";
    EXPECT_NE(::mkdtemp(folder_.data()), nullptr);
    path_ = folder_ + "/upgrade";
  }
  ~UpgradeTest() override {
    ::unlink((path_ + ".records").c_str());
    EXPECT_EQ(::rmdir(folder_.c_str()), 0) << "a file was left behind in " << folder_;
  }
  std::unique_ptr<ServerProcess> Start() const {
    return std::make_unique<ServerProcess>(
        std::vector<std::string>{kServer, "--paths=shm,tcp", "--index_mib=0", "--spin_us=0",
                                 "--handover=" + path_, "--handover_grace_ms=60000"});
  }
  // A process that takes the listener, and is killed before it is ready.
  void StartOneThatIsKilled() const {
    const pid_t killed = ::fork();
    if (killed == 0) {
      const absl::StatusOr<weft::Descriptor> old = weft::ConnectToPredecessor(path_);
      const bool taken = old.ok() && old->valid() &&
                         weft::SendHandover(old->get(), "hello 1").ok() &&
                         weft::ReceiveHandover(old->get(), kPatienceMs).ok() &&
                         weft::SendHandover(old->get(), "take 127.0.0.1:0").ok() &&
                         weft::ReceiveHandover(old->get(), kPatienceMs)->descriptor.valid();
      if (taken) ::raise(SIGKILL);
      _exit(1);
    }
    int status = 0;
    ::waitpid(killed, &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status)) << "it could not take the listener";
  }

  std::string folder_;
  std::string path_;
};

TEST_F(UpgradeTest, NoCallFailsAndEveryRecordIsThere) {
  std::unique_ptr<ServerProcess> server = Start();
  const std::string address = server->address();
  std::vector<std::unique_ptr<Client>> clients;
  for (const weft::PathKind path : {weft::PathKind::kShm, weft::PathKind::kTcp}) {
    for (int i = 0; i < 2; ++i) {
      clients.push_back(std::make_unique<Client>(
          address, path, weft::StrCat(weft::PathKindName(path), " client ", i)));
    }
  }
  const auto await_progress = [&] {
    for (const auto& client : clients) {
      const uint64_t until = client->puts + 20;
      while (client->puts < until && !client->failed) std::this_thread::yield();
    }
  };
  for (int i = 0; i < kUpgrades; ++i) {
    await_progress();
    if (i == 1) {
      StartOneThatIsKilled();
      await_progress();
    }
    std::unique_ptr<ServerProcess> next = Start();
    EXPECT_EQ(next->address(), address);
    EXPECT_EQ(server->Wait(), 0);
    EXPECT_THAT(server->output(), HasSubstr("stopping on a handover"));
    EXPECT_THAT(server->output(), HasSubstr("0 failed, 0 refused; 0 broken connections"));
    server = std::move(next);
  }
  await_progress();
  for (const auto& client : clients) client->stop = true;
  for (const auto& client : clients) client->Join();
  for (const auto& client : clients) EXPECT_FALSE(client->failed);
  server->Stop();
}

}  // namespace
}  // namespace kv
