#include "transport/sockets/socket.h"

#include <fcntl.h>
#include <grp.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

#include "core/strings.h"
#include "gtest/gtest.h"
#include "transport/sockets/unix_listener.h"

namespace weft {
namespace {

int Option(int fd, int level, int option) {
  int value = -1;
  socklen_t length = sizeof(value);
  EXPECT_EQ(getsockopt(fd, level, option, &value, &length), 0);
  return value;
}

bool WaitFor(int fd, short events) {
  pollfd watch{fd, events, 0};
  return ::poll(&watch, 1, 10'000) == 1;
}

KernelAddress Only(const std::string& text) { return Resolve(*ParseServerAddress(text))->front(); }

bool IsNonBlockingAndClosedOnExec(int fd) {
  return (fcntl(fd, F_GETFL) & O_NONBLOCK) != 0 && (fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0;
}

// A folder of its own for the test's sockets.
class UnixListenerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    // Bazel's folder can be longer than the 107 bytes of a socket's path, and lie where not every
    // user may go.
    folder_ = "/tmp/weft_socket_XXXXXX";
    ASSERT_NE(mkdtemp(folder_.data()), nullptr);
    path_ = folder_ + "/server.sock";
  }
  void TearDown() override {
    ::unlink(path_.c_str());
    EXPECT_EQ(::rmdir(folder_.c_str()), 0) << "something was left in " << folder_;
  }

  bool Exists() const {
    struct stat facts {};
    return ::lstat(path_.c_str(), &facts) == 0;
  }

  // What a server that was killed leaves: a socket's file, and no socket.
  void LeaveStaleSocket() {
    const Descriptor dead(::socket(AF_UNIX, SOCK_STREAM, 0));
    const KernelAddress address = Only("unix:" + path_);
    ASSERT_EQ(::bind(dead.get(), address.get(), address.length), 0);
    ASSERT_EQ(::listen(dead.get(), 1), 0);
  }

  std::string folder_;
  std::string path_;
};

TEST(Socket, ConnectsOverBothInternetFamilies) {
  for (const std::string text : {"127.0.0.1:0", "[::1]:0"}) {
    const absl::StatusOr<Descriptor> listener = ListenInternet(Only(text));
    if (!listener.ok() && text[0] == '[') GTEST_SKIP() << "no IPv6 here: " << listener.status();
    ASSERT_TRUE(listener.ok()) << listener.status();
    const absl::StatusOr<KernelAddress> address = LocalAddress(listener->get());
    ASSERT_TRUE(address.ok());

    const absl::StatusOr<Descriptor> client = StartDial(*address);
    ASSERT_TRUE(client.ok()) << client.status();
    ASSERT_TRUE(WaitFor(client->get(), POLLOUT));
    EXPECT_TRUE(FinishDial(client->get(), *address).ok());

    ASSERT_TRUE(WaitFor(listener->get(), POLLIN));
    const absl::StatusOr<Descriptor> server = AcceptClient(listener->get());
    ASSERT_TRUE(server.ok() && server->valid());
    EXPECT_EQ(PeerAddressText(server->get()), LocalAddress(client->get())->text());

    for (const int fd : {listener->get(), client->get(), server->get()}) {
      EXPECT_TRUE(IsNonBlockingAndClosedOnExec(fd));
    }
    for (const int fd : {client->get(), server->get()}) {
      EXPECT_EQ(Option(fd, IPPROTO_TCP, TCP_NODELAY), 1);
      EXPECT_EQ(Option(fd, SOL_SOCKET, SO_KEEPALIVE), 1);
      EXPECT_EQ(Option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT), 10'000);
    }
    // The usual limit: probes after 1, 2 and 3 s.
    SetSilence(client->get(), 3'000'000'000);
    EXPECT_EQ(Option(client->get(), IPPROTO_TCP, TCP_KEEPIDLE), 1);
    EXPECT_EQ(Option(client->get(), IPPROTO_TCP, TCP_KEEPINTVL), 1);
    EXPECT_EQ(Option(client->get(), IPPROTO_TCP, TCP_KEEPCNT), 3);
    EXPECT_EQ(Option(client->get(), IPPROTO_TCP, TCP_USER_TIMEOUT), 3'000);
    // What no kernel can tell.
    SetSilence(client->get(), 100'000'000);
    EXPECT_EQ(Option(client->get(), IPPROTO_TCP, TCP_USER_TIMEOUT), 2'000);
  }
}

TEST(Socket, AHostIsTheSameByWhicheverSocketItComes) {
  constexpr uint64_t kNumberOfIPv6Loopback = 0;  // the first half of ::1
  const absl::StatusOr<Descriptor> both = ListenInternet(Only("[::]:0"));
  const absl::StatusOr<Descriptor> only_v4 = ListenInternet(Only("127.0.0.1:0"));
  if (!both.ok()) GTEST_SKIP() << "no IPv6 here: " << both.status();
  ASSERT_TRUE(only_v4.ok()) << only_v4.status();
  const auto host_seen = [](const Descriptor& listener, const std::string& host) {
    const auto at = ParseServerAddress(LocalAddress(listener.get())->text());
    const absl::StatusOr<Descriptor> client = StartDial(Only(StrCat(host, ":", at->port)));
    EXPECT_TRUE(client.ok()) << client.status();
    EXPECT_TRUE(WaitFor(listener.get(), POLLIN)) << host;
    const absl::StatusOr<Descriptor> server = AcceptClient(listener.get());
    EXPECT_TRUE(server.ok() && !PeerAddressText(server->get()).empty()) << host;
    return PeerHost(server->get());
  };
  EXPECT_EQ(host_seen(*only_v4, "127.0.0.1"), htonl(INADDR_LOOPBACK));
  EXPECT_EQ(host_seen(*both, "[::1]"), kNumberOfIPv6Loopback);
  if (Option(both->get(), IPPROTO_IPV6, IPV6_V6ONLY) != 0) GTEST_SKIP() << "no ::ffff:127.0.0.1";
  EXPECT_EQ(host_seen(*both, "127.0.0.1"), htonl(INADDR_LOOPBACK)) << "as ::ffff:127.0.0.1";
}

// A client could choose what it was known by: the name that it gave its own end, that of another
// process in the kernel's words for instance.
TEST_F(UnixListenerTest, AClientIsKnownByItsProcessWhateverItCallsItself) {
  const absl::StatusOr<std::unique_ptr<UnixListener>> listener = UnixListener::Open(path_);
  ASSERT_TRUE(listener.ok()) << listener.status();
  const KernelAddress server = Only("unix:" + path_);
  const KernelAddress claim = Only("unix:" + folder_ + "/another");
  for (const bool claims : {false, true}) {
    const Descriptor client(::socket(AF_UNIX, SOCK_STREAM, 0));
    if (claims) {
      ASSERT_EQ(::bind(client.get(), claim.get(), claim.length), 0);
    }
    ASSERT_EQ(::connect(client.get(), server.get(), server.length), 0);
    const absl::StatusOr<Descriptor> accepted = AcceptClient((*listener)->fd());
    ASSERT_TRUE(accepted.ok() && accepted->valid());
    EXPECT_EQ(PeerAddressText(accepted->get()),
              StrCat("unix:(process ", getpid(), " of user ", geteuid(), ")"));
    if (!claims) {
      EXPECT_EQ(PeerAddressText(client.get()), "unix:" + path_) << "the client dialed it";
    }
    EXPECT_NE(PeerHost(accepted->get()), 0u);
  }
  ASSERT_EQ(::unlink((folder_ + "/another").c_str()), 0);
}

// Of the server's umask: nothing of ours makes it wider.
TEST_F(UnixListenerTest, TheModeOfItsFileSaysWhoMayConnect) {
  constexpr uid_t kNobody = 65'534;
  constexpr int kCannotBeHim = -1;
  constexpr int kDoesNotComeSoFar = -2;
  ASSERT_EQ(::chmod(folder_.c_str(), 0755), 0);  // he comes as far as the file
  struct Case {
    mode_t umask;
    mode_t mode;
    int error;  // of another user's connect(2)
  };
  for (const Case& test : {Case{0077, 0700, EACCES}, Case{0002, 0775, EACCES}, Case{0, 0777, 0}}) {
    const mode_t before = ::umask(test.umask);
    const absl::StatusOr<std::unique_ptr<UnixListener>> listener = UnixListener::Open(path_);
    ::umask(before);
    ASSERT_TRUE(listener.ok()) << listener.status();
    struct stat facts {};
    ASSERT_EQ(::stat(path_.c_str(), &facts), 0);
    EXPECT_EQ(facts.st_mode & 0777, test.mode);
    const KernelAddress server = Only("unix:" + path_);
    int told[2];
    ASSERT_EQ(::pipe(told), 0);
    const Descriptor ends[] = {Descriptor(told[0]), Descriptor(told[1])};
    const pid_t stranger = ::fork();
    if (stranger == 0) {
      int error = kCannotBeHim;
      if (::setgroups(0, nullptr) == 0 && ::setresgid(kNobody, kNobody, kNobody) == 0 &&
          ::setresuid(kNobody, kNobody, kNobody) == 0) {
        const int client = ::socket(AF_UNIX, SOCK_STREAM, 0);
        error = ::connect(client, server.get(), server.length) == 0 ? 0 : errno;
        struct stat seen {};
        if (::stat(path_.c_str(), &seen) != 0) error = kDoesNotComeSoFar;
      }
      _exit(::write(told[1], &error, sizeof(error)) == sizeof(error) ? 0 : 1);
    }
    int error = 0;
    ASSERT_EQ(::read(told[0], &error, sizeof(error)), static_cast<ssize_t>(sizeof(error)));
    ::waitpid(stranger, nullptr, 0);
    if (error == kCannotBeHim) GTEST_SKIP() << "this process cannot start one of another user";
    if (error == kDoesNotComeSoFar) GTEST_SKIP() << "another user may not go to " << folder_;
    EXPECT_EQ(error, test.error) << "with umask " << test.umask;
  }
}

// A service manager's socket, say: whoever made the process start has come before it.
TEST(Socket, WhoCameBeforeTheListenerWasOursIsLookedAfterAsTheOthers) {
  const Descriptor made_by_others(::socket(AF_INET, SOCK_STREAM, 0));
  const KernelAddress any_port = Only("127.0.0.1:0");
  ASSERT_EQ(::bind(made_by_others.get(), any_port.get(), any_port.length), 0);
  ASSERT_EQ(::listen(made_by_others.get(), 8), 0);
  const KernelAddress address = *LocalAddress(made_by_others.get());
  const absl::StatusOr<Descriptor> before = StartDial(address);
  ASSERT_TRUE(before.ok() && WaitFor(made_by_others.get(), POLLIN));
  const absl::StatusOr<Descriptor> listener = DuplicateListener(made_by_others.get());
  ASSERT_TRUE(listener.ok()) << listener.status();
  const absl::StatusOr<Descriptor> after = StartDial(address);
  ASSERT_TRUE(after.ok());
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(WaitFor(listener->get(), POLLIN));
    const absl::StatusOr<Descriptor> server = AcceptClient(listener->get());
    ASSERT_TRUE(server.ok() && server->valid());
    EXPECT_EQ(Option(server->get(), IPPROTO_TCP, TCP_NODELAY), 1) << i;
    EXPECT_EQ(Option(server->get(), SOL_SOCKET, SO_KEEPALIVE), 1) << i;
    EXPECT_EQ(Option(server->get(), IPPROTO_TCP, TCP_KEEPIDLE), 3) << i;
    EXPECT_EQ(Option(server->get(), IPPROTO_TCP, TCP_USER_TIMEOUT), 10'000) << i;
  }
}

TEST(Socket, WhoHasHungUpHasLeftUnlessThereIsSomethingToBeRead) {
  const absl::StatusOr<Descriptor> listener = ListenInternet(Only("127.0.0.1:0"));
  ASSERT_TRUE(listener.ok());
  enum class How { kClosesItsHalf, kCloses, kResets };
  for (const How how : {How::kClosesItsHalf, How::kCloses, How::kResets}) {
    for (const bool speaks : {false, true}) {
      Descriptor client = *StartDial(*LocalAddress(listener->get()));
      ASSERT_TRUE(WaitFor(listener->get(), POLLIN));
      const Descriptor server = *AcceptClient(listener->get());
      EXPECT_FALSE(HasLeft(server.get()));
      if (speaks) {
        ASSERT_EQ(::send(client.get(), "hello", 5, MSG_NOSIGNAL), 5);
        ASSERT_TRUE(WaitFor(server.get(), POLLIN));
        EXPECT_FALSE(HasLeft(server.get()));
      }
      if (how == How::kResets) {
        const linger at_once = {1, 0};
        ASSERT_EQ(::setsockopt(client.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once)), 0);
      }
      if (how == How::kClosesItsHalf) {
        ASSERT_EQ(::shutdown(client.get(), SHUT_WR), 0);
      } else {
        client.Reset();
      }
      ASSERT_TRUE(WaitFor(server.get(), how == How::kResets ? POLLERR : POLLRDHUP));
      // What was said stays to be read, whatever the end.
      EXPECT_EQ(HasLeft(server.get()), !speaks)
          << "how " << static_cast<int>(how) << ", speaks " << speaks;
      if (!speaks) continue;
      char words[8];
      EXPECT_EQ(::recv(server.get(), words, sizeof(words), 0), 5) << "nothing was read of it";
      EXPECT_TRUE(HasLeft(server.get()));
    }
  }
}

TEST(Socket, NobodyWaitingIsNoError) {
  const absl::StatusOr<Descriptor> listener = ListenInternet(Only("127.0.0.1:0"));
  ASSERT_TRUE(listener.ok());
  const absl::StatusOr<Descriptor> none = AcceptClient(listener->get());
  ASSERT_TRUE(none.ok());
  EXPECT_FALSE(none->valid());
}

TEST(Socket, AMissingServerIsUnavailableAndNamed) {
  KernelAddress closed;
  {
    const absl::StatusOr<Descriptor> listener = ListenInternet(Only("127.0.0.1:0"));
    closed = *LocalAddress(listener->get());
  }
  const absl::StatusOr<Descriptor> client = StartDial(closed);
  absl::Status status = client.status();
  if (client.ok()) {
    ASSERT_TRUE(WaitFor(client->get(), POLLOUT));
    status = FinishDial(client->get(), closed);
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_NE(std::string(status.message()).find(closed.text()), std::string::npos) << status;
}

TEST(Socket, ATakenPortIsRefused) {
  const absl::StatusOr<Descriptor> first = ListenInternet(Only("127.0.0.1:0"));
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(ListenInternet(*LocalAddress(first->get())).status().code(),
            absl::StatusCode::kAlreadyExists);
}

TEST_F(UnixListenerTest, ListensAndRemovesItsFile) {
  {
    const absl::StatusOr<std::unique_ptr<UnixListener>> listener = UnixListener::Open(path_);
    ASSERT_TRUE(listener.ok()) << listener.status();
    EXPECT_TRUE(IsNonBlockingAndClosedOnExec((*listener)->fd()));
    const absl::StatusOr<Descriptor> client = StartDial(Only("unix:" + path_));
    EXPECT_TRUE(client.ok()) << client.status();
  }
  EXPECT_FALSE(Exists());
}

// A client attached a descriptor to its hello whose close waits: so did the server's engine, which
// had no use for it.
TEST_F(UnixListenerTest, TakesNoDescriptors) {
  constexpr int kPassRights = 83;  // SO_PASSRIGHTS
  int passes = 0;
  socklen_t length = sizeof(passes);
  const auto listener = UnixListener::Open(path_);
  ASSERT_TRUE(listener.ok()) << listener.status();
  if (::getsockopt((*listener)->fd(), SOL_SOCKET, kPassRights, &passes, &length) != 0) {
    GTEST_SKIP() << "this kernel cannot refuse them: Linux 6.16 can";
  }
  const Descriptor client = *StartDial(Only("unix:" + path_));
  const Descriptor server = *AcceptClient((*listener)->fd());
  for (const int from : {client.get(), server.get()}) {
    char byte = 'x';
    iovec part{&byte, 1};
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    EXPECT_EQ(::sendmsg(from, &header, MSG_NOSIGNAL), 1);
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    header.msg_control = control;
    header.msg_controllen = sizeof(control);
    cmsghdr* const rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(rights), &from, sizeof(int));
    EXPECT_EQ(::sendmsg(from, &header, MSG_NOSIGNAL), -1);
    EXPECT_EQ(errno, EPERM);
  }
}

TEST_F(UnixListenerTest, TakesOverWhatADeadServerLeft) {
  LeaveStaleSocket();
  ASSERT_TRUE(Exists());
  EXPECT_EQ(StartDial(Only("unix:" + path_)).status().code(), absl::StatusCode::kUnavailable);
  const absl::StatusOr<std::unique_ptr<UnixListener>> listener = UnixListener::Open(path_);
  ASSERT_TRUE(listener.ok()) << listener.status();
  EXPECT_TRUE(StartDial(Only("unix:" + path_)).ok());
}

TEST_F(UnixListenerTest, LeavesALivingServerAlone) {
  const absl::StatusOr<std::unique_ptr<UnixListener>> first = UnixListener::Open(path_);
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(UnixListener::Open(path_).status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_TRUE(StartDial(Only("unix:" + path_)).ok());
}

TEST_F(UnixListenerTest, NeverRemovesWhatIsNoSocket) {
  std::ofstream(path_) << "precious";
  EXPECT_EQ(UnixListener::Open(path_).status().code(), absl::StatusCode::kAlreadyExists);
  std::string content;
  std::ifstream(path_) >> content;
  EXPECT_EQ(content, "precious");
}

TEST_F(UnixListenerTest, DoesNotRemoveItsSuccessorsFile) {
  absl::StatusOr<std::unique_ptr<UnixListener>> first = UnixListener::Open(path_);
  ASSERT_TRUE(first.ok());
  // An administrator removed the file, and a second server took the name.
  ::unlink(path_.c_str());
  const absl::StatusOr<std::unique_ptr<UnixListener>> second = UnixListener::Open(path_);
  ASSERT_TRUE(second.ok()) << second.status();
  first->reset();
  EXPECT_TRUE(StartDial(Only("unix:" + path_)).ok());
}

TEST_F(UnixListenerTest, AMissingFolderIsNamed) {
  const absl::Status status = UnixListener::Open(folder_ + "/none/server.sock").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_NE(std::string(status.message()).find(folder_ + "/none"), std::string::npos) << status;
}

}  // namespace
}  // namespace weft
