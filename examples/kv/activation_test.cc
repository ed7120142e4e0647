// kv_server with sockets that it did not open: as systemd starts it (sd_listen_fds(3)).
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/strings.h"
#include "examples/kv/kv.pb.h"
#include "examples/kv/kv.weft.h"
#include "examples/testing/child_process.h"
#include "examples/testing/server_process.h"
#include "transport/descriptor.h"
#include "weft/channel.h"
#include "weft/path.h"

namespace kv {
namespace {

using examples::Finished;
using examples::ServerProcess;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr char kServer[] = "examples/kv/kv_server";
constexpr int kPatienceMs = 60'000;

// The service manager's, which stays open here whatever becomes of the servers. Not closed on exec.
weft::Descriptor ListenAtAnyPort(std::string* address) {
  weft::Descriptor socket(::socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(at);
  EXPECT_EQ(::bind(socket.get(), reinterpret_cast<const sockaddr*>(&at), length), 0);
  EXPECT_EQ(::listen(socket.get(), 16), 0);
  EXPECT_EQ(::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&at), &length), 0);
  *address = weft::StrCat("127.0.0.1:", ntohs(at.sin_port));
  return socket;
}

sockaddr_un AtPath(const std::string& path) {
  sockaddr_un at{};
  at.sun_family = AF_UNIX;
  EXPECT_LT(path.size(), sizeof(at.sun_path));
  std::memcpy(at.sun_path, path.data(), path.size());
  return at;
}

weft::Descriptor BindAtPath(const std::string& path, int type) {
  weft::Descriptor socket(::socket(AF_UNIX, type, 0));
  const sockaddr_un at = AtPath(path);
  EXPECT_EQ(::bind(socket.get(), reinterpret_cast<const sockaddr*>(&at), sizeof(at)), 0);
  return socket;
}

weft::Descriptor ListenAtPath(const std::string& path) {
  weft::Descriptor socket = BindAtPath(path, SOCK_STREAM);
  EXPECT_EQ(::listen(socket.get(), 16), 0);
  return socket;
}

std::vector<std::string> Server(const std::vector<std::string>& flags) {
  std::vector<std::string> argv = {kServer, "--listen=systemd:kv", "--paths=tcp", "--index_mib=0",
                                   "--spin_us=0"};
  argv.insert(argv.end(), flags.begin(), flags.end());
  return argv;
}

// The same with `socket` as descriptor 3, and variables that say so, before `more` of the shell's.
std::vector<std::string> ActivatedServer(const weft::Descriptor& socket,
                                         const std::vector<std::string>& flags = {},
                                         const std::string& more = "") {
  std::vector<std::string> argv = {
      "/bin/bash", "-c",
      weft::StrCat("export LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES=kv; ", more,
                   " exec \"$@\" 3<&", socket.get(), " 2>&1"),
      "bash"};
  for (const std::string& word : Server(flags)) argv.push_back(word);
  return argv;
}

// Where a service manager hears of its services (sd_notify(3)).
class NotifySocket {
 public:
  explicit NotifySocket(const std::string& path)
      : path_(path), socket_(BindAtPath(path, SOCK_DGRAM)) {
    const timeval patience = {kPatienceMs / 1000, 0};
    EXPECT_EQ(::setsockopt(socket_.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)), 0);
  }
  ~NotifySocket() { EXPECT_EQ(::unlink(path_.c_str()), 0); }

  // For a shell that is about to become the service.
  std::string Export() const { return weft::StrCat("export NOTIFY_SOCKET=", path_, ";"); }
  // The next words; "": nobody said any.
  std::string Hear() const {
    std::array<char, 200> text{};
    const ssize_t bytes = ::recv(socket_.get(), text.data(), text.size(), 0);
    return std::string(text.data(), bytes > 0 ? static_cast<size_t>(bytes) : 0);
  }
  // Something was said that nobody has heard.
  bool HasSomething() const {
    char first = 0;
    return ::recv(socket_.get(), &first, 1, MSG_PEEK | MSG_DONTWAIT) >= 0;
  }

 private:
  const std::string path_;
  const weft::Descriptor socket_;
};

std::string ReadyText(const ServerProcess& server) {
  return weft::StrCat("READY=1\nMAINPID=", server.pid());
}

bool IsRunning(const ServerProcess& server) {
  siginfo_t ended{};
  EXPECT_EQ(::waitid(P_PID, static_cast<id_t>(server.pid()), &ended, WEXITED | WNOHANG | WNOWAIT),
            0);
  return ended.si_pid == 0;
}

std::unique_ptr<weft::Channel> Open(const std::string& address) {
  weft::ChannelOptions options;
  options.link.paths = {weft::PathKind::kTcp};
  options.link.peer_timeout_ns = 0;
  options.link.connect_timeout_ns = uint64_t{kPatienceMs} * 1'000'000;
  auto channel = weft::Channel::Open(address, options);
  EXPECT_TRUE(channel.ok()) << channel.status();
  return channel.ok() ? *std::move(channel) : nullptr;
}

void PutAndGet(weft::Channel& channel) {
  Kv::Stub stub(channel);
  PutRequest put;
  put.set_key("key");
  put.add_fields()->set_value("value");
  PutReply put_reply;
  EXPECT_EQ(stub.Put(put, &put_reply), absl::OkStatus());
  GetRequest get;
  get.set_key("key");
  GetReply reply;
  EXPECT_EQ(stub.Get(get, &reply), absl::OkStatus());
  ASSERT_EQ(reply.fields_size(), 1);
  EXPECT_EQ(reply.fields(0).value(), "value");
}

class ActivationTest : public testing::Test {
 protected:
  ActivationTest() {
    folder_ = "/tmp/kv-activation-XXXXXX";
    EXPECT_NE(::mkdtemp(folder_.data()), nullptr);
  }
  ~ActivationTest() override {
    EXPECT_EQ(::rmdir(folder_.c_str()), 0) << "a file was left behind in " << folder_;
  }
  static bool Exists(const std::string& path) {
    struct stat facts {};
    return ::lstat(path.c_str(), &facts) == 0;
  }

  std::string folder_;
};

TEST_F(ActivationTest, AClientThatComesBeforeTheServerIsServedAndSoAfterARestart) {
  std::string address;
  const weft::Descriptor socket = ListenAtAnyPort(&address);
  for (int starts = 0; starts < 2; ++starts) {
    std::thread client([&] {
      const std::unique_ptr<weft::Channel> channel = Open(address);
      if (channel != nullptr) PutAndGet(*channel);
    });
    pollfd waits{socket.get(), POLLIN, 0};
    EXPECT_EQ(::poll(&waits, 1, kPatienceMs), 1) << "nobody came";
    ServerProcess server(ActivatedServer(socket));
    EXPECT_EQ(server.address(), address);
    client.join();
    server.Stop();
  }
}

TEST_F(ActivationTest, TheFileOfAUnixSocketIsTheManagersAlsoAfterAHandover) {
  const std::string path = folder_ + "/kv";
  const weft::Descriptor socket = ListenAtPath(path);
  const std::string handover = weft::StrCat("--handover=", folder_, "/upgrade");
  {
    ServerProcess first(ActivatedServer(socket, {handover}));
    EXPECT_EQ(first.address(), "unix:" + path);
    std::unique_ptr<weft::Channel> channel = Open(first.address());
    ASSERT_NE(channel, nullptr);
    PutAndGet(*channel);
    channel.reset();
    // It is started by somebody else, and has the socket from the first one.
    ServerProcess second(Server({handover}));
    EXPECT_EQ(second.address(), "unix:" + path);
    EXPECT_EQ(first.Wait(), 0);
    EXPECT_THAT(first.output(), HasSubstr("stopping on a handover"));
    EXPECT_TRUE(Exists(path));
    channel = Open(second.address());
    ASSERT_NE(channel, nullptr);
    PutAndGet(*channel);
    channel.reset();
    second.Stop();
  }
  EXPECT_TRUE(Exists(path));
  EXPECT_EQ(::unlink(path.c_str()), 0);
  ::unlink((folder_ + "/upgrade.records").c_str());
}

TEST_F(ActivationTest, TheManagerHearsWhenTheServerServesAndWhenItStops) {
  const NotifySocket manager(folder_ + "/notify");
  std::string address;
  const weft::Descriptor socket = ListenAtAnyPort(&address);
  ServerProcess server(ActivatedServer(socket, {}, manager.Export()));
  EXPECT_EQ(manager.Hear(), ReadyText(server));
  server.Stop();
  EXPECT_EQ(manager.Hear(), "STOPPING=1");
}

// It takes the service for ended when the process that it knows of ends.
TEST_F(ActivationTest, TheManagerHearsOfTheNextProcessWhileTheOneBeforeStillHasClients) {
  const NotifySocket manager(folder_ + "/notify");
  std::string address;
  const weft::Descriptor socket = ListenAtAnyPort(&address);
  const std::vector<std::string> flags = {weft::StrCat("--handover=", folder_, "/upgrade"),
                                          "--handover_grace_ms=3600000"};
  {
    ServerProcess first(ActivatedServer(socket, flags, manager.Export()));
    EXPECT_EQ(manager.Hear(), ReadyText(first));
    // Nobody drives it from here on, so it does not hear that it is to move.
    std::unique_ptr<weft::Channel> stays = Open(address);
    ASSERT_NE(stays, nullptr);
    PutAndGet(*stays);
    std::vector<std::string> argv = {"/bin/bash", "-c", manager.Export() + " exec \"$@\" 2>&1",
                                     "bash"};
    for (const std::string& word : Server(flags)) argv.push_back(word);
    ServerProcess second(argv);
    EXPECT_EQ(second.address(), address);
    EXPECT_EQ(manager.Hear(), ReadyText(second));
    EXPECT_TRUE(IsRunning(first));
    stays.reset();
    EXPECT_EQ(first.Wait(), 0);
    EXPECT_THAT(first.output(), HasSubstr("stopping on a handover"));
    const std::unique_ptr<weft::Channel> channel = Open(address);
    ASSERT_NE(channel, nullptr);
    PutAndGet(*channel);  // waits until the second has the records
    EXPECT_FALSE(manager.HasSomething()) << "the first one, which has ended, said that all stops";
    second.Stop();
  }
  EXPECT_EQ(manager.Hear(), "STOPPING=1");
  ::unlink((folder_ + "/upgrade.records").c_str());
}

TEST_F(ActivationTest, WhatIsNoSocketForItIsSaidInWords) {
  std::string address;
  const weft::Descriptor socket = ListenAtAnyPort(&address);
  const weft::Descriptor silent(::socket(AF_INET, SOCK_STREAM, 0));
  const struct {
    std::vector<std::string> argv;
    const char* words;
  } cases[] = {
      {ActivatedServer(silent), "descriptor 3 is no stream socket that listens"},
      {ActivatedServer(socket, {}, "LISTEN_PID=1;"), "LISTEN_PID is 1, and this is process"},
      {ActivatedServer(socket, {}, "LISTEN_FDNAMES=other;"),
       "no socket of this name, but \"other\""},
      {ActivatedServer(socket, {}, "unset LISTEN_FDS;"), "has given this process no socket"},
  };
  for (const auto& wrong : cases) {
    const Finished server = examples::RunToEnd(wrong.argv);
    EXPECT_EQ(server.status, 1);
    EXPECT_THAT(server.output, StartsWith("kv_server: "));
    EXPECT_THAT(server.output, HasSubstr("listen on systemd:kv: "));
    EXPECT_THAT(server.output, HasSubstr(wrong.words));
  }
}

TEST_F(ActivationTest, ANameWithoutAFileIsNoPlaceForClients) {
  weft::Descriptor socket(::socket(AF_UNIX, SOCK_STREAM, 0));
  sockaddr_un at{};
  at.sun_family = AF_UNIX;
  // The kernel chooses a name without a file.
  ASSERT_EQ(::bind(socket.get(), reinterpret_cast<const sockaddr*>(&at), sizeof(sa_family_t)), 0);
  ASSERT_EQ(::listen(socket.get(), 1), 0);
  const Finished server = examples::RunToEnd(ActivatedServer(socket));
  EXPECT_EQ(server.status, 1);
  EXPECT_THAT(server.output, HasSubstr("where no client of Weft's can come"));
}

}  // namespace
}  // namespace kv
